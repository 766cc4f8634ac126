"""One contiguous extent per request, sized when it is admitted: how servers kept the KV cache before paging.

A **reservation rule** (``allocators/reservation.py``) says how many slots a request asks for, a **fit** which
hole it gets. The free list holds the holes in address order; a freed extent coalesces with its neighbours::

    0      10               50                     100
    |......|#######A########|......................|      last placement ended at 50
     hole                    hole
    for 8 slots: first and best take 0 (the lower, the smaller), worst and next take 50

What a request reserved and does not use is lost to everyone else, and so is a hole too small for the next.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocators import pool as ask
from allocators.base import one_of
from allocators.pooled import Pooled, longer
from allocators.reservation import RESERVE, check_reserve, reserved_slots
from allocators.seam import answer, record, rule

FIT = ("first", "best", "worst", "next")
FIRST, BEST, WORST, NEXT = range(4)


class ContiguousPool(NamedTuple):
    """The holes in address order, and who holds what."""

    now: Any
    """``holes``, ``free_slots``; ``largest``, the longest hole; ``last_end``, where the last placement ended."""
    start: NDArray[np.int64]
    """Hole -> its first address,"""
    slots: NDArray[np.int64]
    """and its length."""
    extent: NDArray[np.int64]
    """Seat -> start and slots."""
    capacity: int
    reserve: int
    fit: int
    max_model_len: int


@answer(ask.allocate, ContiguousPool)
def _allocate(
    pool: ContiguousPool,
    seat: int,
    request: int,
    prompt_tokens: int,
    output_tokens: int,
    alone: bool,
) -> int:
    asked = _asked_slots(pool, prompt_tokens, output_tokens)
    if asked > pool.now.largest:
        return 0
    hole = _find(pool, asked)
    start, size = pool.start[hole], pool.slots[hole]
    if size == asked:
        _remove_hole(pool, hole)
    else:
        pool.start[hole] += asked
        pool.slots[hole] -= asked
    if size == pool.now.largest:
        _find_largest(pool)
    pool.now.last_end = start + asked
    pool.now.free_slots -= asked
    pool.extent[seat, 0] = start
    pool.extent[seat, 1] = asked
    return asked


@rule
def _find(pool: ContiguousPool, asked: int) -> int:
    """The hole that the fit chooses; there is one that is large enough."""
    chosen = -1
    for hole in range(pool.now.holes):
        size = pool.slots[hole]
        if size < asked:
            continue
        if pool.fit == FIRST or (pool.fit == NEXT and pool.start[hole] + size > pool.now.last_end):
            return hole
        better = (pool.fit == BEST and size < pool.slots[chosen]) or (pool.fit == WORST and size > pool.slots[chosen])
        if chosen < 0 or better:
            chosen = hole
    return chosen


@rule
def _remove_hole(pool: ContiguousPool, hole: int) -> None:
    pool.now.holes -= 1
    for at in range(hole, pool.now.holes):
        pool.start[at] = pool.start[at + 1]
        pool.slots[at] = pool.slots[at + 1]


@rule
def _insert_hole(pool: ContiguousPool, hole: int, start: int, slots: int) -> None:
    for at in range(pool.now.holes, hole, -1):
        pool.start[at] = pool.start[at - 1]
        pool.slots[at] = pool.slots[at - 1]
    pool.start[hole] = start
    pool.slots[hole] = slots
    pool.now.holes += 1


@rule
def _find_largest(pool: ContiguousPool) -> None:
    pool.now.largest = 0
    for hole in range(pool.now.holes):
        pool.now.largest = max(pool.now.largest, pool.slots[hole])


@answer(ask.free, ContiguousPool)
def _free(pool: ContiguousPool, seat: int) -> int:
    start, slots = pool.extent[seat, 0], pool.extent[seat, 1]
    pool.now.free_slots += slots
    above, size = 0, slots
    while above < pool.now.holes and pool.start[above] < start:
        above += 1
    if above < pool.now.holes and pool.start[above] == start + slots:
        size += pool.slots[above]
        _remove_hole(pool, above)
    if above > 0 and pool.start[above - 1] + pool.slots[above - 1] == start:
        size += pool.slots[above - 1]
        pool.slots[above - 1] = size
    else:
        _insert_hole(pool, above, start, size)
    pool.now.largest = max(pool.now.largest, size)
    return slots


@answer(ask.extend, ContiguousPool)
def _extend(pool: ContiguousPool, seat: int) -> int:
    return 0  # nobody grows: all was reserved at once


@rule
@answer(ask.asked_slots, ContiguousPool)
def _asked_slots(pool: ContiguousPool, prompt_tokens: int, output_tokens: int) -> int:
    return reserved_slots(pool.reserve, pool.max_model_len, prompt_tokens, output_tokens)


@answer(ask.fits_empty, ContiguousPool)
def _fits_empty(pool: ContiguousPool, prompt_tokens: int, output_tokens: int) -> bool:
    return _asked_slots(pool, prompt_tokens, output_tokens) <= pool.capacity


@answer(ask.free_slots, ContiguousPool)
def _free_slots(pool: ContiguousPool) -> int:
    return pool.now.free_slots


@answer(ask.largest_free_slots, ContiguousPool)
def _largest_free_slots(pool: ContiguousPool) -> int:
    return pool.now.largest


@answer(ask.held_slots, ContiguousPool)
def _held_slots(pool: ContiguousPool, seat: int) -> int:
    return pool.extent[seat, 1]


@answer(ask.copy_extents, ContiguousPool)
def _copy_extents(pool: ContiguousPool, seat: int, extents: NDArray[np.int64], at: int) -> int:
    extents[at, 0] = pool.extent[seat, 0]
    extents[at, 1] = pool.extent[seat, 1]
    return 1


class Contiguous(Pooled):
    """A free list with coalescing over ``capacity`` slots.

    ``reserve``: max (default; needs ``max_model_len``), pow2 or oracle. ``fit``: first (default; the lowest
    hole that fits), best (the smallest), worst (the largest), ties to the lowest address; next (the first
    hole that fits and ends past where the last placement ended, else the first from address 0). A placement
    takes the low end of its hole. Raises InputError for values outside that.
    """

    contiguous = True
    grow_slots = 0

    def __init__(
        self, capacity: int, reserve: str = "max", fit: str = "first", max_model_len: int | None = None
    ) -> None:
        super().__init__(capacity)
        self.reserve, self.fit = reserve, one_of("fit", fit, FIT)
        self.max_model_len = check_reserve(reserve, max_model_len, self.capacity)
        self.pool = ContiguousPool(
            record(holes=1, free_slots=self.capacity, largest=self.capacity, last_end=0),
            np.zeros(1, np.int64),
            np.full(1, self.capacity),
            np.zeros((0, 2), np.int64),
            self.capacity,
            RESERVE.index(reserve),
            FIT.index(fit),
            self.max_model_len or 0,
        )

    def seated(self, seats: int) -> ContiguousPool:
        # Between n extents, and at both ends, there are at most n + 1 holes.
        starts, slots = (longer(column, seats + 1) for column in (self.pool.start, self.pool.slots))
        self.pool = self.pool._replace(start=starts, slots=slots, extent=longer(self.pool.extent, seats))
        return self.pool

    @property
    def spec(self) -> str:
        return f"contiguous:reserve={self.reserve},fit={self.fit}"
