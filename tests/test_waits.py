"""Why requests waited, worked out by hand; the token-stepped reference says the same of random cases."""

from pathlib import Path

import pytest

from allocators import Contiguous, Paged
from growing import Growing
from simulator import Run, StepCost, Trace, simulate
from simulator.results.waits import CAUSES

S = 10**9  # nanoseconds: the traces below count seconds, and an iteration lasts one
COST = StepCost("1s", "0", "0")


def waits(run: Run) -> list[dict[str, int]]:
    """Seconds by cause, a dict a request, without the zeros; they add up to the whole wait."""
    found = []
    for row in run.requests.to_dict("records"):
        seconds = {cause: row[f"wait_{cause}_ps"] / 10**12 for cause in CAUSES}
        assert sum(row[f"wait_{cause}_ps"] for cause in CAUSES) == row["wait_ps"]
        found.append({cause: waited for cause, waited in seconds.items() if waited})
    return found


def test_too_little_free_and_behind() -> None:
    # 10 slots: request 0 holds 8 for 4 s; 1 wants 4 of the 2 left, 2 would fit and waits behind it.
    trace = Trace.from_columns([0, S // 2, S // 2], [5, 4, 1], [4, 1, 1])
    run = simulate(trace, Contiguous(10, "oracle"), cost=COST)
    # Both came in the midst of the first iteration, when nobody waited.
    assert waits(run) == [{}, {"iteration": 0.5, "too_little_free": 3}, {"iteration": 0.5, "behind": 3}]
    assert run.waits_s() == dict.fromkeys(CAUSES, 0.0) | {
        "iteration": pytest.approx(1 / 3), "too_little_free": 1.0, "behind": 1.0
    }  # fmt: skip


def test_external() -> None:
    # Slots 0-3, 4-7 and 8-9 are taken; when the first and the last are free again, 6 are free but at most 4 in a row.
    trace = Trace.from_columns([0, 0, 0, 0], [3, 2, 1, 6], [2, 3, 2, 1])
    run = simulate(trace, Contiguous(10, "oracle"), cost=COST)
    assert waits(run) == [{}, {}, {}, {"too_little_free": 2, "external": 1}]


def test_external_until_less_is_free_than_was_refused() -> None:
    # Request 1 grows from slot 5 on by one a second, behind the 3 slots that request 0 has left: of 6 asked, 7 are
    # free in two pieces, then 6, then 5.
    trace = Trace.from_columns([0, 0, S // 2], [3, 2, 6], [1, 6, 1])
    run = simulate(trace, Growing(10), cost=COST)
    assert waits(run) == [{}, {}, {"iteration": 0.5, "external": 2, "too_little_free": 3}]
    assert run.summary()["refused_although_free_s"] == 2


def test_caps_on_the_batch_and_on_new_tokens() -> None:
    trace = Trace.from_columns([0, 0, 0], [4, 4, 4], [3, 1, 1])
    run = simulate(trace, Paged(100, 1), cost=COST, max_batch=1)
    assert waits(run) == [{}, {"max_batch": 3}, {"behind": 3, "max_batch": 1}]
    run = simulate(trace, Paged(100, 1), cost=COST, max_batch_tokens=5)
    # 4 new tokens fit; in each later iteration request 0 has 1 of the 5, and 4 are left for one more.
    assert waits(run) == [{}, {"max_batch_tokens": 1}, {"behind": 1, "max_batch_tokens": 1}]


def test_an_arrival_at_a_full_batch_waits_for_the_cap_from_the_next_iteration_on() -> None:
    trace = Trace.from_columns([0, 3 * S // 2], [4, 4], [5, 1])
    run = simulate(trace, Paged(100, 1), cost=COST, max_batch=1)
    assert waits(run) == [{}, {"iteration": 0.5, "max_batch": 3}]


def test_preempted() -> None:
    # 8 slots: both fill the pool after 2 s; request 1 gives way, and comes back when request 0 is done at 4 s.
    trace = Trace.from_columns([0, 0], [3, 3], [4, 4])
    run = simulate(trace, Paged(8, 1), cost=COST)
    assert run.counts["preemptions"] == 1
    assert waits(run) == [{}, {"preempted": 2}]


def test_who_never_came_or_never_could_waits_for_nothing() -> None:
    trace = Trace.from_columns([0, 0, 0, 9 * S], [4, 20, 4, 1], [5, 1, 1, 1])
    run = simulate(trace, Paged(5, 1), cost=COST, window_s=(0, 2))
    assert list(run.requests["status"]) == ["never_fits", "never_fits", "finished", "not_arrived"]
    trace = Trace.from_columns([0, 0, 9 * S], [4, 4, 1], [2, 1, 1])
    run = simulate(trace, Paged(5, 1), cost=COST, window_s=(0, 1))
    assert list(run.requests["status"]) == ["running", "waiting", "not_arrived"]
    assert waits(run) == [{}, {"too_little_free": 1}, {}]


def test_waits_of_a_century_are_kept(tmp_path: Path) -> None:
    slots, cost = 30_000_000, StepCost("1000s", "0", "0")
    for tokens, kind in ((6_000, "int64"), (24_000_000, "object")):  # 64 bits are too few for the second
        trace = Trace.from_columns([0, 0], [1, 1], [tokens, 1])
        far = simulate(trace, Paged(slots, slots), cost=cost, max_batch=1)
        assert far.requests["wait_max_batch_ps"].tolist() == [0, tokens * 10**15]
        assert far.requests["wait_max_batch_ps"].dtype == kind
    far.save(tmp_path / "run")
    assert Run.load(tmp_path / "run").requests.equals(far.requests)
