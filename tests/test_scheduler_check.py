"""The conformance kit of schedulers: each planted fault is caught, and said as what it is."""

import re
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from allocators import InputError
from allocators.twins import BrokenPromiseError
from simulator import check_scheduler
from simulator.engine.schedulers import (
    BATCH,
    NOBODY,
    PREEMPTED,
    RESIDUAL,
    UNTIL_LEAVING,
    State,
    admit,
    grow,
    head,
    preempt,
    row_at,
    waiting,
)
from test_schedulers import in_order as fcfs

NEVER = 1 << 62


def over_max_batch(state: State) -> int:
    """One more than it may."""
    stopped = fcfs(state)
    if stopped == BATCH and state.batch.now.count == state.limits.max_batch:
        more = state.limits._replace(max_batch=state.limits.max_batch + 1)
        return admit(state._replace(limits=more), head(state))
    return stopped


def over_max_batch_tokens(state: State) -> int:
    return fcfs(state._replace(limits=state.limits._replace(max_batch_tokens=NEVER)))


def forgetful(state: State) -> int:
    """Row 1 is never served."""
    if grow(state):
        return PREEMPTED
    while waiting(state):
        row = row_at(state, 0)
        if row == 1:
            if waiting(state) == 1:
                return NOBODY
            row = row_at(state, 1)
        stopped = admit(state, row)
        if stopped:
            return stopped
    return NOBODY


def starving(state: State) -> int:
    """Row 1 is said to be stopped, for ever."""
    stopped = forgetful(state)
    if stopped == NOBODY and waiting(state):
        state.clock.head = 1
        return RESIDUAL
    return stopped


def never_admits(state: State) -> int:
    if grow(state):
        return PREEMPTED
    state.clock.head = head(state)
    return RESIDUAL


def even_iterations(state: State) -> int:
    """Whether it admits depends on the number of the iteration, and it says that nothing does."""
    state.clock.alike = UNTIL_LEAVING
    if grow(state):
        return PREEMPTED
    if state.batch.now.count and state.clock.iteration % 2 and waiting(state):
        state.clock.head = head(state)
        return BATCH
    while head(state) >= 0:
        stopped = admit(state, head(state))
        if stopped:
            return stopped
    return NOBODY


def shortest_without_arrivals(state: State) -> int:
    """Who arrives may be the shortest, and it says that arrivals change nothing."""
    state.clock.alike = UNTIL_LEAVING
    if grow(state):
        return PREEMPTED
    while waiting(state):
        row = row_at(state, 0)
        for place in range(1, waiting(state)):
            if state.queue.prompt[row_at(state, place)] < state.queue.prompt[row]:
                row = row_at(state, place)
        stopped = admit(state, row)
        if stopped:
            return stopped
    return NOBODY


def does_not_grow(state: State) -> int:
    while head(state) >= 0:
        stopped = admit(state, head(state))
        if stopped:
            return stopped
    return NOBODY


def goes_in_circles(state: State) -> int:
    """Whoever is admitted is preempted at once."""
    if grow(state):
        return PREEMPTED
    if waiting(state):
        admit(state, head(state))
        preempt(state)
        return PREEMPTED
    return NOBODY


def returns_nothing(state: State) -> None:
    fcfs(state)


def returns_a_number(state: State) -> int:
    return fcfs(state) + 6


def admits_who_does_not_wait(state: State) -> int:
    admit(state, 10**6)
    return fcfs(state)


def says_preempted(state: State) -> int:
    fcfs(state)
    return PREEMPTED


def names_no_head(state: State) -> int:
    stopped = fcfs(state)
    state.clock.head = -1
    return stopped


def says_alike_is_nine(state: State) -> int:
    state.clock.alike = 9
    return fcfs(state)


CALLS = count()


class Moody:
    """It admits more or less as often as it was asked in its life."""

    def __call__(self, state: State) -> int:
        if state.batch.now.count and next(CALLS) % 3 == 0 and waiting(state) and not grow(state):
            state.clock.head = head(state)
            return BATCH
        return fcfs(state)


def shifts(state: State) -> int:
    """A shift that leaves 32 bits in numpy, and does not in compiled code."""
    if state.batch.now.count and waiting(state) and (state.queue.preemptions[0] * 0 + 1) << 31 < 0:
        if grow(state):
            return PREEMPTED
        state.clock.head = head(state)
        return BATCH
    return fcfs(state)


def raises(state: State) -> int:
    if state.clock.iteration == 3:
        raise KeyError("three")
    return fcfs(state)


FAULTS: list[tuple[Callable[..., Any], str]] = [
    (over_max_batch, r"broke a promise: (\d+) requests run, and max_batch is \d+ \(iteration \d+\)"),
    (over_max_batch_tokens, r"\d+ new tokens, and max_batch_tokens is \d+"),
    (forgetful, "it returns NOBODY, and 1 still wait"),
    (starving, "it admits nobody although nothing runs, and 1 wait"),
    (never_admits, r"it admits nobody although nothing runs, and \d+ wait"),
    (even_iterations, r"skipping ahead, as clock\.alike allows, came out otherwise than asking each time"),
    (shortest_without_arrivals, r"skipping ahead, as clock\.alike allows, came out otherwise than asking each time"),
    (does_not_grow, r"a running request has no room for its next token: grow\(state\) first"),
    (goes_in_circles, r"it does not come to an end: 0 requests run, \d+ do not, and it was asked 50 times for each"),
    (returns_nothing, r"returned None, and not one of NOBODY, EXTERNAL"),
    (returns_a_number, r"it returns \d+, and not NOBODY, EXTERNAL"),
    (admits_who_does_not_wait, "it admits row 1000000, which does not wait"),
    (says_preempted, "it returns PREEMPTED, and preempted nobody"),
    (names_no_head, r"clock\.head is -1, which does not wait"),
    (says_alike_is_nine, r"clock\.alike is 9, and not ONE, UNTIL_ARRIVAL or UNTIL_LEAVING"),
    (shifts, "compiled it came out otherwise than in plain Python"),
    (raises, "KeyError: 'three'"),
]


SLOW = (goes_in_circles,)


@pytest.mark.parametrize(
    ("scheduler", "told"),
    [
        pytest.param(one, told, id=one.__name__, marks=[pytest.mark.whole] if one in SLOW else [])
        for one, told in FAULTS
    ],
)
def test_a_planted_fault_is_caught_and_shown_again(scheduler: Callable[..., Any], told: str) -> None:
    with pytest.raises(BrokenPromiseError, match=told) as caught:
        check_scheduler(scheduler, cases=60)
    again = re.search(r"check_scheduler\((\w+), cases=1, seed=(\d+)\) shows it again", str(caught.value))
    assert again
    with pytest.raises(BrokenPromiseError, match=told):
        check_scheduler(scheduler, cases=1, seed=int(again[2]))


def test_one_that_does_not_do_the_same_again_is_caught() -> None:
    with pytest.raises(BrokenPromiseError, match="the same case came out otherwise when it was run again: "):
        check_scheduler(Moody(), cases=60)


def preempts_for_no_reason(state: State) -> int:
    """Every fifth iteration the newest of several has to go, though nothing is short."""
    if state.batch.now.count > 1 and state.clock.iteration % 5 == 0 and not grow(state):
        preempt(state)
        return PREEMPTED
    return fcfs(state)


def takes_whoever_fits(state: State) -> int:
    """Who is stopped by memory lets those pass that fit; it stays the head."""
    if grow(state):
        return PREEMPTED
    place, stopped, first = 0, NOBODY, -1
    while place < waiting(state):
        why = admit(state, row_at(state, place))
        if why:
            if not stopped:
                stopped, first = why, row_at(state, place)
            place += 1
    state.clock.head = first
    return stopped


@pytest.mark.parametrize("scheduler", ["fcfs", fcfs, preempts_for_no_reason, takes_whoever_fits])
def test_what_keeps_its_promises_passes(scheduler: Any) -> None:
    check_scheduler(scheduler, cases=40)


def test_what_is_no_scheduler_is_an_input_error() -> None:
    with pytest.raises(InputError, match="unknown scheduler 'fcfz'"):
        check_scheduler("fcfz")
    with pytest.raises(InputError, match=r"cases\(=0\) must be a whole number >= 1"):
        check_scheduler("fcfs", cases=0)
