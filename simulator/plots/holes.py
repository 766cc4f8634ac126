"""Holes: how many there are, how large the largest is, and what the head of the queue would need."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from allocators.base import Extent, InputError
from simulator.history import History
from simulator.plots.style import FONT_PT, INK, LETTER_EM, THIN_INK, own_axes, settled, slots_ticks, wrapped
from simulator.run import Run
from simulator.views import COLORS

_FREE = ("external", "residual", "idle")
_MOST_BARS = 24


def holes(run: Run, at: float | None = None, ax: Axes | None = None) -> Axes:
    """Over time: all free slots and the largest run that could be handed out, the number of holes, and the index
    1 - largest / free (of each bin's means). Beside it: the sizes of the holes at one instant, and what the head of
    the queue asks for.

    A hole is a longest run of free addresses, the tail left out. A buddy allocator hands it out only in pieces, which
    are drawn one on the other. ``at``: seconds; if not given, an instant with much external waste, else residual.
    All panels take the place of ``ax``; the Axes of the first are returned. Raises InputError when the run has no
    decision log or covers no time.
    """
    history = History(run)
    bins = run.timeline
    if not len(bins):
        raise InputError(f"run {run.name!r} covers no time; its holes over time need some")
    if at is None:
        at = _telling(history)
    ax = ax or own_axes(9.0, 5.2)
    place = ax.get_subplotspec()
    if place is None:
        raise InputError("ax must be on a grid of subplots: holes() shares its place out")
    grid = place.subgridspec(3, 2, width_ratios=(2, 1), height_ratios=(2, 1, 1), hspace=0.08, wspace=0.12)
    ax.set_subplotspec(grid[0, 0])
    figure = ax.figure
    count, index = (figure.add_subplot(grid[row, 0], sharex=ax) for row in (1, 2))
    sizes = figure.add_subplot(grid[:, 1])
    start, end = float(bins["start_s"].iloc[0]), float(bins["end_s"].iloc[-1])
    edges = np.append(bins["start_s"].to_numpy(float), end)

    free = bins[list(_FREE)].sum(axis=1).to_numpy(float)
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
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = 1 - largest / free
    index.step(edges, np.append(ratio, ratio[-1]), where="post", color=INK, linewidth=0.9, label="index")
    index.set_ylim(0, 1.02)
    index.set_ylabel("index", color=INK)
    index.set_xlabel("time (s)", color=INK)
    for panel in (ax, count, index):
        panel.set_xlim(start, end)
        panel.axvline(at, color=COLORS["overprovision"], linewidth=1.0, linestyle="--", label="at")
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=FONT_PT, color=INK, labelcolor=INK, labelbottom=panel is index)
        panel.yaxis.set_major_locator(MaxNLocator(4 if panel is ax else 2, integer=panel is count))
    index.yaxis.set_major_locator(FixedLocator([0, 0.5, 1]))
    ticks = [tick for tick in MaxNLocator(6).tick_values(start, end) if start <= tick <= end]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    _draw_sizes(sizes, history, at)
    settled(ax)
    chars = int(ax.bbox.width * 72 / ax.figure.dpi / (LETTER_EM * FONT_PT))
    ax.set_title(wrapped(run.name, chars), loc="left", fontsize=FONT_PT, color=INK)
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
    """The holes of an instant, the largest first, and a line at what the head of the queue asks for."""
    runs = sorted(history.free_runs(history.layout(at)), key=lambda run: (-run.slots, run.start))
    head = history.head(at)
    shown = runs[:_MOST_BARS]
    sizes = [run.slots for run in shown]
    pieces = history.pieces(at)
    for place, hole in enumerate(shown):
        inside = sorted((piece.slots for piece in pieces if hole.start <= piece.start < hole.end), reverse=True)
        bottoms = np.cumsum([0, *inside[:-1]])
        ax.bar(
            [place] * len(inside), inside, 0.8, bottoms, color="#bdbdbd", edgecolor="white", linewidth=0.8, label="hole"
        )
    split = len(pieces) > len(runs)
    asked = head.asked_slots if head else None
    top = max([*sizes, asked or 0, 1])
    ax.set_ylim(0, 1.22 * top)
    ax.set_xlim(-0.8, max(len(shown), 4) - 0.2)
    ax.set_xticks([])
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=FONT_PT, color=INK, labelcolor=INK)
    total = sum(run.slots for run in runs)
    more = f", the largest {len(shown)} shown" if len(runs) > len(shown) else ""
    ax.set_title(
        f"at {at:,.1f} s: {total:,} slots free\nin {_count(runs)}{more}", loc="left", fontsize=FONT_PT, color=INK
    )
    note = "\n(parts: what it can hand out)" if split else ""
    if history.allocator is not None and not history.allocator.contiguous:
        note = "\n(any free block serves)"
    ax.set_xlabel(f"holes, the largest first{note}", color=INK)
    ax.set_ylabel("slots", color=INK)
    if head is None:
        waits = "nobody waits"
    elif asked is None:
        waits = f"request {head.request} waits"
    else:
        ax.axhline(asked, color=COLORS["external"], linewidth=1.6, label="asked")
        waits = f"request {head.request} asks {asked:,}"
    y = top if asked is None else asked
    ax.text(
        0.98,
        y + 0.03 * top,
        waits,
        transform=ax.get_yaxis_transform(),
        ha="right",
        va="bottom",
        fontsize=FONT_PT,
        color=COLORS["external"],
    )


def _count(runs: list[Extent]) -> str:
    return f"{len(runs):,} hole{'' if len(runs) == 1 else 's'}"


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
