"""Where the pool went over time, and what became of the requests meanwhile."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from simulator.plots.checks import one_run, slot_bytes
from simulator.plots.style import (
    FONT_PT,
    INDENT_PT,
    INK,
    LEAST_PERCENT,
    THIN_INK,
    Pictured,
    draw_labels,
    head,
    in_seconds,
    make_room,
    own_axes,
    points_per_unit,
    settled,
    slots_label,
    slots_ticks,
    spread,
    stacked_below,
)
from simulator.results.span import no_time
from simulator.results.views import COLORS

_LINES = {"running": COLORS["used"], "waiting": "#8a8a8a"}
_LEAST_HEIGHT_PT = 150.0  # for three panels
_MOST_MARKS = 200  # events are counted in at most so many spans of time, wide enough to be seen
_REFUSED = "refused_although_free"
_STRIP = 0.94  # the height of a bar in the lowest strip that stands for all of its span


def waste_over_time(run: Pictured, ax: Axes | None = None, bytes_per_slot: int | None = None) -> Axes:
    """The ledger's categories over the run, stacked: mean slots in each time bin of ``run.timeline``.

    Below it, on the same time axis: requests running and waiting (a scale that is linear up to 1 and logarithmic
    from there); how many requests were preempted; and how much of the time one was refused although enough was free:
    a bar that fills its strip is all of it, so as much of the strip is red as of the time. All of them take the place
    of ``ax``, and the stack alone does where that is low; its Axes are returned. ``bytes_per_slot`` writes bytes
    beside the slots. Raises InputError when the run covers no time.
    """
    one_run(run, "timeline")
    slot_bytes(bytes_per_slot)
    bins = run.timeline
    start, end = float(bins["start_s"].min()), float(bins["end_s"].max())
    if not end > start:
        raise no_time(run.name, run.summary(), "a timeline")
    ax = settled(ax or own_axes(9.0, 5.8))
    below = []
    if ax.bbox.height * 72 / ax.figure.dpi >= _LEAST_HEIGHT_PT:
        below = stacked_below(ax, (6, 2, 1.7))
        settled(ax)
    edges = np.append(bins["start_s"].to_numpy(float), end)
    slots = bins[list(COLORS)].to_numpy(float)
    # A step holds from its edge to the next, so the last bin is repeated at the last edge.
    levels = np.cumsum(np.column_stack([np.zeros(len(edges)), np.vstack([slots, slots[-1:]])]), axis=1)
    for i, (name, color) in enumerate(COLORS.items()):
        low, high = levels[:, i], levels[:, i + 1]
        ax.fill_between(edges, low, high, step="post", color=color, linewidth=0, label=name)

    shown = [i for i, total in enumerate(slots.sum(axis=0)) if 100 * total >= LEAST_PERCENT * slots.sum()]
    names = [list(COLORS)[i] for i in shown]
    column = end + 0.02 * (end - start)
    ax.set_ylim(0, run.capacity)
    slots_ticks(ax.yaxis, bytes_per_slot)
    ax.set_ylabel(slots_label("token slots", run.capacity, bytes_per_slot), color=INK)
    preempted = f"{bins['preemptions'].sum():,.0f} preempted"
    refused_s = float((bins[_REFUSED] * (bins["end_s"] - bins["start_s"])).sum())
    refused = f"{in_seconds(refused_s)} refused though" if refused_s else "never refused if"
    notes = {1.55: preempted, 0.5: f"{refused}\nenough was free"}
    make_room(ax, start, column, [*names, *"\n".join(notes.values()).split("\n")])
    # Axis, ticks and name end where the run does: behind it stand the labels.
    ticks = [tick for tick in MaxNLocator(8).tick_values(start, end) if start <= tick <= end]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    last = [ax, *below][-1]
    for panel in (ax, *below):
        panel.spines["bottom"].set_bounds(start, end)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=FONT_PT, color=INK, labelcolor=INK, labelbottom=panel is last)
    last.set_xlabel("time (s)", color=INK, x=(end - start) / 2 / float(np.diff(ax.get_xlim())[0]))
    head(ax, run.name)
    if below:
        _draw_requests(below[0], edges, bins)
        _draw_events(below[1], edges, bins)
    settled(ax)
    middles = (levels[:-1, :-1] + levels[:-1, 1:]).mean(axis=0) / 2
    labels = {name: (float(middles[i]), COLORS[name]) for i, name in zip(shown, names, strict=True)}
    draw_labels(ax, column, labels, top=run.capacity)
    if not below:
        return ax
    behind = column + INDENT_PT / points_per_unit(ax)[0]
    _label_requests(below[0], behind, bins)
    for y, note in notes.items():
        below[1].text(behind, y, note, va="center", fontsize=FONT_PT, color=INK, linespacing=1.0)
    return ax


def _draw_requests(ax: Axes, edges: NDArray[np.float64], bins: pd.DataFrame) -> None:
    """Requests waiting and running: means of each bin."""
    for name, color in _LINES.items():
        values = bins[name].to_numpy(float)
        ax.step(edges, np.append(values, values[-1]), where="post", color=color, linewidth=1.2, label=name)
    ax.set_yscale("symlog", linthresh=1)
    most = max(1.0, float(bins[["running", "waiting"]].to_numpy().max()))
    ax.set_ylim(0, 1.4 * most)
    decades = 10 ** np.arange(0, np.log10(1.4 * most) + 1e-9)
    step = -(-len(decades) // 3)
    ax.yaxis.set_major_locator(FixedLocator([0, *decades[::step]]))
    ax.yaxis.set_minor_locator(FixedLocator([]))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.set_ylabel("requests", color=INK)


def _label_requests(ax: Axes, x: float, bins: pd.DataFrame) -> None:
    """The names of the two lines, as near as can be to where they end; apart in the scale they are drawn on."""
    to_pt = ax.transData.transform
    scale = 72 / ax.figure.dpi
    last = sorted((float(bins[name].iloc[-1]), name, color) for name, color in _LINES.items())
    low, high = (float(to_pt((x, y))[1]) * scale for y in ax.get_ylim())
    wanted = [float(to_pt((x, value))[1]) * scale for value, _, _ in last]
    half = 0.6 * FONT_PT
    for y, (_, name, color) in zip(spread(wanted, 2.2 * half, low + half, high - half), last, strict=True):
        place = (x, float(ax.transData.inverted().transform((0, y / scale))[1]))
        ax.text(*place, name, va="center", fontsize=FONT_PT, color=color, weight="bold")


def _draw_events(ax: Axes, edges: NDArray[np.float64], bins: pd.DataFrame) -> None:
    """Two strips of bars: how many were preempted, and below for what part of each span one was refused though enough
    was free."""
    ax.set_ylim(0, 2.1)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.axhline(1, color=THIN_INK, linewidth=0.4, xmax=(edges[-1] - edges[0]) / float(np.diff(ax.get_xlim())[0]))
    marks = np.array_split(np.arange(len(bins)), min(len(bins), _MOST_MARKS))
    counts = np.array([bins["preemptions"].iloc[mark].sum() for mark in marks])
    starts = np.array([edges[mark[0]] for mark in marks])
    ends = np.array([edges[mark[-1] + 1] for mark in marks])
    if counts.any():
        ax.bar(starts, counts / counts.max(), ends - starts, 1.05, align="edge", color=INK, label="preempted")
    part = np.array([bins[_REFUSED].iloc[mark].mean() for mark in marks])
    if part.any():
        look: dict[str, Any] = {"color": COLORS["external"], "linewidth": 0, "label": _REFUSED}
        ax.bar(starts, _STRIP * part, ends - starts, 0.0, align="edge", **look)
