"""Where the pool went: a stacked bar a run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from allocators.base import InputError, one_of
from simulator.messages.showing import labels
from simulator.plots.checks import several
from simulator.plots.style import (
    FONT_PT,
    INK,
    LEAST_PERCENT,
    LEAST_PT,
    LETTER_EM,
    LINE_EM,
    SMALL_PT,
    THIN_INK,
    Pictured,
    draw_labels,
    make_room,
    own_axes,
    paler,
    parts,
    points_per_unit,
    settled,
    spread,
    wrapped_apart,
)
from simulator.results.views import VIEWS, lightness, view_colors, view_shares

_ASIDE_PT = 9.0  # from a bar to the numbers beside it


@dataclass(frozen=True)
class Bar:
    """A stack: where it stands, and how high each of its segments is."""

    label: str
    tick: float
    x: float
    width: float
    heights: Mapping[str, float]
    is_reference: bool = False
    aside: int = 1
    """Where numbers stand that are too tall for their segment: 1 right of the bar, -1 left of it."""

    def edge(self, side: int) -> float:
        return self.x + side * self.width / 2


def waste_bars(
    runs: Pictured | Iterable[Pictured],
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
    bars = _arranged(several(runs, "summary"), view, dict(reference or {}))
    ticks = {bar.tick: bar.label for bar in bars}
    ax = settled(ax or own_axes(bars_width_in(bars), 4.8))
    ax.set_ylim(0, 107 if reference else 100)
    ax.set_yticks(range(0, 101, 20))
    ax.set_ylabel("share of the KV-cache pool (%)", color=INK)
    shown = [name for name in colors if any(bar.heights.get(name, 0) >= LEAST_PERCENT for bar in bars)]
    column = bars[-1].edge(1) + 0.36
    make_room(ax, bars[0].edge(-1) - 0.36, column, shown)
    ax.spines["left"].set_bounds(0, 100)
    ax.spines["bottom"].set_bounds(ax.get_xlim()[0], bars[-1].edge(1))

    name_ticks(ax, ticks)
    for bar in bars:
        draw_bar(ax, bar, colors)
        note = reference_name if bar.is_reference else "" if bar.heights else "nothing ran"
        look: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 8, "style": "italic", "parse_math": False}
        ax.text(bar.x, 101 if bar.is_reference else 1, note, **look)
    name_segments(ax, column, bars, colors, shown, top=100)
    return ax


def _arranged(runs: Sequence[Pictured], view: str, reference: dict[str, Mapping[str, float]]) -> list[Bar]:
    """The bars from left to right; a run and its reference share a place, and places are wider then."""
    for label, percent in reference.items():
        for name in percent:
            one_of(f"name in reference {label!r}", name, list(VIEWS[view]))
    pitch = 1.25 if any(run.name in reference for run in runs) else 1.0
    bars: list[Bar] = []
    for i, (run, label) in enumerate(zip(runs, labels(runs), strict=True)):
        share, tick = run.summary()["share"], i * pitch
        percent = {} if share is None else {k: 100 * v for k, v in view_shares(share, view).items()}
        paired = reference.pop(run.name, None)
        if paired is None:
            bars.append(Bar(label, tick, tick, 0.58, percent))
        else:
            bars.append(Bar(label, tick, tick - 0.2, 0.38, percent, aside=-1))
            bars.append(Bar(label, tick, tick + 0.2, 0.38, paired, is_reference=True))
    for i, (label, percent) in enumerate(reference.items(), start=len(runs)):
        bars.append(Bar(label, i * pitch, i * pitch, 0.58, percent, is_reference=True))
    if not bars:
        raise InputError("runs(=[]) must hold at least one run")
    return bars


def bars_width_in(bars: Sequence[Bar]) -> float:
    """Inches for the bars, their names below and those of the segments behind."""
    tick_in = min(1.6, max(1.0, _longest(bar.label for bar in bars) * LETTER_EM * FONT_PT / 72))
    return 2.6 + tick_in * (bars[-1].edge(1) + 0.5)


def name_ticks(ax: Axes, ticks: Mapping[float, str]) -> None:
    """The names of the bars below them, in as many lines as their pitch asks for."""
    pitch_pt = 0.96 * points_per_unit(ax)[0] * min(np.diff(list(ticks)), default=1.0)
    font = max(LEAST_PT, min(FONT_PT, pitch_pt / (LETTER_EM * min(_longest(ticks.values()), 15))))
    ax.set_xticks(
        list(ticks),
        wrapped_apart(list(ticks.values()), int(pitch_pt / (LETTER_EM * font))),
        fontsize=font,
        parse_math=False,
    )
    ax.tick_params(axis="x", length=0)
    settled(ax)


def name_segments(
    ax: Axes, x: float, bars: Sequence[Bar], colors: Mapping[str, str], shown: Iterable[str], top: float
) -> None:
    """The names of the ``shown`` segments, each beside its own in the last bar that has any."""
    beside = next((bar for bar in reversed(bars) if bar.heights), bars[-1]).heights
    edges = np.cumsum([0.0, *(beside.get(name, 0.0) for name in colors)])
    middles = dict(zip(colors, (edges[1:] + edges[:-1]) / 2, strict=True))
    draw_labels(ax, x, {name: (middles[name], colors[name]) for name in shown}, top)


def _longest(labels: Iterable[str]) -> int:
    """Letters of the longest part that no line break divides."""
    return max(len(part) for label in labels for part in parts(label))


def draw_bar(ax: Axes, bar: Bar, colors: Mapping[str, str]) -> None:
    """The segments of a bar, in percent, with their numbers: inside where they fit, else beside it with a thin line."""
    x_pt, y_pt = points_per_unit(ax)
    font = min(FONT_PT, bar.width * x_pt / (4 * LETTER_EM))
    aside: list[tuple[float, str]] = []
    bottom = 0.0
    for name, color in colors.items():
        height = bar.heights.get(name, 0.0)
        fill, edge, hatch = to_rgb(color), to_rgb("white"), ""
        if bar.is_reference:
            fill, edge, hatch = paler(color, 0.6), paler(color, 0.25), "///"
        look: dict[str, Any] = {"color": fill, "edgecolor": edge, "hatch": hatch, "linewidth": 0.5}
        ax.bar(bar.x, height, bar.width, bottom, label=name, **look)
        middle, text = bottom + height / 2, f"{height:.1f}"
        bottom += height
        if height * y_pt < font * LINE_EM:
            if height >= LEAST_PERCENT:
                aside.append((middle, text))
        elif font >= LEAST_PT:
            ink = "white" if lightness(color) < 58 and not bar.is_reference else INK
            patch = {"facecolor": fill, "edgecolor": "none", "pad": 1.0} if hatch else None
            ax.text(bar.x, middle, text, ha="center", va="center", fontsize=font, color=ink, bbox=patch)

    # Behind each bar a third of a unit is free for them.
    font = min(SMALL_PT, font, (0.36 * x_pt - _ASIDE_PT) / (3.5 * LETTER_EM))
    if font < LEAST_PT:
        return
    half = font * LINE_EM / y_pt / 2
    places = spread([middle for middle, _ in aside], 2 * half, half, 100 - half)
    side, near_end = ("left", 0) if bar.aside > 0 else ("right", 1)
    line = {"arrowstyle": "-", "linewidth": 0.5, "color": THIN_INK, "shrinkA": 1, "shrinkB": 0}
    line["relpos"] = (near_end, 0.5)
    for (middle, text), y in zip(aside, places, strict=True):
        start = (bar.edge(bar.aside), middle)
        end = (bar.edge(bar.aside) + bar.aside * _ASIDE_PT / x_pt, y)
        ax.annotate(text, start, end, ha=side, va="center", fontsize=font, color=INK, arrowprops=line)
