"""Block sizes: the closed forms say what plain loops and the simulator's own ledger say."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators import InputError, Paged
from simulator import StepCost, Trace, advise, simulate
from simulator.answers.advice import BLOCK_SIZES, FULL, _best
from simulator.sweeps.bands import half_width

SECOND = StepCost("1s", "0", "0")
LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=8)


def trace_of(lengths: list[tuple[int, int]]) -> Trace:
    return Trace.from_columns([0] * len(lengths), *map(list, zip(*lengths, strict=True)))


@given(LENGTHS, st.integers(1, 50))
def test_lengths_tell_what_a_loop_over_every_iteration_counts(lengths: list[tuple[int, int]], size: int) -> None:
    row = advise(trace_of(lengths), [size]).table.loc[size]
    states = [tokens for prompt, output in lengths for tokens in range(prompt, prompt + output)]
    tables = [len(range(0, tokens, size)) for tokens in states]
    at_the_end = [len(range(0, prompt + output - 1, size)) for prompt, output in lengths]
    assert row["written"] == float(Fraction(sum(states), size * sum(tables)))
    assert row["lost_slots"] == float(Fraction(size * sum(tables) - sum(states), len(states)))
    assert row["table_mean"] == float(Fraction(sum(tables), len(tables)))
    assert row["table_most"] == max(at_the_end)
    assert row["blocks_taken"] == pytest.approx(sum(at_the_end) / len(lengths))


@given(LENGTHS, st.sampled_from([1, 3, 16]))
def test_the_ledger_has_the_same_where_nobody_is_refused(lengths: list[tuple[int, int]], size: int) -> None:
    run = simulate(trace_of(lengths), Paged(10_000, size), cost=SECOND)
    row = advise(trace_of(lengths), [size]).table.loc[size]
    held = run.integrals["used"] + run.integrals["reservation"] + run.integrals["rounding"]
    assert row["written"] == float(Fraction(run.integrals["used"], held))
    assert row["lost_slots"] == float(Fraction(held - run.integrals["used"], run.integrals["running"]))


def test_sums_beyond_64_bits_are_exact() -> None:
    row = advise(trace_of([(10**9, 10**9)] * 12), [1, 10**9]).table
    assert row.loc[1, "written"] == 1
    assert row.loc[1, "table_mean"] == 1.5e9 - 0.5
    assert row.loc[10**9, "written"] == pytest.approx((1.5e9 - 0.5) / (2e9 - 1e9 / 1e9), rel=1e-6)


def test_a_pool_adds_what_a_replay_says() -> None:
    trace = Trace.workload("sharegpt", rate=8, duration_s=30, seed=2)
    settings: dict[str, Any] = {"max_model_len": 2048, "max_batch": 64}
    ended: list[int] = []
    advice = advise(trace, capacity=5_000, on_run=lambda: ended.append(1), **settings)
    assert len(ended) == len(BLOCK_SIZES)
    of_lengths = ["written", "lost_slots", "table_mean", "table_most", "blocks_taken"]
    of_the_pool = ["pool_blocks", "used", "saturated", "mean_batch", "preemptions", "rejected", "duration_s"]
    assert list(advice.table) == [*of_lengths, *of_the_pool]
    for size, row in advice.table.iterrows():
        assert isinstance(size, int)
        figures = simulate(trace, Paged(5_000, size), **settings).summary()
        assert row["used"] == figures["share"]["used"]
        assert row["saturated"] == figures["saturated_s"] / figures["duration_s"]
        assert row["rejected"] == sum(figures["rejected"].values())
        assert row["pool_blocks"] == 5_000 // size
        for key in ("mean_batch", "preemptions", "duration_s"):
            assert row[key] == figures[key]
    assert advice.share == "used"
    assert list(advise(trace, capacity=20, **settings).table.index) == [1, 2, 4, 8, 16]


@pytest.mark.parametrize("within", [0, 0.01, "5%", 0.5])
@pytest.mark.parametrize("capacity", [None, 5_000])
def test_the_best_is_the_largest_that_loses_little(within: float | str, capacity: int | None) -> None:
    trace = Trace.workload("sharegpt", rate=8, duration_s=30, seed=2)
    limits: dict[str, Any] = {} if capacity is None else {"capacity": capacity, "max_batch": 64}
    advice = advise(trace, within=within, **limits)
    shares = advice.table[advice.share]
    assert shares[advice.best] >= shares.max() - advice.within
    assert (shares[shares.index > advice.best] < shares.max() - advice.within).all()


def below(**block_sizes: tuple[float, float]) -> pd.DataFrame:
    """How far block sizes are below the best, and half the interval of that."""
    index = pd.Index([int(size.removeprefix("of_")) for size in block_sizes], name="block_size")
    return pd.DataFrame(list(block_sizes.values()), index=index, columns=["mean", "half"])


@pytest.mark.parametrize(
    ("frame", "best"),
    [
        (below(of_8=(0.006, math.nan), of_16=(0.011, math.nan)), 8),  # one trace: as far below as it is
        (below(of_8=(0.006, 0.001), of_16=(0.011, 0.002)), 16),  # 8 is not preferred for less than the band
        (below(of_8=(0.006, 0.001), of_16=(0.013, 0.002)), 8),  # clearly more than 1 point
        (
            below(of_8=(0.006, 0.001), of_16=(0.009, 0.002), of_32=(0.011, 0.002)),
            16,
        ),  # beyond the usual the mean counts
        (below(of_8=(0.006, 0.001), of_16=(0.012, 0.001), of_32=(0.009, 0.002)), 32),
        (below(of_8=(0.006, 0.9), of_16=(0.1, 0.9), of_256=(0.3, 0.9)), 16),  # too few seeds never say 256
        (below(of_1=(0.0, 0.0), of_16=(math.nan, math.nan), of_32=(math.nan, math.nan)), 1),  # they turn requests away
    ],
)
def test_the_rule_takes_the_usual_block_size_unless_it_is_clearly_worse(frame: pd.DataFrame, best: int) -> None:
    assert _best(frame, 0.01) == best


def test_several_seeds_give_means_and_bands() -> None:
    settings: dict[str, Any] = {"capacity": 4_000, "max_model_len": 2048, "max_batch": 64}
    advice = advise("sharegpt:rate=8,duration=15,seed=2", seeds=3, **settings)
    assert list(advice.traces) == [2, 3, 4]
    alone = [advise(trace, **settings) for trace in advice.traces.values()]
    assert [one.traces[None].sha256 for one in alone] == [
        Trace.workload("sharegpt", rate=8, duration_s=15, seed=seed).sha256 for seed in (2, 3, 4)
    ]
    assert advice.requests == sum(one.requests for one in alone)
    for column in advice.table:
        values = np.array([one.table[column] for one in alone])
        expected = values.max(axis=0) if column == "table_most" else values.mean(axis=0)
        assert advice.table[column].tolist() == pytest.approx(expected.tolist())
        assert advice.bands[column].tolist() == pytest.approx([half_width(own) for own in values.T])
    used = np.array([one.table["used"] for one in alone])
    top = used.mean(axis=0).argmax()
    differences = (used[:, [top]] - used).T
    assert advice.share == "used" and advice.top == advice.table.index[top]
    assert advice.below["mean"].tolist() == pytest.approx(differences.mean(axis=1).tolist())
    assert advice.below["half"].tolist() == pytest.approx([half_width(own) for own in differences])
    assert alone[0].bands.isna().all(axis=None) and alone[0].below["half"].isna().all()
    assert "on average" in advice.rule and "on average" not in alone[0].rule


@pytest.mark.parametrize(
    ("capacity", "share", "reason"),
    [
        (100_000, "written", "The pool is never full: memory was never refused, so lengths decide."),
        (25_000, "written", "The pool is not full for long: memory was refused in "),
        (3_000, "used", ""),
        (None, "written", ""),
    ],
)
def test_lengths_decide_unless_the_pool_is_full(capacity: int | None, share: str, reason: str) -> None:
    trace = Trace.workload("sharegpt", rate=8, duration_s=20, seed=2)
    advice = advise(trace, capacity=capacity)
    assert advice.share == share and advice.reason.startswith(reason) and bool(advice.reason) == bool(reason)
    if capacity is not None:
        assert (advice.table["saturated"] >= FULL).all() == (share == "used")
    if share == "written":
        assert advice.best == advise(trace).best < 256


def test_block_sizes_that_turn_more_requests_away_are_not_recommended() -> None:
    """With 100 slots blocks of 8 hold 96, too few for one of the requests; half of the time nobody else is there."""
    advice = advise(trace_of([(60, 20), (90, 11)]), [1, 4, 8, 32, 64, 128], capacity=100, cost=SECOND)
    assert advice.table["rejected"].tolist() == [0, 0, 1, 1]
    assert advice.below["mean"].isna().tolist() == [False, False, True, True]
    assert advice.best in (1, 4)
    assert advice.left_out == {64: "no request fits in the pool, not even alone", 128: "larger than the pool"}
    with pytest.raises(InputError, match="no request of columns fits in 50 slots, not even alone, with any block size"):
        advise(trace_of([(60, 20)]), capacity=50)


@pytest.mark.parametrize(
    ("too_long", "kept"),
    [("reject", lambda p, g: [(p, g)] if p + g <= 20 else []), ("truncate", lambda p, g: [(p, min(g, 20 - p))])],
)
def test_only_requests_within_max_model_len_count(
    too_long: str, kept: Callable[[int, int], list[tuple[int, int]]]
) -> None:
    generator = np.random.default_rng(0)
    lengths = [(int(p), int(g)) for p, g in generator.integers(1, 19, (50, 2))] + [(5, 90)]
    remain = [one for p, g in lengths for one in kept(p, g)]
    advice = advise(trace_of(lengths), max_model_len=20, too_long=too_long)
    assert advice.requests == len(remain)
    assert advice.table.equals(advise(trace_of(remain)).table)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"block_sizes": [0]}, r"block size\(=0\) must be a whole number >= 1"),
        ({"block_sizes": [10**10]}, r"block size\(=10000000000\) must be <= 1,000,000,000"),
        ({"block_sizes": []}, "block_sizes"),
        ({"block_sizes": [16], "capacity": 15}, "must have one that the pool can hold"),
        ({"capacity": 0}, r"capacity\(=0\)"),
        ({"within": 1}, r"within\(=1\)"),
        ({"max_model_len": 5}, r"no request of columns is within max_model_len\(=5\)"),
        ({"capacity": 100, "window_s": (500, 600)}, "before the window began"),
    ],
)
def test_what_is_wrong_is_told(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        advise(trace_of([(10, 20), (5, 7)]), **wrong)
