"""The conformance kit: it passes every allocator of the project, and catches one mutant a promise."""

import re
from collections.abc import Callable, Sequence
from itertools import count, product

import pytest

from allocators import Allocator, Buddy, Contiguous, Extent, MisuseError, Paged, check_allocator, make_allocator
from allocators.base import holds_already, holds_none
from allocators.check import BrokenPromiseError

CONTIGUOUS = [
    f"contiguous:reserve={reserve},fit={fit}"
    for reserve, fit in product(("max", "pow2", "oracle"), ("first", "best", "worst", "next"))
]
BUDDY = [
    f"buddy:reserve={reserve},split={split},{blocks}"
    for reserve, split, blocks in product(
        ("max", "pow2", "oracle"), ("smallest", "largest"), ("min_block=1", "min_block=3,max_block=24")
    )
]
PAGED = [
    f"paged:block_size={block_size},watermark={watermark}"
    for block_size, watermark in product((1, 4, 7), (0, 0.1, 0.5))
]


@pytest.mark.parametrize("spec", CONTIGUOUS + BUDDY + PAGED)
def test_every_allocator_keeps_its_promises(spec: str) -> None:
    for seed, capacity in enumerate((61, 32, 150)):
        check_allocator(lambda: make_allocator(spec, capacity, 20), steps=300, seed=seed)  # noqa: B023


@pytest.mark.parametrize("spec", [spec for spec in CONTIGUOUS + BUDDY if "reserve=max" not in spec])
def test_those_that_need_no_max_model_len_keep_them_without(spec: str) -> None:
    check_allocator(lambda: make_allocator(spec, 61), steps=250)


class Doubling:
    """A user's own: single slots, of which a request gets as many again whenever it grows, or what is left."""

    contiguous = False
    grow_slots = None
    tail_slots = 0
    spec = "doubling"

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.free = list(range(capacity))
        self.slots: dict[int, list[int]] = {}

    @property
    def free_slots(self) -> int:
        return len(self.free)

    largest_free_slots = free_slots

    def asked_slots(self, prompt_tokens: int, output_tokens: int) -> int:  # noqa: ARG002
        return prompt_tokens

    def fits_empty(self, prompt_tokens: int, output_tokens: int) -> bool:
        return prompt_tokens + output_tokens - 1 <= self.capacity

    def take(self, slots: int) -> list[int]:
        taken = self.free[:slots]
        del self.free[:slots]
        return taken

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:  # noqa: ARG002
        if request_id in self.slots:
            raise holds_already(request_id)
        if prompt_tokens > len(self.free):
            return 0
        self.slots[request_id] = self.take(prompt_tokens)
        return prompt_tokens

    def grow(self, request_ids: Sequence[int]) -> int:
        for request_id in request_ids:
            self.extents(request_id)
        for served, request_id in enumerate(request_ids):
            if not self.free:
                return served
            self.slots[request_id] += self.take(len(self.slots[request_id]))
        return len(request_ids)

    def release(self, request_id: int) -> int:
        held = self.held_slots(request_id)
        self.free = sorted(self.free + self.slots.pop(request_id))
        return held

    def held_slots(self, request_id: int) -> int:
        return len(self.extents(request_id))

    def extents(self, request_id: int) -> tuple[Extent, ...]:
        if request_id not in self.slots:
            raise holds_none(request_id)
        return tuple(Extent(slot, 1) for slot in self.slots[request_id])


@pytest.mark.parametrize("seed", range(3))
def test_an_allocator_of_ones_own_passes(seed: int) -> None:
    check_allocator(lambda: Doubling(40), steps=500, seed=seed)


# One mutant a promise. Each is a whole allocator but for the method that is shown.


class Overlapping(Paged):
    def extents(self, request_id: int) -> tuple[Extent, ...]:
        return tuple(Extent(i * self.block_size, e.slots) for i, e in enumerate(super().extents(request_id)))


class OutsideThePool(Paged):
    def extents(self, request_id: int) -> tuple[Extent, ...]:
        return tuple(Extent(start + self.block_size, slots) for start, slots in super().extents(request_id))


class EmptyExtent(Paged):
    def extents(self, request_id: int) -> tuple[Extent, ...]:
        return (*super().extents(request_id), Extent(0, 0))


class ExtentsDoNotAddUp(Paged):
    def extents(self, request_id: int) -> tuple[Extent, ...]:
        return tuple(Extent(start, slots - 1) for start, slots in super().extents(request_id))


class NewPoolNotFree(Paged):
    @property
    def free_slots(self) -> int:
        return super().free_slots - 1


class WrongFree(Paged):
    @property
    def free_slots(self) -> int:
        return super().free_slots + len(self._tables)


class LargestIncludesTail(Paged):
    @property
    def largest_free_slots(self) -> int:
        return self.free_slots


class LargestIsAllThatIsFree(Contiguous):
    @property
    def largest_free_slots(self) -> int:
        return self.free_slots


class RefusalKeepsWhatItGot(Paged):
    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        held = super().admit(request_id, prompt_tokens, output_tokens, alone)
        if not held and self._free:
            self._tables[request_id] = [self._free.pop()]
        return held


class RefusalDropsABlock(Paged):
    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        held = super().admit(request_id, prompt_tokens, output_tokens, alone)
        if not held:
            self._free = self._free[1:]
        return held


class WatermarkEvenWhenAlone(Paged):
    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:  # noqa: ARG002
        return super().admit(request_id, prompt_tokens, output_tokens)


class ChangesItsMind(Paged):
    """Refuses the first time it is asked for anything but the only request."""

    asked_before = -1

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        if self._tables and request_id > self.asked_before:
            self.asked_before = request_id
            return 0
        return super().admit(request_id, prompt_tokens, output_tokens, alone)


class AdmitMovesOthers(Paged):
    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        for table in self._tables.values():
            table.reverse()
        return super().admit(request_id, prompt_tokens, output_tokens, alone)


class AdmitReturnsThePrompt(Paged):
    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        return min(prompt_tokens, super().admit(request_id, prompt_tokens, output_tokens, alone))


class HeldLessThanAsked(Paged):
    def asked_slots(self, prompt_tokens: int, output_tokens: int) -> int:
        return prompt_tokens + output_tokens + self.block_size


class HeldLessThanWritten(Paged):
    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        return super().admit(request_id, (prompt_tokens + 1) // 2, output_tokens, alone)

    def asked_slots(self, prompt_tokens: int, output_tokens: int) -> int:  # noqa: ARG002
        return 0


class NeverGrowsAndReservesThePrompt(Contiguous):
    def asked_slots(self, prompt_tokens: int, output_tokens: int) -> int:  # noqa: ARG002
        return prompt_tokens


class GrowServesTheLastFirst(Paged):
    def grow(self, request_ids: Sequence[int]) -> int:
        return super().grow(request_ids[::-1])


class GrowsABystander(Paged):
    def grow(self, request_ids: Sequence[int]) -> int:
        served = super().grow(request_ids)
        for request_id in self._tables.keys() - set(request_ids):
            super().grow([request_id])
        return served


class GrowReturnsOneMore(Paged):
    def grow(self, request_ids: Sequence[int]) -> int:
        return super().grow(request_ids) + 1


class GrowGivesNothing(Paged):
    def grow(self, request_ids: Sequence[int]) -> int:
        return len([self.held_slots(request_id) for request_id in request_ids])


class GrowIsUneven(Paged):
    def grow(self, request_ids: Sequence[int]) -> int:
        served = super().grow(request_ids)
        if self._free:
            self._tables[request_ids[0]].append(self._free.pop())
        return served


class UnevenGrowGivesNothing(Doubling):
    def grow(self, request_ids: Sequence[int]) -> int:
        return len([self.held_slots(request_id) for request_id in request_ids])


class GrowMovesWhatWasWritten(Paged):
    def grow(self, request_ids: Sequence[int]) -> int:
        served = super().grow(request_ids)
        for request_id in request_ids[:served]:
            self._tables[request_id].insert(0, self._tables[request_id].pop())
        return served


class LeaksABlock(Paged):
    def release(self, request_id: int) -> int:
        held = super().release(request_id)
        self._free.pop()
        return held


class NeverMerges(Buddy):
    def _is_free(self, address: int, level: int) -> bool:  # noqa: ARG002
        return False


class ReleaseReturnsOne(Paged):
    def release(self, request_id: int) -> int:
        return super().release(request_id) and 1


class ReleaseMovesOthers(Paged):
    def release(self, request_id: int) -> int:
        held = super().release(request_id)
        for table in self._tables.values():
            table.reverse()
        return held


class NotTheSameTwice(Paged):
    made = count()

    def __init__(self, capacity: int, block_size: int) -> None:
        super().__init__(capacity, block_size)
        if next(self.made) % 2:
            self._free.reverse()


class NotTheSameAnswerTwice(Paged):
    asked = count()

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        if next(self.asked) % 2:
            return 0
        return super().admit(request_id, prompt_tokens, output_tokens, alone)


class UnknownHoldsZero(Paged):
    def held_slots(self, request_id: int) -> int:
        return super().held_slots(request_id) if request_id in self._tables else 0


class ReleasesAnyone(Paged):
    def release(self, request_id: int) -> int:
        return super().release(request_id) if request_id in self._tables else 0


class GrowsAnyone(Paged):
    def grow(self, request_ids: Sequence[int]) -> int:
        return super().grow([request_id for request_id in request_ids if request_id in self._tables])


class AdmitsTwice(Paged):
    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        if request_id in self._tables:
            return self.held_slots(request_id)
        return super().admit(request_id, prompt_tokens, output_tokens, alone)


class DoesNotNameTheRequest(Paged):
    def release(self, request_id: int) -> int:
        if request_id not in self._tables:
            raise MisuseError("no such request")
        return super().release(request_id)


class GrowsUntilTheUnknownOne(Paged):
    def grow(self, request_ids: Sequence[int]) -> int:
        return sum(super(GrowsUntilTheUnknownOne, self).grow([request_id]) for request_id in request_ids)


MUTANTS: list[tuple[Callable[[], Allocator], str]] = [
    (lambda: Overlapping(40, 4), "extents overlap or leave the pool: [Extent(start=0, slots=4), "),
    (lambda: OutsideThePool(8, 8), "extents overlap or leave the pool: [Extent(start=8, slots=8)] "),
    (lambda: EmptyExtent(40, 4), "an extent is empty"),
    (lambda: ExtentsDoNotAddUp(40, 4), "the extents of request 0 do not add up to "),
    (lambda: NewPoolNotFree(40, 4), "free 39 + held 0 != capacity 40 (seed 0, step 0, new)"),
    (lambda: WrongFree(40, 4), " != capacity 40"),
    (lambda: LargestIncludesTail(42, 4), "largest_free_slots 42 > free 42 - tail 2"),
    (lambda: LargestIsAllThatIsFree(40, "oracle"), ", but the largest hole has "),
    (lambda: RefusalKeepsWhatItGot(40, 4), "a refusal changed the state"),
    (lambda: RefusalDropsABlock(40, 4), " != capacity 40"),
    (lambda: WatermarkEvenWhenAlone(40, 4, 0.5), "an empty pool refused what fits_empty says it can place"),
    (lambda: ChangesItsMind(40, 4), "it had refused this request and nothing was released since"),
    (lambda: AdmitMovesOthers(40, 4), "admit moved other requests' memory"),
    (lambda: AdmitReturnsThePrompt(40, 4), ", held_slots says otherwise"),
    (lambda: HeldLessThanAsked(40, 4), " slots held, fewer than asked ("),
    (lambda: HeldLessThanWritten(40, 4), " slots held, fewer than asked (0) or written ("),
    (lambda: NeverGrowsAndReservesThePrompt(40, "oracle"), "it never grows, and "),
    (lambda: GrowServesTheLastFirst(40, 4), "grew by 0 slots"),
    (lambda: GrowsABystander(40, 4), ", which it did not serve"),
    (lambda: GrowReturnsOneMore(40, 4), "grow returned "),
    (lambda: GrowGivesNothing(40, 4), "grew by 0 slots"),
    (lambda: GrowIsUneven(40, 4), "grew by 8 slots"),
    (lambda: UnevenGrowGivesNothing(40), "grew by 0 slots"),
    (lambda: GrowMovesWhatWasWritten(40, 4), "growing moved what request "),
    (lambda: LeaksABlock(40, 4), " != capacity 40"),
    (lambda: NeverMerges(64, max_model_len=8), "not all of the pool came back"),
    (lambda: ReleaseReturnsOne(40, 4), "release returned 1, held_slots said "),
    (lambda: ReleaseMovesOthers(40, 4), "release moved other requests' memory"),
    (lambda: NotTheSameTwice(40, 4), "the same calls gave other addresses"),
    (lambda: NotTheSameAnswerTwice(40, 4), "the same calls gave "),
    (lambda: UnknownHoldsZero(40, 4), "misuse raised no MisuseError"),
    (lambda: ReleasesAnyone(40, 4), "misuse raised no MisuseError"),
    (lambda: GrowsAnyone(40, 4), "misuse raised no MisuseError"),
    (lambda: AdmitsTwice(40, 4), "misuse raised no MisuseError"),
    (lambda: DoesNotNameTheRequest(40, 4), "the MisuseError does not name request "),
    (lambda: GrowsUntilTheUnknownOne(40, 4), "misuse changed the state"),
]


@pytest.mark.parametrize(("mutant", "says"), MUTANTS, ids=[type(make()).__name__ for make, _ in MUTANTS])
def test_a_broken_promise_is_caught_and_told(mutant: Callable[[], Allocator], says: str) -> None:
    with pytest.raises(BrokenPromiseError, match=re.escape(says)):
        check_allocator(mutant)


def test_what_is_told_names_the_allocator_the_seed_the_step_and_the_call() -> None:
    told = []
    for seed in (0, 0, 3):
        with pytest.raises(AssertionError) as error:
            check_allocator(lambda: ReleaseReturnsOne(40, 4), seed=seed)
        told.append(str(error.value))
    where = r"\(seed 3, step \d+, release\(\d+\)\)"
    assert re.fullmatch(rf"paged:block_size=4,watermark=0: release returned 1, held_slots said \d+ {where}", told[2])
    assert told[0] == told[1] != told[2]


def test_no_more_steps_are_taken_than_asked_for() -> None:
    check_allocator(lambda: ReleaseReturnsOne(40, 4), steps=0)


class Recording(Contiguous):
    """Notes the tokens of every request it is asked to place."""

    seen: list[tuple[int, int]]

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        self.seen.append((prompt_tokens, output_tokens))
        return super().admit(request_id, prompt_tokens, output_tokens, alone)


@pytest.mark.parametrize(("max_model_len", "longest"), [(12, 12), (None, 40), (100, 41)])
def test_requests_are_as_long_as_the_allocator_takes_them(
    max_model_len: int | None, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(Recording, "seen", seen, raising=False)
    check_allocator(lambda: Recording(40, "oracle", max_model_len=max_model_len), steps=1000)
    assert min(map(min, seen)) == 1
    assert max(map(sum, seen)) == longest
