"""Contiguous, address by address."""

from collections.abc import Callable
from itertools import permutations

import pytest

from allocators import Contiguous, Extent, InputError, MisuseError


def place(pool: Contiguous, request_id: int, slots: int) -> int | None:
    """Where ``slots`` went, None when they were refused."""
    return pool.extents(request_id)[0].start if pool.admit(request_id, slots, 1) else None


def filled(fit: str, *slots: int) -> Contiguous:
    """A pool without a hole: requests 0, 1, ... of these sizes, one behind the other."""
    pool = Contiguous(sum(slots), "oracle", fit)
    assert [place(pool, i, size) for i, size in enumerate(slots)] == [sum(slots[:i]) for i in range(len(slots))]
    return pool


@pytest.mark.parametrize(
    ("fit", "slots", "start"),
    [("next", 8, 50), ("best", 8, 0), ("first", 8, 0), ("worst", 8, 50)]
    + [("next", 10, 50), ("best", 10, 0), ("first", 10, 0), ("worst", 10, 50)]
    + [("next", 11, 50), ("best", 11, 50), ("first", 11, 50), ("worst", 11, 50)]
    + [(fit, 51, None) for fit in ("next", "best", "first", "worst")],
)
def test_the_lesson_holes_0_to_9_and_50_to_99(fit: str, slots: int, start: int | None) -> None:
    pool = Contiguous(100, "oracle", fit)
    assert [place(pool, 0, 10), place(pool, 1, 40)] == [0, 10]  # the last placement ended at 50
    pool.release(0)
    assert place(pool, 2, slots) == start


@pytest.mark.parametrize(
    ("fit", "slots", "start"),
    [("first", 5, 10), ("best", 5, 30), ("worst", 5, 60), ("next", 5, 10)]  # which hole
    + [("first", 16, 60), ("best", 16, 60), ("best", 10, 30), ("worst", 10, 60)]
    + [("first", 31, None), ("best", 31, None), ("worst", 31, None), ("next", 31, None)],
)
def test_each_fit_chooses_its_hole(fit: str, slots: int, start: int | None) -> None:
    pool = filled(fit, 10, 15, 5, 10, 20, 30, 10)
    for request_id in (1, 3, 5):  # holes 10-24, 30-39, 60-89
        pool.release(request_id)
    assert place(pool, 9, slots) == start


@pytest.mark.parametrize("fit", ["first", "best", "worst", "next"])
def test_among_equal_holes_the_lowest_is_taken(fit: str) -> None:
    pool = filled(fit, *[10] * 6)
    for request_id in (3, 1):
        pool.release(request_id)
    assert [place(pool, 9, 10), place(pool, 10, 10)] == [10, 30]


def test_a_placement_takes_the_low_end_of_its_hole() -> None:
    pool = filled("first", 10, 20, 10)
    pool.release(1)
    assert [place(pool, 9, 8), place(pool, 10, 8), place(pool, 11, 8), place(pool, 12, 4)] == [10, 18, None, 26]
    assert (pool.free_slots, pool.largest_free_slots) == (0, 0)


def test_next_goes_round() -> None:
    pool = Contiguous(40, "oracle", "next")
    assert [place(pool, i, 10) for i in range(4)] == [0, 10, 20, 30]
    pool.release(0)
    pool.release(2)
    # Nothing ends past 40, so it starts again from 0; from then on, past the last placement.
    assert place(pool, 4, 4) == 0
    assert place(pool, 5, 4) == 4
    assert place(pool, 6, 4) == 20
    assert place(pool, 7, 2) == 24
    assert place(pool, 8, 2) == 26
    assert place(pool, 9, 2) == 28
    assert place(pool, 10, 2) == 8


def test_next_reaches_over_the_point_where_the_last_placement_ended() -> None:
    pool = filled("next", 30, 30, 20, 20)
    pool.release(1)
    assert place(pool, 4, 20) == 30  # ends at 50, inside the hole
    pool.release(4)
    pool.release(3)  # the holes 30-59 and 80-99: the low end of the first is behind 50, its high end is past it
    assert place(pool, 5, 5) == 30


@pytest.mark.parametrize(("freed", "start"), [([], 40), ([0], 0), ([4], 80), ([0, 4], 80), ([0, 3], 40)])
def test_next_passes_by_a_hole_that_ends_where_the_last_placement_ended(freed: list[int], start: int) -> None:
    pool = filled("next", 10, 30, 20, 20, 20)
    pool.release(2)
    assert place(pool, 5, 20) == 40
    for request_id in (5, *freed):  # the hole 40-59, and others: 3 makes it longer
        pool.release(request_id)
    assert place(pool, 6, 8) == start


def test_next_passes_by_a_hole_that_is_too_small() -> None:
    pool = filled("next", 10, 10, 10, 10, 10, 10, 10)
    for request_id in (0, 2, 4, 5):  # holes 0-9, 20-29, 40-59
        pool.release(request_id)
    assert place(pool, 7, 2) == 0
    assert place(pool, 8, 15) == 40


LARGEST = {"bac": [10, 20, 30], "bca": [10, 20, 30], "abc": [10, 20, 30], "cba": [10, 20, 30]}
LARGEST |= {"acb": [10, 10, 30], "cab": [10, 10, 30]}


@pytest.mark.parametrize("order", ["".join(order) for order in permutations("abc")])
def test_a_freed_extent_coalesces_with_its_neighbours(order: str) -> None:
    pool = filled("first", 5, 10, 10, 10, 5)
    largest = []
    for name in order:
        assert pool.release(1 + "abc".index(name)) == 10
        largest.append(pool.largest_free_slots)
    assert largest == LARGEST[order]
    assert place(pool, 9, 30) == 5
    assert pool.free_slots == 0


def test_free_memory_is_refused_when_no_hole_is_long_enough() -> None:
    pool = filled("first", 10, 10, 10, 10)
    pool.release(0)
    pool.release(2)
    assert (pool.free_slots, pool.largest_free_slots) == (20, 10)
    assert pool.admit(9, 11, 1) == 0
    assert (pool.free_slots, pool.largest_free_slots) == (20, 10)
    assert (pool.extents(1), pool.extents(3)) == ((Extent(10, 10),), (Extent(30, 10),))
    assert pool.extents(3)[0].end == 40
    with pytest.raises(MisuseError):
        pool.extents(9)


def test_what_a_new_pool_says() -> None:
    pool = Contiguous(100, "oracle")
    assert (pool.capacity, pool.free_slots, pool.largest_free_slots, pool.tail_slots) == (100, 100, 100, 0)
    assert pool.fit == "first"
    assert pool.fits_empty(91, 10) and not pool.fits_empty(92, 10)


def test_misuse_names_the_request_and_changes_nothing() -> None:
    pool = Contiguous(100, "oracle")
    pool.admit(5, 10, 1)
    calls: list[tuple[str, Callable[[], object]]] = [
        ("request 5 already holds memory", lambda: pool.admit(5, 1, 1)),
        ("request 6 holds no memory", lambda: pool.release(6)),
        ("request 6 holds no memory", lambda: pool.held_slots(6)),
        ("request 6 holds no memory", lambda: pool.extents(6)),
        ("request 6 holds no memory", lambda: pool.grow([5, 6])),
    ]
    for message, call in calls:
        with pytest.raises(MisuseError, match=f"^{message}$"):
            call()
    assert (pool.extents(5), pool.free_slots) == ((Extent(0, 10),), 90)
    pool.release(5)
    with pytest.raises(MisuseError, match=r"^request 5 holds no memory$"):
        pool.release(5)


@pytest.mark.parametrize(
    ("capacity", "fit", "message"),
    [
        (0, "first", "capacity(=0) must be a whole number >= 1"),
        (-1, "first", "capacity(=-1) must be a whole number >= 1"),
        (1.5, "first", "capacity(=1.5) must be a whole number >= 1"),
        (True, "first", "capacity(=True) must be a whole number >= 1"),
        ("10", "first", "capacity(='10') must be a whole number >= 1"),
        (10, "tight", "fit(='tight') must be one of first, best, worst, next"),
        (10, "a\nb", "fit(='a\\nb') must be one of first, best, worst, next"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(capacity: int, fit: str, message: str) -> None:
    with pytest.raises(InputError) as told:
        Contiguous(capacity, "oracle", fit)
    assert str(told.value) == message
