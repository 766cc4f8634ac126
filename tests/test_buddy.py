"""Buddy, block by block."""

from collections.abc import Callable
from itertools import accumulate, permutations

import pytest

from allocators import Buddy, Extent, InputError, MisuseError


def all_but(free: list[int], capacity: int, block: int, split: str = "smallest", max_block: int | None = None) -> Buddy:
    """A pool filled with blocks of ``block`` slots, then freed of those with these numbers, in this order."""
    pool = Buddy(capacity, "oracle", max_block=max_block, split=split)
    owner = {}
    for request_id in range(capacity // block):
        assert pool.admit(request_id, block, 1) == block
        owner[pool.extents(request_id)[0].start // block] = request_id
    assert (pool.free_blocks(), pool.free_slots, pool.largest_free_slots) == ([], 0, 0)
    for number in free:
        assert pool.release(owner[number]) == block
    return pool


def lesson(split: str, min_block: int) -> tuple[Buddy, list[Extent]]:
    """A = 32, B = 16 and C = 7 in 128 slots, and where they went."""
    pool = Buddy(128, "oracle", min_block=min_block, split=split)
    for request_id, slots in enumerate([32, 16, 7]):
        assert pool.admit(request_id, slots, 1)
    return pool, [pool.extents(request_id)[0] for request_id in range(3)]


@pytest.mark.parametrize("min_block", [1, 2, 4, 8])
def test_the_lesson_with_the_largest_block_split(min_block: int) -> None:
    pool, placed = lesson("largest", min_block)
    assert placed == [Extent(0, 32), Extent(64, 16), Extent(32, 8)]
    assert pool.free_blocks() == [Extent(40, 8), Extent(48, 16), Extent(80, 16), Extent(96, 32)]
    assert (pool.free_slots, pool.largest_free_slots) == (72, 32)
    assert pool.admit(3, 64, 1) == 0
    assert pool.free_blocks() == [Extent(40, 8), Extent(48, 16), Extent(80, 16), Extent(96, 32)]
    assert [pool.release(request_id) for request_id in (1, 0, 2)] == [16, 32, 8]
    assert pool.free_blocks() == [Extent(0, 128)]


@pytest.mark.parametrize("min_block", [1, 2, 4, 8])
def test_the_lesson_with_the_smallest_block_split(min_block: int) -> None:
    pool, placed = lesson("smallest", min_block)
    assert placed == [Extent(0, 32), Extent(32, 16), Extent(48, 8)]
    assert pool.free_blocks() == [Extent(56, 8), Extent(64, 64)]
    assert pool.admit(3, 64, 1) == 64
    assert pool.extents(3) == (Extent(64, 64),)


def test_the_lesson_needs_a_min_block_of_8_or_less() -> None:
    assert lesson("largest", 16)[1] == [Extent(0, 32), Extent(64, 16), Extent(32, 16)]


@pytest.mark.parametrize(
    ("capacity", "min_block", "max_block", "arenas", "tail"),
    [
        (983 * 16, 16, 2048, [2048] * 7 + [1024, 256, 64, 32, 16], 0),
        (983 * 16 + 15, 16, 2048, [2048] * 7 + [1024, 256, 64, 32, 16], 15),
        (983 * 16, 16, None, [8192, 4096, 2048, 1024, 256, 64, 32, 16], 0),
        (128, 1, None, [128], 0),
        (128, 1, 64, [64, 64], 0),
        (7, 1, 1, [1] * 7, 0),
        (100, 3, None, [96, 3], 1),
        (100, 3, 48, [48, 48, 3], 1),
        (100, 16, 2**40, [64, 32], 4),
        (16, 16, None, [16], 0),
        (1, 1, None, [1], 0),
    ],
)
def test_the_pool_is_carved_from_address_0_into_the_largest_arenas(
    capacity: int, min_block: int, max_block: int | None, arenas: list[int], tail: int
) -> None:
    pool = Buddy(capacity, "oracle", min_block=min_block, max_block=max_block)
    starts = [0, *accumulate(arenas)][:-1]
    assert pool.free_blocks() == [Extent(*block) for block in zip(starts, arenas, strict=True)]
    assert (pool.capacity, pool.free_slots, pool.tail_slots) == (capacity, capacity, tail)
    assert pool.largest_free_slots == arenas[0]
    assert pool.fits_empty(arenas[0], 1) and not pool.fits_empty(arenas[0], 2)
    assert pool.admit(0, arenas[0] + 1, 1, alone=True) == 0


@pytest.mark.parametrize(
    ("min_block", "slots", "held"),
    [(1, 1, 1), (1, 2, 2), (1, 3, 4), (1, 7, 8), (1, 8, 8), (1, 9, 16), (1, 64, 64), (16, 1, 16), (16, 16, 16)]
    + [(16, 17, 32), (16, 33, 64), (3, 3, 3), (3, 4, 6), (3, 7, 12), (3, 12, 12), (3, 13, 24)],
)
def test_a_request_gets_the_smallest_block_that_holds_it(min_block: int, slots: int, held: int) -> None:
    capacity = 64 * min_block
    pool = Buddy(capacity, "oracle", min_block=min_block)
    assert pool.admit(0, slots, 1) == held
    assert (pool.held_slots(0), pool.extents(0), pool.free_slots) == (held, (Extent(0, held),), capacity - held)
    assert pool.release(0) == held
    assert pool.free_slots == capacity


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_freed_blocks_merge_up_to_their_arena(order: tuple[int, ...]) -> None:
    assert all_but(list(order), 64, 16).free_blocks() == [Extent(0, 64)]


@pytest.mark.parametrize(
    ("freed", "free"),
    [
        ([0, 1], [Extent(0, 16)]),
        ([1, 0], [Extent(0, 16)]),
        ([1, 2], [Extent(8, 8), Extent(16, 8)]),  # neighbours, not buddies
        ([2, 3, 1], [Extent(8, 8), Extent(16, 16)]),
        ([2, 3, 1, 0], [Extent(0, 32)]),
        ([7, 4, 6], [Extent(32, 8), Extent(48, 16)]),
        ([7, 4, 6, 5], [Extent(32, 32)]),
    ],
)
def test_only_buddies_merge(freed: list[int], free: list[Extent]) -> None:
    pool = all_but(freed, 64, 8)
    assert pool.free_blocks() == free
    assert pool.largest_free_slots == max(block.slots for block in free)


@pytest.mark.parametrize(("capacity", "max_block", "arenas"), [(128, 32, [32] * 4), (112, None, [64, 32, 16])])
@pytest.mark.parametrize("backwards", [False, True])
def test_arenas_never_merge(capacity: int, max_block: int | None, arenas: list[int], backwards: bool) -> None:
    numbers = sorted(range(capacity // 16), reverse=backwards)
    pool = all_but(numbers, capacity, 16, max_block=max_block)
    assert [block.slots for block in pool.free_blocks()] == arenas
    assert (pool.free_slots, pool.largest_free_slots) == (capacity, arenas[0])


@pytest.mark.parametrize("split", ["smallest", "largest"])
def test_among_equal_blocks_the_lowest_is_taken(split: str) -> None:
    pool = all_but([5, 2, 7], 64, 8, split)
    assert [pool.admit(request_id, 8, 1) for request_id in (90, 91, 92, 93)] == [8, 8, 8, 0]
    assert [pool.extents(request_id)[0].start for request_id in (90, 91, 92)] == [16, 40, 56]


@pytest.mark.parametrize(
    ("split", "slots", "start"),
    [("smallest", 4, 8), ("smallest", 8, 8), ("smallest", 9, 32), ("smallest", 32, 32)]
    + [("largest", 4, 32), ("largest", 8, 32), ("largest", 9, 32), ("largest", 32, 32)],
)
def test_which_block_is_split(split: str, slots: int, start: int) -> None:
    pool = all_but([1, 4, 5, 6, 7], 64, 8, split)
    assert pool.free_blocks() == [Extent(8, 8), Extent(32, 32)]
    assert pool.admit(99, slots, 1)
    assert pool.extents(99)[0].start == start


def test_misuse_names_the_request_and_changes_nothing() -> None:
    pool = Buddy(64, "oracle")
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
    assert (pool.extents(5), pool.free_blocks()) == ((Extent(0, 16),), [Extent(16, 16), Extent(32, 32)])
    pool.release(5)
    with pytest.raises(MisuseError, match=r"^request 5 holds no memory$"):
        pool.release(5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": 0}, "capacity(=0) must be a whole number >= 1"),
        ({"capacity": -1}, "capacity(=-1) must be a whole number >= 1"),
        ({"capacity": 1.5}, "capacity(=1.5) must be a whole number >= 1"),
        ({"capacity": True}, "capacity(=True) must be a whole number >= 1"),
        ({"min_block": 0}, "min_block(=0) must be a whole number >= 1"),
        ({"min_block": 2.0}, "min_block(=2.0) must be a whole number >= 1"),
        ({"min_block": 128}, "capacity(=100) must be >= min_block(=128)"),
        ({"max_block": 0}, "max_block(=0) must be a whole number >= 1"),
        ({"max_block": "32"}, "max_block(='32') must be a whole number >= 1"),
        ({"max_block": 48}, "max_block(=48) must be min_block(=16) times a power of two"),
        ({"max_block": 24}, "max_block(=24) must be min_block(=16) times a power of two"),
        ({"max_block": 8}, "max_block(=8) must be min_block(=16) times a power of two"),
        ({"split": "middle"}, "split(='middle') must be one of smallest, largest"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(options: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"capacity": 100, "reserve": "oracle", "min_block": 16} | options
    with pytest.raises(InputError) as told:
        Buddy(**arguments)  # type: ignore[arg-type]
    assert str(told.value) == message
