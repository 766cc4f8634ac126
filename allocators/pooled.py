"""What people call from Python: the protocol of ``allocators/base.py`` over a pool of one of the project's types."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from allocators import pool as ask
from allocators.base import Extent, holds_already, holds_none, whole


class Pooled:
    """Requests by the ids of the caller, each on a seat of ``self.pool``; a subclass makes the pool, and room in it."""

    contiguous: bool
    grow_slots: int
    pool: Any
    """The state; it is replaced by a larger one when more seats are needed."""

    def __init__(self, capacity: int) -> None:
        self.capacity = whole("capacity", capacity)
        self.seats: dict[int, int] = {}
        """Request -> its seat."""
        self._vacant: list[int] = []

    def seated(self, seats: int) -> Any:
        """The pool with room for at least so many requests at once; ``self.pool`` from now on."""
        raise NotImplementedError

    @property
    def tail_slots(self) -> int:
        return 0

    @property
    def free_slots(self) -> int:
        return int(ask.free_slots(self.pool))

    @property
    def largest_free_slots(self) -> int:
        return int(ask.largest_free_slots(self.pool))

    def asked_slots(self, prompt_tokens: int, output_tokens: int) -> int:
        """Slots that the reservation rule wants; of one that reserves nothing, what must be written now."""
        return int(ask.asked_slots(self.pool, prompt_tokens, output_tokens))

    def fits_empty(self, prompt_tokens: int, output_tokens: int) -> bool:
        return bool(ask.fits_empty(self.pool, prompt_tokens, output_tokens))

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        if request_id in self.seats:
            raise holds_already(request_id)
        if not self._vacant:
            taken = len(self.seats)
            self.seated(2 * taken + 1)
            self._vacant = list(range(2 * taken, taken - 1, -1))
        held = int(ask.allocate(self.pool, self._vacant[-1], request_id, prompt_tokens, output_tokens, alone))
        if held:
            self.seats[request_id] = self._vacant.pop()
        return held

    def grow(self, request_ids: Sequence[int]) -> int:
        """One more block for each request, in order, until there is no room; returns how many got one."""
        seats = [self._seat(request_id) for request_id in request_ids]
        return next((place for place, seat in enumerate(seats) if not ask.extend(self.pool, seat)), len(seats))

    def release(self, request_id: int) -> int:
        seat = self._seat(request_id)
        del self.seats[request_id]
        self._vacant.append(seat)
        return int(ask.free(self.pool, seat))

    def held_slots(self, request_id: int) -> int:
        return int(ask.held_slots(self.pool, self._seat(request_id)))

    def extents(self, request_id: int) -> tuple[Extent, ...]:
        """The extents of a request in the order of its tokens; of blocks one each, neighbours are not joined."""
        seat = self._seat(request_id)
        extents = np.zeros((int(ask.held_slots(self.pool, seat)), 2), np.int64)
        count = ask.copy_extents(self.pool, seat, extents, 0)
        return tuple(Extent(*extent) for extent in extents[:count].tolist())

    def _seat(self, request_id: int) -> int:
        seat = self.seats.get(request_id)
        if seat is None:
            raise holds_none(request_id)
        return seat


def longer(column: np.ndarray[Any, Any], length: int) -> np.ndarray[Any, Any]:
    """The array with zeros behind it up to a length; itself where it is as long already."""
    missing = length - len(column)
    return column if missing <= 0 else np.concatenate([column, np.zeros((missing, *column.shape[1:]), column.dtype)])
