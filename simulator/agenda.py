"""Requests by the iteration in which something happens to them: a heap of iterations, a list for each."""

from collections.abc import Callable
from heapq import heappop, heappush

NEVER = 1 << 100
"""Later than any iteration and any time."""


class Agenda:
    """Lists of requests by iteration, each in the order of ``rank`` (admission order)."""

    def __init__(self, rank: Callable[[int], int]) -> None:
        self._rank = rank
        self._lists: dict[int, list[int]] = {}
        self._iterations: list[int] = []

    def append(self, iteration: int, request: int) -> None:
        """Enter a request that ranks behind all others of that iteration."""
        entered = self._lists.get(iteration)
        if entered is None:
            self._lists[iteration] = [request]
            heappush(self._iterations, iteration)
        else:
            entered.append(request)

    def merge(self, iteration: int, requests: list[int]) -> None:
        """Enter requests that are in order among themselves. The list may be kept."""
        entered = self._lists.get(iteration)
        if entered is None:
            self._lists[iteration] = requests
            heappush(self._iterations, iteration)
        else:
            self._lists[iteration] = sorted([*entered, *requests], key=self._rank)

    def first(self) -> int:
        """The earliest iteration that has an entry; NEVER when there is none."""
        iterations = self._iterations
        while iterations and iterations[0] not in self._lists:
            heappop(iterations)
        return iterations[0] if iterations else NEVER

    def take(self, iteration: int) -> list[int]:
        """Remove and return the list of ``iteration``; empty when there is none."""
        return self._lists.pop(iteration, [])

    def discard(self, iteration: int, request: int) -> None:
        """Remove one request from the list of ``iteration``, if it is there."""
        entered = self._lists.get(iteration, [])
        if request in entered:
            entered.remove(request)
            if not entered:
                del self._lists[iteration]
