"""Who waits, in which order, and why they waited.

All that have yet to run stand in one line: those that were preempted, the newest first, then the trace in order of
arrival. A scheduler may take anyone out of it who has arrived; the others keep their order.

    line   | running or done |  preempted  |  arrived, never admitted  |  not arrived yet  |
                             first                                     arrived
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocators.seam import record, rule
from simulator.engine.batch import NEVER

NOBODY, EXTERNAL, RESIDUAL, BATCH, TOKENS, PREEMPTED = range(6)
"""What stops the head of the queue in an iteration: nobody waits; enough is free, but not in one run; too little is
free; ``max_batch``; ``max_batch_tokens``; memory was taken from someone, and the queue was not looked at."""

HEAD = {EXTERNAL: "external", RESIDUAL: "too_little_free", BATCH: "max_batch", TOKENS: "max_batch_tokens"}
"""Rows of ``Queue.waits`` by what stopped the head: its own cause is row ``code - 1``."""
ITERATION, AGAIN = 4, 5
"""The others: until the iteration in progress ended, when nobody waited before; after a preemption."""

Ints = NDArray[np.int64]


class Queue(NamedTuple):
    """By row: one per request, in order of (arrival, row); those that are rejected on arrival are not in it."""

    now: Any
    """``first`` place of the line; ``arrived``, a place up to which all have arrived, see :func:`arrived_place`;
    ``back``, how many at the head of the line wait to come back; ``host``, slots on the host; ``preemptions``."""
    line: NDArray[np.int32]
    """Rows in order, from place ``now.first`` on: who waits, and behind them who has yet to arrive."""
    arrival: Ints
    """Picoseconds; NEVER, or later, where it is beyond what the clock can say yet."""
    prompt: Ints
    """Tokens to prefill: the prompt; of one that was preempted, all it had, and the token it produced last."""
    output: Ints
    """Tokens to produce from then on."""
    host: Ints
    """Token states on the host."""
    since: Ints
    """When it was preempted."""
    admitted: Ints
    """When it was admitted first; -1: not yet."""
    finished: Ints
    preemptions: NDArray[np.int32]
    waits: Ints
    """Picoseconds by cause and row."""


def new_queue(arrival: Ints, prompt: Ints, output: Ints) -> Queue:
    """A queue of these rows, none of which runs."""
    rows = len(arrival)
    now = record(first=0, arrived=0, back=0, host=0, preemptions=0)
    host, since = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    admitted, finished = np.full(rows, -1), np.full(rows, -1)
    preemptions, waits = np.zeros(rows, np.int32), np.zeros((6, rows), np.int64)  # unwritten rows take no memory
    line = np.arange(rows, dtype=np.int32)
    return Queue(now, line, arrival, prompt, output, host, since, admitted, finished, preemptions, waits)


@rule
def first_arrival(queue: Queue) -> int:
    """When the first of the line arrives, or arrived; NEVER: all have been admitted, and none came back."""
    return int(queue.arrival[queue.line[queue.now.first]]) if queue.now.first < len(queue.line) else NEVER


@rule
def head_of(queue: Queue, clock: Any) -> int:
    """The row at the head of the queue; -1: nobody waits."""
    return int(queue.line[queue.now.first]) if first_arrival(queue) <= clock.now else -1


@rule
def arrived_place(queue: Queue, clock: Any) -> int:
    """The place in the line of the first that has yet to arrive; beyond the last, if all have."""
    place = max(queue.now.arrived, queue.now.first)
    while place < len(queue.line) and queue.arrival[queue.line[place]] <= clock.now:
        place += 1
    queue.now.arrived = place
    return int(place)


@rule
def waiting_count(queue: Queue, clock: Any) -> int:
    """How many wait."""
    return int(arrived_place(queue, clock) - queue.now.first)


@rule
def next_arrival(queue: Queue, clock: Any) -> int:
    """When the next one arrives, whoever waits; NEVER: all have."""
    place = arrived_place(queue, clock)
    return int(queue.arrival[queue.line[place]]) if place < len(queue.line) else NEVER


@rule
def place_of(queue: Queue, clock: Any, row: int) -> int:
    """Where in the line a row waits; -1: it does not."""
    line, place = queue.line, queue.now.first
    if not 0 <= row < len(line) or queue.arrival[row] > clock.now:
        return -1
    while place < len(line) and line[place] != row:
        place += 1
    return place if place < len(line) else -1


@rule
def take(queue: Queue, clock: Any, place: int) -> int:
    """Who waits at this place leaves the queue and runs. Returns the token states that it brings from the host."""
    line, row = queue.line, queue.line[place]
    for after in range(place, queue.now.first, -1):
        line[after] = line[after - 1]
    queue.now.first += 1
    if queue.preemptions[row] == 0:
        queue.admitted[row] = clock.now
        return 0
    queue.now.back -= 1
    queue.waits[AGAIN, row] += clock.now - queue.since[row]
    states = int(queue.host[row])
    queue.host[row] = 0
    queue.now.host -= states
    return states


@rule
def put_back(queue: Queue, clock: Any, row: int, states: int) -> None:
    """A request that was preempted with so many token states returns to the head of the queue."""
    produced = states + 1 - queue.prompt[row]
    queue.prompt[row] += produced
    queue.output[row] -= produced
    queue.since[row] = clock.now
    queue.preemptions[row] += 1
    queue.now.first -= 1  # whoever comes back has left the line before
    queue.line[queue.now.first] = row
    queue.now.back += 1
    queue.now.preemptions += 1


def returning(queue: Queue) -> NDArray[np.int32]:
    """The rows that were preempted and wait to come back, the newest first."""
    return queue.line[queue.now.first : queue.now.first + queue.now.back]


@rule
def tell_waits(queue: Queue, clock: Any, why: int, head: int, end: int) -> None:
    """Why the head waits from now to ``end``; who comes meanwhile, if nobody waits, waits for the iteration's end."""
    if why == NOBODY:
        place = queue.now.first
        while place < len(queue.line) and queue.arrival[queue.line[place]] < end:
            row = queue.line[place]
            queue.waits[ITERATION, row] = end - queue.arrival[row]
            place += 1
    elif why != PREEMPTED and queue.preemptions[head] == 0:
        queue.waits[why - 1, head] += end - clock.now
