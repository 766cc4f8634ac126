"""A contiguous allocator that grows: none is built in, and only such a one can be refused in pieces and then grow.

Both sides of a comparison: ``Growing`` for the engine, on the command line ``growing.Growing:step=2``, and its twin for
the token-stepped reference; they share nothing. A request gets the lowest run that fits, and grows at its end by
``step`` slots, or by what it lacks, if those are free. One that runs alone near the end of the pool has to give way to
itself.
"""

from collections.abc import Sequence

import reference
from allocators import Extent
from allocators.base import holds_already, holds_none

NAME = "growing.Growing"


class Growing:
    """One owner for each slot of the pool."""

    contiguous = True
    tail_slots = 0

    def __init__(self, capacity: int, step: int = 1) -> None:
        self.capacity, self.step = capacity, step
        self.grow_slots = 1 if step == 1 else None
        self.spec = f"{NAME}:step={step}"
        self._owners: list[int | None] = [None] * capacity
        self._finals: dict[int, int] = {}

    @property
    def free_slots(self) -> int:
        return self._owners.count(None)

    @property
    def largest_free_slots(self) -> int:
        return max((slots for _, slots in self._holes()), default=0)

    def asked_slots(self, prompt_tokens: int, output_tokens: int) -> int:
        return prompt_tokens

    def fits_empty(self, prompt_tokens: int, output_tokens: int) -> bool:
        return prompt_tokens + output_tokens - 1 <= self.capacity

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        if request_id in self._owners:
            raise holds_already(request_id)
        starts = [start for start, slots in self._holes() if slots >= prompt_tokens]
        if not starts:
            return 0
        self._owners[starts[0] : starts[0] + prompt_tokens] = [request_id] * prompt_tokens
        self._finals[request_id] = prompt_tokens + output_tokens - 1
        return prompt_tokens

    def grow(self, request_ids: Sequence[int]) -> int:
        for request_id in request_ids:
            self.held_slots(request_id)  # raises for an unknown one
        for number, request_id in enumerate(request_ids):
            (extent,) = self.extents(request_id)
            slots = min(self.step, max(self._finals[request_id] - extent.slots, 1))
            if self._owners[extent.end : extent.end + slots] != [None] * slots:
                return number
            self._owners[extent.end : extent.end + slots] = [request_id] * slots
        return len(request_ids)

    def release(self, request_id: int) -> int:
        held = self.held_slots(request_id)
        self._owners = [None if owner == request_id else owner for owner in self._owners]
        return held

    def held_slots(self, request_id: int) -> int:
        if request_id not in self._owners:
            raise holds_none(request_id)
        return self._owners.count(request_id)

    def extents(self, request_id: int) -> tuple[Extent, ...]:
        slots = self.held_slots(request_id)
        return (Extent(self._owners.index(request_id), slots),)

    def _holes(self) -> list[tuple[int, int]]:
        """Start and length of each run of free slots, in address order."""
        holes: list[tuple[int, int]] = []
        for address, owner in enumerate(self._owners):
            if owner is None:
                start, slots = holes.pop() if address and self._owners[address - 1] is None else (address, 0)
                holes.append((start, slots + 1))
        return holes


class Twin(reference.Contiguous):
    """The same for the reference: holes and extents, as its other allocators have them."""

    def __init__(self, capacity: int, limit: int | None, step: int = 1) -> None:
        super().__init__(capacity, limit, "oracle")
        self.step = step

    def asked(self, request: reference.Request) -> int:
        return request.prompt_tokens + request.produced

    def never_fits(self, request: reference.Request) -> bool:
        return request.final > self.capacity

    def admit(self, request: reference.Request, _alone: bool) -> bool:
        extent = self.place(self.asked(request))
        if extent is not None:
            self.extent_of[request.id] = extent
        return extent is not None

    def grow(self, request: reference.Request) -> bool:
        start, slots = self.extent_of[request.id]
        if slots >= self.asked(request):
            return True
        more = min(self.step, request.final - slots)
        for place, (hole, free) in enumerate(self.free):
            if hole == start + slots and free >= more:
                self.free[place : place + 1] = [(hole + more, free - more)] if free > more else []
                self.extent_of[request.id] = (start, slots + more)
                return True
        return False


reference.ALLOCATORS[NAME] = Twin
