"""Requests by the iteration in which something happens to them: once, or again and again.

Those that run are always the first to have come of those that are not done: the newest is preempted and goes to the
head of the queue. So the order of admission, in which all of it happens, is the order of the trace.
"""

from heapq import heapify, heappop, heappush

NEVER = 1 << 100
"""Later than any iteration and any time."""


class Agenda:
    """A heap of iterations and requests."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, int]] = []

    def enter(self, iteration: int, request: int) -> None:
        """Enter a request."""
        heappush(self.heap, (iteration, request))

    def first(self) -> int:
        """The earliest iteration that has an entry; NEVER when there is none."""
        return self.heap[0][0] if self.heap else NEVER

    def take(self, iteration: int) -> list[int]:
        """Remove and return the requests of ``iteration``, the earliest, in order; empty when there are none."""
        taken = []
        while self.heap and self.heap[0][0] == iteration:
            taken.append(heappop(self.heap)[1])
        return taken

    def discard(self, iteration: int, request: int) -> None:
        """Remove a request, if it is there."""
        try:
            self.heap.remove((iteration, request))
        except ValueError:
            return
        heapify(self.heap)


class Ring(list[list[int]]):
    """Requests that need memory again every ``period`` iterations, by phase: iteration modulo ``period``.

    Each list is in order, as a new request enters it before its first turn, at most a period later.
    """

    def __init__(self, period: int) -> None:
        super().__init__([] for _ in range(period))
        self.period = period

    def enter(self, iteration: int, request: int) -> None:
        """Enter a request that comes behind all others, for ``iteration`` and every period after it."""
        self[iteration % self.period].append(request)

    def discard(self, iteration: int, request: int) -> None:
        """Remove a request from the list of ``iteration``, if it is there."""
        entered = self[iteration % self.period]
        if request in entered:
            entered.remove(request)

    def between(self, first: int, behind: int) -> list[list[int]]:
        """Who is due in each of the iterations ``first .. behind - 1``."""
        start = first % self.period
        stop = start + behind - first
        return self[start:stop] if stop <= self.period else (self * -(-stop // self.period))[start:stop]
