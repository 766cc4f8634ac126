"""An allocator of a user's own, in plain Python, behind the questions that the loop asks.

A call from compiled code into Python takes about a microsecond. So whatever may change something is one call, which
also brings back what is free then; and what is known since is not asked again.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import objmode
from numpy.typing import NDArray

from allocators import pool as ask
from allocators.base import Allocator
from allocators.seam import answer, record

_ALLOCATORS: dict[int, Allocator] = {}


class ForeignPool(NamedTuple):
    """A number that stands for the allocator, which compiled code cannot hold."""

    handle: int
    now: Any
    """``free``, ``largest`` slots; ``asked`` by the request that asked last, ``prompt`` and ``output`` of that."""
    row: NDArray[np.int64]
    """Place in the queue -> row of the trace, which is what the allocator knows a request by."""
    request: NDArray[np.int64]
    """Seat -> the row on it."""


def foreign_pool(allocator: Allocator, rows: NDArray[np.int64], seats: int) -> ForeignPool:
    """A pool that asks the allocator; until it is forgotten."""
    handle = next(number for number in range(len(_ALLOCATORS) + 1) if number not in _ALLOCATORS)
    _ALLOCATORS[handle] = allocator
    free, largest = _room(allocator)
    now = record(free=free, largest=largest, asked=0, prompt=0, output=0)
    return ForeignPool(handle, now, rows, np.zeros(seats, np.int64))


def forget(pool: Any) -> None:
    """Let go of the allocator, if it is one of a user's own."""
    if isinstance(pool, ForeignPool):
        del _ALLOCATORS[pool.handle]


# What a block in object mode names is stored with the machine code: a function by its name, but a dictionary with all
# that is in it. So each block calls a function.


def _room(allocator: Allocator) -> tuple[int, int]:
    return int(allocator.free_slots), int(allocator.largest_free_slots)


def _admit(handle: int, row: int, prompt_tokens: int, output_tokens: int, alone: bool) -> tuple[int, int, int, int]:
    allocator = _ALLOCATORS[handle]
    asked = allocator.asked_slots(prompt_tokens, output_tokens)
    return asked, allocator.admit(row, prompt_tokens, output_tokens, alone), *_room(allocator)


def _grow(handle: int, row: int) -> tuple[int, int, int]:
    allocator = _ALLOCATORS[handle]
    before = allocator.held_slots(row)
    grown = allocator.grow([row])
    if grown not in (0, 1):
        raise RuntimeError(
            f"{allocator.spec} broke a promise: grow served {grown} of 1 requests; allocators.check_allocator tells more"
        )
    return allocator.held_slots(row) - before if grown else 0, *_room(allocator)


def _release(handle: int, row: int) -> tuple[int, int, int]:
    allocator = _ALLOCATORS[handle]
    return allocator.release(row), *_room(allocator)


def _asked(handle: int, prompt_tokens: int, output_tokens: int) -> int:
    return _ALLOCATORS[handle].asked_slots(prompt_tokens, output_tokens)


def _fits(handle: int, prompt_tokens: int, output_tokens: int) -> bool:
    return bool(_ALLOCATORS[handle].fits_empty(prompt_tokens, output_tokens))


def _held(handle: int, row: int) -> int:
    return _ALLOCATORS[handle].held_slots(row)


def _write_extents(handle: int, row: int, extents: Any, at: int) -> int:
    own = _ALLOCATORS[handle].extents(row)
    extents[at : at + len(own)] = own
    return len(own)


@answer(ask.allocate, ForeignPool)
def _allocate(pool: ForeignPool, seat: int, request: int, prompt_tokens: int, output_tokens: int, alone: bool) -> int:
    handle, row = pool.handle, pool.row[request]
    with objmode(asked="int64", held="int64", free="int64", largest="int64"):
        asked, held, free, largest = _admit(handle, int(row), int(prompt_tokens), int(output_tokens), bool(alone))
    now = pool.now
    now.asked, now.prompt, now.output, now.free, now.largest = asked, prompt_tokens, output_tokens, free, largest
    if held:
        pool.request[seat] = row
    return held


@answer(ask.extend, ForeignPool)
def _extend(pool: ForeignPool, seat: int) -> int:
    handle, row = pool.handle, pool.request[seat]
    with objmode(added="int64", free="int64", largest="int64"):
        added, free, largest = _grow(handle, int(row))
    pool.now.free, pool.now.largest = free, largest
    return added


@answer(ask.free, ForeignPool)
def _free(pool: ForeignPool, seat: int) -> int:
    handle, row = pool.handle, pool.request[seat]
    with objmode(slots="int64", free="int64", largest="int64"):
        slots, free, largest = _release(handle, int(row))
    pool.now.free, pool.now.largest = free, largest
    return slots


@answer(ask.asked_slots, ForeignPool)
def _asked_slots(pool: ForeignPool, prompt_tokens: int, output_tokens: int) -> int:
    if pool.now.prompt == prompt_tokens and pool.now.output == output_tokens:
        return pool.now.asked
    handle = pool.handle
    with objmode(asked="int64"):
        asked = _asked(handle, int(prompt_tokens), int(output_tokens))
    return asked


@answer(ask.fits_empty, ForeignPool)
def _fits_empty(pool: ForeignPool, prompt_tokens: int, output_tokens: int) -> bool:
    handle = pool.handle
    with objmode(fits="boolean"):
        fits = _fits(handle, int(prompt_tokens), int(output_tokens))
    return fits


@answer(ask.free_slots, ForeignPool)
def _free_slots(pool: ForeignPool) -> int:
    return pool.now.free


@answer(ask.largest_free_slots, ForeignPool)
def _largest_free_slots(pool: ForeignPool) -> int:
    return pool.now.largest


@answer(ask.held_slots, ForeignPool)
def _held_slots(pool: ForeignPool, seat: int) -> int:
    handle, row = pool.handle, pool.request[seat]
    with objmode(held="int64"):
        held = _held(handle, int(row))
    return held


@answer(ask.copy_extents, ForeignPool)
def _copy_extents(pool: ForeignPool, seat: int, extents: Any, at: int) -> int:
    handle, row = pool.handle, pool.request[seat]
    with objmode(count="int64"):
        count = _write_extents(handle, int(row), extents, int(at))
    return count
