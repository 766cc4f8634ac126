"""Random traces and settings, and the comparison of the engine with the token-stepped reference, integer by integer."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

import reference
from allocators import InputError, make_allocator
from simulator import Run, StepCost, Trace, simulate
from simulator.waits import CAUSES

Rows = list[tuple[int, int, int]]


@dataclass(frozen=True)
class Scenario:
    """One simulation, described for both sides. ``rows``: arrival in ns, prompt and output tokens."""

    rows: Rows
    allocator: str
    options: Mapping[str, Any]
    settings: reference.Settings

    @property
    def spec(self) -> str:
        return self.allocator + ":" + ",".join(f"{key}={value}" for key, value in self.options.items())

    def reference(self, layout_times_ps: list[int]) -> reference.Outcome:
        return reference.replay(
            self.rows, self.allocator, dict(self.options), self.settings, layout_times_ps, waits=True
        )

    def engine(self, layout_times_ps: list[int], timeline_bins: int = 7) -> Run:
        s = self.settings
        window = None if s.window_ps is None else tuple(str(Decimal(edge) / 10**12) for edge in s.window_ps)
        arrival, prompt, output = zip(*self.rows, strict=True)
        return simulate(
            Trace.from_columns(arrival, prompt, output),
            make_allocator(self.spec, s.capacity, s.max_model_len),
            timeline_bins=timeline_bins,
            layout_times_s=[Decimal(time_ps) / 10**12 for time_ps in layout_times_ps],  # type: ignore[misc]
            cost=StepCost(s.base_ps, s.prefill_token_ps, s.sequence_ps, s.kv_token_ps, s.swapped_token_ps),
            max_model_len=s.max_model_len,
            max_batch=s.max_batch,
            max_batch_tokens=s.max_batch_tokens,
            too_long=s.too_long,
            preemption=s.preemption,
            swap_slots=s.swap_slots,
            window_s=window,  # type: ignore[arg-type]
        )


def random_scenario(seed: int) -> Scenario:
    """Small pools and short requests, so that refusals, preemptions, rejections and ties are common."""
    r = Random(seed)
    while True:
        base_ps = r.choice([0, 7, 10**6, 10**9, 25 * 10**9])
        # Most arrive while others run; some after gaps.
        span_ns = r.choice([0, 10, 50, 1000]) * (base_ps + 10**5) // 1000
        allocator = r.choice(["contiguous", "buddy", "paged"])
        capacity = r.choice([30, 64, 100, 200, 333])
        longest = max(2, capacity // r.choice([1, 2, 3, 5]))
        rows = [
            (r.randrange(span_ns + 1), r.randrange(1, r.choice([2, longest])), r.randrange(1, r.choice([2, longest])))
            for _ in range(r.choice([1, 5, 20, 30, 40]))
        ]
        max_model_len = r.choice([None, None, 40, 80, 150])
        settings = reference.Settings(
            capacity=capacity,
            max_model_len=max_model_len,
            max_batch=r.choice([None, None, None, 2, 5]),
            max_batch_tokens=r.choice([None, None, None, 20, 60]),
            too_long=r.choice(["reject", "truncate"]) if max_model_len else "reject",
            preemption=r.choice(["recompute", "swap"]),
            swap_slots=r.choice([0, 50, 1000]),
            window_ps=_window(r, span_ns * 1000) if r.random() < 0.3 else None,
            base_ps=base_ps,
            prefill_token_ps=r.choice([0, 13, 10**5]),
            sequence_ps=r.choice([0, 11, 10**7]),
            kv_token_ps=r.choice([0, 0, 1, 5, 10**5]),
            swapped_token_ps=r.choice([0, 3, 10**6]),
        )
        scenario = Scenario(rows, allocator, _options(r, allocator), settings)
        try:
            make_allocator(scenario.spec, capacity, max_model_len)
        except InputError:  # reserve=max without a limit, or with one that the pool cannot place
            continue
        return scenario


def _options(r: Random, allocator: str) -> dict[str, Any]:
    if allocator == "paged":
        return {"block_size": r.choice([1, 2, 3, 4, 7, 16]), "watermark": r.choice(["0", "0.01", "0.1", "0.29"])}
    options: dict[str, Any] = {"reserve": r.choice(["max", "pow2", "oracle"])}
    if allocator == "contiguous":
        return options | {"fit": r.choice(["first", "best", "worst", "next"])}
    options |= {"min_block": r.choice([1, 1, 3, 4, 8]), "split": r.choice(["smallest", "largest"])}
    if r.random() < 0.4:
        options["max_block"] = options["min_block"] * 2 ** r.randrange(6)
    return options


def _window(r: Random, span_ps: int) -> tuple[int, int]:
    start = r.randrange(span_ps + 10**6)
    return start, start + r.randrange(1, span_ps + 10**8)


def compare(run: Run, expected: reference.Outcome) -> None:
    """Every integer of the run is that of the reference: integrals, counts, requests, memory maps."""
    integrals = {
        **expected.slot_ps,
        **{f"saturated_{category}": value for category, value in expected.saturated_slot_ps.items()},
        "iteration_ps": expected.iteration_ps,
        "saturated_ps": expected.saturated_ps,
        "external_ps": expected.external_ps,
        "running": expected.batch_ps,
        "largest": expected.largest_free_slot_ps,
    }
    assert run.integrals == integrals
    assert run.duration_ps == expected.duration_ps
    assert run.counts == {
        "iterations": expected.iterations,
        "peak_batch": expected.peak_batch,
        "preemptions": expected.preemptions,
        "finished": expected.finished,
        **expected.rejected,
    }
    assert list(run.requests["status"]) == [request.status for request in expected.requests]
    assert list(run.requests["preemptions"]) == [request.preemptions for request in expected.requests]
    for column, times_ps in (
        ("admitted_s", [request.admitted_ps for request in expected.requests]),
        ("finished_s", [request.finished_ps for request in expected.requests]),
    ):
        got = [None if seconds != seconds else seconds for seconds in run.requests[column]]
        assert got == [None if time_ps is None else time_ps / 10**12 for time_ps in times_ps]
    for number, request in enumerate(expected.requests):
        waits_ps = {cause: int(run.requests[f"wait_{cause}_ps"][number]) for cause in CAUSES}
        assert waits_ps == request.waits_ps
        assert run.requests["wait_ps"][number] == sum(waits_ps.values())
    maps = [
        {held.request: ([tuple(extent) for extent in held.extents], held.written_tokens) for held in layout.allocations}
        for layout in run.layouts
    ]
    assert maps == [
        {request: ([tuple(extent) for extent in extents], written) for request, (extents, written) in layout.items()}
        for layout in expected.layouts
    ]
