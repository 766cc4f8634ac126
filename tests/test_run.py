"""A run's figures; and a saved run is the run, to the bit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators import Contiguous, Extent, Paged
from saved_runs import EXAMPLE, bits, everything, read
from scenarios import random_scenario
from simulator import Run, StepCost, Trace, simulate
from simulator.engine.layout import Allocation, Layout
from simulator.results.ledger import CATEGORIES, INTEGRALS
from simulator.results.record import COUNTS, STATUS, TIMELINE_TYPES
from simulator.results.storage.saved import read_table


def test_the_example_is_worth_saving() -> None:
    run = EXAMPLE
    assert set(run.requests["status"]) == set(STATUS) - {"waiting"}
    assert run.counts["preemptions"] > 0
    assert run.requests["finished_s"].isna().any()
    assert [len(layout.allocations) > 0 for layout in run.layouts] == [True, True, False]


NOTHING_RUNS = Trace.from_columns([0, 5], [10, 10], [10, 10])


@pytest.mark.parametrize(
    "run",
    [
        EXAMPLE,
        replace(EXAMPLE, decisions=None, label='a label, with "quotes",\nlines and \N{GREEK SMALL LETTER PI}'),
        simulate(NOTHING_RUNS, Paged(4, block_size=2)),
        simulate(NOTHING_RUNS, Contiguous(40, max_model_len=40), timeline_bins=0),
        simulate(NOTHING_RUNS, Contiguous(40, "pow2"), cost=StepCost("0", "0", "0"), preemption="swap", swap_slots=7),
    ],
    ids=["all", "label", "nothing ran", "no timeline", "no time"],
)
def test_a_loaded_run_is_the_saved_one_to_the_bit(run: Run, tmp_path: Path) -> None:
    run.save(tmp_path / "new" / "folders" / "run")
    loaded = Run.load(str(tmp_path / "new" / "folders" / "run"))
    assert everything(loaded) == everything(run)
    assert loaded.summary() == run.summary()
    assert loaded.name == run.name
    assert [type(held.extents[0]) for layout in loaded.layouts for held in layout.allocations] == [
        Extent for layout in run.layouts for held in layout.allocations
    ]
    # And saved again it has the same bytes.
    loaded.save(tmp_path / "again")
    assert read(tmp_path / "again") == read(tmp_path / "new" / "folders" / "run")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(width=64) | st.sampled_from([5e-324, 1.7976931348623157e308, 0.1 + 0.2, 1 / 3]), min_size=1))
def test_any_float_comes_back_to_the_bit(values: list[float]) -> None:
    # A NaN is any NaN: what it says besides is not kept.
    values = [float("nan") if value != value else value for value in values]
    frame = pd.DataFrame(dict.fromkeys(TIMELINE_TYPES, values), dtype=np.float64)
    assert bits(read_table("timeline.csv", frame.to_csv(index=False).encode())) == bits(frame)


@pytest.mark.parametrize("base_ps", [10**15, 10**15 - 1, 3, 0])
def test_waits_of_any_length_are_whole_picoseconds_before_and_after(base_ps: int, tmp_path: Path) -> None:
    # The second waits for 9,500 iterations: from 9,224 on picoseconds do not fit 63 bits.
    trace = Trace.from_columns([0, 0, 0], [1, 1, 1], [9500, 1, 1])
    cost = StepCost(base_ps, "0", "0")
    run = simulate(trace, Paged(16000), max_batch=1, cost=cost, timeline_bins=7, decisions=True)
    assert run.requests["wait_ps"].tolist() == [0, 9500 * base_ps, 9501 * base_ps]
    assert run.requests["wait_max_batch_ps"].tolist() == [0, 9500 * base_ps, base_ps]
    assert run.requests["wait_behind_ps"].tolist() == [0, 0, 9500 * base_ps]
    assert run.requests["wait_s"].tolist() == [0, 9500 * base_ps / 10**12, 9501 * base_ps / 10**12]
    assert {type(time_ps) for time_ps in run.requests["wait_ps"].tolist()} == {int}
    assert run.waits_s()["behind"] == 9500 * base_ps / (3 * 10**12)
    run.save(tmp_path / "run")
    assert everything(Run.load(tmp_path / "run")) == everything(run)


def test_waits_that_only_together_leave_64_bits_are_summed_exactly() -> None:
    # 9,000 iterations of 1000 s each: each wait is below 2^63 ps, two of them are not.
    trace = Trace.from_columns([0] * 4, [1] * 4, [9000, 1, 1, 1])
    run = simulate(trace, Paged(10000), max_batch=1, cost=StepCost("1000s", "0", "0"))
    assert run.waits_s()["behind"] == (2 * 9000 + 1) * 1000 / 4
    assert run.waits_s()["max_batch"] == (9000 + 2) * 1000 / 4


def test_mean_waits_are_the_same_from_the_columns_and_from_the_table() -> None:
    runs = [random_scenario(seed).engine(timeline_bins=0) for seed in range(40)]
    columns = [(run.waits_s(), run.summary()) for run in runs]
    assert all(len(run.requests) for run in runs)  # which makes the tables
    assert columns == [(run.waits_s(), run.summary()) for run in runs]
    assert sum(any(waits.values()) for waits, _ in columns) >= 20


def test_numbers_of_numpy_are_saved_too(tmp_path: Path) -> None:
    """As a user's own allocator may return them."""
    held = Allocation(0, (Extent(np.int64(3), np.int64(4)),), np.int64(2), 4, 0)  # type: ignore[arg-type]
    replace(EXAMPLE, layouts=(Layout(5, 0, (held,), 2, 4),)).save(tmp_path / "run")
    assert Run.load(tmp_path / "run").layouts == (Layout(5, 0, (Allocation(0, (Extent(3, 4),), 2, 4, 0),), 2, 4),)


def test_the_summary_is_what_the_integrals_say() -> None:
    integrals = dict.fromkeys(INTEGRALS, 0) | {"used": 30, "idle": 70, "running": 12, "largest": 500}
    integrals |= {"saturated_residual": 20, "saturated_ps": 2, "iteration_ps": 6, "external_ps": 1}
    run = replace(EXAMPLE, capacity=10, duration_ps=10, integrals=integrals, counts=dict.fromkeys(COUNTS, 4))
    assert run.summary() == {
        "allocator": "paged:block_size=3,watermark=0.1",
        "capacity": 10,
        "duration_s": 10e-12,
        "saturated_s": 2e-12,
        "iterations": 4,
        "peak_batch": 4,
        "mean_batch": 2.0,
        "preemptions": 4,
        "finished": 4,
        "rejected": {"too_long": 4, "never_fits": 4},
        "prompts_over_budget": 0,
        "share": dict.fromkeys(CATEGORIES, 0.0) | {"used": 0.3, "idle": 0.7},
        "share_saturated": dict.fromkeys(CATEGORIES, 0.0) | {"residual": 1.0},
        "mean_largest_free": 50.0,
        "refused_although_free_s": 1e-12,
        "mean_wait": {f"{cause}_s": mean_s for cause, mean_s in run.waits_s().items()},
        "warnings": [
            "2 of 7 requests rejected, and in no other figure: 1 longer than max_model_len, 1 more than the empty pool "
            "can hold",
            "the pool is too small for max_model_len: a request of 105 tokens does not fit in 98 slots, even alone",
        ],
    }
    assert Layout(1_500_000_000_000, None, ()).time_s == 1.5
