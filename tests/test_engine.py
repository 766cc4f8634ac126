"""The engine's integers are the token-stepped reference's integers: not approximately."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import gcd
from pathlib import Path
from random import Random

import pytest

import reference
from allocators import Contiguous, Paged
from growing import NAME
from scenarios import Scenario, aligned_scenario, compare, compare_figures, moments_of, random_scenario
from simulator import StepCost, Trace, simulate
from simulator.engine import loop, pools
from simulator.results.waits import CAUSES
from simulator.server.settings import SettingsFields

CASES = 1200
ALIGNED = 600
BATCHES = 12


def check(scenario: Scenario, seed: int) -> reference.Outcome:
    """Both sides on one scenario, with memory maps at random times inside the run and after its end."""
    whole = scenario.reference()
    last = max((r.finished_ps or 0 for r in whole.requests), default=0) + whole.duration_ps
    times = sorted(Random(seed).randrange(last + 10) for _ in range(6))
    expected = scenario.reference(times)
    compare(scenario.engine(times), expected)
    return expected


def check_aligned(scenario: Scenario, seed: int) -> reference.Outcome:
    """Both sides, with memory maps where iterations begin and end and a picosecond before, and bins cut there."""
    r = Random(seed)
    moments = sorted({*moments_of(scenario.reference()), 0})
    chosen = r.choices(moments, k=6)
    times = sorted(min(max(time + r.choice([-1, 0, 0, 1]), 0), 10**22) for time in chosen)
    expected = scenario.reference(times)
    # As many bins as make all of them a whole number of the smallest time between two moments, if it can be done.
    unit = gcd(expected.duration_ps, *moments)
    count = expected.duration_ps // unit if unit else 1
    bins = next((bins for bins in range(min(count, 60), 0, -1) if count % bins == 0), 1)
    compare(scenario.engine(times, bins), expected, bins)
    return expected


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_scenarios_equal_the_reference(batch: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(batch * CASES // BATCHES, (batch + 1) * CASES // BATCHES):
        scenario = random_scenario(seed)
        try:
            outcome = check(scenario, seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {scenario}") from error
        seen["preemption"] += outcome.preemptions > 0
        seen["external"] += outcome.external_ps > 0
        seen["residual"] += outcome.slot_ps["residual"] > 0
        seen["rejected"] += sum(outcome.rejected.values()) > 0
        seen["window"] += any(request.status in ("running", "waiting", "not_arrived") for request in outcome.requests)
        seen["again"] += any(request.preemptions > 1 for request in outcome.requests)
        seen.update({f"wait: {cause}": any(one.waits_ps[cause] for one in outcome.requests) for cause in CAUSES})
    # A comparison that never meets what is difficult would prove nothing.
    kinds = ("preemption", "external", "residual", "rejected", "window", "again")
    assert min(seen[kind] for kind in (*kinds, *(f"wait: {cause}" for cause in CAUSES))) >= 2, seen


@pytest.mark.parametrize("batch", range(3))
def test_aligned_scenarios_equal_the_reference(batch: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(batch * ALIGNED // 3, (batch + 1) * ALIGNED // 3):
        scenario = aligned_scenario(seed)
        try:
            outcome = check_aligned(scenario, seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {scenario}") from error
        ends = {one.start_ps + one.duration_ps for one in outcome.log}
        window_ps = scenario.settings.window_ps
        seen["an arrival at an end"] += any(one.arrival_ps in ends - {0} for one in outcome.requests)
        seen["an iteration of no time"] += any(not one.duration_ps for one in outcome.log)
        seen["a window cut at an end"] += window_ps is not None and window_ps[1] in ends
        seen["a preemption at a moment of several iterations"] += any(
            one.preempted and before.start_ps == one.start_ps for before, one in pairwise(outcome.log)
        )
        seen["a time beyond 64 bits"] += max(ends, default=0) >= 2**63
        seen["less free than was refused"] += scenario.allocator == NAME and any(
            before.categories["external"] and one.categories["residual"] and not one.preempted
            for before, one in pairwise(outcome.log)
        )
    assert min(seen.values()) >= 1, seen


@pytest.mark.parametrize("make", [random_scenario, aligned_scenario])
def test_the_loop_is_the_same_in_plain_python(make: Callable[[int], Scenario], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "advance", getattr(loop.advance, "py_func", loop.advance))
    monkeypatch.setattr(pools, "_fits_empty", getattr(pools._fits_empty, "py_func", pools._fits_empty))
    for seed in range(7000, 7060):
        scenario = make(seed)
        moments = sorted({*moments_of(scenario.reference()), 0})
        times = sorted(min(time, 10**22) for time in Random(seed).choices(moments, k=3))
        compare(scenario.engine(times, decisions=True), scenario.reference(times))


# Only prefill takes time, 1 ns a token: all that follows it, up to an arrival, happens at one moment.
NO_TIME = StepCost("0", "1ns", "0")


def test_who_comes_as_an_iteration_ends_is_there_for_the_next_one() -> None:
    trace = Trace.from_columns([0, 2], [2, 1], [2, 1])
    run = simulate(trace, Contiguous(4, "oracle"), cost=NO_TIME)
    summary = run.summary()
    assert (summary["iterations"], summary["peak_batch"], summary["share"]["used"]) == (2, 2, 2 / 3)
    assert run.requests["admitted_s"].tolist() == [0, 2e-9]
    assert run.requests["finished_s"].tolist() == [3e-9, 3e-9]


def test_a_run_stops_with_the_iteration_that_reaches_the_end_of_its_window_though_others_would_take_no_time() -> None:
    run = simulate(Trace.from_columns([0], [2], [5]), Paged(16, 1), cost=NO_TIME, window_s=("0", "0.000000002"))
    assert (run.counts["iterations"], list(run.requests["status"])) == (1, ["running"])
    run = simulate(Trace.from_columns([0], [2], [5]), Paged(16, 1), cost=NO_TIME, window_s=("0", "0.000000003"))
    assert (run.counts["iterations"], list(run.requests["status"])) == (5, ["finished"])


def test_a_memory_map_shows_the_iteration_that_takes_time_and_none_of_those_that_end_at_its_moment() -> None:
    trace = Trace.from_columns([0, 2], [2, 3], [9, 1])
    for allocator in (Paged(16, 2), Contiguous(16, "oracle")):
        run = simulate(trace, allocator, cost=NO_TIME, layout_times_s=["0.000000001999", "0.000000002"])  # type: ignore[list-item]
        before, after = run.layouts
        assert (before.iteration, [held.written_tokens for held in before.allocations]) == (0, [2])
        assert (after.iteration, [held.written_tokens for held in after.allocations]) == (1, [3, 3])


@pytest.mark.parametrize("swap_slots", [0, 8, 40])
def test_swap_equals_the_reference_under_constant_preemption(swap_slots: int) -> None:
    rows = [(at, 3 + at % 5, 30) for at in range(40)]
    settings = reference.Settings(
        capacity=64,
        preemption="swap",
        swap_slots=swap_slots,
        base_ps=1000,
        prefill_token_ps=7,
        sequence_ps=3,
        kv_token_ps=2,
        swapped_token_ps=11,
    )
    outcome = check(Scenario(rows, "paged", {"block_size": 4, "watermark": "0"}, settings), swap_slots)
    assert outcome.preemptions > 50


class UnevenPaged(Paged):
    """Paged, but it does not tell the engine that its grows are all alike."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.grow_slots = None  # type: ignore[assignment]


class GenerousPaged(Paged):
    """Paged, with room for 40 tokens more at admission: a request grows for the first time only blocks later."""

    def fits_empty(self, prompt_tokens: int, output_tokens: int) -> bool:
        return super().fits_empty(prompt_tokens + 40, output_tokens)

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        return super().admit(request_id, prompt_tokens + 40, output_tokens, alone)


class UnevenGenerousPaged(UnevenPaged, GenerousPaged):
    """The same without telling."""


@pytest.mark.parametrize(
    ("pair", "seed"),
    [((Paged, UnevenPaged), seed) for seed in range(60)]
    + [((GenerousPaged, UnevenGenerousPaged), seed) for seed in range(40)],
)
def test_grows_of_unknown_size_give_the_same_run(pair: tuple[type[Paged], type[Paged]], seed: int) -> None:
    r = Random(seed)
    count = r.choice([5, 30])
    rows = [(r.randrange(2000), r.randrange(1, 40), r.randrange(1, 60)) for _ in range(count)]
    arrivals, prompts, outputs = (list(column) for column in zip(*rows, strict=True))
    trace = Trace.from_columns(arrivals, prompts, outputs)
    settings = SettingsFields(
        cost=StepCost(1000, 7, 3, r.choice([0, 2]), 11),
        preemption=r.choice(["recompute", "swap"]),
        swap_slots=50,
        max_batch=r.choice([None, 4]),
    )
    block_size, watermark = r.choice([1, 3, 16]), r.choice(["0", "0.1"])
    even, uneven = (
        simulate(trace, kind(130, block_size, watermark), layout_times_s=[1e-6, 3e-6], **settings) for kind in pair
    )
    assert (even.integrals, even.counts, even.layouts) == (uneven.integrals, uneven.counts, uneven.layouts)
    assert even.requests.equals(uneven.requests)
    assert even.timeline.equals(uneven.timeline)


@pytest.mark.parametrize("requests", [1, 3])
@pytest.mark.parametrize("lie", [lambda served: served + 1, lambda _: -1])
def test_a_grow_that_lies_is_caught(lie: Callable[[int], int], requests: int) -> None:
    class Lying(Paged):
        def grow(self, request_ids: Sequence[int]) -> int:
            return lie(super().grow(request_ids))

    # Alone it grows within a stretch; of three, one grows in the iteration in which another one has ended.
    trace = Trace.from_columns([0] * requests, [4] * requests, [20, 5, 6][:requests])
    with pytest.raises(RuntimeError, match=r"broke a promise: grow served -?\d of \d+ requests"):
        simulate(trace, Lying(60, 4))


@pytest.mark.parametrize(
    ("allocator", "options"),
    [
        ("contiguous", {"reserve": "max", "fit": "first"}),
        ("contiguous", {"reserve": "pow2", "fit": "next"}),
        ("contiguous", {"reserve": "oracle", "fit": "best"}),
        ("buddy", {"reserve": "oracle", "min_block": 1, "split": "smallest"}),
        ("buddy", {"reserve": "pow2", "min_block": 16, "max_block": 8192, "split": "largest"}),
        ("paged", {"block_size": 16, "watermark": "0.01"}),
        ("paged", {"block_size": 1, "watermark": "0"}),
    ],
)
@pytest.mark.parametrize("requests", [400, pytest.param(19_366, marks=pytest.mark.whole)])
def test_a_real_trace_equals_the_reference(allocator: str, options: dict[str, object], requests: int) -> None:
    folder = os.environ.get("KVFRAG_TRACES")
    if folder is None:
        pytest.skip("KVFRAG_TRACES names no folder of real traces")
    trace = Trace.read(Path(folder) / "AzureLLMInferenceTrace_conv.csv")[:requests]
    rows = list(zip(trace.arrival_ns.tolist(), trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))
    settings = reference.Settings(
        capacity=30_000,
        max_model_len=8192,
        max_batch=64,
        max_batch_tokens=8192,
        base_ps=25 * 10**9,
        prefill_token_ps=10**8,
        sequence_ps=2 * 10**8,
        kv_token_ps=10**6,
    )
    scenario = Scenario(rows, allocator, options, settings)
    if requests < 1000:
        check(scenario, seed=0)
    else:
        compare_figures(scenario.engine(timeline_bins=0), scenario.figures())


def test_the_cost_of_a_run_does_not_grow_with_the_tokens_of_a_request() -> None:
    # Counted, not timed: a request of ten million tokens is a handful of rows in the ledger.
    trace = Trace.from_columns([0], [5], [10_000_000])
    run = simulate(trace, Paged(2**24, block_size=2**22), cost=StepCost("1ms", "0", "0", "1ps"), timeline_bins=3)
    assert run.counts["iterations"] == 10_000_000
    # 1 ms an iteration and 1 ps for each token held: the sum of an arithmetic series from 5 on.
    tokens = sum(range(5, 10_000_005))
    assert run.duration_ps == 10_000_000 * 10**9 + tokens
    assert run.integrals["used"] == sum((10**9 + n) * n for n in range(5, 10_000_005))
