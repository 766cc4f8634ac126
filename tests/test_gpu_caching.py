"""The model of torch's caching allocator, rule by rule; on a CUDA device also beside the allocator itself."""

import numpy as np
import pytest
import torch

from allocators import Extent, InputError, MisuseError
from gpu.caching import (
    MIB,
    CachingAllocator,
    Event,
    events_of,
    measure,
    measure_in_fresh_process,
    model,
    rounded,
    segment_size,
)  # fmt: skip
from gpu.decisions import Admit, Decision, Grow, Release, Sample, Write
from gpu_device import DEVICE


def allocated(allocator: CachingAllocator, size: int) -> int:
    address = allocator.allocate(size)
    assert address is not None
    return address


@pytest.mark.parametrize(("size", "block"), [(1, 512), (512, 512), (513, 1024), (MIB, MIB), (MIB + 1, MIB + 512)])
def test_sizes_are_rounded_to_512_bytes(size: int, block: int) -> None:
    assert rounded(size) == block
    allocator = CachingAllocator()
    allocator.allocate(size)
    stats = allocator.stats()
    assert (stats["requested"], stats["allocated"], stats["active"]) == (size, block, block)


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (512, 2 * MIB), (MIB, 2 * MIB), (MIB + 512, 20 * MIB), (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB), (10 * MIB + 512, 12 * MIB), (33 * MIB, 34 * MIB),
    ],
)  # fmt: skip
def test_segments_come_in_2_mib_20_mib_or_multiples_of_2_mib(size: int, segment: int) -> None:
    assert segment_size(size) == segment
    allocator = CachingAllocator()
    allocator.allocate(size)
    assert allocator.stats()["reserved"] == segment


def test_a_small_block_splits_off_even_512_bytes() -> None:
    allocator = CachingAllocator()
    first = allocated(allocator, MIB)
    second = allocated(allocator, MIB - 512)
    assert (first, second) == (0, MIB)
    assert allocator.stats()["inactive_split"] == 512
    assert allocated(allocator, 1) == 2 * MIB - 512
    assert allocator.stats()["inactive_split"] == 0
    assert allocator.stats()["reserved"] == 2 * MIB


def test_a_large_block_splits_only_if_more_than_1_mib_is_left() -> None:
    allocator = CachingAllocator()
    allocator.allocate(11 * MIB)  # from 12 MiB: exactly 1 MiB would be left
    assert allocator.stats() == {
        "requested": 11 * MIB, "allocated": 12 * MIB, "active": 12 * MIB, "reserved": 12 * MIB, "inactive_split": 0,
    }  # fmt: skip
    allocator = CachingAllocator()
    allocator.allocate(11 * MIB - 512)
    assert allocator.stats()["active"] == 11 * MIB - 512
    assert allocator.stats()["inactive_split"] == MIB + 512


def test_the_smallest_block_that_fits_is_taken_ties_to_the_lowest_address() -> None:
    allocator = CachingAllocator()
    blocks = [allocated(allocator, size * MIB) for size in (40, 30, 50, 30)]
    for address in reversed(blocks):
        allocator.free(address)
    assert allocated(allocator, 29 * MIB + 1) == blocks[1]  # of two blocks of 30 MiB the lower
    assert allocated(allocator, 29 * MIB + 1) == blocks[3]
    assert allocated(allocator, 29 * MIB + 1) == blocks[0]
    assert allocated(allocator, 45 * MIB) == blocks[2]
    assert allocator.stats()["reserved"] == 150 * MIB


def test_small_and_large_tensors_do_not_share_segments() -> None:
    allocator = CachingAllocator()
    allocator.free(allocated(allocator, 5 * MIB))
    allocator.allocate(MIB)
    assert allocator.stats()["reserved"] == 22 * MIB


def test_free_neighbours_merge_on_both_sides() -> None:
    allocator = CachingAllocator()
    parts = [allocated(allocator, 5 * MIB) for _ in range(4)]
    assert parts == [0, 5 * MIB, 10 * MIB, 15 * MIB]
    allocator.free(parts[0])
    allocator.free(parts[2])
    assert allocator.stats()["inactive_split"] == 10 * MIB
    allocator.free(parts[1])
    assert allocator.stats()["inactive_split"] == 15 * MIB
    assert allocated(allocator, 15 * MIB) == 0
    allocator.free(0)
    allocator.free(parts[3])
    stats = allocator.stats()
    assert (stats["inactive_split"], stats["active"], stats["reserved"]) == (0, 0, 20 * MIB)
    assert allocated(allocator, 20 * MIB) == 0


def test_a_full_driver_gets_unused_segments_back_and_then_says_no() -> None:
    allocator = CachingAllocator(limit_bytes=64 * MIB)
    first, second = allocated(allocator, 30 * MIB), allocated(allocator, 30 * MIB)
    assert allocator.allocate(20 * MIB) is None
    allocator.free(first)
    assert allocator.stats()["reserved"] == 60 * MIB
    assert allocated(allocator, 34 * MIB) not in (first, second)  # the 30 MiB segment had to go
    assert allocator.stats()["reserved"] == 64 * MIB
    assert allocator.allocate(1) is None


def test_empty_cache_keeps_segments_in_use() -> None:
    allocator = CachingAllocator()
    first, second = allocated(allocator, 5 * MIB), allocated(allocator, 30 * MIB)
    allocator.allocate(5 * MIB)
    allocator.free(first)
    allocator.free(second)
    allocator.empty_cache()
    assert allocator.stats()["reserved"] == 20 * MIB
    assert allocator.stats()["inactive_split"] == 15 * MIB


def test_misuse_and_bad_sizes_are_told() -> None:
    allocator = CachingAllocator()
    address = allocated(allocator, 7)
    allocator.free(address)
    with pytest.raises(MisuseError, match="no block is allocated at address 0"):
        allocator.free(address)
    with pytest.raises(InputError, match=r"size_bytes\(=0\) must be a whole number >= 1"):
        allocator.allocate(0)


def test_bytes_are_conserved_over_a_random_life() -> None:
    random = np.random.default_rng(3)
    allocator = CachingAllocator()
    live: dict[int, int] = {}
    for _ in range(3000):
        if live and random.random() < 0.5:
            allocator.free(victim := int(random.choice(list(live))))
            del live[victim]
        else:
            size = int(2 ** random.uniform(0, 26))
            address = allocated(allocator, size)
            assert all(address + rounded(size) <= at or at + rounded(other) <= address for at, other in live.items())
            live[address] = size
        stats = allocator.stats()
        assert stats["requested"] == sum(live.values())
        assert stats["requested"] <= stats["active"] <= stats["reserved"] - stats["inactive_split"]
    for address in live:
        allocator.free(address)
    stats = allocator.stats()
    assert stats["active"] == stats["inactive_split"] == 0
    allocator.empty_cache()
    assert allocator.stats()["reserved"] == 0


def life() -> list[Event]:
    extents = [Extent(0, 64)]
    decisions: list[Decision] = [
        Admit(3, extents, 10), Sample(0.0, 10, 64, {3: 10}), Write(3), Grow(3, extents), Admit(5, extents, 2),
        Write(3, 2), Release(3), Write(5), Release(5),
    ]  # fmt: skip
    return list(events_of(decisions, 100_000))


def test_a_cache_without_a_pool_allocates_copies_and_frees() -> None:
    assert life() == [
        ("allocate", 0, 1_000_000), ("allocate", 1, 1_100_000), ("copy", 1, 0), ("free", 0, 1_000_000),
        ("allocate", 2, 200_000), ("allocate", 3, 1_300_000), ("copy", 3, 1), ("free", 1, 1_100_000),
        ("free", 3, 1_300_000), ("allocate", 4, 300_000), ("copy", 4, 2), ("free", 2, 200_000), ("free", 4, 300_000),
    ]  # fmt: skip
    counts = model(life(), every=6)
    assert [count["requested"] for count in counts] == [2_600_000, 300_000, 0]
    assert counts[-1]["reserved"] == 22 * MIB


@pytest.mark.skipif(DEVICE.type == "cuda", reason="there is a device")
def test_without_a_device_measuring_is_refused_in_one_line() -> None:
    for measured in (measure, measure_in_fresh_process):
        with pytest.raises(InputError, match="CUDA device only, and torch sees none"):
            measured(life(), 5)


@pytest.mark.skipif(DEVICE.type != "cuda" or not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_model_equals_torch_on_a_device() -> None:
    random = np.random.default_rng(0)
    extents = [Extent(0, 4096)]
    decisions: list[Decision] = [Admit(i, extents, int(random.integers(1, 600))) for i in range(12)]
    decisions += [Write(int(random.integers(12))) for _ in range(600)]
    events = list(events_of(decisions, 20_480))
    assert measure_in_fresh_process(events, 20) == model(events, 20)
