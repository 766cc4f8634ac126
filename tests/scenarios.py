"""Random traces and settings, and the comparison of the engine with the token-stepped reference, integer by integer."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import Any

import growing
import reference
from allocators import InputError, make_allocator
from simulator import Run, StepCost, Trace, simulate
from simulator.results.waits import CAUSES

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

    def figures(self) -> reference.Outcome:
        """The reference without a log of its iterations, which takes a while for a long trace."""
        return reference.replay(self.rows, self.allocator, dict(self.options), self.settings)

    def reference(self, layout_times_ps: Sequence[int] = ()) -> reference.Outcome:
        return reference.replay(
            self.rows, self.allocator, dict(self.options), self.settings, layout_times_ps, log=True, waits=True
        )

    def engine(
        self,
        layout_times_ps: Sequence[int] = (),
        timeline_bins: int = 7,
        decisions: bool = False,
        scheduler: Any = "fcfs",
    ) -> Run:
        """``scheduler``: the engine's own of what the settings name for the reference."""
        s = self.settings
        window = None if s.window_ps is None else tuple(str(Decimal(edge) / 10**12) for edge in s.window_ps)
        arrival, prompt, output = zip(*self.rows, strict=True)
        return simulate(
            Trace.from_columns(arrival, prompt, output),
            make_allocator(self.spec, s.capacity, s.max_model_len),
            timeline_bins=timeline_bins,
            decisions=decisions,
            layout_times_s=[Decimal(time_ps) / 10**12 for time_ps in layout_times_ps],  # type: ignore[misc]
            cost=StepCost(s.base_ps, s.prefill_token_ps, s.sequence_ps, s.kv_token_ps, s.swapped_token_ps),
            max_model_len=s.max_model_len,
            max_batch=s.max_batch,
            max_batch_tokens=s.max_batch_tokens,
            too_long=s.too_long,
            preemption=s.preemption,
            swap_slots=s.swap_slots,
            scheduler=scheduler,
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


def aligned_scenario(seed: int) -> Scenario:
    """Everything falls together: arrivals, iteration ends, window ends; many iterations take no time at all.

    All costs are multiples of one unit, most of them 0, and requests arrive at multiples of it. The window is cut where
    iterations of the run without one begin or end. With the largest unit times leave 64 bits.
    """
    r = Random(seed)
    unit_ps = r.choice([10**3, 10**3, 10**6, 10**15])
    capacity = r.choice([12, 20, 30, 64])
    allocator = r.choice(["contiguous", "buddy", "paged", "paged", growing.NAME, growing.NAME])
    longest = max(2, capacity // r.choice([1, 2, 3, 5]))
    last = r.choice([0, 3, 15, 60])
    rows = [
        (
            r.randrange(last + 1) * unit_ps // 1000,
            r.randrange(1, r.choice([3, longest])),
            r.choice([1, 2, 3, r.randrange(1, longest), r.randrange(1, longest)]),
        )
        for _ in range(r.choice([2, 3, 8, 20, 30]))
    ]
    if r.random() < 0.1:
        rows.append((2**62 // 1000, 1, 2))  # a gap of 53 days, and one of longer than a row of the ledger holds
        rows.append((9 * 10**18, 2, 2))
    # A token may cost a second at most, the base 1000 s.
    item_ps = min(unit_ps, 10**12 // 2)
    settings = reference.Settings(
        capacity=capacity,
        max_model_len=capacity // 2 if r.random() < 0.5 else None,
        max_batch=r.choice([None, None, 1, 2, 5]),
        max_batch_tokens=r.choice([None, None, 7, 20]),
        preemption=r.choice(["recompute", "swap"]),
        swap_slots=r.choice([0, 20, 1000]),
        base_ps=unit_ps * r.choice([0, 0, 1]),
        prefill_token_ps=item_ps * r.choice([0, 1, 1, 2]),
        sequence_ps=item_ps * r.choice([0, 0, 0, 1]),
        kv_token_ps=item_ps * r.choice([0, 0, 0, 1]),
        swapped_token_ps=item_ps * r.choice([0, 1]),
    )
    scenario = Scenario(rows, allocator, _options(r, allocator), settings)
    try:
        make_allocator(scenario.spec, capacity, settings.max_model_len)
    except InputError:
        return aligned_scenario(seed + 10**6)
    if r.random() < 0.4:
        moments = sorted({0, *moments_of(scenario.reference())})
        # As floats of seconds, which is what a window is kept as, they must be the same moments.
        moments = [moment for moment in moments if round(Decimal(str(moment / 10**12)) * 10**12) == moment <= 10**22]
        if len(moments) > 1:
            first, last = sorted(r.sample(moments, 2))
            scenario = replace(scenario, settings=replace(settings, window_ps=(first, last)))
    return scenario


def moments_of(outcome: reference.Outcome) -> list[int]:
    """When the iterations of a run begin and end."""
    return [moment for one in outcome.log for moment in (one.start_ps, one.start_ps + one.duration_ps)]


def _options(r: Random, allocator: str) -> dict[str, Any]:
    if allocator == growing.NAME:
        return {"step": r.choice([1, 2, 5])}
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


def compare_figures(run: Run, expected: reference.Outcome) -> None:
    """Integrals, counts, and when each request was admitted and finished are those of the reference."""
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


def compare(run: Run, expected: reference.Outcome, timeline_bins: int = 7) -> None:
    """Every integer of the run is that of the reference: its figures, timeline, waits, memory maps."""
    compare_figures(run, expected)
    assert len(run.timeline) == min(timeline_bins, run.duration_ps)
    compare_timeline(run, expected)
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


LEVELS = (*reference.CATEGORIES, "running", "waiting", "largest_free")


def compare_timeline(run: Run, expected: reference.Outcome) -> None:
    """Every bin of the run's timeline has the means of the reference, divided out once."""
    window_ps, count = run.settings.window_ps, len(run.timeline)
    start_ps = window_ps[0] if window_ps else 0
    edges = [start_ps + run.duration_ps * k // max(count, 1) for k in range(count + 1)]
    begins = [one.start_ps for one in expected.log]
    since = sorted(begin for begin, end, waiting in expected.waiting for _ in range(waiting))
    until = sorted(end for begin, end, waiting in expected.waiting for _ in range(waiting))
    empty = make_allocator(run.allocator, run.capacity, run.settings.max_model_len)
    gap = dict.fromkeys(LEVELS, 0) | {"idle": run.capacity, "largest_free": empty.largest_free_slots}
    found = run.timeline.to_dict("list")
    for row, (low, high) in enumerate(pairwise(edges)):
        sums = dict.fromkeys(LEVELS, 0)
        covered_ps = external_ps = 0
        # Every iteration that lasts into the bin: the last that begins before it, and those that begin in it.
        first = max(bisect_left(begins, low) - 1, 0)
        for one in expected.log[first : bisect_left(begins, high)]:
            part_ps = max(min(one.start_ps + one.duration_ps, high) - max(one.start_ps, low), 0)
            covered_ps += part_ps
            external_ps += part_ps if one.categories["external"] else 0
            levels = {**one.categories, "running": one.running, "largest_free": one.largest_free, "waiting": 0}
            for level in LEVELS:
                sums[level] += levels[level] * part_ps
        for level in LEVELS:
            sums[level] += gap[level] * (high - low - covered_ps)
        sums["waiting"] = _passed(since, high) - _passed(since, low) - _passed(until, high) + _passed(until, low)
        closed = row + 1 == count  # what happens in no time at the end of the run belongs to the last bin
        begun = expected.log[
            bisect_left(begins, low) : bisect_right(begins, high) if closed else bisect_left(begins, high)
        ]
        assert {level: found[level][row] for level in LEVELS} == {level: sums[level] / (high - low) for level in LEVELS}
        assert found["refused_although_free"][row] == external_ps / (high - low)
        assert found["preemptions"][row] == sum(one.preempted for one in begun)
        assert (found["start_s"][row], found["end_s"][row]) == (low / 10**12, high / 10**12)


def _passed(times: list[int], until: int) -> int:
    """The time from each of some moments until another, all together."""
    return sum(until - time for time in times if time < until)
