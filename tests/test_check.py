"""The conformance kit: it passes every allocator of the project, and catches one mutant a promise."""

import re
from collections.abc import Callable, Sequence
from itertools import count, product
from typing import Any

import pytest

from allocators import Allocator, Contiguous, Extent, InputError, MisuseError, check_allocator, make_allocator
from allocators.base import holds_already, holds_none
from allocators.twins import BrokenPromiseError

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
    f"paged:block_size={block_size},watermark={watermark}" for block_size, watermark in product((1, 4, 7), (0, 0.3))
]


@pytest.mark.parametrize("spec", CONTIGUOUS + BUDDY + PAGED)
def test_every_allocator_keeps_its_promises(spec: str) -> None:
    for seed, capacity in enumerate((61, 32, 150)):
        check_allocator(lambda: make_allocator(spec, capacity, 20), steps=250, seed=seed)  # noqa: B023


@pytest.mark.parametrize("spec", [spec for spec in CONTIGUOUS + BUDDY if "reserve=max" not in spec])
def test_those_that_need_no_max_model_len_keep_them_without(spec: str) -> None:
    check_allocator(lambda: make_allocator(spec, 61), steps=250)


class Toy:
    """A user's own: single slots, the lowest free first, one more whenever a request grows."""

    contiguous = False
    grow_slots: int | None = 1
    tail_slots = 0
    spec = "toy"

    def __init__(self, capacity: int = 40) -> None:
        self.capacity = capacity
        self.free = list(range(capacity))
        self.slots: dict[int, list[int]] = {}

    @property
    def free_slots(self) -> int:
        return len(self.free)

    @property
    def largest_free_slots(self) -> int:
        return len(self.free)

    def asked_slots(self, prompt_tokens: int, output_tokens: int) -> int:
        return prompt_tokens

    def fits_empty(self, prompt_tokens: int, output_tokens: int) -> bool:
        return prompt_tokens + output_tokens - 1 <= self.capacity

    def take(self, slots: int) -> list[int]:
        taken, self.free = self.free[:slots], self.free[slots:]
        return taken

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        if request_id in self.slots:
            raise holds_already(request_id)
        if prompt_tokens > len(self.free):
            return 0
        self.slots[request_id] = self.take(prompt_tokens)
        return prompt_tokens

    def grow(self, request_ids: Sequence[int]) -> int:
        tables = [self.table(request_id) for request_id in request_ids]
        for served, table in enumerate(tables):
            if not self.free:
                return served
            table += self.take(1 if self.grow_slots else len(table))
        return len(tables)

    def release(self, request_id: int) -> int:
        slots = self.table(request_id)
        self.free = sorted(self.free + slots)
        del self.slots[request_id]
        return len(slots)

    def held_slots(self, request_id: int) -> int:
        return len(self.table(request_id))

    def extents(self, request_id: int) -> tuple[Extent, ...]:
        return tuple(Extent(slot, 1) for slot in self.table(request_id))

    def table(self, request_id: int) -> list[int]:
        if request_id not in self.slots:
            raise holds_none(request_id)
        return self.slots[request_id]


class Doubling(Toy):
    """A request that grows gets as many slots again as it has, or what is left."""

    grow_slots = None


@pytest.mark.parametrize("own", [Toy, Doubling])
@pytest.mark.parametrize("seed", range(3))
def test_an_allocator_of_ones_own_passes(own: type[Toy], seed: int) -> None:
    check_allocator(own, steps=500, seed=seed)


# One mutant a promise: a whole allocator, but for what is shown.


class SpecIsNoText(Toy):
    spec: Any = None


class Overlapping(Toy):
    def extents(self, request_id: int) -> tuple[Extent, ...]:
        return tuple(Extent(i, 1) for i, _ in enumerate(super().extents(request_id)))


class OutsideThePool(Toy):
    def extents(self, request_id: int) -> tuple[Extent, ...]:
        return tuple(Extent(start + self.capacity, slots) for start, slots in super().extents(request_id))


class BeforeThePool(Toy):
    def extents(self, request_id: int) -> tuple[Extent, ...]:
        return tuple(Extent(start - 1, slots) for start, slots in super().extents(request_id))


class EmptyExtent(Toy):
    def extents(self, request_id: int) -> tuple[Extent, ...]:
        return (*super().extents(request_id), Extent(0, 0))


class ExtentsDoNotAddUp(Toy):
    def extents(self, request_id: int) -> tuple[Extent, ...]:
        return super().extents(request_id)[:-1]


class NewPoolNotFree(Toy):
    @property
    def free_slots(self) -> int:
        return len(self.free) - 1


class WrongFree(Toy):
    @property
    def free_slots(self) -> int:
        return len(self.free) + len(self.slots)


class LargestIncludesTail(Toy):
    tail_slots = 2


class NegativeTail(Toy):
    tail_slots = -3


class LargestIsNegative(Toy):
    @property
    def largest_free_slots(self) -> int:
        return len(self.free) or -1


class LargestIsAllThatIsFree(Contiguous):
    @property
    def largest_free_slots(self) -> int:
        return self.free_slots

    @largest_free_slots.setter
    def largest_free_slots(self, slots: int) -> None:
        pass


class LargestNeverComesBack(Toy):
    least = 40

    @property
    def largest_free_slots(self) -> int:
        self.least = min(self.least, len(self.free))
        return self.least


class RefusalKeepsWhatItGot(Toy):
    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        held = super().admit(request_id, prompt_tokens, output_tokens, alone)
        if not held and not alone and self.free:
            self.slots[request_id] = self.take(len(self.free))
        return held


class RefusalEvictsSomeone(Toy):
    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        held = super().admit(request_id, prompt_tokens, output_tokens, alone)
        if not held and not alone:
            self.slots[min(self.slots)].reverse()
        return held


class EmptyPoolRefuses(Toy):
    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        if alone and prompt_tokens > 1 and output_tokens > 1:
            return 0
        return super().admit(request_id, prompt_tokens, output_tokens, alone)


class FitsOnlyThePrompt(Toy):
    def fits_empty(self, prompt_tokens: int, output_tokens: int) -> bool:
        return prompt_tokens <= self.capacity


class FitsEverything(Toy):
    def fits_empty(self, prompt_tokens: int, output_tokens: int) -> bool:
        return True


class RefusesTheLastSlots(Toy):
    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        if self.slots and prompt_tokens == len(self.free):
            return 0
        return super().admit(request_id, prompt_tokens, output_tokens, alone)


class RaisesWhenThereIsNoRoom(Toy):
    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        if prompt_tokens > len(self.free):
            raise MemoryError("full")
        return super().admit(request_id, prompt_tokens, output_tokens, alone)


class ChangesItsMind(Toy):
    """Refuses whoever is not alone the first time."""

    asked_before = -1

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        if not alone and request_id > self.asked_before and request_id not in self.slots:
            self.asked_before = request_id
            return 0
        return super().admit(request_id, prompt_tokens, output_tokens, alone)


class AdmitMovesOthers(Toy):
    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        held = super().admit(request_id, prompt_tokens, output_tokens, alone)
        if held:
            self.slots[min(self.slots)].reverse()
        return held


class AdmitPlacesNothing(Toy):
    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        held = super().admit(request_id, prompt_tokens, output_tokens, alone)
        if held:
            self.release(request_id)
        return held


class AdmitReturnsTwice(Toy):
    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        return (1 if alone else 2) * super().admit(request_id, prompt_tokens, output_tokens, alone)


class HeldLessThanAsked(Toy):
    def asked_slots(self, prompt_tokens: int, output_tokens: int) -> int:
        return prompt_tokens + output_tokens


class HeldLessThanWritten(Toy):
    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        return super().admit(request_id, (prompt_tokens + 1) // 2, output_tokens, alone)

    def asked_slots(self, prompt_tokens: int, output_tokens: int) -> int:
        return 0


class NeverGrowsAndReservesThePrompt(Contiguous):
    def asked_slots(self, prompt_tokens: int, output_tokens: int) -> int:
        return prompt_tokens if prompt_tokens > 1 else output_tokens

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        asked = self.asked_slots(prompt_tokens, output_tokens)
        return super().admit(request_id, asked, 1, alone)


class GrowServesTheLastFirst(Toy):
    def grow(self, request_ids: Sequence[int]) -> int:
        return super().grow(request_ids[::-1])


class GrowServesABystander(Toy):
    def grow(self, request_ids: Sequence[int]) -> int:
        served = super().grow(request_ids)
        super().grow([request_id for request_id in self.slots if request_id not in request_ids])
        return served


class GrowReturnsOneMore(Toy):
    def grow(self, request_ids: Sequence[int]) -> int:
        return super().grow(request_ids) + (len(request_ids) > 1)


class GrowReturnsANegative(Toy):
    def grow(self, request_ids: Sequence[int]) -> int:
        return super().grow(request_ids) or -1


class GrowGivesTwo(Toy):
    def grow(self, request_ids: Sequence[int]) -> int:
        served = super().grow(request_ids)
        super().grow(request_ids[:1])
        return served


class GrowGivesNothing(Doubling):
    def grow(self, request_ids: Sequence[int]) -> int:
        return len([self.held_slots(request_id) for request_id in request_ids])


class GrowMovesWhatWasWritten(Toy):
    def grow(self, request_ids: Sequence[int]) -> int:
        served = super().grow(request_ids)
        for request_id in request_ids[:served]:
            self.slots[request_id].reverse()
        return served


class GrowMovesTheEndOfTheLastExtent(Toy):
    """Neighbouring slots are one extent; where it has several, a new slot goes before the one that was the last."""

    def grow(self, request_ids: Sequence[int]) -> int:
        several = [self.extents(request_id)[-1].slots > 1 for request_id in request_ids]
        served = super().grow(request_ids)
        for request_id, swapped in zip(request_ids[:served], several, strict=False):
            if swapped:
                *_, last, new = table = self.slots[request_id]
                table[-2:] = new, last
        return served

    def extents(self, request_id: int) -> tuple[Extent, ...]:
        joined: list[Extent] = []
        for slot in self.table(request_id):
            if joined and joined[-1].end == slot:
                joined[-1] = Extent(joined[-1].start, joined[-1].slots + 1)
            else:
                joined.append(Extent(slot, 1))
        return tuple(joined)


class LeaksASlot(Toy):
    def release(self, request_id: int) -> int:
        held = super().release(request_id)
        if self.slots:
            self.take(1)
        return held


class ReleaseReturnsOneMore(Toy):
    def release(self, request_id: int) -> int:
        return super().release(request_id) + 1


class ReleaseMovesOthers(Toy):
    def release(self, request_id: int) -> int:
        held = super().release(request_id)
        for slots in self.slots.values():
            slots.reverse()
        return held


class WearsOut(Toy):
    worn = False

    def release(self, request_id: int) -> int:
        self.worn = True
        return super().release(request_id)

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        more = self.worn and prompt_tokens < len(self.free)
        return super().admit(request_id, prompt_tokens + more, output_tokens, alone)


class OtherAddressesTheSecondTime(Toy):
    made = count()

    def __init__(self) -> None:
        super().__init__()
        self.highest_first = next(self.made) % 2 == 1

    def take(self, slots: int) -> list[int]:
        self.free.sort(reverse=self.highest_first)
        return super().take(slots)


class AnotherAnswerTheSecondTime(Toy):
    asked = count()

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        if next(self.asked) % 2:
            return 0
        return super().admit(request_id, prompt_tokens, output_tokens, alone)


class HoldsUnknown(Toy):
    def held_slots(self, request_id: int) -> int:
        return len(self.slots.get(request_id, ()))


class ReleasesUnknown(Toy):
    def release(self, request_id: int) -> int:
        return super().release(request_id) if request_id in self.slots else 0


class GrowsUnknown(Toy):
    def grow(self, request_ids: Sequence[int]) -> int:
        return super().grow([request_id for request_id in request_ids if request_id in self.slots])


class AdmitsTwice(Toy):
    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        if request_id in self.slots:
            return self.held_slots(request_id)
        return super().admit(request_id, prompt_tokens, output_tokens, alone)


class RaisesAnythingForUnknown(Toy):
    def table(self, request_id: int) -> list[int]:
        return self.slots[request_id]


class ShowsNothingForUnknown(Toy):
    def extents(self, request_id: int) -> tuple[Extent, ...]:
        return super().extents(request_id) if request_id in self.slots else ()


class DoesNotNameTheRequest(Toy):
    def table(self, request_id: int) -> list[int]:
        if request_id not in self.slots:
            raise MisuseError("no such request")
        return super().table(request_id)


class GrowsUntilTheUnknownOne(Toy):
    def grow(self, request_ids: Sequence[int]) -> int:
        return sum(super(GrowsUntilTheUnknownOne, self).grow([request_id]) for request_id in request_ids)


MUTANTS: list[tuple[Callable[[], Allocator], str]] = [
    (SpecIsNoText, "spec is not a text"),
    (Overlapping, "extents overlap or leave the pool: "),
    (OutsideThePool, "extents overlap or leave the pool: "),
    (BeforeThePool, "extents overlap or leave the pool: "),
    (EmptyExtent, "an extent is empty"),
    (ExtentsDoNotAddUp, "the extents of request 0 do not add up to "),
    (NewPoolNotFree, r"free 39 \+ held 0 != capacity 40 "),
    (WrongFree, " != capacity 40"),
    (LargestIncludesTail, "largest_free_slots 40 > free 40 - tail 2"),
    (NegativeTail, "tail_slots is -3"),
    (LargestIsNegative, "largest_free_slots -1 > free 0 - tail 0"),
    (lambda: LargestIsAllThatIsFree(40, "oracle"), ", but the largest hole has "),
    (LargestNeverComesBack, "it is not contiguous, and largest_free_slots 38 < free 39 - tail 0"),
    (RefusalKeepsWhatItGot, "a refusal changed the state"),
    (RefusalEvictsSomeone, "a refusal changed the state"),
    (EmptyPoolRefuses, "an empty pool refused what fits_empty says it can place|fits_empty said True"),
    (FitsOnlyThePrompt, "fits_empty sa"),
    (FitsEverything, "fits_empty sa"),
    (RefusesTheLastSlots, "refused .* slots, and largest_free_slots is "),
    (RaisesWhenThereIsNoRoom, "raised MemoryError: full"),
    (ChangesItsMind, "it had refused this request and nothing was released since"),
    (AdmitMovesOthers, "admit moved other requests' memory"),
    (AdmitPlacesNothing, "request 0 holds no memory"),
    (AdmitReturnsTwice, ", held_slots says otherwise"),
    (HeldLessThanAsked, " slots held, fewer than asked "),
    (HeldLessThanWritten, " slots held, fewer than asked .* or written "),
    (lambda: NeverGrowsAndReservesThePrompt(40, "oracle"), "it never grows, and "),
    (GrowServesTheLastFirst, "grew by 0 slots|did not serve"),
    (GrowServesABystander, ", which it did not serve"),
    (GrowReturnsOneMore, "grow returned "),
    (GrowReturnsANegative, "grow returned -1 of "),
    (GrowGivesTwo, "grew by 2 slots"),
    (GrowGivesNothing, "grew by 0 slots"),
    (GrowMovesWhatWasWritten, "growing moved what request "),
    (GrowMovesTheEndOfTheLastExtent, "growing moved what request "),
    (LeaksASlot, " != capacity 40"),
    (ReleaseReturnsOneMore, "release returned "),
    (ReleaseMovesOthers, "release moved other requests' memory"),
    (WearsOut, "where a new pool gives"),
    (OtherAddressesTheSecondTime, "the same calls gave other addresses"),
    (AnotherAnswerTheSecondTime, "the same calls gave "),
    (HoldsUnknown, "misuse raised no MisuseError"),
    (ReleasesUnknown, "misuse raised no MisuseError"),
    (GrowsUnknown, "misuse raised no MisuseError"),
    (AdmitsTwice, "misuse raised no MisuseError"),
    (RaisesAnythingForUnknown, "raised KeyError"),
    (ShowsNothingForUnknown, "misuse raised no MisuseError|raised MisuseError"),
    (DoesNotNameTheRequest, "the MisuseError does not name request "),
    (GrowsUntilTheUnknownOne, "misuse changed the state"),
]


@pytest.mark.parametrize(("mutant", "says"), MUTANTS, ids=[type(make()).__name__ for make, _ in MUTANTS])
def test_a_broken_promise_is_caught_and_told(mutant: Callable[[], Allocator], says: str) -> None:
    with pytest.raises(BrokenPromiseError, match=says):
        check_allocator(mutant)


def test_what_is_told_names_the_allocator_the_seed_the_step_and_the_call() -> None:
    told = []
    for seed in (0, 0, 3):
        with pytest.raises(AssertionError) as error:
            check_allocator(ReleaseReturnsOneMore, seed=seed)
        told.append(str(error.value))
    where = r"\(seed 3, step \d+, release\(\d+\)\)"
    assert re.fullmatch(rf"toy: release returned \d+, held_slots said \d+ {where}", told[2])
    assert told[0] == told[1] != told[2]


def test_the_kit_wants_a_function_that_makes_allocators() -> None:
    for factory in (Toy(), Contiguous(40, "oracle"), 7):
        with pytest.raises(InputError, match=r"^factory\(=.*\) must be a function that makes a new allocator"):
            check_allocator(factory)  # type: ignore[arg-type]


class Recording(Contiguous):
    """Notes the tokens of every request it is asked to place."""

    def __init__(self, seen: list[tuple[int, int]], max_model_len: int | None) -> None:
        super().__init__(40, "oracle", max_model_len=max_model_len)
        self.seen = seen

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        self.seen.append((prompt_tokens, output_tokens))
        return super().admit(request_id, prompt_tokens, output_tokens, alone)


def seen_requests(steps: int, max_model_len: int | None = None) -> list[tuple[int, int]]:
    seen: list[tuple[int, int]] = []
    check_allocator(lambda: Recording(seen, max_model_len), steps=steps)
    return seen


@pytest.mark.parametrize("max_model_len", [12, 39, None, 100])
def test_requests_are_as_long_as_the_allocator_takes_them(max_model_len: int | None) -> None:
    totals = [prompt_tokens + output_tokens for prompt_tokens, output_tokens in seen_requests(1000, max_model_len)]
    assert min(totals) == 2
    assert max(totals) == max_model_len if max_model_len in (12, 39) else max(totals) >= 40


def test_the_number_of_steps_is_the_callers() -> None:
    assert len(seen_requests(0)) < len(seen_requests(50)) < len(seen_requests(500))
