"""The history of a run, rebuilt from its decision log, is what the engine says and what its extents add up to."""

from itertools import pairwise

import numpy as np
import pytest

from allocators import Buddy, InputError, Paged, make_allocator
from scenarios import random_scenario
from simulator import Run, StepCost, Trace, simulate
from simulator.engine.layout import Layout
from simulator.results.history import History, Waiting


def scenario_run(seed: int, times_s: list[float], decisions: bool = True) -> Run:
    scenario = random_scenario(seed)
    s = scenario.settings
    arrivals, prompts, outputs = (list(column) for column in zip(*scenario.rows, strict=True))
    return simulate(
        Trace.from_columns(arrivals, prompts, outputs),
        make_allocator(scenario.spec, s.capacity, s.max_model_len),
        layout_times_s=times_s,
        decisions=decisions,
        cost=StepCost("1ms", "10us", "100us", "1us" if seed % 2 else "0", "5us"),
        max_model_len=s.max_model_len,
        max_batch=s.max_batch,
        preemption=s.preemption,
        swap_slots=s.swap_slots,
    )


def holes(layout: Layout, end: int) -> int:
    held = np.zeros(end + 1, bool)
    held[end] = True
    for allocation in layout.allocations:
        for extent in allocation.extents:
            held[extent.start : extent.end] = True
    return int((~held[:-1] & held[1:]).sum())


@pytest.mark.parametrize("seed", range(100))
def test_history_rebuilds_every_memory_map(seed: int) -> None:
    end_s = scenario_run(seed, [], decisions=False).duration_ps / 10**12
    run = scenario_run(seed, [end_s * k / 23 for k in range(24)])
    history = History(run)
    times, counts = history.hole_counts
    for layout in run.layouts:
        rebuilt = history.layout(layout.time_s)
        assert rebuilt.iteration == layout.iteration
        assert rebuilt.allocations == layout.allocations
        usable = run.capacity - history.tail_slots
        runs = history.free_runs(layout)
        assert len(runs) == holes(layout, usable) == counts[np.searchsorted(times, layout.time_s, "right") - 1]
        held = sum(extent.slots for allocation in layout.allocations for extent in allocation.extents)
        assert sum(hole.slots for hole in runs) == usable - held
        assert all(low.end < high.start for low, high in pairwise(runs))


@pytest.mark.parametrize("window", [(3, 7.5), (0, 6), (2, 90)])
def test_a_run_that_stops_at_its_window(window: tuple[float, float]) -> None:
    trace = Trace.from_columns([0, 0, 10**9], [7, 6, 9], [30, 5, 40])

    def run(times_s: list[float]) -> Run:
        cost = StepCost("1s", "10ms", "0", "1ms")
        return simulate(trace, Paged(34, 4), cost=cost, window_s=window, decisions=True, layout_times_s=times_s)

    times_s = [window[1] * k / 40 for k in range(40)]
    found = run(times_s)
    history = History(found)
    assert len(found.layouts) == 40
    assert [history.layout(layout.time_s).allocations for layout in found.layouts] == [
        layout.allocations for layout in found.layouts
    ]
    assert (history.stays["end_s"] <= history.end_s).all()


def test_the_head_of_the_queue() -> None:
    # Requests 0 and 1 fill the pool of 8 blocks; 2 waits from 1 s on; when 1 is preempted, it goes before 2.
    trace = Trace.from_columns([0, 0, 10**9], [15, 12, 20], [12, 12, 3])
    run = simulate(trace, Paged(32, 4), cost=StepCost("1s", "0", "0"), decisions=True)
    assert run.decisions is not None
    history = History(run)
    lost_s = float(run.decisions[run.decisions["kind"] == "preempt"]["time_s"].iloc[0])
    assert history.head(0.5) is None
    assert history.head(1.5) == Waiting(2, 20, 20)
    # What it had written and the token it had produced are prefilled again.
    written = int(run.decisions[run.decisions["kind"] == "preempt"]["tokens"].iloc[0])
    assert history.head(lost_s + 0.5) == Waiting(1, written + 1, -(-(written + 1) // 4) * 4)
    assert history.head(history.end_s + 1) is None


def test_what_a_buddy_allocator_can_hand_out() -> None:
    trace = Trace.from_columns([0, 0, 0], [20, 10, 5], [13, 7, 3])
    run = simulate(trace, Buddy(128, "oracle", split="largest"), cost=StepCost("1s", "0", "0"), decisions=True)
    history = History(run)
    assert history.pieces(1.0) == [(40, 8), (48, 16), (80, 16), (96, 32)]
    assert history.free_runs(history.layout(1.0)) == [(40, 24), (80, 48)]
    assert history.pieces(3.0) == [(32, 32), (80, 16), (96, 32)]  # C is gone and has merged with its buddies
    paged = simulate(trace, Paged(128, 4), cost=StepCost("1s", "0", "0"), decisions=True)
    assert History(paged).pieces(0.0) == History(paged).free_runs(History(paged).layout(0.0))


class Mine(Paged):
    """An allocator whose spec leads nowhere."""

    @property
    def spec(self) -> str:
        return "not.importable.Mine"


def test_an_allocator_that_cannot_be_made_again() -> None:
    run = simulate(Trace.from_columns([0], [7], [4]), Mine(34, 4), cost=StepCost("1s", "0", "0"), decisions=True)
    history = History(run)
    assert history.allocator is None and history.tail_slots == 0
    (held,) = history.layout(2.0).allocations
    assert held.written_tokens == 9 and held.overprovision_slots == 0
    late = simulate(
        Trace.from_columns([0, 10**9], [20, 20], [4, 3]), Mine(34, 4), cost=StepCost("1s", "0", "0"), decisions=True
    )
    assert History(late).head(2.0) == Waiting(1, None)


def test_a_run_without_a_log_is_told() -> None:
    run = simulate(Trace.from_columns([0], [7], [4]), Paged(16, 4))
    with pytest.raises(InputError, match=r"run 'paged:block_size=4,watermark=0' has no decision log; make it with"):
        History(run)


def test_preemptions_are_counted_in_their_bins() -> None:
    run = scenario_run(7, [])
    for seed in range(60):
        run = scenario_run(seed, [])
        assert run.decisions is not None
        lost = run.decisions[run.decisions["kind"] == "preempt"]["time_s"]
        assert run.timeline["preemptions"].sum() == run.counts["preemptions"] == len(lost)
        for row in run.timeline[run.timeline["preemptions"] > 0].itertuples():
            assert row.preemptions == ((lost >= row.start_s) & (lost < row.end_s)).sum()


def test_iterations_are_told_in_runs_longer_than_64_bits_of_picoseconds() -> None:
    trace = Trace.from_columns([0, 0], [1, 1], [9500, 1])
    run = simulate(trace, Paged(16_000), max_batch=1, cost=StepCost("1000s", "0", "0"), decisions=True)
    times_s = [0, 999, 1000, 4_750_500, 9_499_999, 9_500_000, 9_500_999]
    assert History(run).iterations(times_s).tolist() == [0, 0, 1, 4750, 9499, 9500, 9500]
