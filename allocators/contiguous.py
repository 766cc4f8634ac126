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

from allocators.base import Extent, one_of
from allocators.reservation import Reserving

FIT = ("first", "best", "worst", "next")


class Contiguous(Reserving):
    """A free list with coalescing over ``capacity`` slots.

    ``reserve``: max (default; needs ``max_model_len``), pow2 or oracle. ``fit``: first (default; the lowest
    hole that fits), best (the smallest), worst (the largest), ties to the lowest address; next (the first
    hole that fits and ends past where the last placement ended, else the first from address 0). A placement
    takes the low end of its hole. Raises InputError for values outside that.
    """

    def __init__(
        self, capacity: int, reserve: str = "max", fit: str = "first", max_model_len: int | None = None
    ) -> None:
        super().__init__(capacity, reserve, max_model_len)
        self.fit = one_of("fit", fit, FIT)
        self._place_at_most(self.capacity)
        self._hole_starts = [0]
        self._hole_slots = [self.capacity]
        self._last_end = 0

    @property
    def spec(self) -> str:
        return f"contiguous:reserve={self.reserve},fit={self.fit}"

    @property
    def largest_free_slots(self) -> int:
        return max(self._hole_slots, default=0)

    def _place(self, slots: int) -> Extent | None:
        hole = self._find(slots)
        if hole is None:
            return None
        start = self._hole_starts[hole]
        if self._hole_slots[hole] == slots:
            del self._hole_starts[hole], self._hole_slots[hole]
        else:
            self._hole_starts[hole] += slots
            self._hole_slots[hole] -= slots
        self._last_end = start + slots
        return Extent(start, slots)

    def _give_back(self, extent: Extent) -> None:
        start, slots = extent
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
