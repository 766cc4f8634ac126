"""The memory map: the pool at one instant, wrapped into rows like a disk map, and address by address over time."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator

from simulator.plots.checks import grid_cells, one_run, slot_bytes
from simulator.plots.instant import InstantMap
from simulator.plots.mapkey import KEY, MOST_NAMES, draw_key, layout_at, title, write
from simulator.plots.style import (
    FONT_PT,
    INK,
    LEAST_PT,
    LETTER_EM,
    make_room,
    own_axes,
    points_per_unit,
    settled,
    slots_label,
    slots_ticks,
)
from simulator.results.cells import RESERVED, cells_over_time, middles, unit_of
from simulator.results.history import History
from simulator.results.hues import colors_of
from simulator.results.run import Run
from simulator.results.span import some_span_s

_PAD_PT = 3.0  # around a name


def memory_map(
    run: Run,
    at: float | None = None,
    ax: Axes | None = None,
    *,
    bytes_per_slot: int | None = None,
    cells: tuple[int, int] = (400, 900),
) -> Axes:
    """Which request has which slots, each in its own hue; the darker, the more its slots are used.

    ``at`` (seconds): the pool at that instant, wrapped into rows. Without it: address over time, in ``cells`` of
    addresses x instants, each cell coloured by its middle; a request's number stands in its memory where it fits.
    Raises InputError for arguments that are not allowed, and when the run kept neither a decision log nor, for ``at``,
    a map of that instant.
    """
    one_run(run)
    slot_bytes(bytes_per_slot)
    cells = grid_cells(cells)
    if at is None:
        return _over_time(History(run), ax, bytes_per_slot, cells)
    layout = layout_at(run, at)
    shown = InstantMap(run, ax, bytes_per_slot)
    shown.show(layout)
    shown.name_requests()
    return shown.ax


def _over_time(history: History, ax: Axes | None, bytes_per_slot: int | None, cells: tuple[int, int]) -> Axes:
    run = history.run
    start, end = some_span_s(run, "a map over time")
    slots, _ = middles(run.capacity, cells[0], unit_of(history.allocator))
    edges = np.linspace(start, end, cells[1] + 1)
    found = cells_over_time(history, slots, (edges[1:] + edges[:-1]) / 2)
    ax = settled(ax or own_axes(9.0, 4.6))
    image = colors_of(found.kind, found.request)
    ax.imshow(image, extent=(start, end, 0, run.capacity), origin="lower", aspect="auto", interpolation="nearest")
    shown = {kind: KEY[kind] for kind in KEY if (found.kind == kind).any()}
    ax.set_ylim(0, run.capacity)
    column = end + 0.02 * (end - start)
    make_room(ax, start, column, list(shown.values()))
    ax.spines["bottom"].set_bounds(start, end)
    ticks = [tick for tick in MaxNLocator(8).tick_values(start, end) if start <= tick <= end]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    slots_ticks(ax.yaxis, bytes_per_slot)
    ax.set_ylabel(slots_label("address, slots", run.capacity, bytes_per_slot), color=INK)
    ax.set_xlabel("time (s)", color=INK, x=(end - start) / 2 / float(np.diff(ax.get_xlim())[0]))
    title(ax, run.name)
    settled(ax)
    _name_rectangles(ax, history, start, end)
    draw_key(ax, column, shown, run.capacity)
    return ax


def _name_rectangles(ax: Axes, history: History, start: float, end: float) -> None:
    """Each request's number in the largest of its rectangles, if it fits; the largest of all first."""
    x_pt, y_pt = points_per_unit(ax)
    extents = history.extents
    begin = extents["begin_s"].clip(start, end)
    wide = (extents["end_s"].clip(start, end) - begin) * x_pt
    high = extents["slots"] * y_pt
    fits = (high > LEAST_PT + 1) & (wide > LETTER_EM * LEAST_PT + _PAD_PT)
    order = (wide * high)[fits].sort_values(ascending=False, kind="stable").index
    largest = extents.loc[order].drop_duplicates("request").index[:MOST_NAMES]
    for row in largest:
        text = str(extents["request"][row])
        font = min(FONT_PT, high[row] - 1, (wide[row] - _PAD_PT) / (LETTER_EM * len(text)))
        if font < LEAST_PT:
            continue
        x = begin[row] + wide[row] / x_pt / 2
        y = extents["start"][row] + extents["slots"][row] / 2
        write(ax, (float(x), float(y)), text, float(font), RESERVED, halo=True)
