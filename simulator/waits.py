"""Why requests waited: the time each spent in the queue, by what kept it there, to the picosecond.

In every iteration one thing stops the head of the queue, and everyone else waits behind it. Who arrives while nobody
waits is looked at when the iteration in progress ends. Once a request has run and lost its memory, all of its waiting
is for coming back.
"""

from collections.abc import Sequence

import numpy as np

from simulator.exact import Ints, whole_numbers
from simulator.ledger import BATCH, EXTERNAL, NOBODY, RESIDUAL, TOKENS, Ledger

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

_STOPPED = {EXTERNAL: "external", RESIDUAL: "too_little_free", BATCH: "max_batch", TOKENS: "max_batch_tokens"}


def waits_ps(
    ledger: Ledger,
    arrivals_ps: Sequence[int],
    starts_ps: Sequence[int],
    requeued_ps: Sequence[tuple[int, int, int]],
    end_ps: int,
) -> dict[str, Ints]:
    """For each of CAUSES the picoseconds that each request waited for it.

    ``starts_ps``: when each request stopped waiting for the first time: its admission, or the end of the run; its
    arrival when it never waited. ``requeued_ps``: request, from and to of each wait after a preemption.
    """
    wide = max(end_ps, arrivals_ps[-1]) >> 62
    kind = np.dtype(object if wide else np.int64)
    since, heads, why = ledger.queue(kind)
    arrivals, starts = np.array(arrivals_ps, kind), np.array(starts_ps, kind)
    lasting = np.diff(np.append(since, np.array([end_ps], kind)))
    waits = {cause: np.zeros(len(arrivals), kind) for cause in CAUSES}

    # A head that has run before waits to come back, and that is counted apart.
    request = heads - 1
    first_time = (heads > 0) & (since < starts[request])
    for code, cause in _STOPPED.items():
        own = first_time & (why == code)
        np.add.at(waits[cause], request[own], lasting[own])

    nobody = np.where(why == NOBODY, lasting, np.zeros(1, kind))
    before = np.cumsum(nobody) - nobody

    def nobody_waited(times: Ints) -> Ints:
        """How long nobody waited, up to each time."""
        row = np.searchsorted(since, times, "right") - 1
        within: Ints = np.where(why[row] == NOBODY, times - since[row], np.zeros(1, kind))
        return before[row] + within

    if len(since):
        waits["iteration"] = nobody_waited(starts) - nobody_waited(arrivals)
    named = sum(waits.values())
    waits["behind"] = starts - arrivals - named
    for again, from_ps, to_ps in requeued_ps:
        waits["preempted"][again] += to_ps - from_ps
    return {cause: whole_numbers(values) for cause, values in waits.items()} if wide else waits
