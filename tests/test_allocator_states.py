"""The three allocators, call by call, against the plainest model there is: a list that says who owns each slot."""

from collections.abc import Callable
from itertools import groupby

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from allocators import Allocator, Buddy, Contiguous, Extent, MisuseError, Paged

TOKENS = st.integers(1, 6)
REQUESTS = st.integers(1, 12).flatmap(lambda count: st.lists(st.tuples(TOKENS, TOKENS), min_size=count, max_size=count))


class Model:
    """A pool slot by slot. ``find`` looks for the run of a new request; everything is searched for anew."""

    make: Callable[[], Allocator]
    reserve: str
    limit: int
    tail = 0

    def __init__(self, capacity: int) -> None:
        self.owner: list[int | None] = [None] * capacity
        self.held: dict[int, list[Extent]] = {}

    def take(self, request_id: int, extent: Extent) -> None:
        assert set(self.owner[extent.start : extent.end]) == {None}
        self.owner[extent.start : extent.end] = [request_id] * extent.slots
        self.held.setdefault(request_id, []).append(extent)

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool) -> int:
        found = self.find(self.asked(prompt_tokens, output_tokens))
        if found is None:
            return 0
        self.take(request_id, found)
        return found.slots

    def grow(self, request_id: int) -> bool:
        return False

    def release(self, request_id: int) -> int:
        self.owner = [None if owner == request_id else owner for owner in self.owner]
        return sum(extent.slots for extent in self.held.pop(request_id))

    def asked(self, prompt_tokens: int, output_tokens: int) -> int:
        """What the reservation rule of this pool asks for."""
        rounded = 1
        while rounded < output_tokens:
            rounded *= 2
        return {
            "max": self.limit,
            "pow2": min(prompt_tokens + rounded - 1, self.limit),
            "oracle": prompt_tokens + output_tokens - 1,
        }[self.reserve]

    def in_the_end(self, prompt_tokens: int, output_tokens: int) -> int:
        """The slots that a request needs at its longest."""
        return self.asked(prompt_tokens, output_tokens)

    def find(self, asked: int) -> Extent | None:
        raise NotImplementedError

    def largest(self) -> int:
        raise NotImplementedError

    def runs(self) -> list[Extent]:
        """The longest runs of free slots, by address."""
        found, start = [], 0
        for owner, slots in groupby(self.owner):
            extent = Extent(start, len(list(slots)))
            start = extent.end
            if owner is None:
                found.append(extent)
        return found


class ContiguousModel(Model):
    def __init__(self, capacity: int, reserve: str, limit: int, fit: str) -> None:
        super().__init__(capacity)
        self.reserve, self.limit, self.fit = reserve, limit, fit
        self.last_end = 0
        self.make = lambda: Contiguous(capacity, reserve, fit, limit)

    def find(self, asked: int) -> Extent | None:
        holes = [hole for hole in self.runs() if hole.slots >= asked]
        if not holes:
            return None
        past = [hole for hole in holes if hole.end > self.last_end]
        hole = {
            "first": holes[0],
            "best": min(holes, key=lambda hole: (hole.slots, hole.start)),
            "worst": min(holes, key=lambda hole: (-hole.slots, hole.start)),
            "next": (past or holes)[0],
        }[self.fit]
        self.last_end = hole.start + asked
        return Extent(hole.start, asked)

    def largest(self) -> int:
        return max((hole.slots for hole in self.runs()), default=0)


class BuddyModel(Model):
    def __init__(self, capacity: int, reserve: str, limit: int, split: str, min_block: int, doublings: int) -> None:
        super().__init__(capacity)
        self.reserve, self.limit, self.split, self.min_block = reserve, limit, split, min_block
        self.arenas: list[Extent] = []
        size, start = min_block << doublings, 0
        while size >= min_block:
            while capacity - start >= size:
                self.arenas.append(Extent(start, size))
                start += size
            size //= 2
        self.tail = capacity - start
        self.make = lambda: Buddy(capacity, reserve, min_block, min_block << doublings, split, limit)

    def free(self, block: Extent) -> list[Extent]:
        """The free blocks inside a block: itself, or those of its halves."""
        if set(self.owner[block.start : block.end]) == {None}:
            return [block]
        half = block.slots // 2
        if half < self.min_block or block.slots % 2:
            return []
        return self.free(Extent(block.start, half)) + self.free(Extent(block.start + half, half))

    def find(self, asked: int) -> Extent | None:
        slots = self.min_block
        while slots < asked:
            slots *= 2
        blocks = [block for arena in self.arenas for block in self.free(arena) if block.slots >= slots]
        sign = {"smallest": 1, "largest": -1}[self.split]
        block = min(blocks, key=lambda block: (sign * block.slots, block.start), default=None)
        return None if block is None else Extent(block.start, slots)

    def largest(self) -> int:
        return max((block.slots for arena in self.arenas for block in self.free(arena)), default=0)


class PagedModel(Model):
    """The one list that slots do not tell is the queue, head first."""

    def __init__(self, capacity: int, block_size: int, percent: int) -> None:
        super().__init__(capacity)
        self.block_size = block_size
        self.queue = list(range(capacity // block_size))
        self.watermark = percent * len(self.queue) // 100
        self.tail = capacity % block_size
        self.make = lambda: Paged(capacity, block_size, percent / 100)

    def asked(self, prompt_tokens: int, output_tokens: int) -> int:
        return prompt_tokens

    def in_the_end(self, prompt_tokens: int, output_tokens: int) -> int:
        return prompt_tokens + output_tokens - 1

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool) -> int:
        blocks = (prompt_tokens + self.block_size - 1) // self.block_size
        if len(self.queue) - blocks < (0 if alone else self.watermark):
            return 0
        return sum(self.grow(request_id) for _ in range(blocks)) * self.block_size

    def grow(self, request_id: int) -> bool:
        if not self.queue:
            return False
        self.take(request_id, Extent(self.queue.pop(0) * self.block_size, self.block_size))
        return True

    def release(self, request_id: int) -> int:
        for extent in self.held[request_id]:
            self.queue.insert(0, extent.start // self.block_size)
        return super().release(request_id)

    def largest(self) -> int:
        return len(self.queue) * self.block_size


RESERVE = st.sampled_from(["max", "pow2", "oracle"])
MODELS: dict[str, st.SearchStrategy[Model]] = {
    "paged": st.builds(
        PagedModel, capacity=st.integers(8, 80), block_size=st.integers(1, 8), percent=st.integers(0, 60)
    )
}
for fit in ("first", "best", "worst", "next"):
    MODELS[f"contiguous {fit}"] = st.builds(
        ContiguousModel, capacity=st.integers(30, 70), reserve=RESERVE, limit=st.integers(3, 9), fit=st.just(fit)
    )
for split in ("smallest", "largest"):
    MODELS[f"buddy {split}"] = st.builds(
        BuddyModel,
        capacity=st.integers(48, 120),
        reserve=RESERVE,
        limit=st.integers(3, 9),
        split=st.just(split),
        min_block=st.integers(2, 5),
        doublings=st.integers(3, 6),
    )


class Machine(RuleBasedStateMachine):
    models: st.SearchStrategy[Model]

    @initialize(data=st.data(), requests=REQUESTS)
    def new(self, data: st.DataObject, requests: list[tuple[int, int]]) -> None:
        self.model = data.draw(self.models)
        self.allocator = self.model.make()
        self.most = self.model.largest()
        self.next_id = 0
        self.admit(requests, alone=True)

    def pick(self, data: st.DataObject) -> list[int]:
        """Some of those that hold memory, in any order."""
        held = sorted(self.model.held)
        return data.draw(st.permutations(held))[: data.draw(st.integers(1, (len(held) + 1) // 2))]

    def holding(self) -> bool:
        return bool(self.model.held)

    @rule(requests=REQUESTS, alone=st.booleans())
    def admit(self, requests: list[tuple[int, int]], alone: bool) -> None:
        for prompt_tokens, output_tokens in requests:
            asked = self.model.asked(prompt_tokens, output_tokens)
            assert self.allocator.asked_slots(prompt_tokens, output_tokens) == asked
            fits = self.model.in_the_end(prompt_tokens, output_tokens) <= self.most
            assert self.allocator.fits_empty(prompt_tokens, output_tokens) is fits
            held = self.model.admit(self.next_id, prompt_tokens, output_tokens, alone)
            assert self.allocator.admit(self.next_id, prompt_tokens, output_tokens, alone) == held
            self.next_id += 1

    @precondition(holding)
    @rule(data=st.data())
    def grow(self, data: st.DataObject) -> None:
        request_ids = self.pick(data)
        served = 0
        while served < len(request_ids) and self.model.grow(request_ids[served]):
            served += 1
        assert self.allocator.grow(request_ids) == served

    @precondition(holding)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        for request_id in self.pick(data):
            assert self.allocator.release(request_id) == self.model.release(request_id)
            self.slot_by_slot()

    @precondition(holding)
    @rule(data=st.data())
    def misuse(self, data: st.DataObject) -> None:
        request_id, unknown, allocator = self.pick(data)[0], self.next_id, self.allocator
        calls: list[tuple[int, Callable[[], object]]] = [
            (request_id, lambda: allocator.admit(request_id, 1, 1)),
            (unknown, lambda: allocator.release(unknown)),
            (unknown, lambda: allocator.held_slots(unknown)),
            (unknown, lambda: allocator.extents(unknown)),
            (unknown, lambda: allocator.grow([request_id, unknown])),
        ]
        for named, call in calls:
            with pytest.raises(MisuseError, match=rf"\b{named}\b"):
                call()

    @invariant()
    def slot_by_slot(self) -> None:
        allocator, model = self.allocator, self.model
        owner: list[int | None] = [None] * allocator.capacity
        for request_id, extents in model.held.items():
            assert allocator.extents(request_id) == tuple(extents)
            assert allocator.held_slots(request_id) == sum(extent.slots for extent in extents)
            for start, slots in allocator.extents(request_id):
                owner[start : start + slots] = [request_id] * slots
        assert owner == model.owner
        assert allocator.free_slots == owner.count(None)
        assert allocator.largest_free_slots == model.largest()
        assert allocator.tail_slots == model.tail
        assert set(owner[len(owner) - model.tail :]) <= {None}


@pytest.mark.parametrize("name", MODELS)
def test_an_allocator_and_its_model_do_the_same(name: str) -> None:
    class Case(Machine):
        models = MODELS[name]

    run_state_machine_as_test(Case, settings=settings(max_examples=30, stateful_step_count=25, deadline=None))
