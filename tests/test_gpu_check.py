"""The check must pass on an honest device and catch seven planted faults, and a ledger that is wrong."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from allocators import Buddy, Contiguous, Extent, InputError, Paged
from allocators.base import Allocator
from gpu.check import Check, page_slots_of, slots_of
from gpu.content import key_values, queries
from gpu.decisions import Admit, Decision, Grow, Release, Sample, Write
from gpu.pool import BITS, DevicePool
from gpu.shapes import Layout
from gpu_device import BF16, DEVICE, FP16, FP32

SMALL = Layout(kv_heads=1, head_dim=16, dtype=FP16)


def decisions_of(allocator: Allocator, requests: int = 12, seed: int = 0) -> Iterator[Decision]:
    """A small serving loop: requests come, grow, are preempted when memory is short, end; a sample now and then."""
    random = np.random.default_rng(seed)
    waiting = [(i, int(random.integers(1, 40)), int(random.integers(1, 30))) for i in range(requests)]
    running: dict[int, list[int]] = {}  # tokens written, output tokens left
    used = 0
    for iteration in range(500):
        for request_id, (tokens, left) in list(running.items()):
            if request_id not in running:
                continue
            while request_id in running and tokens == allocator.held_slots(request_id):
                if allocator.grow([request_id]):
                    yield Grow(request_id, allocator.extents(request_id))
                    break
                victim = next(reversed(running))
                allocator.release(victim)
                yield Release(victim)
                written, to_come = running.pop(victim)
                waiting.insert(0, (victim, written, to_come))
            if request_id in running:
                yield Write(request_id)
                running[request_id] = [tokens + 1, left - 1]
        while waiting and allocator.admit(*waiting[0], alone=not running):
            request_id, prompt, output = waiting.pop(0)
            yield Admit(request_id, allocator.extents(request_id), prompt)
            running[request_id] = [prompt, output - 1]
        used = sum(tokens for tokens, _ in running.values())
        if iteration % 9 == 3 or not running:
            held = sum(map(allocator.held_slots, running))
            yield Sample(iteration * 0.025, used, held, {i: tokens for i, (tokens, _) in running.items()})
        for request_id, (_, left) in list(running.items()):
            if left == 0:
                allocator.release(request_id)
                yield Release(request_id)
                del running[request_id]
        if not running and not waiting:
            return


def check_of(
    allocator: Allocator, decisions: Iterator[Decision] | None = None, pool_type: type[DevicePool] = DevicePool,
    layout: Layout = SMALL,
) -> Check:  # fmt: skip
    pool = pool_type(allocator.capacity, layout, page_slots_of(allocator.spec), DEVICE, poisoned=True)
    check = Check(allocator.spec, pool, allocator.capacity, query_heads=2 * layout.kv_heads)
    for _ in check.run(decisions_of(allocator) if decisions is None else decisions):
        pass
    return check


ALLOCATORS: dict[str, Callable[[], Allocator]] = {
    "paged": lambda: Paged(203, 16),
    "paged, blocks of 7": lambda: Paged(203, 7),
    "contiguous": lambda: Contiguous(203, "max", max_model_len=70),
    "contiguous, oracle, best fit": lambda: Contiguous(203, "oracle", "best"),
    "buddy": lambda: Buddy(203, "pow2", max_model_len=70),
}


@pytest.mark.parametrize("name", ALLOCATORS)
def test_an_honest_device_equals_the_ledger(name: str) -> None:
    check = check_of(ALLOCATORS[name]())
    assert check.differences == []
    assert check.equal
    assert len(check.rows) >= 4
    assert max(row.counted for row in check.rows) > 60
    assert all(row.counted == row.used for row in check.rows)
    assert "every counted slot equals the ledger" in check.verdict


def test_preempted_requests_come_back() -> None:
    allocator = Paged(96, 8)
    decisions = list(decisions_of(allocator))
    admitted = [decision.request_id for decision in decisions if isinstance(decision, Admit)]
    assert len(admitted) > len(set(admitted))
    assert check_of(Paged(96, 8), iter(decisions)).equal


@pytest.mark.parametrize("dtype", [FP32, BF16])
def test_other_types_are_exact_too(dtype: torch.dtype) -> None:
    check = check_of(Paged(203, 16), layout=Layout(2, 24, dtype))
    assert check.differences == []


# The seven faults, each planted in the pool behind the check's back.


class LostWrite(DevicePool):
    def write(self, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, layer: int = 0) -> None:
        super().write(slots[:-1], keys[:-1], values[:-1], layer)


class WrongBlock(DevicePool):
    def append(self, request_ids: Any, tokens: Any = 1) -> torch.Tensor:
        slots = super().append(request_ids, tokens)
        slots[-1] = (slots[-1] + 5 * self.page_slots) % (self.pages * self.page_slots)
        return slots


class TwoOwners(DevicePool):
    def admit(self, request_id: int, extents: Any) -> None:
        super().admit(request_id, extents)
        if request_id == 1:
            self._tables[1][0] = self._tables[0][0]


class SwappedBlocks(DevicePool):
    def scan(self, layer: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        tables = [table for table in self._tables.values() if len(table) > 1]
        if tables:
            tables[0][0], tables[0][1] = tables[0][1], tables[0][0]
        return super().scan(layer)


class LengthOffByOne(DevicePool):
    def append(self, request_ids: Any, tokens: Any = 1) -> torch.Tensor:
        slots = super().append(request_ids, tokens)
        self._written[request_ids[-1]] -= 1
        return slots


class FlippedBit(DevicePool):
    def scan(self, layer: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        if self._tables and self.written(request_id := next(iter(self._tables))):
            self.layers[layer].view(BITS[self.layout.dtype])[self._tables[request_id][0], 1, 0, 0, 3] ^= 1
        return super().scan(layer)


class ForgottenPoison(DevicePool):
    def poison(self, pages: Any) -> None:
        pass


FAULTS: dict[type[DevicePool], str] = {
    LostWrite: "slots are written, the ledger uses",
    WrongBlock: "should have its first .* slots written",
    TwoOwners: "a page is in the block tables twice",
    SwappedBlocks: "keys of request .* are not its own at positions",
    LengthOffByOne: "on the device, .* in the ledger",
    FlippedBit: "values of request .* are not its own at positions",
    ForgottenPoison: "slots nobody owns are written|should have its first",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("name", ["paged", "contiguous", "buddy"])
def test_fault_is_caught(fault: type[DevicePool], name: str) -> None:
    check = check_of(ALLOCATORS[name](), pool_type=fault)
    assert not check.equal
    assert any(_matches(FAULTS[fault], difference) for difference in check.differences), check.differences
    assert "differences in" in check.verdict


def _matches(pattern: str, text: str) -> bool:

    return re.search(pattern, text) is not None


def test_a_decision_that_gives_a_page_twice_is_a_difference() -> None:
    decisions: list[Decision] = [
        Admit(0, [Extent(0, 16)], 3),
        Admit(1, [Extent(0, 16)], 3),
        Sample(0.0, 6, 32, {0: 3, 1: 3}),
    ]
    check = check_of(Paged(64, 16), iter(decisions))
    assert check.differences == ["the pool refused admit: page 0 was given to request 1 but belongs to 0"]
    assert not check.equal


# A ledger that is wrong is caught as well as a device that is.


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"used": 22}, "21 slots are written, the ledger uses 22"),
        ({"held": 32}, "48 slots are in extents, the ledger holds 32"),
        ({"written": {3: 4, 9: 17}}, "request 3 should have its first 4 slots written and has 5, unwritten from 5 on"),
        ({"written": {3: 5}}, r"requests \[3, 9\] hold memory, the ledger runs \[3\]"),
    ],
)
def test_a_wrong_ledger_is_caught(wrong: dict[str, Any], message: str) -> None:
    right = Sample(1.5, 22 - 1, 48, {3: 5, 9: 16})
    decisions: list[Decision] = [
        Admit(3, [Extent(16, 16)], 5),
        Admit(9, [Extent(48, 16), Extent(0, 16)], 15),
        Write(9),
        right,
    ]
    assert check_of(Paged(64, 16), iter(decisions)).equal
    check = check_of(Paged(64, 16), iter([*decisions[:-1], replace(right, **wrong)]))
    assert any(_matches("at 1.500 s " + message, difference) for difference in check.differences), check.differences


def test_no_sample_is_no_success() -> None:
    check = check_of(Paged(64, 16), iter([]))
    assert not check.equal
    assert "nothing was compared" in check.verdict


def test_the_result_goes_into_json() -> None:
    for pool_type in (DevicePool, LostWrite):  # the second one's attention meets poison: NaN, null in JSON
        check = check_of(Paged(203, 16), pool_type=pool_type)
        read = json.loads(json.dumps(check.to_dict(), allow_nan=False))
        assert read["equal"] is (pool_type is DevicePool)
        assert read["allocator"] == "paged:block_size=16,watermark=0"
        assert len(read["samples"]) == len(check.rows)


def test_heads_that_do_not_divide_are_refused() -> None:
    pool = DevicePool(64, Layout(2, 16), 16, DEVICE, poisoned=True)
    with pytest.raises(InputError, match=r"query_heads\(=3\) must be a multiple of kv_heads\(=2\)"):
        Check("paged", pool, 64, query_heads=3)


@pytest.mark.parametrize(
    ("spec", "slots"), [("paged:block_size=7,watermark=0", 7), ("paged", 16), ("buddy:min_block=16", 1)]
)
def test_pages_of_an_allocator(spec: str, slots: int) -> None:
    assert page_slots_of(spec) == slots


def test_slots_follow_the_order_of_the_tokens() -> None:
    assert slots_of([Extent(8, 2), Extent(0, 3)]).tolist() == [8, 9, 0, 1, 2]
    assert slots_of([]).tolist() == []


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16])
def test_content_is_exact_in_every_type_and_differs_from_token_to_token(dtype: torch.dtype) -> None:
    requests = torch.arange(40, device=DEVICE).repeat_interleave(50)
    positions = torch.arange(50, device=DEVICE).repeat(40)
    keys, values = key_values(requests, positions, Layout(2, 16, dtype))
    query = queries(requests, positions, 4, Layout(2, 16, dtype))
    exact, _ = key_values(requests, positions, Layout(2, 16, FP32))
    assert torch.equal(keys.float(), exact)
    assert (exact * 64 == (exact * 64).round()).all()
    assert exact.abs().max() == 127 / 64
    vectors = torch.cat([keys.flatten(1), values.flatten(1), query.flatten(1)[:, :32]])
    assert len(torch.unique(vectors.float(), dim=0)) == 3 * 2000
    assert abs(float(exact.mean())) < 0.02
