"""Why requests waited: the time each spent in the queue, by what kept it there, to the picosecond.

In every iteration one thing stops the head of the queue, and everyone else waits behind it. Who arrives while nobody
waits is looked at when the iteration in progress ends. Once a request has run and lost its memory, all of its waiting
is for coming back.
"""

import numpy as np
from numpy.typing import NDArray

from simulator.engine.queue import AGAIN, HEAD, ITERATION
from simulator.results.exact import Ints, whole_numbers

CAUSES = ("external", "too_little_free", "max_batch", "max_batch_tokens", "behind", "iteration", "preempted")
"""``external``: it headed the queue, and enough was free for it but not in one run; ``too_little_free``, ``max_batch``,
``max_batch_tokens``: it headed the queue, and that stopped it; ``behind``: another one headed the queue; ``iteration``:
it came while nobody waited, in the midst of one; ``preempted``: it had lost its memory and waited to come back."""

WAITS = {
    "behind": ("behind", "another request headed the queue"),
    "external": ("external", "at the head of the queue: enough was free, but in pieces"),
    "too_little_free": ("too little free", "at the head of the queue: less was free than it asked for"),
    "max_batch": ("max batch", "at the head of the queue: as many ran as --max-batch allows"),
    "max_batch_tokens": ("max tokens", "at the head of the queue: --max-batch-tokens"),
    "iteration": ("iteration", "until the iteration in progress ended, when nobody waited before it"),
    "preempted": ("preempted", "it had lost its memory, and waited to come back"),
}
"""Each cause of waiting: its name in tables and pictures, and what it means there."""


ROWS = {**{cause: code - 1 for code, cause in HEAD.items()}, "iteration": ITERATION, "preempted": AGAIN}
"""Cause -> its row of ``engine.queue.Queue.waits``; what a request was behind another is what these leave."""


def waits_by_cause(queued: Ints, rows: NDArray[np.int64], arrivals_ps: Ints, starts_ps: Ints) -> dict[str, Ints]:
    """For each of CAUSES the picoseconds that each request waited for it.

    ``queued``: what the loop says of the ``rows`` that it served, see ``engine.queue.Queue.waits``. ``starts_ps``: when
    each request stopped waiting for the first time: its admission, or the end of the run; its arrival when it never
    waited. Whatever of that time nothing else explains it was behind another.
    """
    waits = {cause: np.zeros(len(arrivals_ps), queued.dtype) for cause in ROWS}
    for cause, row in ROWS.items():
        waits[cause][rows] = queued[row]
    first = sum(values for cause, values in waits.items() if cause != "preempted")
    waits["behind"] = starts_ps - arrivals_ps - first
    return {cause: whole_numbers(waits[cause]) if queued.dtype == object else waits[cause] for cause in CAUSES}
