"""The pool: what allocators decide is what the device holds, and what cannot be is refused before a kernel runs."""

from typing import Any

import numpy as np
import pytest
import torch

from allocators import Buddy, Contiguous, Extent, InputError, MisuseError, Paged
from allocators.base import Allocator
from gpu import reference
from gpu.pool import BITS, POISON, Batch, DevicePool
from gpu.reference import BARS
from gpu.shapes import Layout
from gpu_device import BF16, DEVICE, FP16, FP32

SMALL = Layout(kv_heads=2, head_dim=16, dtype=FP16)


def pool_of(capacity: int = 64, page_slots: int = 4, layout: Layout = SMALL, poisoned: bool = True) -> DevicePool:
    return DevicePool(capacity, layout, page_slots, DEVICE, poisoned)


def tokens(count: int, layout: Layout = SMALL, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    shape = (2, count, layout.kv_heads, layout.head_dim)
    keys, values = torch.randn(shape, generator=random).to(layout.dtype).to(DEVICE)
    return keys, values


@pytest.mark.parametrize("allocator", [Paged(256, 16), Contiguous(256, "max", max_model_len=60), Buddy(256, "oracle")])
def test_requests_come_grow_attend_and_go_as_the_allocator_says(allocator: Allocator) -> None:
    page_slots = allocator.block_size if isinstance(allocator, Paged) else 1
    pool = pool_of(256, page_slots)
    written: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for request_id, prompt in enumerate((5, 33, 16)):
        allocator.admit(request_id, prompt, 9)
        pool.admit(request_id, allocator.extents(request_id))
        written[request_id] = tokens(prompt, seed=request_id)
        pool.write(pool.append([request_id], prompt), *written[request_id])
    allocator.release(1)
    pool.release(1)
    del written[1]
    for step in range(8):
        for request_id in (0, 2):
            if pool.written(request_id) == allocator.held_slots(request_id):
                assert allocator.grow([request_id]) == 1
                pool.grow(request_id, allocator.extents(request_id))
        keys, values = tokens(2, seed=100 + step)
        pool.write(pool.append([0, 2]), keys, values)
        for row, request_id in enumerate((0, 2)):
            old = written[request_id]
            written[request_id] = (torch.cat([old[0], keys[row : row + 1]]), torch.cat([old[1], values[row : row + 1]]))
    for request_id, (keys, values) in written.items():
        got_keys, got_values = pool.read(request_id)
        assert torch.equal(got_keys, keys)
        assert torch.equal(got_values, values)
    is_written, torn = pool.scan()
    assert int(is_written.sum()) == 13 + 24
    assert not torn.any()

    query = torch.randn((2, 6, 16), generator=torch.Generator().manual_seed(9)).to(FP16).to(DEVICE)
    batch = pool.batch([0, 2])
    want = reference.paged_attention(query, pool.layers[0], batch.tables, batch.lengths)
    assert reference.worst_error(pool.attend(query, batch), want) < BARS[FP16]


def test_layers_share_tables_and_hold_their_own_bytes() -> None:
    pool = pool_of(layout=Layout(2, 16, FP32, layers=2))
    pool.admit(7, [Extent(8, 4)])
    slots = pool.append([7], 3)
    assert slots.tolist() == [8, 9, 10]
    for layer in (0, 1):
        pool.write(slots, *tokens(3, pool.layout, seed=layer), layer=layer)
    assert torch.equal(pool.read(7, layer=1)[0], tokens(3, pool.layout, seed=1)[0])
    assert torch.equal(pool.read(7, layer=0)[1], tokens(3, pool.layout, seed=0)[1])


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16])
def test_poison_survives_freed_blocks_read_as_unwritten(dtype: torch.dtype) -> None:
    layout = Layout(2, 16, dtype)
    pool = pool_of(layout=layout)
    pool.admit(1, [Extent(4, 4), Extent(0, 4)])
    pool.write(pool.append([1], 6), *tokens(6, layout))
    assert pool.scan()[0].sum(1).tolist()[:3] == [2, 4, 0]
    pool.release(1)
    written, torn = pool.scan()
    assert not written.any()
    assert not torn.any()
    bits = pool.layers[0].view(BITS[dtype])
    assert (bits == POISON[dtype]).all()
    assert pool.layers[0].isnan().all()
    results = (pool.layers[0] * 0.5 + 1).view(BITS[dtype])  # arithmetic on poison gives another NaN
    assert (results != POISON[dtype]).all()


def test_a_slot_written_in_part_is_torn() -> None:
    pool = pool_of()
    pool.layers[0][3, 1, 2, 0, 5] = 1.0
    written, torn = pool.scan()
    assert not written.any()
    assert torn.nonzero().tolist() == [[3, 2]]


def test_a_pool_that_is_not_poisoned_cannot_be_scanned() -> None:
    with pytest.raises(InputError, match="poisoned=True"):
        pool_of(poisoned=False).scan()


@pytest.mark.skipif(DEVICE.type == "cuda", reason="there is a device")
def test_a_device_that_is_not_there_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r"device\(='cuda'\) is not there: torch sees no CUDA device; choose cpu"):
        DevicePool(64, SMALL, 4, "cuda")


def test_the_tail_of_the_capacity_has_no_page() -> None:
    assert pool_of(capacity=67).pages == 16
    with pytest.raises(InputError, match=r"capacity\(=3\) must be >= page_slots\(=4\)"):
        pool_of(capacity=3)


# Refusals. Each leaves the pool as it was, and no kernel has run.


@pytest.mark.parametrize(
    ("tables", "lengths", "message"),
    [
        ([[0, 16]], [5], r"page\(=16\) of request 0 of the batch must be in 0 .. 15"),
        ([[0], [-1]], [4, 1], r"page\(=-1\) of request 1 of the batch"),
        ([[0, 1]], [9], r"length\(=9\) of request 0 of the batch must be in 0 .. 8, what its 2 pages hold"),
        ([[0, 1]], [-1], r"length\(=-1\)"),
        ([[0, 1]], [1, 2], "equally many"),
    ],
)
def test_a_bad_block_id_or_a_length_beyond_the_table_is_refused(
    tables: list[list[int]], lengths: list[int], message: str
) -> None:
    with pytest.raises(InputError, match=message) as refused:
        pool_of().batch_of(tables, lengths)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("extents", "error", "message"),
    [
        ([Extent(64, 4)], InputError, r"page\(=16\) of request 5 must be in 0 .. 15"),
        ([Extent(2, 4)], InputError, r"extent\(2, 4\) of request 5 must be whole pages of 4 slots"),
        ([Extent(0, 4), Extent(0, 4)], MisuseError, r"request 5 was given a page twice"),
        ([Extent(16, 4), Extent(8, 4)], MisuseError, r"page 2 was given to request 5 but belongs to 1"),
    ],
)
def test_memory_that_cannot_be_given_is_refused(extents: list[Extent], error: type[Exception], message: str) -> None:
    pool = pool_of()
    pool.admit(1, [Extent(8, 4)])
    with pytest.raises(error, match=message):
        pool.admit(5, extents)
    with pytest.raises(MisuseError, match="request 5 holds no memory"):
        pool.table(5)
    pool.admit(5, [Extent(16, 4)])


@pytest.mark.parametrize("request_id", [-1, -7, 2**63])
def test_an_id_that_could_stand_for_no_owner_is_refused(request_id: int) -> None:
    pool = pool_of()
    with pytest.raises(InputError, match=rf"request_id\(={request_id}\) must be (a whole number >= 0|in 0 \.\. )"):
        pool.admit(request_id, [Extent(8, 4)])
    pool.admit(0, [Extent(8, 4)])


def test_numpy_integers_count_and_floats_are_refused_in_one_line() -> None:
    pool = pool_of()
    pool.admit(np.int64(0), [Extent(np.int64(8), np.int64(4)), Extent(0, 4)])  # type: ignore[arg-type]
    assert pool.append([0], np.int64(3)).tolist() == [8, 9, 10]  # type: ignore[call-overload, arg-type, unused-ignore]
    assert pool.append([0], np.array([2])).tolist() == [11, 0]  # type: ignore[arg-type]
    assert type(pool.written(0)) is int
    batch = pool.batch_of([np.array([2, 0])], np.array([5], dtype=np.uint8))  # type: ignore[arg-type, list-item]
    assert (batch.tables.tolist(), batch.lengths.tolist(), type(batch.max_length)) == ([[2, 0]], [5], int)
    for call, message in (
        (lambda: pool.append([0], 1.0), r"tokens\(=1.0\)"),  # type: ignore[arg-type]
        (lambda: pool.append([0], [np.float32(1)]), r"tokens\(=1.0\)"),  # type: ignore[list-item]
        (lambda: pool.append([0], -1), r"tokens\(=-1\)"),
        (lambda: pool.batch_of([[2]], [1.5]), r"length\(=1.5\)"),  # type: ignore[list-item]
        (lambda: pool.batch_of([[2.0]], [1]), r"page\(=2.0\)"),  # type: ignore[list-item]
    ):
        with pytest.raises(InputError, match=message + ".* must be a whole number >= 0"):
            call()
    assert pool.written(0) == 5


def test_misuse_names_the_id() -> None:
    pool = pool_of()
    pool.admit(1, [Extent(8, 4)])
    for call, message in (
        (lambda: pool.admit(1, [Extent(0, 4)]), "request 1 already holds memory"),
        (lambda: pool.release(2), "request 2 holds no memory"),
        (lambda: pool.append([2]), "request 2 holds no memory"),
        (lambda: pool.batch([1, 2]), "request 2 holds no memory"),
    ):
        with pytest.raises(MisuseError, match=message):
            call()


def test_writing_beyond_what_is_held_is_refused_and_nothing_counts_as_written() -> None:
    pool = pool_of()
    pool.admit(1, [Extent(8, 4)])
    pool.admit(2, [Extent(0, 8)])
    with pytest.raises(InputError, match="request 1 cannot write 5 tokens: 0 of 4 slots are taken"):
        pool.append([2, 1], [8, 5])
    assert pool.written(2) == 0
    with pytest.raises(InputError, match="must be distinct"):
        pool.append([2, 2])


def test_growing_may_not_rewrite_the_pages_there_were() -> None:
    pool = pool_of()
    pool.admit(1, [Extent(8, 4)])
    with pytest.raises(InputError, match=r"request 1 grows from pages \[2\]"):
        pool.grow(1, [Extent(12, 4), Extent(8, 4)])
    pool.grow(1, [Extent(8, 4), Extent(0, 4)])
    assert pool.table(1) == (2, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q: q[:, :3], r"query_heads\(=3\) must be a multiple of kv_heads\(=2\)"),
        (lambda q: q.float(), "query is torch.float32, it must be torch.float16"),
        (lambda q: q.to("meta"), "query is on meta, it must be on the pool's device"),
    ],
)
def test_heads_dtypes_and_devices_must_agree(change: Any, message: str) -> None:
    pool = pool_of()
    pool.admit(1, [Extent(8, 4)])
    batch = pool.batch([1])
    query = torch.zeros((1, 4, 16), dtype=FP16, device=DEVICE)
    with pytest.raises(InputError, match=message):
        pool.attend(change(query), batch)
    assert pool.attend(query, Batch(batch.tables, batch.lengths, 0)).shape == (1, 4, 16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_heads": 0, "head_dim": 16}, r"kv_heads\(=0\) must be a whole number >= 1"),
        ({"kv_heads": 1, "head_dim": 300}, r"head_dim\(=300\) must be <= 256"),
        ({"kv_heads": 1, "head_dim": 8, "dtype": torch.int8}, r"dtype\(=torch.int8\) must be one of"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Layout(**options)
