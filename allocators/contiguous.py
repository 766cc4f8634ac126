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

from allocators.base import one_of
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
        self.largest_free_slots = self.capacity

    @property
    def spec(self) -> str:
        return f"contiguous:reserve={self.reserve},fit={self.fit}"

    def _place(self, slots: int) -> tuple[int, int] | None:
        if slots > self.largest_free_slots:
            return None
        starts, sizes = self._hole_starts, self._hole_slots
        hole = self._find(slots)
        start, size = starts[hole], sizes[hole]
        if size == slots:
            del starts[hole], sizes[hole]
        else:
            starts[hole] += slots
            sizes[hole] -= slots
        if size == self.largest_free_slots:
            self.largest_free_slots = max(sizes) if sizes else 0
        self._last_end = start + slots
        return start, slots

    def _give_back(self, start: int, slots: int) -> None:
        starts, sizes = self._hole_starts, self._hole_slots
        above = bisect_left(starts, start)
        if above < len(starts) and starts[above] == start + slots:
            slots += sizes[above]
            del starts[above], sizes[above]
        if above > 0 and starts[above - 1] + sizes[above - 1] == start:
            sizes[above - 1] = slots = slots + sizes[above - 1]
        else:
            starts.insert(above, start)
            sizes.insert(above, slots)
        if slots > self.largest_free_slots:
            self.largest_free_slots = slots

    def _find(self, slots: int) -> int:
        """Index of the hole that the fit chooses; there is one that is large enough."""
        starts, sizes = self._hole_starts, self._hole_slots
        if self.fit == "worst":
            return sizes.index(self.largest_free_slots)
        fitting = (at for at, size in enumerate(sizes) if size >= slots)
        if self.fit == "best":
            return min(fitting, key=sizes.__getitem__)
        lowest = next(fitting)
        if self.fit == "first" or starts[lowest] + sizes[lowest] > self._last_end:
            return lowest
        return next((at for at in fitting if starts[at] + sizes[at] > self._last_end), lowest)
