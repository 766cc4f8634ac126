"""An allocator of a user's own, in plain Python, behind the questions that the loop asks.

Compiled code calls it, see ``callback.py``. Whatever may change something is one call, after which what is free lies in
an array that both sides see; and what is known since is not asked again.
"""

import ctypes
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocators import pool as ask
from allocators.base import Allocator, in_short
from allocators.seam import answer
from simulator.engine.callback import FAILED, Callback, Callbacks, CalledError

_FREE, _LARGEST, _ASKED = range(3)
_MOST = 1 << 62  # slots


def broke_promise(allocator: Allocator, what: str) -> RuntimeError:
    """To be raised when an allocator did what none may."""
    return RuntimeError(f"{allocator.spec} broke a promise: {what}; allocators.check_allocator tells more")


class ForeignPool(NamedTuple):
    """What compiled code sees of the allocator."""

    told: NDArray[np.int64]
    """What is free, the largest free run, and what the request asked for that asked last: slots."""
    row: NDArray[np.int64]
    """Row of the queue -> row of the trace, which is what the allocator knows a request by."""
    request: NDArray[np.int64]
    """Seat -> the row of the trace."""
    admit: Callback
    asked: Callback
    grow: Callback
    release: Callback
    extents: Callback


class Foreign:
    """Calls an allocator; ``rows``: row of the queue -> row of the trace."""

    def __init__(self, allocator: Allocator, rows: NDArray[np.int64], seats: int) -> None:
        self.allocator = allocator
        self.callbacks = Callbacks()
        self._told = (ctypes.c_int64 * 3)()
        self._asked_by = (-1, -1)
        self.pool = ForeignPool(
            np.frombuffer(memoryview(self._told), np.int64),
            rows,
            np.zeros(seats, np.int64),
            self.callbacks.of(self._admit, 4),
            self.callbacks.of(self._ask, 2),
            self.callbacks.of(self._grow, 1),
            self.callbacks.of(self._release, 1),
            self.callbacks.of(self._write_extents, 3),
        )
        self._look()

    def _look(self) -> None:
        free, largest = self.allocator.free_slots, self.allocator.largest_free_slots
        if type(free) is not int or type(largest) is not int or not 0 <= largest <= free <= _MOST:
            free, largest = self._whole("free_slots", free), self._whole("largest_free_slots", largest)
        self._told[_FREE], self._told[_LARGEST] = free, largest

    def _whole(self, name: str, value: object) -> int:
        """A number of slots; numpy's are none of Python's, and go as well."""
        if isinstance(value, bool) or not hasattr(value, "__index__") or not 0 <= value.__index__() <= _MOST:
            raise self._broke(f"{name} gave {in_short(value)}, and no number of slots")
        return int(value.__index__())

    def _broke(self, what: str) -> RuntimeError:
        return broke_promise(self.allocator, what)

    def _ask(self, prompt_tokens: int, output_tokens: int) -> int:
        # Who is refused asks again, and the same.
        if self._asked_by != (prompt_tokens, output_tokens):
            asked = self.allocator.asked_slots(prompt_tokens, output_tokens)
            self._told[_ASKED] = self._whole("asked_slots", asked)
            self._asked_by = prompt_tokens, output_tokens
        return self._told[_ASKED]

    def _admit(self, row: int, prompt_tokens: int, output_tokens: int, alone: int) -> int:
        self._ask(prompt_tokens, output_tokens)
        held = self.allocator.admit(row, prompt_tokens, output_tokens, bool(alone))
        if type(held) is not int or not 0 <= held <= _MOST:
            held = self._whole(f"admit of {prompt_tokens} tokens of request {row}", held)
        self._look()
        return held

    def _grow(self, row: int) -> int:
        before = self._whole("held_slots", self.allocator.held_slots(row))
        grown = self.allocator.grow([row])
        if not isinstance(grown, int) or grown not in (0, 1):
            raise self._broke(f"grow served {in_short(grown)} of 1 requests")
        added = self._whole("held_slots", self.allocator.held_slots(row)) - before if grown else 0
        if added < grown:
            raise self._broke(f"grow gave {added} slots to request {row}")
        self._look()
        return added

    def _release(self, row: int) -> int:
        slots = self.allocator.release(row)
        self._look()
        return slots if type(slots) is int and 0 <= slots <= _MOST else self._whole(f"release of request {row}", slots)

    def _write_extents(self, row: int, address: int, room: int) -> int:
        """Write start and slots of each extent there, where there is room for ``room`` of them."""
        given = self.allocator.extents(row)
        try:
            extents = [(self._whole("a start", start), self._whole("an extent", slots)) for start, slots in given]
        except (TypeError, ValueError):
            raise self._broke(f"extents of request {row} gave {in_short(given)}, and no starts and slots") from None
        if len(extents) > room:
            raise self._broke(f"request {row} has {len(extents)} extents, more than the pool has slots")
        place = (ctypes.c_int64 * (2 * len(extents))).from_address(address)
        np.frombuffer(memoryview(place), np.int64)[:] = [number for extent in extents for number in extent]
        return len(extents)


@answer(ask.allocate, ForeignPool)
def _allocate(pool: ForeignPool, seat: int, request: int, prompt_tokens: int, output_tokens: int, alone: bool) -> int:
    held = pool.admit(pool.row[request], prompt_tokens, output_tokens, int(alone))
    if held == FAILED:
        raise CalledError
    pool.request[seat] = pool.row[request]
    return held


@answer(ask.extend, ForeignPool)
def _extend(pool: ForeignPool, seat: int) -> int:
    added = pool.grow(pool.request[seat])
    if added == FAILED:
        raise CalledError
    return added


@answer(ask.free, ForeignPool)
def _free(pool: ForeignPool, seat: int) -> int:
    slots = pool.release(pool.request[seat])
    if slots == FAILED:
        raise CalledError
    return slots


@answer(ask.asked_slots, ForeignPool)
def _asked_slots(pool: ForeignPool, prompt_tokens: int, output_tokens: int) -> int:
    asked = pool.asked(prompt_tokens, output_tokens)
    if asked == FAILED:
        raise CalledError
    return asked


@answer(ask.free_slots, ForeignPool)
def _free_slots(pool: ForeignPool) -> int:
    return pool.told[_FREE]


@answer(ask.largest_free_slots, ForeignPool)
def _largest_free_slots(pool: ForeignPool) -> int:
    return pool.told[_LARGEST]


@answer(ask.copy_extents, ForeignPool)
def _copy_extents(pool: ForeignPool, seat: int, extents: NDArray[np.int64], at: int) -> int:
    count = pool.extents(pool.request[seat], extents.ctypes.data + 16 * at, len(extents) - at)
    if count == FAILED:
        raise CalledError
    return count
