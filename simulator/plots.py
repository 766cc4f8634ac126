"""Pictures of a run: ``(run, ax=None) -> Axes``. The only matplotlib import.

No pyplot, no rcParams, no backend: a picture without ``ax`` is drawn on a Figure of its own
(``ax.figure.savefig(...)``), so nothing global changes and no display is needed.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Protocol

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from allocators.base import InputError, one_of
from simulator.trace import Trace
from simulator.views import COLORS, VIEWS, lightness, view_colors, view_shares

_INK, _THIN_INK = "#222222", "#777777"
_FONT_PT, _SMALL_PT, _LEAST_PT = 9.0, 7.5, 5.0
_LETTER_EM = 0.63  # width of a letter of matplotlib's own font, with some to spare
_LINE_EM = 1.25
_INDENT_PT = 13.0  # of a category's name, behind its colour
_ASIDE_PT = 9.0  # from a bar to the numbers beside it
_LEAST_PERCENT = 0.05  # what is less would be written 0.0


_ARRIVALS, _LENGTHS = "#4477aa", ("#cc6677", "#4477aa")


class Pictured(Protocol):
    """What a picture needs of a :class:`simulator.Run`; any object with these names can be drawn."""

    @property
    def name(self) -> str: ...
    @property
    def capacity(self) -> int: ...
    @property
    def timeline(self) -> pd.DataFrame: ...
    def summary(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class _Bar:
    label: str
    tick: float
    x: float
    width: float
    percent: Mapping[str, float]
    is_reference: bool = False
    aside: int = 1
    """Where numbers stand that are too tall for their segment: 1 right of the bar, -1 left of it."""

    def edge(self, side: int) -> float:
        return self.x + side * self.width / 2


def waste_bars(
    runs: Iterable[Pictured],
    view: str = "ledger",
    ax: Axes | None = None,
    reference: Mapping[str, Mapping[str, float]] | None = None,
    reference_name: str = "reference",
) -> Axes:
    """Where the pool went: a bar a run, stacked to 100 % of pool x time, with the parts as ``view`` has them.

    ``reference`` holds numbers from elsewhere, label -> the view's names -> percent. They are drawn paler and
    hatched with ``reference_name`` above, beside the run of that name or else behind all runs. Numbers that
    would be too small to read are left out. Raises InputError for an unknown view, an unknown name in
    ``reference``, and when there is nothing to draw.
    """
    colors = view_colors(view)
    bars = _arranged(list(runs), view, dict(reference or {}))
    ticks = {bar.tick: bar.label for bar in bars}
    longest = max(len(part) for label in ticks.values() for part in _parts(label))
    tick_in = min(1.6, max(1.0, longest * _LETTER_EM * _FONT_PT / 72))
    ax = _settled(ax or _own_axes(2.6 + tick_in * (bars[-1].edge(1) + 0.5), 4.8))
    ax.set_ylim(0, 107 if reference else 100)
    ax.set_yticks(range(0, 101, 20))
    ax.set_ylabel("share of the KV-cache pool (%)", color=_INK)
    shown = [name for name in colors if any(bar.percent.get(name, 0) >= _LEAST_PERCENT for bar in bars)]
    column = bars[-1].edge(1) + 0.36
    _make_room(ax, bars[0].edge(-1) - 0.36, column, shown)
    ax.spines["left"].set_bounds(0, 100)
    ax.spines["bottom"].set_bounds(ax.get_xlim()[0], bars[-1].edge(1))

    pitch_pt = 0.96 * _points_per_unit(ax)[0] * min(np.diff(list(ticks)), default=1.0)
    font = max(_LEAST_PT, min(_FONT_PT, pitch_pt / (_LETTER_EM * min(longest, 15))))
    labels = [_wrapped(label, int(pitch_pt / (_LETTER_EM * font))) for label in ticks.values()]
    ax.set_xticks(list(ticks), labels, fontsize=font)
    ax.tick_params(axis="x", length=0)
    _settled(ax)
    for bar in bars:
        _draw_bar(ax, bar, colors)
        note = reference_name if bar.is_reference else "" if bar.percent else "nothing ran"
        ax.text(bar.x, 101 if bar.is_reference else 1, note, ha="center", va="bottom", fontsize=8, style="italic")
    beside = next((bar for bar in reversed(bars) if bar.percent), bars[-1]).percent
    edges = np.cumsum([0.0, *(beside.get(name, 0.0) for name in colors)])
    middles = dict(zip(colors, (edges[1:] + edges[:-1]) / 2, strict=True))
    _draw_labels(ax, column, {name: (middles[name], colors[name]) for name in shown}, top=100)
    return ax


def waste_over_time(run: Pictured, ax: Axes | None = None) -> Axes:
    """The ledger's categories over the run, stacked: mean slots in each time bin of ``run.timeline``.

    Raises InputError when the run covers no time.
    """
    bins = run.timeline
    start, end = float(bins["start_s"].min()), float(bins["end_s"].max())
    if not end > start:
        raise InputError(f"run {run.name!r} covers no time; a timeline needs some")
    ax = _settled(ax or _own_axes(9.0, 4.2))
    edges = np.append(bins["start_s"].to_numpy(float), end)
    slots = bins[list(COLORS)].to_numpy(float)
    # A step holds from its edge to the next, so the last bin is repeated at the last edge.
    levels = np.cumsum(np.column_stack([np.zeros(len(edges)), np.vstack([slots, slots[-1:]])]), axis=1)
    for i, (name, color) in enumerate(COLORS.items()):
        low, high = levels[:, i], levels[:, i + 1]
        ax.fill_between(edges, low, high, step="post", color=color, linewidth=0, label=name)

    shown = [i for i, total in enumerate(slots.sum(axis=0)) if 100 * total >= _LEAST_PERCENT * slots.sum()]
    names = [list(COLORS)[i] for i in shown]
    column = end + 0.02 * (end - start)
    ax.set_ylim(0, run.capacity)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.set_ylabel(f"token slots (pool: {run.capacity:,})", color=_INK)
    _make_room(ax, start, column, names)
    # Axis, ticks and name end where the run does: behind it stand the labels.
    ax.spines["bottom"].set_bounds(start, end)
    ticks = [tick for tick in MaxNLocator(8).tick_values(start, end) if start <= tick <= end]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.set_xlabel("time (s)", color=_INK, x=(end - start) / 2 / float(np.diff(ax.get_xlim())[0]))
    chars = int(ax.bbox.width * 72 / ax.figure.dpi / (_LETTER_EM * _FONT_PT))
    ax.set_title(_wrapped(run.name, chars), loc="left", fontsize=_FONT_PT, color=_INK)
    _settled(ax)
    middles = (levels[:-1, :-1] + levels[:-1, 1:]).mean(axis=0) / 2
    labels = {name: (float(middles[i]), COLORS[name]) for i, name in zip(shown, names, strict=True)}
    _draw_labels(ax, column, labels, top=run.capacity)
    return ax


def drawn(ax: Axes, kind: str) -> bytes:
    """The picture as a file, ``png``, ``svg`` or ``pdf``: without a date or random ids, so always the same bytes."""
    metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    file = BytesIO()
    with rc_context({"svg.hashsalt": "kvfrag"}):
        ax.figure.canvas.figure.savefig(file, format=kind, dpi=150, bbox_inches="tight", metadata=metadata)
    return file.getvalue()


def _arranged(runs: Sequence[Pictured], view: str, reference: dict[str, Mapping[str, float]]) -> list[_Bar]:
    """The bars from left to right; a run and its reference share a place, and places are wider then."""
    for label, percent in reference.items():
        for name in percent:
            one_of(f"name in reference {label!r}", name, list(VIEWS[view]))
    pitch = 1.25 if any(run.name in reference for run in runs) else 1.0
    bars: list[_Bar] = []
    for i, run in enumerate(runs):
        share, tick = run.summary()["share"], i * pitch
        percent = {} if share is None else {k: 100 * v for k, v in view_shares(share, view).items()}
        paired = reference.pop(run.name, None)
        if paired is None:
            bars.append(_Bar(run.name, tick, tick, 0.58, percent))
        else:
            bars.append(_Bar(run.name, tick, tick - 0.2, 0.38, percent, aside=-1))
            bars.append(_Bar(run.name, tick, tick + 0.2, 0.38, paired, is_reference=True))
    for i, (label, percent) in enumerate(reference.items(), start=len(runs)):
        bars.append(_Bar(label, i * pitch, i * pitch, 0.58, percent, is_reference=True))
    if not bars:
        raise InputError("runs(=[]) must hold at least one run")
    return bars


def _draw_bar(ax: Axes, bar: _Bar, colors: Mapping[str, str]) -> None:
    """The segments of a bar with their numbers: inside where they fit, else beside it with a thin line."""
    x_pt, y_pt = _points_per_unit(ax)
    font = min(_FONT_PT, bar.width * x_pt / (4 * _LETTER_EM))
    aside: list[tuple[float, str]] = []
    bottom = 0.0
    for name, color in colors.items():
        height = bar.percent.get(name, 0.0)
        fill, edge, hatch = to_rgb(color), to_rgb("white"), ""
        if bar.is_reference:
            fill, edge, hatch = _paler(color, 0.6), _paler(color, 0.25), "///"
        look: dict[str, Any] = {"color": fill, "edgecolor": edge, "hatch": hatch, "linewidth": 0.5}
        ax.bar(bar.x, height, bar.width, bottom, label=name, **look)
        middle, text = bottom + height / 2, f"{height:.1f}"
        bottom += height
        if height * y_pt < font * _LINE_EM:
            if height >= _LEAST_PERCENT:
                aside.append((middle, text))
        elif font >= _LEAST_PT:
            ink = "white" if lightness(color) < 58 and not bar.is_reference else _INK
            patch = {"facecolor": fill, "edgecolor": "none", "pad": 1.0} if hatch else None
            ax.text(bar.x, middle, text, ha="center", va="center", fontsize=font, color=ink, bbox=patch)

    # Behind each bar a third of a unit is free for them.
    font = min(_SMALL_PT, font, (0.36 * x_pt - _ASIDE_PT) / (3.5 * _LETTER_EM))
    if font < _LEAST_PT:
        return
    half = font * _LINE_EM / y_pt / 2
    places = spread([middle for middle, _ in aside], 2 * half, half, 100 - half)
    side, near_end = ("left", 0) if bar.aside > 0 else ("right", 1)
    line = {"arrowstyle": "-", "linewidth": 0.5, "color": _THIN_INK, "shrinkA": 1, "shrinkB": 0}
    line["relpos"] = (near_end, 0.5)
    for (middle, text), y in zip(aside, places, strict=True):
        start = (bar.edge(bar.aside), middle)
        end = (bar.edge(bar.aside) + bar.aside * _ASIDE_PT / x_pt, y)
        ax.annotate(text, start, end, ha=side, va="center", fontsize=font, color=_INK, arrowprops=line)


def _draw_labels(ax: Axes, x: float, wanted: Mapping[str, tuple[float, str]], top: float) -> None:
    """Each category's name and colour in stack order, as near as can be to the height it is wanted at."""
    x_pt, y_pt = _points_per_unit(ax)
    half = _FONT_PT * 1.5 / y_pt / 2
    places = spread([y for y, _ in wanted.values()], 2 * half, half, top - half)
    for y, (name, (_, color)) in zip(places, wanted.items(), strict=True):
        swatch: dict[str, Any] = {"markerfacecolor": color, "markeredgecolor": _THIN_INK, "markeredgewidth": 0.5}
        ax.plot(x + 5 / x_pt, y, "s", markersize=8, **swatch)
        ax.text(x + _INDENT_PT / x_pt, y, name, va="center", fontsize=_FONT_PT, color=_INK)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions near the ``wanted`` ones (ascending) at least ``gap`` apart within ``low .. high``.

    Where they cannot all have their gap they share what there is equally.
    """
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    placed: list[float] = []
    for position in wanted:
        placed.append(max(position, placed[-1] + gap if placed else low))
    ceiling = high
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - gap
    return placed


def _paler(color: str, part: float) -> tuple[float, float, float]:
    """A colour mixed with ``part`` of white."""
    red, green, blue = ((1 - part) * level + part for level in to_rgb(color))
    return red, green, blue


def _make_room(ax: Axes, left: float, column: float, labels: Sequence[str]) -> None:
    """A frame of two lines, and x limits that leave room for ``labels`` behind ``column``."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=_FONT_PT, color=_INK, labelcolor=_INK)
    width = ax.bbox.width * 72 / ax.figure.dpi
    longest = max(map(len, labels), default=0)
    needed = min(0.7 * width, _INDENT_PT + _LETTER_EM * _FONT_PT * longest)
    ax.set_xlim(left, (column * width - left * needed) / (width - needed))


def _points_per_unit(ax: Axes) -> tuple[float, float]:
    """Typographic points to one unit of x and of y."""
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    scale = 72 / ax.figure.dpi
    return ax.bbox.width * scale / (right - left), ax.bbox.height * scale / (high - low)


def _parts(label: str) -> list[str]:
    """A label cut where a line may end: behind a colon, a comma, a space, and a dot that no digit follows."""
    return re.split(r"(?<=[:, ])|(?<=\.)(?!\d)", label)


def _wrapped(label: str, chars: int) -> str:
    """The label in lines of at most ``chars``, as far as its parts are not longer; those break behind '='."""
    lines = [""]
    for part in _parts(label):
        pieces = [part] if len(part.rstrip()) <= chars else re.split(r"(?<==)", part)
        for piece in pieces:
            if lines[-1] and len(lines[-1] + piece.rstrip()) > chars:
                lines.append("")
            lines[-1] += piece
    return "\n".join(line.strip() for line in lines)


def _own_axes(width_in: float, height_in: float) -> Axes:
    """Axes of a new Figure that belongs to no window and no pyplot."""
    return Figure(figsize=(width_in, height_in), layout="constrained").subplots()


def _settled(ax: Axes) -> Axes:
    """``ax``, once its figure's layout has given it the size that numbers and labels are fitted to."""
    ax.figure.canvas.figure.draw_without_rendering()
    return ax


def trace_overview(trace: Trace) -> Axes:
    """A small picture of a trace: how many requests arrive when, and how long they are. The axes of the arrivals."""
    left, right = Figure(figsize=(9.0, 3.2), layout="constrained").subplots(1, 2)
    arrivals_over_time(trace, left)
    length_distributions(trace, right)
    return _settled(left)


def arrivals_over_time(trace: Trace, ax: Axes | None = None, bins: int = 120) -> Axes:
    """Requests a second, in equal time bins, no more than requests; all at once, they are shown as one of a second."""
    ax = ax or _own_axes(5.0, 3.2)
    span_s, bins = (trace.duration_s, min(bins, len(trace))) if trace.duration_s else (1.0, 1)
    counts, edges = np.histogram(trace.arrival_ns / 1e9, bins, (0, span_s))
    ax.stairs(counts / (span_s / bins), edges, fill=True, color=_ARRIVALS)
    ax.set(xlabel="time (s)", ylabel="requests a second", xlim=(0, span_s), ylim=(0, None))
    return _plain(ax)


def length_distributions(trace: Trace, ax: Axes | None = None) -> Axes:
    """The share of requests with at most so many tokens, of prompts and of outputs."""
    ax = ax or _own_axes(4.0, 3.2)
    share = np.linspace(0, 100, 401)
    for name, tokens, color in zip(
        ("prompt", "output"), (trace.prompt_tokens, trace.output_tokens), _LENGTHS[::-1], strict=True
    ):
        ax.step(np.percentile(tokens, share, method="inverted_cdf"), share, where="post", color=color, label=name)
    ax.set(xscale="log", xlabel="tokens", ylabel="requests with at most so many (%)", ylim=(0, 100))
    ax.legend(frameon=False, fontsize=_FONT_PT)
    return _plain(ax)


def _plain(ax: Axes) -> Axes:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=_FONT_PT, color=_INK, labelcolor=_INK)
    return ax
