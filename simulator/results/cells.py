"""A memory map cut into cells, at one instant or over time: which request has each cell, and what it holds.

A cell that stands for several slots, or for a span of time, says what its **middle** holds: exact there, and a hole
or a block narrower than a cell may fall between two middles.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocators.base import Allocator
from simulator.engine.layout import Layout
from simulator.results.history import History

HOLE, WRITTEN, RESERVED, NEVER_USED, ROUNDING, TAIL = range(6)
"""What a cell can hold: the ledger's categories of a held slot, a free slot, and one that can never be handed out."""

KINDS = ("hole", "written", "reserved", "never used", "rounding", "tail")


MOST_CELLS, MOST_ACROSS = 4096, 128
"""Of a map at one instant: cells in all, and in a row."""


@dataclass(frozen=True, eq=False)
class Cells:
    """``kind`` (of KINDS), ``request`` (row of the trace, -1: none) and ``offset`` (slot within the request), each
    ``[addresses]`` or ``[addresses, times]``; ``slots`` are the addresses that were looked at."""

    slots: NDArray[np.int64]
    kind: NDArray[np.uint8]
    request: NDArray[np.int32]
    offset: NDArray[np.int32]


def middles(capacity: int, most: int, multiple: int = 1) -> tuple[NDArray[np.int64], int]:
    """The middle addresses of at most ``most`` equal cells of a pool, and the slots of a cell: as few as can be.

    Cells of several slots are made a divisor or a multiple of ``multiple``, so that a block is never cut by a cell.
    """
    size = max(1, -(-capacity // most))
    if size < multiple:
        size = next(divisor for divisor in range(size, multiple + 1) if multiple % divisor == 0)
    else:
        size = -(-size // multiple) * multiple
    starts = np.arange(0, capacity, size)
    return np.minimum(starts + size // 2, capacity - 1), size


def unit_of(allocator: Allocator | None) -> int:
    """Slots that an allocator never takes apart."""
    return int(getattr(allocator, "block_size", None) or getattr(allocator, "min_block", None) or 1)


def across_of(count: int, multiple: int) -> int:
    """Cells in a row: a power of two times ``multiple`` that makes a map some four times as wide as it is high."""
    across = multiple
    while across * across < 4 * count and 2 * across <= max(MOST_ACROSS, multiple):
        across *= 2
    return min(across, count) if across > count else across


def cells_of(layout: Layout, slots: NDArray[np.int64], capacity: int, tail_slots: int = 0) -> Cells:
    """The cells at ``slots`` (ascending addresses) of one memory map."""
    kind = np.where(slots >= capacity - tail_slots, TAIL, HOLE).astype(np.uint8)
    request = np.full(len(slots), -1, np.int32)
    offset = np.zeros(len(slots), np.int32)
    for held in layout.allocations:
        before = 0
        for extent in held.extents:
            here = slice(*np.searchsorted(slots, (extent.start, extent.end)))
            request[here] = held.request
            offset[here] = slots[here] - extent.start + before
            written, final = held.written_tokens, held.final_tokens
            kind[here] = _kinds(offset[here], written, final, final + held.overprovision_slots)
            before += extent.slots
    return Cells(slots, kind, request, offset)


def cells_over_time(
    history: History, slots: NDArray[np.int64], times_s: Sequence[float] | NDArray[np.float64]
) -> Cells:
    """The cells at ``slots`` x ``times_s`` (both ascending) of a run."""
    times = np.asarray(times_s, float)
    shape = len(slots), len(times)
    stay = np.full(shape, -1, np.int32)
    offset = np.zeros(shape, np.int32)
    extents = history.extents
    rows = zip(*np.searchsorted(slots, [extents["start"], extents["start"] + extents["slots"]]).tolist(), strict=True)
    columns = zip(*np.searchsorted(times, [extents["begin_s"], extents["end_s"]]).tolist(), strict=True)
    rest = zip(*(extents[name].tolist() for name in ("stay", "start", "offset")), strict=True)
    for (low, high), (first, last), (of, start, before) in zip(rows, columns, rest, strict=True):
        if low < high and first < last:
            stay[low:high, first:last] = of
            offset[low:high, first:last] = (slots[low:high] - start + before)[:, None]

    stays = history.stays
    at = history.iterations(times)
    free = np.where(slots >= history.run.capacity - history.tail_slots, TAIL, HOLE).astype(np.uint8)
    kind = np.repeat(free[:, None], len(times), axis=1)
    request = np.full(shape, -1, np.int32)
    held = stay >= 0
    of = stay[held]
    request[held] = stays["request"].to_numpy()[of]
    written = (stays["tokens"] - stays["first"]).to_numpy()[of] + np.broadcast_to(at, shape)[held]
    final = stays["final"].to_numpy()[of]
    kind[held] = _kinds(offset[held], written, final, final + stays["overprovision"].to_numpy()[of])
    return Cells(slots, kind, request, offset)


def _kinds(
    offset: NDArray[np.int32],
    written: NDArray[np.int64] | int,
    final: NDArray[np.int64] | int,
    asked: NDArray[np.int64] | int,
) -> NDArray[np.uint8]:
    """What slots of a request hold, from how far each is from its first."""
    found = np.full(len(offset), ROUNDING, np.uint8)
    found[offset < asked] = NEVER_USED
    found[offset < final] = RESERVED
    found[offset < written] = WRITTEN
    return found
