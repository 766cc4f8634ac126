"""One contiguous extent a request, sized when it is admitted: how servers kept the KV cache before paging.

A **reservation rule** (``allocators/reservation.py``) says how many slots a request asks for, a **fit** which
hole it gets. The free list holds the holes in address order; a freed extent coalesces with its neighbours::

    0      10               50                     100
    |......|#######A########|......................|      last placement ended at 50
     hole                    hole
    for 8 slots: first and best take 0 (the lower, the smaller), worst and next take 50

What a request reserved and does not use is lost to everyone else, and so is a hole too small for the next.
"""

from bisect import bisect_left
from collections.abc import Sequence

from allocators.base import Extent, holds_already, holds_none, one_of, whole
from allocators.reservation import Reserving

FIT = ("first", "best", "worst", "next")


class Contiguous(Reserving):
    """A free list with coalescing over ``capacity`` slots.

    ``reserve``: max (default; needs ``max_model_len``), pow2 or oracle. ``fit``: first (default; the lowest
    hole that fits), best (the smallest), worst (the largest), ties to the lowest address; next (the first
    hole that fits and ends past where the last placement ended, else the first from address 0). A placement
    takes the low end of its hole. Raises InputError for values outside that.
    """

    tail_slots = 0

    def __init__(
        self, capacity: int, reserve: str = "max", fit: str = "first", max_model_len: int | None = None
    ) -> None:
        super().__init__(reserve, max_model_len)
        self.capacity = whole("capacity", capacity)
        self.fit = one_of("fit", fit, FIT)
        self._must_place(self.capacity)
        self.free_slots = self.capacity
        self._hole_starts = [0]
        self._hole_slots = [self.capacity]
        self._extents: dict[int, Extent] = {}
        self._last_end = 0

    @property
    def spec(self) -> str:
        return f"contiguous:reserve={self.reserve},fit={self.fit}"

    @property
    def largest_free_slots(self) -> int:
        return max(self._hole_slots, default=0)

    def fits_empty(self, prompt_tokens: int, output_tokens: int) -> bool:
        return self.asked_slots(prompt_tokens, output_tokens) <= self.capacity

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:  # noqa: ARG002
        if request_id in self._extents:
            raise holds_already(request_id)
        slots = self.asked_slots(prompt_tokens, output_tokens)
        hole = self._find(slots) if slots <= self.free_slots else None
        if hole is None:
            return 0
        start = self._hole_starts[hole]
        if self._hole_slots[hole] == slots:
            del self._hole_starts[hole], self._hole_slots[hole]
        else:
            self._hole_starts[hole] += slots
            self._hole_slots[hole] -= slots
        self._extents[request_id] = Extent(start, slots)
        self._last_end = start + slots
        self.free_slots -= slots
        return slots

    def grow(self, request_ids: Sequence[int]) -> int:
        for request_id in request_ids:
            self.held_slots(request_id)  # raises for an unknown one
        return 0

    def release(self, request_id: int) -> int:
        extent = self._extents.pop(request_id, None)
        if extent is None:
            raise holds_none(request_id)
        start, slots = extent
        self.free_slots += slots
        starts, sizes = self._hole_starts, self._hole_slots
        above = bisect_left(starts, start)
        if above < len(starts) and starts[above] == start + slots:
            slots += sizes[above]
            del starts[above], sizes[above]
        if above > 0 and starts[above - 1] + sizes[above - 1] == start:
            sizes[above - 1] += slots
        else:
            starts.insert(above, start)
            sizes.insert(above, slots)
        return extent.slots

    def held_slots(self, request_id: int) -> int:
        return self.extents(request_id)[0].slots

    def extents(self, request_id: int) -> tuple[Extent, ...]:
        extent = self._extents.get(request_id)
        if extent is None:
            raise holds_none(request_id)
        return (extent,)

    def _find(self, slots: int) -> int | None:
        """Index of the hole that the fit chooses, None when no hole is large enough."""
        starts, sizes = self._hole_starts, self._hole_slots
        fitting = (at for at, size in enumerate(sizes) if size >= slots)
        match self.fit:
            case "first":
                return next(fitting, None)
            case "best":
                return min(fitting, key=sizes.__getitem__, default=None)
            case "worst":
                return max(fitting, key=sizes.__getitem__, default=None)
            case _:
                lowest = next(fitting, None)
                if lowest is None or starts[lowest] + sizes[lowest] > self._last_end:
                    return lowest
                return next((at for at in fitting if starts[at] + sizes[at] > self._last_end), lowest)
