"""The queue: those that were preempted, newest first, then the trace in order of arrival; and why its head waits."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from simulator.core.batch import NEVER
from simulator.core.seam import record

NOBODY, EXTERNAL, RESIDUAL, BATCH, TOKENS, PREEMPTED = range(6)
"""What stops the head of the queue. PREEMPTED: someone lost memory in this iteration, and nobody was looked at."""


class Queue(NamedTuple):
    now: Any
    """``next``: the first row that was not admitted; ``back``: how many were preempted and wait; ``host``: slots on the
    host; ``preemptions``."""
    arrival: np.ndarray
    prompt: np.ndarray
    """Tokens to prefill: of one that was preempted, what it had and the token it had produced last,"""
    output: np.ndarray
    """and tokens to produce."""
    back: np.ndarray
    """A stack of those that were preempted, the newest on top."""
    host: np.ndarray
    """Token states on the host."""
    admitted: np.ndarray
    finished: np.ndarray
    since: np.ndarray
    """When it was preempted last; -1: never yet."""
    preemptions: np.ndarray
    waits: np.ndarray
    """By row: EXTERNAL, RESIDUAL, BATCH, TOKENS (at 0 to 3), the rest of an iteration (4), after a preemption (5)."""


def new_queue(arrival, prompt, output, room) -> Queue:
    n = len(arrival)
    now = record(next=0, back=0, host=0, preemptions=0)
    return Queue(
        now,
        arrival,
        prompt,
        output,
        np.zeros(room, np.int64),
        np.zeros(n, np.int64),
        np.full(n, -1, np.int64),
        np.full(n, -1, np.int64),
        np.full(n, -1, np.int64),
        np.zeros(n, np.int32),
        np.zeros((n, 6), np.int64),
    )


@njit(_nrt=False, forceinline=True)
def head_of(queue, clock):
    """The row that is next, or -1 when nobody waits."""
    if queue.now.back:
        return queue.back[queue.now.back - 1]
    row = queue.now.next
    return row if row < len(queue.arrival) and queue.arrival[row] <= clock.now else -1


@njit(_nrt=False, forceinline=True)
def next_arrival(queue):
    """When the next row of the trace that was not admitted arrived, or will."""
    return queue.arrival[queue.now.next] if queue.now.next < len(queue.arrival) else NEVER


@njit(_nrt=False, forceinline=True)
def take_head(queue, clock):
    """The head leaves the queue to run; returns the token states it brings from the host."""
    if queue.now.back == 0:
        queue.admitted[queue.now.next] = clock.now
        queue.now.next += 1
        return 0
    queue.now.back -= 1
    row = queue.back[queue.now.back]
    queue.waits[row, 5] += clock.now - queue.since[row]
    states = queue.host[row]
    queue.host[row] = 0
    queue.now.host -= states
    return states


@njit(_nrt=False, forceinline=True)
def put_back(queue, clock, row, states, produced, to_host):
    """A preempted request returns to the head. ``produced``: tokens since it was last admitted."""
    queue.output[row] -= produced
    queue.prompt[row] += produced
    queue.since[row] = clock.now
    queue.preemptions[row] += 1
    queue.back[queue.now.back] = row
    queue.now.back += 1
    queue.now.preemptions += 1
    if to_host:
        queue.host[row] = states
        queue.now.host += states
