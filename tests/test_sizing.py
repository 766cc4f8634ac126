"""The smallest pool is the one that a scan over all pools finds, each replayed by the token-stepped reference."""

from fractions import Fraction
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as few
from hypothesis import strategies as st

import reference
from allocators import InputError, make_allocator
from simulator import StepCost, Trace, simulate, size
from simulator.answers.target import Target, judged, parse_share

ALL = 10**6
"""Checks enough for every pool."""
LIMIT = 24
COST: dict[str, Any] = {"base_ps": 10**6, "prefill_token_ps": 10**4, "sequence_ps": 10**5}
SPECS = [
    *("paged:block_size=1", "paged:block_size=4,watermark=0.1", "contiguous:reserve=max", "contiguous:reserve=oracle"),
    *("buddy:reserve=oracle", "buddy:reserve=pow2,min_block=4,split=largest"),
]
TARGETS: list[dict[str, Any]] = [
    *({"max_refused": 0}, {"max_refused": "20%"}, {"max_refused": 0.9}),
    *({"max_wait_p99": "20us"}, {"max_refused": "50%", "max_wait_p99": "15us"}),
]


def rows_of(seed: int) -> list[reference.Row]:
    r = Random(seed)
    return [(r.randrange(40_000), r.randrange(1, 10), r.randrange(1, 14)) for _ in range(r.choice([1, 6, 12]))]


def trace_of(rows: list[reference.Row]) -> Trace:
    return Trace.from_columns(*zip(*rows, strict=True))


@cache
def replayed(seed: int, spec: str, capacity: int) -> tuple[Fraction, int] | None:
    """Refused and the 99th percentile of the waits, in ps; None: somebody never fits, or there is no such pool."""
    name, _, tail = spec.partition(":")
    options: dict[str, Any] = dict(part.split("=") for part in tail.split(","))
    options |= {key: int(value) for key, value in options.items() if value.isdigit()}
    settings = reference.Settings(capacity, max_model_len=LIMIT, **COST)
    try:
        make_allocator(spec, capacity, LIMIT)
    except InputError:
        return None
    outcome = reference.replay(rows_of(seed), name, options, settings, [])
    if outcome.rejected["never_fits"]:
        return None
    waits = sorted(q.admitted_ps - q.arrival_ps for q in outcome.requests if q.admitted_ps is not None)
    at_most = (waits[k] for k in range(len(waits)) if 100 * (k + 1) >= 99 * len(waits))
    return Fraction(outcome.saturated_ps, outcome.duration_ps), next(at_most)


def scanned(seed: int, spec: str, target: dict[str, Any], most: int) -> list[bool]:
    """Whether a pool of 1, 2, ... ``most`` slots meets the target."""
    wanted = Target.of(target.get("max_refused"), target.get("max_wait_p99"))
    verdicts = []
    for capacity in range(1, most + 1):
        figures = replayed(seed, spec, capacity)
        verdicts.append(
            figures is not None
            and (wanted.max_refused is None or figures[0] <= wanted.max_refused)
            and (wanted.max_wait_p99_ps is None or figures[1] <= wanted.max_wait_p99_ps)
        )
    return verdicts


def sized(seed: int, spec: str, target: dict[str, Any], checks: int) -> Any:
    cost = StepCost(COST["base_ps"], COST["prefill_token_ps"], COST["sequence_ps"])
    return size(trace_of(rows_of(seed)), spec, checks=checks, cost=cost, max_model_len=LIMIT, **target)


@few(max_examples=60)
@given(st.integers(0, 30), st.sampled_from(SPECS), st.sampled_from(TARGETS))
def test_with_all_pools_checked_it_is_the_smallest_of_a_scan(seed: int, spec: str, target: dict[str, Any]) -> None:
    try:
        found = sized(seed, spec, target, ALL)
    except InputError as error:
        assert "out of reach" in str(error)
        assert not scanned(seed, spec, target, 1000)[-1]
        return
    verdicts = scanned(seed, spec, target, max(trial.capacity for trial in found.trials))
    assert found.capacity == verdicts.index(True) + 1
    tails = {
        c - make_allocator(spec, c, LIMIT).tail_slots
        for c, good in enumerate(verdicts, start=1)
        if not good and c > found.capacity
    }
    assert set(found.fails_above) == tails
    assert found.safe == len(verdicts) - verdicts[::-1].index(False) + 1 if False in verdicts else found.capacity


@few(max_examples=60)
@given(st.integers(0, 30), st.sampled_from(SPECS), st.sampled_from(TARGETS[:3]), st.sampled_from([0, 2, 6]))
def test_with_few_checks_it_is_a_boundary_and_the_smallest_where_more_is_better(
    seed: int, spec: str, target: dict[str, Any], checks: int
) -> None:
    found = sized(seed, spec, target, checks)
    verdicts = scanned(seed, spec, target, found.capacity)
    assert verdicts[-1]
    assert not any(verdicts[-2:-1])
    if verdicts == sorted(verdicts):
        assert found.capacity == verdicts.index(True) + 1
    for trial in found.trials:
        figures = replayed(seed, spec, trial.capacity)
        assert figures is not None
        assert (trial.refused, trial.wait_p99_s) == (float(figures[0]), figures[1] / 10**12)
    assert not any(figures is not None for c in range(1, found.least) if (figures := replayed(seed, spec, c)))
    assert replayed(seed, spec, found.least) is not None


def test_that_more_is_not_always_better_is_found_and_said() -> None:
    """Twelve requests that come at once: 128 slots, one block, do; 143, in blocks of 128, 8, 4, 2 and 1, do not."""
    r = Random(13)
    rows = [(r.randrange(20_000), r.randrange(1, 10), r.randrange(1, 14)) for _ in range(12)]
    cost, spec = StepCost("1us", "10ns", "100ns"), "buddy:reserve=oracle"
    found = size(trace_of(rows), spec, max_refused="30%", checks=ALL, cost=cost)
    assert (found.capacity, found.fails_above[-1], found.safe) == (128, 143, 144)
    assert not found.to_dict()["monotone"]
    for capacity, good in ((127, False), (128, True), (143, False), (144, True)):
        figures = simulate(trace_of(rows), make_allocator(spec, capacity), cost=cost).summary()
        assert (figures["saturated_s"] <= 0.3 * figures["duration_s"]) == good


def test_pools_that_differ_in_their_tail_are_one() -> None:
    found = sized(5, "paged:block_size=4", {"max_refused": 0}, 6)
    assert {trial.capacity % 4 for trial in found.trials} == {0}
    assert found.below is not None
    assert found.below.capacity == found.capacity - 4


def test_a_pool_that_turns_a_request_away_is_not_good_enough() -> None:
    """99 short requests and a long one: without it 3 slots would do."""
    trace = Trace.from_columns([k * 10**9 for k in range(100)], [2] * 99 + [500], [2] * 100)
    found = size(trace, "paged:block_size=1", max_refused="50%")
    assert (found.capacity, found.least, found.below) == (501, 501, None)
    assert size(trace, "paged:block_size=1", max_refused="50%", max_model_len=100).capacity == 3


def test_a_run_that_rejects_for_want_of_memory_never_meets_a_target() -> None:
    trace = Trace.from_columns([0, 0], [2, 500], [2, 2])
    good, bad = (simulate(trace, make_allocator("paged:block_size=1", capacity)) for capacity in (600, 50))
    assert judged(good, Target.of(0.5, None)).meets
    assert bad.summary()["saturated_s"] == 0
    assert not judged(bad, Target.of(0.5, None)).meets


def test_the_time_covered_is_the_windows() -> None:
    trace = Trace.workload("sharegpt", rate=8, duration_s=40, seed=1)
    settings: dict[str, Any] = {"window_s": (10, 30), "max_batch": 64, "max_model_len": 2048}
    found = size(trace, "paged", max_refused="10%", max_wait_p99="20s", **settings)
    run = simulate(trace, make_allocator("paged", found.capacity), **settings)
    assert found.answer.refused == run.summary()["saturated_s"] / 20
    arrived = run.requests[(run.requests.arrival_s >= 10) & (run.requests.status != "not_arrived")]
    waits = sorted(
        arrived.admitted_s.fillna(run.settings.window_s[1] if run.settings.window_s else 0) - arrived.arrival_s
    )
    assert found.answer.wait_p99_s is not None
    assert sum(wait <= found.answer.wait_p99_s + 1e-9 for wait in waits) >= 0.99 * len(waits)
    assert sum(wait < found.answer.wait_p99_s - 1e-9 for wait in waits) < 0.99 * len(waits)


def test_a_wait_that_no_memory_shortens_is_told_with_what_is_reached() -> None:
    trace = Trace.from_columns([0] * 4, [5] * 4, [10] * 4)
    with pytest.raises(InputError, match=r"at most 2s is out of reach for paged.* 99 % wait up to 30.000 s"):
        size(trace, "paged", max_wait_p99="2s", max_batch=1, cost=StepCost("1s", "0", "0"))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({}, "max_refused, such as 1%, or max_wait_p99"),
        ({"max_refused": 1}, r"max_refused\(=1\) must be a share from 0 to below 1"),
        ({"max_refused": "100%"}, r"max_refused\(='100%'\)"),
        ({"max_refused": "-1%"}, r"max_refused\(='-1%'\)"),
        ({"max_refused": "few"}, r"max_refused\(='few'\)"),
        ({"max_refused": "nan"}, r"max_refused\(='nan'\)"),
        ({"max_refused": "1e-999999"}, r"max_refused\(='1e-999999'\)"),
        ({"max_wait_p99": "2"}, r"max_wait_p99\(='2'\)"),
        ({"max_refused": 0, "checks": -1}, r"checks\(=-1\)"),
        ({"max_refused": 0, "allocator": "pagd"}, "unknown allocator 'pagd'"),
        ({"max_refused": 0, "allocator": "contiguous"}, r"max_model_len\(=None\) must be given"),
        ({"max_refused": 0, "allocator": "buddy:reserve=oracle,max_block=4"}, "some request fits in no pool"),
        ({"max_refused": 0, "max_model_len": 5}, r"within max_model_len\(=5\)"),
        ({"max_refused": 0, "cost": StepCost("0", "0", "0"), "window_s": None}, "cost.*takes no time"),
        ({"max_refused": 0, "window_s": (90, 95)}, r"window\(=90.0 95.0\)"),
        ({"max_refused": 0, "speed": 1}, "speed"),
    ],
)
def test_what_is_wrong_is_told(wrong: dict[str, Any], told: str) -> None:
    trace = Trace.from_columns([0, 0], [10, 20], [3, 4])
    options = {"allocator": "paged", **wrong}
    with pytest.raises((InputError, TypeError), match=told):
        size(trace, **options)


@pytest.mark.parametrize(
    ("text", "share"),
    [("1%", "1/100"), ("0.01", "1/100"), (0.1, "1/10"), (" 12.5% ", "1/8"), (0, "0"), ("1e-3", "1/1000")],
)
def test_a_share_is_read_exactly(text: float | str, share: str) -> None:
    assert parse_share("share", text) == Fraction(share)
