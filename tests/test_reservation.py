"""The three reservation rules, as contiguous and buddy apply them."""

from collections.abc import Callable

import pytest

from allocators import Buddy, Contiguous, Extent, InputError, Reserving, check_allocator

CLASSES = pytest.mark.parametrize("allocator_class", [Contiguous, Buddy])


@CLASSES
@pytest.mark.parametrize(
    ("prompt_tokens", "output_tokens", "asked"),
    [(10, 1, 10), (10, 2, 11), (10, 3, 13), (10, 4, 13), (10, 5, 17), (10, 8, 17), (10, 9, 25), (1, 1, 1)],
)
def test_pow2_rounds_the_output_up(
    allocator_class: type[Contiguous | Buddy], prompt_tokens: int, output_tokens: int, asked: int
) -> None:
    assert allocator_class(100, "pow2").asked_slots(prompt_tokens, output_tokens) == asked


@CLASSES
@pytest.mark.parametrize(("output_tokens", "asked"), [(2, 11), (3, 13), (4, 13), (5, 15), (6, 15)])
def test_pow2_asks_no_more_than_max_model_len(
    allocator_class: type[Contiguous | Buddy], output_tokens: int, asked: int
) -> None:
    assert allocator_class(100, "pow2", max_model_len=15).asked_slots(10, output_tokens) == asked


@CLASSES
@pytest.mark.parametrize("max_model_len", [None, 12, 100])
@pytest.mark.parametrize(("prompt_tokens", "output_tokens", "asked"), [(1, 1, 1), (10, 1, 10), (10, 5, 14)])
def test_oracle_asks_exactly_what_will_be_written(
    allocator_class: type[Contiguous | Buddy],
    max_model_len: int | None,
    prompt_tokens: int,
    output_tokens: int,
    asked: int,
) -> None:
    allocator = allocator_class(100, "oracle", max_model_len=max_model_len)
    assert allocator.asked_slots(prompt_tokens, output_tokens) == asked


@CLASSES
@pytest.mark.parametrize(("prompt_tokens", "output_tokens"), [(1, 1), (10, 5), (30, 20)])
def test_max_is_the_default_and_asks_max_model_len(
    allocator_class: type[Contiguous | Buddy], prompt_tokens: int, output_tokens: int
) -> None:
    allocator = allocator_class(100, max_model_len=50)
    assert allocator.reserve == "max"
    assert allocator.asked_slots(prompt_tokens, output_tokens) == 50


@pytest.mark.parametrize(
    ("reserve", "contiguous_held", "buddy_held"), [("max", 50, 64), ("pow2", 17, 32), ("oracle", 14, 16)]
)
def test_what_is_asked_is_what_contiguous_holds_and_buddy_rounds_up(
    reserve: str, contiguous_held: int, buddy_held: int
) -> None:
    assert Contiguous(100, reserve, max_model_len=50).admit(1, 10, 5) == contiguous_held
    assert Buddy(100, reserve, max_model_len=50).admit(1, 10, 5) == buddy_held


def test_figure_3_eight_slots_used_two_reserved_and_2038_never_used() -> None:
    allocator = Contiguous(2048, max_model_len=2048)
    prompt_tokens, output_tokens = 7, 4  # the last output token is never written: 3 follow the prompt
    held = allocator.admit(1, prompt_tokens, output_tokens)
    final = prompt_tokens + output_tokens - 1
    used = prompt_tokens + 1
    assert (used, final - used, held - final) == (8, 2, 2038)


@CLASSES
@pytest.mark.parametrize(
    ("reserve", "max_model_len", "message"),
    [
        ("max", None, "max_model_len(=None) must be given with reserve=max: it is what a request asks for"),
        ("most", 50, "reserve(='most') must be one of max, pow2, oracle"),
        ("", 50, "reserve(='') must be one of max, pow2, oracle"),
        ("max", 0, "max_model_len(=0) must be a whole number >= 1"),
        ("oracle", -5, "max_model_len(=-5) must be a whole number >= 1"),
        ("pow2", 1.5, "max_model_len(=1.5) must be a whole number >= 1"),
        ("pow2", True, "max_model_len(=True) must be a whole number >= 1"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    allocator_class: type[Contiguous | Buddy], reserve: str, max_model_len: int | None, message: str
) -> None:
    with pytest.raises(InputError) as told:
        allocator_class(100, reserve, max_model_len=max_model_len)
    assert str(told.value) == message


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda length: Contiguous(100, max_model_len=length), 100),
        (lambda length: Buddy(100, max_model_len=length), 64),
        (lambda length: Buddy(983 * 16, min_block=16, max_block=1024, max_model_len=length), 1024),
    ],
)
def test_max_must_be_able_to_place_a_request(make: Callable[[int], Contiguous | Buddy], most: int) -> None:
    """Both numbers are told: what is asked, and the most that this pool has in one piece."""
    assert make(most).admit(1, 1, 1) == most
    with pytest.raises(InputError) as told:
        make(most + 1)
    assert str(told.value) == (
        f"max_model_len(={most + 1}) must be <= {most}, the most this pool can ever place for one request: "
        "reserve=max asks for all of it"
    )


@CLASSES
@pytest.mark.parametrize("reserve", ["pow2", "oracle"])
def test_the_other_rules_may_have_a_max_model_len_above_the_pool(
    allocator_class: type[Contiguous | Buddy], reserve: str
) -> None:
    allocator = allocator_class(64, reserve, max_model_len=1000)
    assert allocator.fits_empty(60, 4)
    assert not allocator.fits_empty(60, 6)
    assert (allocator.admit(1, 60, 6, alone=True), allocator.free_slots) == (0, 64)


@CLASSES
def test_they_never_grow(allocator_class: type[Contiguous | Buddy]) -> None:
    allocator = allocator_class(64, "oracle")
    allocator.admit(1, 4, 5)
    assert (allocator.contiguous, allocator.grow_slots) == (True, 0)
    assert (allocator.grow([1]), allocator.grow([]), allocator.held_slots(1)) == (0, 0, 8)


class Slabs(Reserving):
    """What a user writes on top of the rules: where an extent comes from, and where it goes back to."""

    spec = "slabs"

    def __init__(self) -> None:
        super().__init__(100, "oracle")
        self.most_slots = 8
        self.tail_slots = 4
        self.starts = list(range(0, 96, 8))

    @property
    def largest_free_slots(self) -> int:
        return 8 if self.starts else 0

    def _place(self, slots: int) -> tuple[int, int] | None:
        return (self.starts.pop(), 8) if slots <= 8 and self.starts else None

    def _give_back(self, start: int, slots: int) -> None:
        self.starts.append(start)


def test_two_methods_make_an_allocator() -> None:
    check_allocator(Slabs, steps=500)
    slabs = Slabs()
    assert (slabs.fits_empty(4, 5), slabs.fits_empty(4, 6)) == (True, False)
    assert (slabs.admit(1, 4, 5), slabs.extents(1), slabs.free_slots) == (8, (Extent(88, 8),), 92)


def test_the_two_methods_are_needed() -> None:
    bare = Reserving(100, "oracle")
    with pytest.raises(NotImplementedError):
        bare.admit(1, 4, 5)
    with pytest.raises(NotImplementedError):
        bare._give_back(0, 8)
