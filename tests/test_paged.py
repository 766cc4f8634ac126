"""Paged, block id by block id."""

from collections.abc import Callable

import pytest

from allocators import Extent, InputError, MisuseError, Paged


def with_queue(blocks: int, head: list[int], block_size: int = 1) -> Paged:
    """A pool whose only free blocks are ``head``, in this order; request i holds block i, for all the others."""
    pool = Paged(blocks * block_size, block_size)
    for block in range(blocks):
        pool.admit(block, 1, 1)
    for block in reversed(head):
        assert pool.release(block) == block_size
    return pool


def test_a_new_pool_hands_out_0_1_2() -> None:
    pool = Paged(10, block_size=2)
    assert [pool.admit(7, 3, 1), pool.admit(8, 1, 1), pool.grow([7])] == [4, 2, 1]
    assert (pool.block_table(7), pool.block_table(8)) == ((0, 1, 3), (2,))
    assert pool.extents(7) == (Extent(0, 2), Extent(2, 2), Extent(6, 2))
    assert (pool.held_slots(7), pool.free_slots, pool.largest_free_slots) == (6, 2, 2)


def test_released_blocks_go_to_the_head_the_last_one_foremost() -> None:
    pool = with_queue(12, [4, 9, 2, 11])
    assert pool.admit(100, 3, 1) == 3
    assert pool.block_table(100) == (4, 9, 2)
    assert pool.release(100) == 3
    assert [pool.admit(i, 1, 1) for i in (101, 102, 103, 104)] == [1, 1, 1, 1]
    assert [pool.block_table(i) for i in (101, 102, 103, 104)] == [(2,), (9,), (4,), (11,)]


def test_figure_6_a_7_token_prompt_and_two_decodes() -> None:
    pool = with_queue(9, [7, 1, 3], block_size=4)
    assert pool.admit(100, 7, 3) == 8  # logical block 0 has 4 tokens, block 1 has 3
    assert pool.block_table(100) == (7, 1)
    extent = pool.extents(100)[5 // 4]
    assert extent.start + 5 % 4 == 5  # where token 5 is
    # The first decode fills block 1 (8 tokens in 8 slots); the second needs a new block.
    assert pool.grow([100]) == 1
    assert (pool.block_table(100), pool.held_slots(100)) == ((7, 1, 3), 12)


@pytest.mark.parametrize(("tokens", "blocks"), [(1, 1), (15, 1), (16, 1), (17, 2), (32, 2), (33, 3), (160, 10)])
def test_admission_takes_the_blocks_of_what_is_written_now(tokens: int, blocks: int) -> None:
    pool = Paged(160)
    assert pool.block_size == 16
    assert pool.asked_slots(tokens, 99) == tokens
    assert pool.admit(0, tokens, 99) == blocks * 16
    assert pool.block_table(0) == tuple(range(blocks))


def test_growing_serves_in_the_order_given_until_no_block_is_left() -> None:
    pool = with_queue(6, [5, 3])
    assert pool.grow([4, 0, 1]) == 2
    assert [pool.block_table(i) for i in (4, 0, 1)] == [(4, 5), (0, 3), (1,)]
    assert pool.grow([1, 2]) == 0
    assert [pool.block_table(i) for i in (1, 2)] == [(1,), (2,)]
    assert (pool.grow([]), pool.grow_slots, pool.contiguous) == (0, 1, False)


def test_no_room_changes_nothing() -> None:
    pool = with_queue(6, [5, 3])
    assert pool.admit(100, 3, 1) == 0
    assert (pool.free_slots, pool.largest_free_slots) == (2, 2)
    assert pool.admit(100, 2, 1) == 2
    assert pool.block_table(100) == (5, 3)


def test_the_tail_is_free_but_never_handed_out() -> None:
    pool = Paged(35)
    assert (pool.capacity, pool.blocks, pool.tail_slots) == (35, 2, 3)
    assert (pool.free_slots, pool.largest_free_slots) == (35, 32)
    assert pool.admit(0, 33, 1, alone=True) == 0
    assert pool.admit(0, 32, 1) == 32
    assert (pool.free_slots, pool.largest_free_slots) == (3, 0)
    assert pool.grow([0]) == 0


@pytest.mark.parametrize(
    ("prompt_tokens", "output_tokens", "fits"),
    [(32, 1, True), (33, 1, False), (32, 2, False), (31, 2, True), (1, 32, True), (1, 33, False)],
)
def test_an_empty_pool_must_hold_all_that_will_be_written(prompt_tokens: int, output_tokens: int, fits: bool) -> None:
    assert Paged(35, watermark=0.9).fits_empty(prompt_tokens, output_tokens) is fits


@pytest.mark.parametrize(
    ("watermark", "blocks", "kept"),
    [(0, 100, 0), (0.0, 100, 0), (0.01, 983, 9), (0.01, 99, 0), (0.5, 3, 1), (0.99, 1, 0)]
    # In binary floats these products fall just short: 0.29 * 100 = 28.999999999999996.
    + [(0.29, 100, 29), ("0.29", 100, 29), (0.57, 100, 57), (0.58, 100, 58), (1.1e-1, 100, 11), ("29e-2", 100, 29)]
    # And this one is a whole number only as a float.
    + [("0.28999999999999999999", 100, 28)],
)
def test_the_watermark_is_exact_in_decimal(watermark: float | str, blocks: int, kept: int) -> None:
    pool = Paged(blocks, block_size=1, watermark=watermark)
    assert pool.admit(0, blocks - kept + 1, 1) == 0
    assert pool.admit(0, blocks - kept, 1) == blocks - kept
    assert pool.free_slots == kept


def test_growing_and_a_request_that_is_alone_may_use_the_watermark() -> None:
    pool = Paged(10, block_size=1, watermark=0.2)
    assert pool.admit(0, 9, 1) == 0
    assert pool.admit(0, 9, 1, alone=True) == 9
    assert (pool.grow([0]), pool.grow([0])) == (1, 0)
    pool.release(0)
    assert pool.admit(1, 11, 1, alone=True) == 0
    assert pool.admit(1, 8, 1) == 8
    assert pool.largest_free_slots == 2  # the watermark is ignored in it


def test_misuse_names_the_request_and_changes_nothing() -> None:
    pool = Paged(10, block_size=1)
    pool.admit(5, 2, 1)
    calls: list[tuple[str, Callable[[], object]]] = [
        ("request 5 already holds memory", lambda: pool.admit(5, 1, 1)),
        ("request 6 holds no memory", lambda: pool.release(6)),
        ("request 6 holds no memory", lambda: pool.held_slots(6)),
        ("request 6 holds no memory", lambda: pool.extents(6)),
        ("request 6 holds no memory", lambda: pool.block_table(6)),
        ("request 6 holds no memory", lambda: pool.grow([5, 6])),
    ]
    for message, call in calls:
        with pytest.raises(MisuseError, match=f"^{message}$"):
            call()
    assert (pool.block_table(5), pool.free_slots) == ((0, 1), 8)
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
        ({"capacity": 15}, "capacity(=15) must be >= block_size(=16)"),
        ({"block_size": 0}, "block_size(=0) must be a whole number >= 1"),
        ({"block_size": 1.5}, "block_size(=1.5) must be a whole number >= 1"),
        ({"watermark": 1}, "watermark(=1) must be a number >= 0 and < 1"),
        ({"watermark": -0.1}, "watermark(=-0.1) must be a number >= 0 and < 1"),
        ({"watermark": float("nan")}, "watermark(=nan) must be a number >= 0 and < 1"),
        ({"watermark": float("inf")}, "watermark(=inf) must be a number >= 0 and < 1"),
        ({"watermark": True}, "watermark(=True) must be a number >= 0 and < 1"),
        ({"watermark": None}, "watermark(=None) must be a number >= 0 and < 1"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(options: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"capacity": 100} | options
    with pytest.raises(InputError) as told:
        Paged(**arguments)  # type: ignore[arg-type]
    assert str(told.value) == message


@pytest.mark.parametrize("watermark", ["x", "", "1.0", "-1e-9", "sNaN", "0.1.2"])
def test_a_watermark_that_does_not_read_is_told(watermark: str) -> None:
    with pytest.raises(InputError, match=r"^watermark\(=.*\) must be a number >= 0 and < 1$"):
        Paged(100, watermark=watermark)
