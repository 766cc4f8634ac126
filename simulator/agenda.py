"""Requests by the iteration in which something happens to them: once, or again and again.

Those that run are always the first to have come of those that are not done: the newest is preempted and goes to the
head of the queue. So the order of admission, in which all of it happens, is the order of the trace.
"""

from contextlib import suppress
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
        with suppress(ValueError):
            self.heap.remove((iteration, request))
            heapify(self.heap)


class Phases(dict[int, list[int]]):
    """Requests that need memory again every ``period`` iterations, by phase: iteration modulo ``period``.

    None of the lists is empty. Each is in order, as a new request enters its list before its first turn, at most a
    period later.
    """

    def __init__(self, period: int) -> None:
        super().__init__()
        self.period = period

    def enter(self, iteration: int, request: int) -> None:
        """Enter a request that comes behind all others, for ``iteration`` and every period after it."""
        self.setdefault(iteration % self.period, []).append(request)

    def discard(self, iteration: int, request: int) -> None:
        """Remove a request from the list of ``iteration``, if it is there."""
        phase = iteration % self.period
        entered = self.get(phase)
        if entered and request in entered:
            entered.remove(request)
            if not entered:
                del self[phase]

    def between(self, first: int, behind: int) -> list[tuple[int, list[int]]]:
        """The iterations ``first .. behind - 1`` in which someone is due, and who."""
        period, get = self.period, self.get
        if behind - first <= 4 * len(self):
            return [(at, due) for at in range(first, behind) if (due := get(at % period))]
        turns = sorted(((phase - first) % period, due) for phase, due in self.items())
        return [(at + after, due) for at in range(first, behind, period) for after, due in turns if at + after < behind]
