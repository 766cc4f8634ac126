"""Who waits: those that were preempted, the newest first, then the trace in order of arrival. And why they waited."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocators.seam import record, rule
from simulator.engine.batch import NEVER

NOBODY, EXTERNAL, RESIDUAL, BATCH, TOKENS, PREEMPTED = range(6)
"""What stops the head of the queue in an iteration: nobody waits; enough is free, but not in one run; too little is
free; ``max_batch``; ``max_batch_tokens``; memory was taken from someone, and the queue was not looked at."""

HEAD = {EXTERNAL: "external", RESIDUAL: "too_little_free", BATCH: "max_batch", TOKENS: "max_batch_tokens"}
"""Columns of ``Queue.waits`` by what stopped the head: its own cause is column ``code - 1``."""
ITERATION, AGAIN = 4, 5
"""Its other columns: until the iteration in progress ended, when nobody waited before; after a preemption."""

Ints = NDArray[np.int64]


class Queue(NamedTuple):
    """By row: one per request, in order of (arrival, row); those that are rejected on arrival are not in it."""

    now: Any
    """``next``, the first row that has never been admitted; ``back``, how many wait to come back; ``host``, slots on the
    host; ``preemptions``."""
    arrival: Ints
    """Picoseconds; NEVER, or later, where it is beyond what the clock can say yet."""
    prompt: Ints
    """Tokens to prefill: the prompt; of one that was preempted, all it had, and the token it produced last."""
    output: Ints
    """Tokens to produce from then on."""
    back: Ints
    """A stack of the rows that were preempted, the newest on top."""
    host: Ints
    """Token states on the host."""
    since: Ints
    """When it was preempted."""
    admitted: Ints
    """When it was admitted first; -1: not yet."""
    finished: Ints
    preemptions: NDArray[np.int32]
    waits: Ints
    """Picoseconds by row and cause."""


def new_queue(arrival: Ints, prompt: Ints, output: Ints, seats: int) -> Queue:
    """A queue of these rows, of which at most ``seats`` can run at once."""
    rows = len(arrival)
    now = record(next=0, back=0, host=0, preemptions=0)
    host, since = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    admitted, finished = np.full(rows, -1), np.full(rows, -1)
    back, preemptions, waits = np.zeros(seats, np.int64), np.zeros(rows, np.int32), np.zeros((rows, 6), np.int64)
    return Queue(now, arrival, prompt, output, back, host, since, admitted, finished, preemptions, waits)


@rule
def head_of(queue: Queue, clock: Any) -> int:
    """The row at the head of the queue; -1: nobody waits."""
    if queue.now.back:
        return queue.back[queue.now.back - 1]
    return queue.now.next if next_arrival(queue) <= clock.now else -1


@rule
def next_arrival(queue: Queue) -> int:
    """When the first row that has never been admitted arrives, or arrived; NEVER: there is none."""
    return queue.arrival[queue.now.next] if queue.now.next < len(queue.arrival) else NEVER


@rule
def take_head(queue: Queue, clock: Any) -> int:
    """The head leaves the queue and runs. Returns the token states that it brings from the host."""
    if queue.now.back == 0:
        queue.admitted[queue.now.next] = clock.now
        queue.now.next += 1
        return 0
    queue.now.back -= 1
    row = queue.back[queue.now.back]
    queue.waits[row, AGAIN] += clock.now - queue.since[row]
    states = queue.host[row]
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
    queue.back[queue.now.back] = row
    queue.now.back += 1
    queue.now.preemptions += 1


@rule
def tell_waits(queue: Queue, clock: Any, why: int, head: int, end: int) -> None:
    """Why the head waits from now to ``end``; and who comes meanwhile, if nobody waits: each for the iteration's end."""
    if why == NOBODY:
        row = queue.now.next
        while row < len(queue.arrival) and queue.arrival[row] < end:
            queue.waits[row, ITERATION] = end - queue.arrival[row]
            row += 1
    elif why != PREEMPTED and queue.now.back == 0:
        queue.waits[head, why - 1] += end - clock.now
