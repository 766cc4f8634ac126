"""The decision log alone rebuilds every memory map: who holds which extents, and how much of them is written."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from allocators import Extent, Paged, check_allocator, make_allocator
from scenarios import random_scenario
from simulator import Run, StepCost, Trace, simulate
from simulator.engine.layout import Layout
from simulator.results.decisions import DECISION_TYPES

Held = dict[int, tuple[list[Extent], int]]


def carried_out(log: pd.DataFrame, iteration: int) -> Held:
    """Extents and written tokens of each request in an iteration, its writes included, from the log alone."""
    extents: dict[int, dict[int, Extent]] = {}
    written: dict[int, tuple[int, int]] = {}  # tokens written in the iteration of the admission
    for row in log[log["iteration"] <= iteration].to_dict("records"):
        request = row["request"]
        if row["kind"] in ("finish", "preempt"):
            first, tokens = written.pop(request)
            assert row["tokens"] == tokens + row["iteration"] - 1 - first
            del extents[request]
            continue
        if row["kind"] == "admit":
            written[request] = (row["iteration"], row["tokens"])
        extents.setdefault(request, {})[row["index"]] = Extent(row["start"], row["slots"])
    return {
        request: ([held[index] for index in range(len(held))], written[request][1] + iteration - written[request][0])
        for request, held in extents.items()
    }


class Joined(Paged):
    """A paged allocator that tells neighbouring blocks as one extent, which a grow lengthens."""

    asked = 0

    def extents(self, request_id: int) -> tuple[Extent, ...]:
        self.asked += 1
        joined: list[Extent] = []
        for extent in super().extents(request_id):
            if joined and joined[-1].end == extent.start:
                extent = Extent(joined[-1].start, joined.pop().slots + extent.slots)
            joined.append(extent)
        return tuple(joined)


def as_held(layout: Layout) -> Held:
    return {held.request: (list(held.extents), held.written_tokens) for held in layout.allocations}


def slots_of(held: Held) -> dict[int, tuple[list[int], int]]:
    """The addresses of each request in the order of its tokens, and how many are written."""
    return {
        request: ([slot for extent in extents for slot in range(extent.start, extent.end)], written)
        for request, (extents, written) in held.items()
    }


@pytest.mark.parametrize("seed", range(150))
def test_the_log_rebuilds_every_memory_map(seed: int) -> None:
    scenario = random_scenario(seed)
    s = scenario.settings
    arrivals, prompts, outputs = (list(column) for column in zip(*scenario.rows, strict=True))

    def run(times_s: list[float]) -> Run:
        return simulate(
            Trace.from_columns(arrivals, prompts, outputs),
            make_allocator(scenario.spec, s.capacity, s.max_model_len),
            layout_times_s=times_s,
            decisions=True,
            cost=StepCost("1ms", "10us", "100us", "1us", "5us"),
            max_model_len=s.max_model_len,
            preemption=s.preemption,
            swap_slots=s.swap_slots,
        )

    end_s = run([]).duration_ps / 10**12
    found = run([end_s * k / 9 for k in range(10)])
    assert found.decisions is not None
    for layout in found.layouts:
        if layout.iteration is None:
            assert not layout.allocations
        else:
            assert carried_out(found.decisions, layout.iteration) == as_held(layout)
            assert layout.used_slots == sum(held.written_tokens for held in layout.allocations)
            assert layout.held_slots == sum(extent.slots for held in layout.allocations for extent in held.extents)
    ended = found.decisions["kind"].isin(["finish", "preempt"]).sum()
    assert ended == found.counts["finished"] + found.counts["preemptions"]


def test_a_grow_lists_only_what_is_new() -> None:
    # A 7-token prompt in blocks of 4 and three written tokens more: the paper's Figure 6, then one more block.
    run = simulate(Trace.from_columns([0], [7], [4]), Paged(16, 4), cost=StepCost("1s", "0", "0"), decisions=True)
    assert run.decisions is not None
    assert run.decisions.to_numpy().tolist() == [
        [0, 0.0, "admit", 0, 0, 0, 4, 7],
        [0, 0.0, "admit", 0, 1, 4, 4, 7],
        [2, 2.0, "grow", 0, 2, 8, 4, 0],
        [4, 4.0, "finish", 0, -1, -1, 0, 10],
    ]
    assert dict(run.decisions.dtypes.astype(str)) == {
        name: "category" if name == "kind" else kind for name, kind in DECISION_TYPES.items()
    }


def test_a_grow_that_lengthens_an_extent_lists_it_again() -> None:
    run = simulate(Trace.from_columns([0], [7], [4]), Joined(16, 4), cost=StepCost("1s", "0", "0"), decisions=True)
    assert run.decisions is not None
    assert run.decisions.to_numpy().tolist() == [
        [0, 0.0, "admit", 0, 0, 0, 8, 7],
        [2, 2.0, "grow", 0, 0, 0, 12, 0],
        [4, 4.0, "finish", 0, -1, -1, 0, 10],
    ]


@pytest.mark.parametrize("seed", range(20))
def test_extents_are_asked_for_once_a_stay_and_say_all(seed: int) -> None:
    check_allocator(lambda: Joined(100, 3), steps=300, seed=seed)
    trace = Trace.workload("sharegpt", rate=40.0, requests=60, seed=seed, max_total=90)
    settings: dict[str, Any] = {"max_model_len": 90, "max_batch": 8, "window_s": (0, 2)}
    pool = Joined(100, 3)
    run = simulate(trace, pool, decisions=True, **settings)
    log = run.decisions
    assert log is not None and run.counts["preemptions"] > 0
    assert pool.asked == ((log["kind"] == "admit") & (log["index"] == 0)).sum()  # a run cut off by its window included
    times_s = [2 * k / 9 for k in range(9)]
    mapped = simulate(trace, Joined(100, 3), decisions=True, layout_times_s=times_s, **settings)
    pd.testing.assert_frame_equal(mapped.decisions, log)  # type: ignore[arg-type]
    for layout in mapped.layouts:
        assert layout.iteration is not None and carried_out(log, layout.iteration) == as_held(layout)
    # Told joined or block by block, it is the same memory.
    blocks = simulate(trace, Paged(100, 3), decisions=True, **settings).decisions
    assert blocks is not None
    for layout in mapped.layouts:
        assert slots_of(carried_out(log, layout.iteration or 0)) == slots_of(carried_out(blocks, layout.iteration or 0))


def test_the_log_is_saved_and_loaded(tmp_path: Path) -> None:
    run = simulate(Trace.from_columns([0, 5], [7, 3], [4, 9]), Paged(16, 4), decisions=True)
    run.save(tmp_path / "run")
    loaded = Run.load(tmp_path / "run")
    pd.testing.assert_frame_equal(loaded.decisions, run.decisions)  # type: ignore[arg-type]
    assert simulate(Trace.from_columns([0], [7], [4]), Paged(16, 4)).decisions is None
