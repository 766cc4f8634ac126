"""The pool at one instant, wrapped into rows like a disk map; the same Axes can show one instant after the other."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter
from numpy.typing import NDArray

from simulator.engine.layout import Layout
from simulator.messages.words import counted
from simulator.plots.mapkey import KEY, MOST_NAMES, allocator_of, draw_key, key_of, title, write
from simulator.plots.style import (
    FRAME,
    INK,
    LEAST_PT,
    LETTER_EM,
    SMALL_PT,
    in_seconds,
    make_room,
    own_axes,
    points_per_unit,
    settled,
    slots_label,
)
from simulator.results.cells import MOST_CELLS, RESERVED, Cells, across_of, cells_of, middles, unit_of
from simulator.results.hues import colors_of
from simulator.results.run import Run


class InstantMap:
    """A map of ``run``'s pool, empty until :meth:`show`.

    A row holds ``across`` cells of ``size`` slots. What the shades mean stands beside it with its exact share of the
    pool at the instant shown, whatever the cells show.
    """

    def __init__(self, run: Run, ax: Axes | None = None, bytes_per_slot: int | None = None) -> None:
        allocator = allocator_of(run)
        self.run = run
        self.tail = 0 if allocator is None else int(allocator.tail_slots)
        self.slots, self.size = middles(run.capacity, MOST_CELLS, unit_of(allocator))
        self.across = across_of(len(self.slots), max(1, unit_of(allocator) // self.size))
        self.down = -(-len(self.slots) // self.across)
        self.width = self.across * self.size  # of a row, in slots
        self.found: Cells | None = None
        self._labels: list[Any] = []
        self.ax = settled(ax or own_axes(9.0, min(5.0, 1.6 + 0.45 * self.down)))
        self._image = self.ax.imshow(
            self._pixels(np.ones((len(self.slots), 3))),
            extent=(0, self.width, self.down * self.width, 0),
            aspect="auto",
            interpolation="nearest",
        )
        self._borders = [LineCollection([], colors="white") for _ in range(2)]  # between blocks, between requests
        self._draw_frame(bytes_per_slot)

    def show(self, layout: Layout) -> None:
        """Draw the memory map of an instant in place of the last one."""
        self.found = cells_of(layout, self.slots, self.run.capacity, self.tail)
        self._image.set_data(self._pixels(colors_of(self.found.kind, self.found.request)))
        title(self.ax, self.run.name, _when(layout))
        self._draw_borders(layout)
        for label in self._labels:
            label.remove()
        labels = key_of(layout, self.run.capacity, self.tail)
        self._labels = draw_key(self.ax, 1.02 * self.width, labels, self.down * self.width)

    def name_requests(self) -> None:
        """Each request's number in the widest of its pieces, if it fits."""
        if self.found is None:
            return
        owner = self.found.request
        x_pt, y_pt = (abs(points) for points in points_per_unit(self.ax))
        breaks = np.flatnonzero((np.diff(owner) != 0) | (np.arange(1, len(owner)) % self.across == 0)) + 1
        widest: dict[int, tuple[int, int]] = {}
        for first, last in zip([0, *breaks.tolist()], [*breaks.tolist(), len(owner)], strict=True):
            request = int(owner[first])
            if request >= 0 and last - first > widest.get(request, (0, 0))[0]:
                widest[request] = last - first, first
        most = min(SMALL_PT, 0.8 * self.width * y_pt)
        for request, (count, first) in sorted(widest.items(), key=lambda item: -item[1][0])[:MOST_NAMES]:
            font = min(most, (count * self.size * x_pt - 2) / (LETTER_EM * len(str(request))))
            if font >= LEAST_PT:
                place = (first % self.across + count / 2) * self.size, (first // self.across + 0.5) * self.width
                middle, reach = first + count // 2, 1 + int(font * LETTER_EM * len(str(request)) / x_pt / self.size / 2)
                under = self.found.kind[max(first, middle - reach) : min(first + count, middle + reach + 1)]
                alike = bool((under == under[0]).all())
                write(self.ax, place, str(request), font, under[0] if alike else RESERVED, halo=not alike)

    def _pixels(self, colors: NDArray[np.float64]) -> NDArray[np.float64]:
        """The cells as an image, clear behind the end of the pool."""
        image = np.zeros((self.down * self.across, 4))
        image[: len(colors), :3] = colors
        image[: len(colors), 3] = 1
        return image.reshape(self.down, self.across, 4)

    def _draw_frame(self, bytes_per_slot: int | None) -> None:
        """All that stays the same from instant to instant."""
        ax, width, down = self.ax, self.width, self.down
        ax.set_ylim(down * width, 0)
        make_room(ax, 0, 1.02 * width, [f"{max(KEY.values(), key=len)} 99.9 %"])
        ax.spines[["left", "bottom"]].set_visible(False)
        ax.yaxis.set_major_locator(FixedLocator([(row + 0.5) * width for row in range(0, down, -(-down // 8))]))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y - width / 2:,.0f}"))
        ax.xaxis.set_major_locator(FixedLocator(_parts_of(width)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"+{x:,.0f}"))
        ax.set_ylabel(slots_label("address", self.run.capacity, bytes_per_slot), color=INK)
        ax.set_xlabel(f"slots from the row's address (a cell: {counted(self.size, 'slot')})", color=INK, loc="left")
        settled(ax)
        y_pt = abs(points_per_unit(ax)[1])
        rows = [row * width for row in range(1, down)]
        ax.hlines(rows, 0, width, colors="white", linewidths=min(1.0, 0.1 * y_pt * width))
        for lines in self._borders:
            ax.add_collection(lines, autolim=False)
        behind = len(self.slots) % self.across * self.size
        if behind:  # the last row ends before the others, and what is not there must not look free
            place = behind, (down - 1) * width
            end = Rectangle(place, width - behind, width, facecolor="white", edgecolor=FRAME, hatch="////", linewidth=0)
            ax.add_artist(end)
        ax.add_artist(Rectangle((0, 0), width, down * width, fill=False, edgecolor=FRAME, linewidth=0.8, clip_on=False))

    def _draw_borders(self, layout: Layout) -> None:
        """White lines between requests, and thinner ones between the blocks of one, as far as a cell has room."""
        if self.found is None:
            return
        block = np.full(len(self.slots), -1)
        for number, extent in enumerate(extent for held in layout.allocations for extent in held.extents):
            block[slice(*np.searchsorted(self.slots, (extent.start, extent.end)))] = number
        ends = np.flatnonzero(np.diff(block) != 0)
        same = self.found.request[ends] == self.found.request[ends + 1]
        x_pt = points_per_unit(self.ax)[0]
        for lines, which, thickness in zip(self._borders, (ends[same], ends[~same]), (0.5, 1.2), strict=True):
            places = [
                (cell % self.across * self.size, cell // self.across * self.width) for cell in (which + 1).tolist()
            ]
            lines.set_segments([((x, y), (x, y + self.width)) for x, y in places if x])
            lines.set_linewidth(min(thickness, 0.3 * x_pt * self.size))


def _parts_of(width: int) -> list[float]:
    """Where a row is cut in halves, quarters or eighths, as far as those are whole slots."""
    count = next(count for count in (8, 4, 2, 1) if width % count == 0)
    return [part * width / count for part in range(count + 1)]


def _when(layout: Layout) -> str:
    at = f"at {in_seconds(layout.time_s)}"
    if layout.iteration is None:
        return f"{at}: nothing runs"
    return f"{at}, iteration {layout.iteration:,}: {counted(len(layout.allocations), 'request')}"
