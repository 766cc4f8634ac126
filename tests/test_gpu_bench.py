"""The bench without a device: its loads, rivals, rows and bars on small tensors, and its refusal to time a CPU."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch

from allocators import InputError
from gpu import bench, rivals
from gpu.loads import LLAMA_8, LLAMA_64, Load, Problem, plans_to_try
from gpu.reference import paged_attention
from gpu.rivals import OURS, SDPA
from gpu_device import DEVICE, FP16, FP32

TINY = Load("tiny", (33, 33), query_heads=4, kv_heads=2, head_dim=16, dtype=FP32)
UNEVEN = replace(TINY, name="uneven", lengths=(33, 5, 20))


def one_us(call: rivals.Call) -> bench.Timing:
    """A timer that looks at no clock."""
    call()
    return bench.Timing(1.0, 0.5, 2.0)


def test_bytes_that_must_move() -> None:
    # 33 tokens x 2 kv heads x 16 lanes x 4 bytes, keys and values, two requests; queries and outputs; tables, lengths
    assert TINY.bytes == 2 * 2 * 33 * 2 * 16 * 4 + 2 * 2 * 4 * 16 * 4 + 4 * (2 * 3 + 2)
    assert LLAMA_64.bytes == pytest.approx(2**30, rel=0.01)


@pytest.mark.parametrize("load", [TINY, UNEVEN, replace(UNEVEN, block_size=7)])
def test_problems_scatter_blocks_and_know_their_contiguous_form(load: Load) -> None:
    problem = Problem(load, DEVICE)
    want = paged_attention(problem.query, problem.pool, problem.tables, problem.lengths)
    assert problem.error(torch.from_numpy(want)) < 1e-14
    assert problem.error(torch.from_numpy(want * 1.01)) == pytest.approx(0.01)
    used = [i for row, n in enumerate(load.lengths) for i in problem.tables[row, : -(-n // load.block_size)].tolist()]
    assert sorted(used) == list(range(len(problem.pool)))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("load", [TINY, UNEVEN])
@pytest.mark.parametrize("name", [OURS, "torch SDPA, math, contiguous", "flex"])
def test_every_implementation_is_checked_against_float64(load: Load, name: str) -> None:
    makes: dict[str, rivals.Make] = {
        OURS: rivals.ours, "flex": lambda problem: rivals.flex(problem, compiled=False), **SDPA,
    }  # fmt: skip
    row = bench.measure(Problem(load, DEVICE), name, makes[name], copy_tb_per_s=4.0, timer=one_us)
    assert row.note == ""
    assert row.error is not None
    assert row.error < 1e-6
    assert row.tb_per_s == load.bytes / 1e6
    assert row.percent_of_copy == pytest.approx(25e-6 * load.bytes)
    assert (row.median_us, row.p10_us, row.p90_us) == (1.0, 0.5, 2.0)


def test_a_refusal_and_a_wrong_result_are_rows_that_say_so() -> None:
    def refusing(_: Problem) -> rivals.Call:
        raise RuntimeError("no kernel for this\nand a long trace")

    problem = Problem(TINY, DEVICE)
    row = bench.measure(problem, "rival", refusing, 4.0, one_us)
    assert (row.note, row.median_us) == ("refused: no kernel for this", None)
    row = bench.measure(problem, "rival", lambda p: lambda: torch.zeros_like(p.query), 4.0, one_us)
    assert (row.note, row.median_us) == ("wrong: 1.0e+00 away from float64", None)


def test_a_timer_that_raises_is_a_row_that_says_so() -> None:
    def no_graph(_: rivals.Call) -> bench.Timing:
        raise RuntimeError("operation not permitted when stream is capturing\nand a long trace")

    table = list(bench.rows([(TINY, {OURS: rivals.ours})], DEVICE, 4.0, time.monotonic() + 3600, no_graph))
    assert [row.note for row in table] == ["refused to be timed: operation not permitted when stream is capturing"]
    assert table[0].median_us is None


def test_a_load_that_cannot_be_built_is_rows_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(load: Load, device: torch.device) -> Problem:
        if load is TINY:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB\n")
        return Problem(load, device)

    monkeypatch.setattr(bench, "Problem", build)
    plans: bench.Plans = [(TINY, {OURS: rivals.ours, "rival": rivals.ours}), (UNEVEN, {OURS: rivals.ours})]
    table = list(bench.rows(plans, DEVICE, 4.0, time.monotonic() + 3600, one_us))
    note = "refused: the load cannot be built: CUDA out of memory. Tried to allocate 9 GiB"
    assert [row.note for row in table] == [note, note, ""]


def test_ceilings_count_what_is_read_and_what_is_written() -> None:
    assert bench.ceilings(DEVICE, one_us, 2**20) == {"copy": 2**21 / 1e6, "fill": 2**20 / 1e6, "read": 2**20 / 1e6}


def test_the_table_ends_at_its_deadline_and_says_what_it_left_out() -> None:
    def made_after_the_deadline(_: Problem) -> rivals.Call:
        raise AssertionError

    plans: bench.Plans = [(TINY, {OURS: rivals.ours, "rival": rivals.ours}), (UNEVEN, {OURS: rivals.ours})]
    table = list(bench.rows(plans, DEVICE, 4.0, time.monotonic() + 3600, one_us))
    assert [(row.load, row.implementation, row.note) for row in table] == [
        ("tiny", OURS, ""), ("tiny", "rival", ""), ("uneven", OURS, ""),
    ]  # fmt: skip
    late = list(bench.rows([(LLAMA_64, {OURS: made_after_the_deadline})], DEVICE, 4.0, time.monotonic() - 1, one_us))
    assert [str(row) for row in late] == [
        "64 x 4096, 32/8 heads, block size 16, kvfrag, paged: left out: no time was left"
    ]


def test_the_loads_with_bars_come_first_and_a_simulated_run_is_among_the_others() -> None:
    first = bench.loads_with_bars()
    assert [load.name for load, _ in first[:2]] == [LLAMA_64.name, LLAMA_8.name]
    assert [load.block_size for load, _ in first[2:]] == [1, 8, 32, 64, 128, 100]
    assert all(next(iter(implementations)) == OURS for _, implementations in first)
    rest = bench.other_loads([3, 9])
    assert rest[0][0].lengths == (3, 9)
    assert len(bench.other_loads()) == len(rest) - 1


class Cuda:
    """What graph_timing uses of torch.cuda, without a device: a graph holds what was called while it was captured."""

    def __init__(self) -> None:
        self.clock_ms, self.replayed = 0.0, 0
        cuda = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                cuda.clock_ms += 0.125
                self.at_ms = cuda.clock_ms

            def synchronize(self) -> None: ...

            def elapsed_time(self, other: "Event") -> float:
                return other.at_ms - self.at_ms

        class Graph:
            def replay(self) -> None:
                cuda.replayed += 1

        class Stream:
            def wait_stream(self, _: object) -> None: ...

        self.Event, self.CUDAGraph, self.Stream = Event, Graph, Stream

    def current_stream(self) -> Any:
        return self.Stream()

    def synchronize(self) -> None: ...

    @contextmanager
    def stream(self, _: object) -> Iterator[None]:
        yield

    graph = stream


def test_timings_are_medians_of_graph_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, calls = Cuda(), []
    monkeypatch.setattr(torch, "cuda", cuda)

    def call() -> torch.Tensor:
        calls.append(1)
        return torch.empty(0)

    timing = bench.graph_timing(call, seconds=0.1)
    assert len(calls) == 3 + 1 + 8  # warm, once to see how long it takes (0.125 ms), and eight to share a graph
    assert cuda.replayed == 100 + 3  # of a millisecond each, and three to warm up
    assert timing == bench.Timing(125 / 8, 125 / 8, 125 / 8)


def test_bars_are_met_or_not_and_never_met_without_a_measurement() -> None:
    def row(load: Load, size: int, implementation: str, percent: float, time_us: float) -> bench.Row:
        numbers: dict[str, Any] = {"percent_of_copy": percent, "median_us": time_us}
        return bench.Row(load.name, size, implementation, 1, **numbers)

    flash = next(iter(SDPA))
    table = [
        row(LLAMA_64, 16, OURS, 91, 100), row(LLAMA_8, 16, OURS, 89, 120), row(LLAMA_64, 8, OURS, 80, 130),
        row(LLAMA_64, 32, OURS, 79.9, 130), row(LLAMA_64, 16, flash, 95, 96), row(LLAMA_8, 16, flash, 95, 100),
    ]  # fmt: skip
    assert [(bar["measured"], bar["met"]) for bar in bench.bars(table)] == [
        (91, True), (89, False), (80, True), (79.9, False), (None, False), (None, False),
        (pytest.approx(104.17, abs=0.01), True), (120, False),
    ]  # fmt: skip
    assert not any(bar["met"] for bar in bench.bars([]))


def test_other_plans_fit_the_load_and_the_shared_memory() -> None:
    plans = plans_to_try(LLAMA_64)
    assert len(set(plans)) == len(plans) > 20
    assert max(plan.chunk_tokens for plan in plans) == 4096
    assert {plan.tile_tokens for plan in plans_to_try(replace(LLAMA_64, dtype=FP16))} == {32, 64, 128}


def test_without_a_device_the_bench_says_so_in_one_line() -> None:
    with pytest.raises(InputError, match="gpu bench needs a CUDA device") as refused:
        bench.cuda_device("cpu")
    assert "\n" not in str(refused.value)


def test_lengths_below_1_are_refused() -> None:
    with pytest.raises(InputError, match="lengths of x must be whole numbers >= 1"):
        Load("x", (4, 0))


def test_the_environment_names_versions_and_date() -> None:
    found = bench.environment(DEVICE)
    assert found["torch"] == torch.__version__
    assert found["date"].endswith("+00:00")
