"""Holes: how many there are, how large the largest is, and what the head of the queue would need."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator

from allocators.base import InputError
from simulator.messages.words import counted
from simulator.plots.checks import covered_instant, one_run
from simulator.plots.style import (
    FONT_PT,
    INK,
    THIN_INK,
    head,
    in_seconds,
    own_axes,
    points_per_unit,
    settled,
    slots_ticks,
)
from simulator.results.history import History, Waiting
from simulator.results.run import Run
from simulator.results.span import no_time, some_span_s
from simulator.results.views import COLORS

_FREE = ("external", "residual", "idle")
_MOST_BARS = 24
_GREY = "#bdbdbd"


def holes(run: Run, at: float | None = None, ax: Axes | None = None) -> Axes:
    """Over time: all free slots and the largest run that could be handed out, the number of holes, and the index
    1 - largest / free (of each bin's means). Beside it: the sizes of the holes at one instant, and what one of them
    must have for the head of the queue.

    The tail is left out everywhere, as it can never be handed out: paging has an index of 0. A hole is a longest run
    of free addresses. A buddy allocator hands it out only in parts, which are drawn one on the other, and then one part
    must reach the line, which is the block that the request would take. ``at``: seconds; if not given, an instant
    with much external waste, else residual. All panels take the place of ``ax``; the Axes of the first are returned.
    Raises InputError when the run has no decision log, covers no time, or not the instant.
    """
    one_run(run)
    history = History(run)
    start, end = some_span_s(run, "a picture of holes")
    bins = run.timeline
    if not len(bins):
        raise no_time(run.name, run.summary(), "a picture of holes")
    at = _telling(history) if at is None else covered_instant(at, start, end)
    ax = ax or own_axes(9.0, 5.2)
    place = ax.get_subplotspec()
    if place is None:
        raise InputError("ax must be on a grid of subplots: holes() shares its place out")
    grid = place.subgridspec(3, 2, width_ratios=(2, 1), height_ratios=(2, 1, 1), hspace=0.08, wspace=0.12)
    ax.set_subplotspec(grid[0, 0])
    figure = ax.figure
    count, index = (figure.add_subplot(grid[row, 0], sharex=ax) for row in (1, 2))
    sizes = figure.add_subplot(grid[:, 1])
    edges = np.append(bins["start_s"].to_numpy(float), end)

    free = np.maximum(bins[list(_FREE)].sum(axis=1).to_numpy(float) - history.tail_slots, 0)
    largest = bins["largest_free"].to_numpy(float)
    for values, color, name in ((free, THIN_INK, "free"), (largest, COLORS["external"], "largest")):
        ax.step(edges, np.append(values, values[-1]), where="post", color=color, linewidth=1.1, label=name)
    ax.fill_between(
        edges, np.append(largest, largest[-1]), np.append(free, free[-1]), step="post", color="#eeeeee", lw=0
    )
    ax.set_ylim(0, 1.3 * max(1.0, float(free.max())))  # room for the names of the lines
    slots_ticks(ax.yaxis, None)
    ax.set_ylabel("slots", color=INK)
    times, counts = history.hole_counts
    count.step(
        np.append(times, end), np.append(counts, counts[-1]), where="post", color=INK, linewidth=0.8, label="holes"
    )
    count.set_ylim(0, 1.1 * max(1, int(counts.max())))
    count.set_ylabel("holes", color=INK)
    some = free > 1e-9 * run.capacity  # what is less comes of adding floats
    ratio = np.where(some, 1 - largest / np.where(some, free, 1), np.nan)
    index.step(edges, np.append(ratio, ratio[-1]), where="post", color=INK, linewidth=0.9, label="index")
    index.set_ylim(-0.05, 1.05)  # a line at 0 is seen
    index.set_ylabel("index", color=INK)
    index.set_xlabel("time (s)", color=INK)
    for panel in (ax, count, index):
        panel.set_xlim(start, end)
        panel.axvline(at, color=COLORS["overprovision"], linewidth=1.0, linestyle="--", label="at")
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=FONT_PT, color=INK, labelcolor=INK, labelbottom=panel is index)
        panel.yaxis.set_major_locator(MaxNLocator(4 if panel is ax else 2, integer=True))
    index.yaxis.set_major_locator(FixedLocator([0, 0.5, 1]))
    ticks = [tick for tick in MaxNLocator(6).tick_values(start, end) if start <= tick <= end]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    _draw_sizes(sizes, history, at)
    settled(ax)
    head(ax, run.name)
    _name_lines(ax)
    return ax


def _telling(history: History) -> float:
    """The middle of the time bin with the most external waste; where there is none residual, or else most holes."""
    bins = history.run.timeline
    for category in ("external", "residual"):
        if (bins[category] > 0).any():
            row = bins.iloc[int(bins[category].to_numpy().argmax())]
            return float(row["start_s"] + row["end_s"]) / 2
    times, counts = history.hole_counts
    return float(times[counts.argmax()])


def _draw_sizes(ax: Axes, history: History, at: float) -> None:
    """The holes of an instant, the largest first, and a line at what the head of the queue would take."""
    runs = sorted(history.free_runs(history.layout(at)), key=lambda run: (-run.slots, run.start))
    shown = runs[:_MOST_BARS]
    sizes = [run.slots for run in shown]
    pieces = history.pieces(at)
    head_of_queue = history.head(at)
    anywhere = history.allocator is not None and not history.allocator.contiguous
    needed = None if head_of_queue is None or anywhere else head_of_queue.taken_slots
    top = max([*sizes, needed or 0, 1])
    ax.set_ylim(0, 1.3 * top)
    y_pt = points_per_unit(settled(ax))[1]
    for place, hole in enumerate(shown):
        inside = sorted((piece.slots for piece in pieces if hole.start <= piece.start < hole.end), reverse=True)
        bottoms = np.cumsum([0, *inside[:-1]])
        # White lines part them; around one of less than some points they would leave nothing of it.
        edges = ["white" if slots * y_pt > 3 else _GREY for slots in inside]
        ax.bar([place] * len(inside), inside, 0.8, bottoms, color=_GREY, edgecolor=edges, linewidth=0.8, label="hole")
    split = len(pieces) > len(runs)
    ax.set_xlim(-0.8, max(len(shown), 4) - 0.2)
    ax.set_xticks([])
    slots_ticks(ax.yaxis, None)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=FONT_PT, color=INK, labelcolor=INK)
    total = sum(run.slots for run in runs)
    more = f", the largest {len(shown)} shown" if len(runs) > len(shown) else ""
    head(ax, f"at {in_seconds(at)}: {counted(total, 'slot')} free", f"in {counted(len(runs), 'hole')}{more}")
    note = "\n(handed out in parts: one part\nmust reach the line)" if split else ""
    if anywhere:
        note = "\n(any free block serves)"
    ax.set_xlabel(f"holes, the largest first{note}", color=INK)
    ax.set_ylabel("slots", color=INK)
    if needed is not None:
        ax.axhline(needed, color=COLORS["external"], linewidth=1.6, label="needed")
    y = top if needed is None else needed
    ax.text(
        0.98,
        y + 0.03 * top,
        _told(head_of_queue),
        transform=ax.get_yaxis_transform(),
        ha="right",
        va="bottom",
        fontsize=FONT_PT,
        color=COLORS["external"],
    )


def _told(head_of_queue: Waiting | None) -> str:
    """Who waits, and for how much."""
    if head_of_queue is None:
        return "nobody waits"
    request, asked, taken = head_of_queue
    if asked is None or taken is None:
        return f"request {request} waits"
    return f"request {request} asks {asked:,}" + (f"\nand takes {taken:,}" if taken != asked else "")


def _name_lines(ax: Axes) -> None:
    """The names of the two lines above them, in the colours they have."""
    for x, text, color in ((0.01, "all that is free", THIN_INK), (0.45, "the largest run", COLORS["external"])):
        ax.text(
            *(x, 0.99, text),
            transform=ax.transAxes,
            ha="left",
            va="top",
            fontsize=FONT_PT,
            color=color,
            weight="bold",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},  # the line of the instant may pass here
        )
