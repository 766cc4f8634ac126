"""The history of a run, rebuilt from its decision log, is what the engine says and what its extents add up to."""

from itertools import pairwise

import numpy as np
import pytest

from allocators import make_allocator
from scenarios import random_scenario
from simulator import Run, StepCost, Trace, simulate
from simulator.history import History
from simulator.run import Layout


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
