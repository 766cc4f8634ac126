"""An allocator of a user's own, in plain Python, behind the questions that the loop asks: each is a call of a method."""

from typing import Any, NamedTuple

import numpy as np
from numba import objmode
from numpy.typing import NDArray

from allocators import pool as ask
from allocators.base import Allocator
from allocators.seam import answer

_ALLOCATORS: dict[int, Allocator] = {}


class ForeignPool(NamedTuple):
    """A number that stands for the allocator, which compiled code cannot hold."""

    handle: int
    row: NDArray[np.int64]
    """Place in the queue -> row of the trace, which is what the allocator knows a request by."""
    request: NDArray[np.int64]
    """Seat -> the row on it."""


def foreign_pool(allocator: Allocator, rows: NDArray[np.int64], seats: int) -> ForeignPool:
    """A pool that asks the allocator; for as long as it is not forgotten."""
    handle = next(number for number in range(len(_ALLOCATORS) + 1) if number not in _ALLOCATORS)
    _ALLOCATORS[handle] = allocator
    return ForeignPool(handle, rows, np.zeros(seats, np.int64))


def forget(pool: ForeignPool) -> None:
    """Let go of the allocator."""
    del _ALLOCATORS[pool.handle]


# What a block in object mode names is stored with the machine code: a function by its name, a dictionary with all
# that is in it. So each calls a function.


def _grown(handle: int, request: int) -> int:
    allocator = _ALLOCATORS[handle]
    before = allocator.held_slots(request)
    return allocator.held_slots(request) - before if allocator.grow([request]) else 0


def _allocator(handle: int) -> Allocator:
    return _ALLOCATORS[handle]


@answer(ask.asked_slots, ForeignPool)
def _asked_slots(pool: ForeignPool, prompt_tokens: int, output_tokens: int) -> int:
    handle = pool.handle
    with objmode(asked="int64"):
        asked = _allocator(handle).asked_slots(int(prompt_tokens), int(output_tokens))
    return asked


@answer(ask.fits_empty, ForeignPool)
def _fits_empty(pool: ForeignPool, prompt_tokens: int, output_tokens: int) -> bool:
    handle = pool.handle
    with objmode(fits="boolean"):
        fits = bool(_allocator(handle).fits_empty(int(prompt_tokens), int(output_tokens)))
    return fits


@answer(ask.allocate, ForeignPool)
def _allocate(pool: ForeignPool, seat: int, request: int, prompt_tokens: int, output_tokens: int, alone: bool) -> int:
    handle, row = pool.handle, pool.row[request]
    pool.request[seat] = row
    with objmode(held="int64"):
        held = _allocator(handle).admit(int(row), int(prompt_tokens), int(output_tokens), bool(alone))
    return held


@answer(ask.extend, ForeignPool)
def _extend(pool: ForeignPool, seat: int) -> int:
    handle, request = pool.handle, pool.request[seat]
    with objmode(added="int64"):
        added = _grown(handle, int(request))
    return added


@answer(ask.free, ForeignPool)
def _free(pool: ForeignPool, seat: int) -> int:
    handle, request = pool.handle, pool.request[seat]
    with objmode(slots="int64"):
        slots = _allocator(handle).release(int(request))
    return slots


@answer(ask.free_slots, ForeignPool)
def _free_slots(pool: ForeignPool) -> int:
    handle = pool.handle
    with objmode(free="int64"):
        free = _allocator(handle).free_slots
    return free


@answer(ask.largest_free_slots, ForeignPool)
def _largest_free_slots(pool: ForeignPool) -> int:
    handle = pool.handle
    with objmode(largest="int64"):
        largest = _allocator(handle).largest_free_slots
    return largest


@answer(ask.held_slots, ForeignPool)
def _held_slots(pool: ForeignPool, seat: int) -> int:
    handle, request = pool.handle, pool.request[seat]
    with objmode(held="int64"):
        held = _allocator(handle).held_slots(int(request))
    return held


@answer(ask.copy_extents, ForeignPool)
def _copy_extents(pool: ForeignPool, seat: int, extents: Any, at: int) -> int:
    handle, request = pool.handle, pool.request[seat]
    with objmode(count="int64"):
        own = _allocator(handle).extents(int(request))
        extents[at : at + len(own)] = own
        count = len(own)
    return count
