"""One contiguous extent per request, from a free list in address order."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from simulator.core import pool as ask
from simulator.core.reserving import reserved
from simulator.core.seam import answers, record

FIRST, BEST, WORST, NEXT = range(4)


class ContiguousPool(NamedTuple):
    now: Any
    """``holes``, ``free_slots``, ``largest`` (the largest hole), ``last_end`` (where the last placement ended)."""
    start: np.ndarray
    """Holes in address order: where each starts,"""
    slots: np.ndarray
    """and how long it is."""
    extent: np.ndarray
    """Seat -> start and slots."""
    capacity: int
    reserve: int
    fit: int
    limit: int


def contiguous_pool(capacity: int, reserve: int, fit: int, limit: int, seats: int) -> ContiguousPool:
    start, slots = np.zeros(seats + 1, np.int64), np.zeros(seats + 1, np.int64)
    slots[0] = capacity
    now = record(holes=1, free_slots=capacity, largest=capacity, last_end=0)
    return ContiguousPool(now, start, slots, np.zeros((seats, 2), np.int64), capacity, reserve, fit, limit)


@answers(ask.asked_slots, ContiguousPool)
def _asked_slots(pool, prompt, output):
    return reserved(pool.reserve, pool.limit, prompt, output)


@answers(ask.fits_empty, ContiguousPool)
def _fits_empty(pool, prompt, output):
    return reserved(pool.reserve, pool.limit, prompt, output) <= pool.capacity


@answers(ask.allocate, ContiguousPool)
def _allocate(pool, seat, request, prompt, output, alone):
    asked = reserved(pool.reserve, pool.limit, prompt, output)
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
        _look_for_largest(pool)
    pool.now.last_end = start + asked
    pool.now.free_slots -= asked
    pool.extent[seat, 0] = start
    pool.extent[seat, 1] = asked
    return asked


@njit(_nrt=False, forceinline=True)
def _find(pool, asked):
    """The hole that the fit chooses; there is one that is large enough."""
    chosen = -1
    for hole in range(pool.now.holes):
        size = pool.slots[hole]
        if size < asked:
            continue
        if pool.fit == FIRST:
            return hole
        if pool.fit == NEXT:
            if pool.start[hole] + size > pool.now.last_end:
                return hole
            if chosen < 0:
                chosen = hole
        elif chosen < 0 or (size < pool.slots[chosen] if pool.fit == BEST else size > pool.slots[chosen]):
            chosen = hole
    return chosen


@njit(_nrt=False, forceinline=True)
def _remove_hole(pool, hole):
    pool.now.holes -= 1
    for at in range(hole, pool.now.holes):
        pool.start[at] = pool.start[at + 1]
        pool.slots[at] = pool.slots[at + 1]


@njit(_nrt=False, forceinline=True)
def _look_for_largest(pool):
    largest = 0
    for hole in range(pool.now.holes):
        largest = max(largest, pool.slots[hole])
    pool.now.largest = largest


@answers(ask.extend, ContiguousPool)
def _extend(pool, seat):
    return 0


@answers(ask.free, ContiguousPool)
def _free(pool, seat):
    start, slots = pool.extent[seat, 0], pool.extent[seat, 1]
    pool.now.free_slots += slots
    given, holes = slots, pool.now.holes
    above = 0
    while above < holes and pool.start[above] < start:
        above += 1
    if above < holes and pool.start[above] == start + slots:
        slots += pool.slots[above]
        _remove_hole(pool, above)
    if above > 0 and pool.start[above - 1] + pool.slots[above - 1] == start:
        slots += pool.slots[above - 1]
        pool.slots[above - 1] = slots
    else:
        for at in range(pool.now.holes, above, -1):
            pool.start[at] = pool.start[at - 1]
            pool.slots[at] = pool.slots[at - 1]
        pool.start[above] = start
        pool.slots[above] = slots
        pool.now.holes += 1
    pool.now.largest = max(pool.now.largest, slots)
    return given


@answers(ask.free_slots, ContiguousPool)
def _free_slots(pool):
    return pool.now.free_slots


@answers(ask.largest_free_slots, ContiguousPool)
def _largest_free_slots(pool):
    return pool.now.largest


@answers(ask.copy_extents, ContiguousPool)
def _copy_extents(pool, seat, extents, at):
    extents[at, 0] = pool.extent[seat, 0]
    extents[at, 1] = pool.extent[seat, 1]
    return 1
