"""An allocator in plain Python behind the loop: each question is a call of its method."""

from typing import Any, NamedTuple

import numpy as np
from numba import objmode

from allocators.base import Allocator
from simulator.core import pool as ask
from simulator.core.seam import answers

_ALLOCATORS: dict[int, tuple[Allocator, dict[int, int]]] = {}


class ForeignPool(NamedTuple):
    handle: int
    seats: np.ndarray
    """Seat -> the request that sits there."""


def foreign_pool(allocator: Allocator, seats: int) -> ForeignPool:
    handle = id(allocator)
    _ALLOCATORS[handle] = allocator
    return ForeignPool(handle, np.full(seats, -1, np.int64))


def forget(pool: Any) -> None:
    if isinstance(pool, ForeignPool):
        _ALLOCATORS.pop(pool.handle, None)


@answers(ask.asked_slots, ForeignPool)
def _asked_slots(pool, prompt, output):
    handle = pool.handle
    with objmode(asked="int64"):
        asked = int(_ALLOCATORS[handle].asked_slots(int(prompt), int(output)))
    return asked


@answers(ask.fits_empty, ForeignPool)
def _fits_empty(pool, prompt, output):
    handle = pool.handle
    with objmode(fits="boolean"):
        fits = bool(_ALLOCATORS[handle].fits_empty(int(prompt), int(output)))
    return fits


@answers(ask.allocate, ForeignPool)
def _allocate(pool, seat, request, prompt, output, alone):
    handle = pool.handle
    with objmode(held="int64"):
        held = int(_ALLOCATORS[handle].admit(int(request), int(prompt), int(output), bool(alone)))
    if held:
        pool.seats[seat] = request
    return held


@answers(ask.extend, ForeignPool)
def _extend(pool, seat):
    handle, request = pool.handle, pool.seats[seat]
    with objmode(added="int64"):
        allocator = _ALLOCATORS[handle]
        before = allocator.held_slots(int(request))
        added = int(allocator.held_slots(int(request)) - before) if allocator.grow([int(request)]) else 0
    return added


@answers(ask.free, ForeignPool)
def _free(pool, seat):
    handle, request = pool.handle, pool.seats[seat]
    with objmode(given="int64"):
        given = int(_ALLOCATORS[handle].release(int(request)))
    return given


@answers(ask.free_slots, ForeignPool)
def _free_slots(pool):
    handle = pool.handle
    with objmode(free="int64"):
        free = int(_ALLOCATORS[handle].free_slots)
    return free


@answers(ask.largest_free_slots, ForeignPool)
def _largest_free_slots(pool):
    handle = pool.handle
    with objmode(largest="int64"):
        largest = int(_ALLOCATORS[handle].largest_free_slots)
    return largest


@answers(ask.copy_extents, ForeignPool)
def _copy_extents(pool, seat, extents, at):
    handle, request = pool.handle, pool.seats[seat]
    with objmode(count="int64"):
        own = _ALLOCATORS[handle].extents(int(request))
        for place, (start, slots) in enumerate(own):
            extents[at + place, 0] = start
            extents[at + place, 1] = slots
        count = len(own)
    return count
