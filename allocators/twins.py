"""Two allocators that are asked the same, and the invariants of their state, for the conformance kit."""

from collections.abc import Callable
from itertools import pairwise

from allocators.base import Allocator, Extent, MisuseError

State = tuple[int, int, dict[int, tuple[Extent, ...]]]
"""Free slots, largest free, and the extents of each request that holds some."""


class BrokenPromiseError(AssertionError):
    """An allocator did not keep the protocol of ``allocators/base.py``; the message says where."""


class Twins:
    """Two allocators that ``factory`` made; they must answer alike.

    ``held``: prompt and output tokens of each request that holds memory. ``step`` and ``call``: what is done, for
    messages; ``next_id``: the request that is placed next.
    """

    def __init__(self, factory: Callable[[], Allocator], seed: int) -> None:
        self.factory = factory
        self.allocator, self.twin = factory(), factory()
        self.seed, self.step, self.call = seed, 0, "new"
        self.held: dict[int, tuple[int, int]] = {}
        self.next_id = 0

    def told(self, broken: str) -> str:
        return f"{self.allocator.spec}: {broken} (seed {self.seed}, step {self.step}, {self.call})"

    def expect(self, kept: bool, broken: str) -> None:
        if not kept:
            raise BrokenPromiseError(self.told(broken))

    def both(self, call: Callable[[Allocator], int]) -> int:
        """The call on both allocators, which must answer alike."""
        first, second = call(self.allocator), call(self.twin)
        self.expect(first == second, f"the same calls gave {first} and {second}")
        return first

    def state(self) -> State:
        """Free, largest free and everyone's extents, after checking that they make sense together."""
        allocator = self.allocator
        extents = {request: tuple(allocator.extents(request)) for request in self.held_ids()}
        self.expect(
            extents == {request: tuple(self.twin.extents(request)) for request in extents},
            "the same calls gave other addresses",
        )
        runs = sorted(extent for own in extents.values() for extent in own)
        edges = [Extent(0, 0), *runs, Extent(allocator.capacity, 0)]
        self.expect(all(extent.slots > 0 for extent in runs), "an extent is empty")
        self.expect(
            all(low.end <= high.start for low, high in pairwise(edges)), f"extents overlap or leave the pool: {runs}"
        )
        for request, own in extents.items():
            one = len(own) == 1 or not allocator.contiguous
            self.expect(one, f"contiguous is True, and request {request} lies in {len(own)} extents")
            held = allocator.held_slots(request)
            self.expect(sum(e.slots for e in own) == held, f"the extents of request {request} do not add up to {held}")
        free, largest, tail = allocator.free_slots, allocator.largest_free_slots, allocator.tail_slots
        held = sum(extent.slots for extent in runs)
        self.expect(free + held == allocator.capacity, f"free {free} + held {held} != capacity {allocator.capacity}")
        self.expect(tail >= 0, f"tail_slots is {tail}")
        self.expect(0 <= largest <= free - tail, f"largest_free_slots {largest} > free {free} - tail {tail}")
        anywhere = allocator.contiguous or largest == free - tail
        self.expect(anywhere, f"it is not contiguous, and largest_free_slots {largest} < free {free} - tail {tail}")
        if allocator.contiguous:
            hole = max(high.start - low.end for low, high in pairwise(edges))
            self.expect(largest <= hole, f"largest_free_slots {largest}, but the largest hole has {hole}")
        return free, largest, extents

    def held_ids(self) -> list[int]:
        """Requests that hold memory: those known, and the one that an admit may just have placed."""
        ids = list(self.held)
        if self.call.startswith(f"admit({self.next_id},"):
            try:
                if self.allocator.extents(self.next_id):
                    ids.append(self.next_id)
            except MisuseError:
                pass
        return ids
