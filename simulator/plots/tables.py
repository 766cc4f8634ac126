"""A block table: where the tokens of one request are, as an operating system's page table says of a process."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle

from allocators.base import Extent, InputError, whole
from simulator.engine.layout import Allocation, Layout
from simulator.messages.words import counted
from simulator.plots.mapkey import allocator_of, layout_at
from simulator.plots.style import (
    FONT_PT,
    FRAME,
    INK,
    LETTER_EM,
    SMALL_PT,
    THIN_INK,
    head,
    in_seconds,
    own_axes,
    points_per_unit,
    settled,
)
from simulator.results.run import Run
from simulator.results.views import COLORS

MOST_ROWS = 12
"""Of a column; longer ones have their first and last, and a row that says how many are left out."""

_LOGICAL, _TABLE, _PHYSICAL, _BLOCK = 0.0, 5.6, 10.2, 4.0  # where the columns begin, and how wide a block is
_HEAD = 1.5
_WORDS = {"used": "written", "reservation": "reserved", "overprovision": "never used", "rounding": "rounding"}
_HIGH = 0.72  # of a row
_ASIDE = 1.3  # for the addresses beside the pool
_LEAST_LINE_PT = 6.0


def block_table(run: Run, request: int, at: float, ax: Axes | None = None) -> Axes:
    """Logical blocks, the table that maps each to a physical block and says how full it is, and the pool.

    The words of an operating system stand under ours: virtual pages, page table, frames. A request of a contiguous
    or buddy allocator has a single block: its extent. ``request``: row of the trace; ``at``: seconds. Raises
    InputError when the request holds nothing then, or the run kept no map of it.
    """
    layout = layout_at(run, at)
    request = whole("request", request, at_least=0)
    held = next((one for one in layout.allocations if one.request == request), None)
    if held is None:
        running = ", ".join(str(one.request) for one in layout.allocations[:10]) or "none"
        raise InputError(f"request(={request}) holds no memory at {at:g} s; those that do: {running}")
    blocks = _blocks(held)
    rows = _picked(range(len(blocks)))
    allocator = allocator_of(run)
    same = len({block.extent.slots for block in blocks}) == 1 and blocks[0].extent.start % blocks[0].extent.slots == 0
    paged = same and (len(blocks) > 1 if allocator is None else not allocator.contiguous)
    size = blocks[0].extent.slots if paged else 0
    pool = _pool(layout, held, rows, blocks, run.capacity, size)
    high = max(len(rows), len(pool))
    ax = ax or own_axes(9.0, 1.5 + 0.3 * (high + _HEAD))
    ax.set_xlim(-1.0, _PHYSICAL + _BLOCK + 1.6)
    ax.set_ylim(high + 0.4, -_HEAD - 0.4)
    ax.set_axis_off()
    settled(ax)
    number = "block" if paged else "extent"
    _headings(ax, number)
    places = {place: y for y, place in enumerate(pool)}
    longest = max(len(f"{start // (size or 1):,}") for start in pool)
    aside = 0.22 + min(_ASIDE, max(0.53, longest * LETTER_EM * SMALL_PT / points_per_unit(ax)[0]))
    for y, row in enumerate(rows):
        if row is None:
            _left_out(ax, (_LOGICAL + _BLOCK / 2, _TABLE + 1.4), y, len(blocks) - len(rows) + 1)
            continue
        block = blocks[row]
        _text(ax, _LOGICAL - 0.2, y, f"{row:,}", ha="right", wide=0.8)
        block.draw(ax, _LOGICAL, y)
        name = f"{block.extent.start // (size or 1):,}"
        _entry(ax, y, name, f"{block.written:,} of {block.extent.slots:,}")
        _arrow(ax, (_LOGICAL + _BLOCK, y), (_TABLE, y))
        _arrow(ax, (_TABLE + 2.8, y), (_PHYSICAL - aside, places[block.extent.start]))
    _draw_pool(ax, pool, layout, blocks, size)
    _legend(ax, blocks, high)
    written = counted(held.written_tokens, "token")
    head(ax, f"{run.name}   request {request} at {in_seconds(layout.time_s)}: {written} written")
    return ax


@dataclass(frozen=True)
class _Block:
    extent: Extent
    written: int
    reserved: int
    never: int
    """Slots asked for, and never to be written."""

    def draw(self, ax: Axes, x: float, y: float) -> None:
        """Its slots, from left to right: written, reserved, never used, rounding."""
        rest = self.extent.slots - self.written - self.reserved - self.never
        at, unit = x, _BLOCK / self.extent.slots
        slots = (self.written, self.reserved, self.never, rest)
        for count, name in zip(slots, ("used", "reservation", "overprovision", "rounding"), strict=True):
            if count:
                _box(ax, at, y, count * unit, COLORS[name], name)
            at += count * unit
        for slot in range(1, self.extent.slots if self.extent.slots <= 32 else 0):
            ax.plot([x + slot * unit] * 2, [y - _HIGH / 2, y + _HIGH / 2], color="white", linewidth=0.6)
        ax.add_patch(Rectangle((x, y - _HIGH / 2), _BLOCK, _HIGH, fill=False, edgecolor=INK, linewidth=0.8))


def _blocks(held: Allocation) -> list[_Block]:
    """The blocks of a request in logical order, with what each holds."""
    blocks, before = [], 0
    edges = (held.written_tokens, held.final_tokens, held.final_tokens + held.overprovision_slots)
    for extent in held.extents:
        upto = [min(max(edge - before, 0), extent.slots) for edge in edges]
        blocks.append(_Block(extent, upto[0], upto[1] - upto[0], upto[2] - upto[1]))
        before += extent.slots
    return blocks


def _picked(rows: Sequence[int]) -> list[int | None]:
    """All rows, or the first and the last with None for those in between."""
    if len(rows) <= MOST_ROWS:
        return list(rows)
    first = MOST_ROWS // 2
    return [*rows[:first], None, *rows[len(rows) - (MOST_ROWS - first - 1) :]]


def _pool(
    layout: Layout, held: Allocation, rows: Sequence[int | None], blocks: Sequence[_Block], capacity: int, size: int
) -> list[int]:
    """Addresses of the physical blocks to draw, ascending: all of a small pool, else those of the request."""
    own = sorted(blocks[row].extent.start for row in rows if row is not None)
    if size and capacity // size <= MOST_ROWS:
        return list(range(0, capacity - size + 1, size))
    if not size:
        others = sorted(e.start for one in layout.allocations if one is not held for e in one.extents)
        return sorted([*own, *others[: MOST_ROWS - len(own)]])
    return own


def _draw_pool(ax: Axes, pool: Sequence[int], layout: Layout, blocks: Sequence[_Block], size: int) -> None:
    """The physical blocks: this request's as they are filled, others' in grey with their request, free ones white."""
    owners = {extent.start: one.request for one in layout.allocations for extent in one.extents}
    own = {block.extent.start: block for block in blocks}
    for y, start in enumerate(pool):
        _text(ax, _PHYSICAL - 0.12, y, f"{start // (size or 1):,}", ha="right", wide=_ASIDE)
        if start in own:
            own[start].draw(ax, _PHYSICAL, y)
        else:
            taken = start in owners
            _box(ax, _PHYSICAL, y, _BLOCK, "#dddddd" if taken else "white", "other" if taken else "free", FRAME)
            _text(ax, _PHYSICAL + _BLOCK / 2, y, f"request {owners[start]}" if taken else "free", color=THIN_INK)
        if y and size and start - pool[y - 1] > size:
            ax.plot(
                [_PHYSICAL, _PHYSICAL + _BLOCK], [y - 0.5] * 2, color=THIN_INK, linewidth=0.8, linestyle=(0, (1, 2))
            )


def _headings(ax: Axes, number: str) -> None:
    headings = {
        _LOGICAL + _BLOCK / 2: ("logical blocks", "virtual pages"),
        _TABLE + 1.4: ("block table", "page table"),
        _PHYSICAL + _BLOCK / 2: ("physical blocks", "frames"),
    }
    for x, (ours, theirs) in headings.items():
        _text(ax, x, -_HEAD - 0.15, ours, weight="bold", size=FONT_PT)
        _text(ax, x, -_HEAD + 0.35, f"(OS: {theirs})", color=THIN_INK, style="italic")
    for x, text in ((_TABLE + 0.7, number), (_TABLE + 2.1, "filled")):
        _text(ax, x, -0.7, text, color=THIN_INK)


def _legend(ax: Axes, blocks: Sequence[_Block], y: float) -> None:
    """What the colours mean, under the logical blocks; only those that are there."""
    shown = {
        "used": any(block.written for block in blocks),
        "reservation": any(block.reserved for block in blocks),
        "overprovision": any(block.never for block in blocks),
        "rounding": any(block.extent.slots > block.written + block.reserved + block.never for block in blocks),
    }
    names = [name for name, there in shown.items() if there]
    for place, name in enumerate(names):
        x = _LOGICAL + place * 3.3
        _box(ax, x, y, 0.35, COLORS[name], f"key {name}", FRAME, high=0.4)
        _text(ax, x + 0.5, y, _WORDS[name], ha="left")


def _entry(ax: Axes, y: float, name: str, filled: str) -> None:
    for x, text in ((_TABLE, name), (_TABLE + 1.4, filled)):
        _box(ax, x, y, 1.4, "white", "entry", INK)
        _text(ax, x + 0.7, y, text, wide=1.3)


def _left_out(ax: Axes, places: Sequence[float], y: float, count: int) -> None:
    for x in places:
        _text(ax, x, y, f"... {count:,} more ...", color=THIN_INK)


def _box(
    ax: Axes, x: float, y: float, wide: float, color: str, label: str, edge: str = "none", high: float = _HIGH
) -> None:
    ax.add_patch(Rectangle((x, y - high / 2), wide, high, facecolor=color, edgecolor=edge, linewidth=0.8, label=label))


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    ax.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=8, color=INK, linewidth=0.8, shrinkA=1, shrinkB=1)
    )


def _text(
    ax: Axes,
    x: float,
    y: float,
    text: str,
    *,
    ha: str = "center",
    size: float = SMALL_PT,
    color: str = INK,
    weight: str = "normal",
    style: str = "normal",
    wide: float = 0.0,
) -> None:
    """A text; where a width is given it is made small enough for that, in two lines if one would be too small."""
    if wide:
        fits = wide * points_per_unit(ax)[0] / LETTER_EM
        if fits / len(text) < _LEAST_LINE_PT:
            text = text.replace(" of ", "\nof ")
        size = min(size, fits / max(map(len, text.split("\n"))))
    ax.text(x, y, text, ha=ha, va="center", fontsize=size, color=color, weight=weight, style=style)
