"""The running batch: who runs, in order of admission, and what all of them hold.

One law says how many token states a sequence has: **one more after each iteration**. So its ``offset`` is kept, and
once iteration i has run it has ``offset + i`` token states; nothing is written while it decodes.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocators import pool as ask
from allocators.seam import record, rule
from simulator.engine.log import ADMIT, FINISH, GROW, PREEMPT, Log, tell, tell_extents

NEVER = 1 << 62
"""An iteration, or a time in picoseconds, that does not come."""

Ints = NDArray[np.int64]


class Batch(NamedTuple):
    """Some arrays go by place k, the k-th running sequence in order of admission; the others by seat."""

    now: Any
    """``count`` of sequences and its ``peak``; ``releases`` so far; slots ``used``, ``covered`` (used, or written
    later), ``overprovision`` and ``rounding`` of all together, ``free`` and ``largest`` (free run); ``next_end`` and
    ``next_grow``, the first iteration in which someone ends, and in which someone lacks room."""
    order: Ints
    """Place -> seat; from place ``count`` on, the vacant seats."""
    end: Ints
    """Place -> the iteration in which it produces its last token."""
    due: Ints
    """Place -> the first iteration that it has no room for; NEVER when it has room until its end."""
    request: Ints
    """Seat -> row of the queue."""
    offset: Ints
    """Seat -> see above."""
    held: Ints
    """Seat -> slots."""
    final: Ints
    """Seat -> token states at its end."""
    over: Ints
    """Seat -> slots asked for that it will never write."""


def new_batch(seats: int, pool: Any) -> Batch:
    """Nobody runs."""
    now = record(
        count=0, peak=0, releases=0, used=0, covered=0, overprovision=0, rounding=0,
        free=ask.free_slots(pool), largest=ask.largest_free_slots(pool), next_end=NEVER, next_grow=NEVER,
    )  # fmt: skip
    end, due, request, offset, held, final, over = (np.zeros(seats, np.int64) for _ in range(7))
    return Batch(now, np.arange(seats), end, due, request, offset, held, final, over)


@rule
def seat_of_next(batch: Batch) -> int:
    """The seat that whoever joins next will have."""
    return batch.order[batch.now.count]


@rule
def join(batch: Batch, pool: Any, log: Log, clock: Any, request: int, held: int, prompt: int, output: int) -> None:
    """A sequence starts, and prefills all of its prompt in this iteration; its memory is held already."""
    k, seat, final = batch.now.count, seat_of_next(batch), prompt + output - 1
    # One that still has to grow has asked for nothing beyond what it writes now.
    over = max(ask.asked_slots(pool, prompt, output) - final, 0) if held >= final else 0
    batch.request[seat], batch.held[seat], batch.final[seat], batch.over[seat] = request, held, final, over
    batch.offset[seat], batch.end[k] = prompt - clock.iteration, clock.iteration + output - 1
    now = batch.now
    now.count = k + 1
    now.peak = max(now.peak, k + 1)
    now.next_end = min(now.next_end, batch.end[k])
    _set_due(batch, k, seat)
    now.used += prompt
    _hold(batch, seat, 1)
    _look_at(batch, pool)
    if log.now.on:
        tell(log, clock, ADMIT, request, prompt, 0, held)


@rule
def _hold(batch: Batch, seat: int, sign: int) -> None:
    """Add to the sums (sign 1), or take out of them (-1), the slots that a sequence holds."""
    held, final, over = batch.held[seat], batch.final[seat], batch.over[seat]
    batch.now.covered += sign * min(held, final)
    batch.now.overprovision += sign * over
    batch.now.rounding += sign * max(held - final - over, 0)


@rule
def _set_due(batch: Batch, k: int, seat: int) -> None:
    held = batch.held[seat]
    batch.due[k] = held - batch.offset[seat] + 1 if held < batch.final[seat] else NEVER
    batch.now.next_grow = min(batch.now.next_grow, batch.due[k])


@rule
def _look_at(batch: Batch, pool: Any) -> None:
    """What is free has changed."""
    batch.now.free = ask.free_slots(pool)
    batch.now.largest = ask.largest_free_slots(pool)


@rule
def extend(batch: Batch, pool: Any, log: Log, clock: Any, k: int) -> bool:
    """Give the sequence at place k room for one more token; False when there is none."""
    seat = batch.order[k]
    added = ask.extend(pool, seat)
    if added == 0:
        return False
    before = batch.held[seat]
    covered = max(min(added, batch.final[seat] - before), 0)
    batch.held[seat] = before + added
    batch.now.covered += covered
    batch.now.rounding += added - covered
    _set_due(batch, k, seat)
    _look_at(batch, pool)
    if log.now.on:
        tell(log, clock, GROW, batch.request[seat], 0, before, before + added)
    return True


@rule
def _leave(batch: Batch, pool: Any, log: Log, clock: Any, seat: int, kind: int, states: int) -> None:
    """A sequence gives everything back, with ``states`` written; its place is for the caller to fill."""
    if log.now.on:
        tell_extents(log, pool, seat)
        tell(log, clock, kind, batch.request[seat], states, batch.held[seat], batch.held[seat])
    ask.free(pool, seat)
    batch.now.releases += 1
    batch.now.used -= states
    _hold(batch, seat, -1)
    _look_at(batch, pool)


@rule
def drop_newest(batch: Batch, pool: Any, log: Log, clock: Any) -> int:
    """Take all memory from the newest sequence, before it writes in this iteration; returns its token states."""
    k = batch.now.count - 1
    seat = batch.order[k]
    states = batch.offset[seat] + clock.iteration - 1
    _leave(batch, pool, log, clock, seat, PREEMPT, states)
    batch.now.used -= 1  # counted when the iteration began
    batch.now.count = k
    find_next(batch)
    return states


@rule
def find_next(batch: Batch) -> None:
    """Look for whoever ends first, and whoever first needs room."""
    next_end = next_grow = NEVER
    for k in range(batch.now.count):
        next_end = min(next_end, batch.end[k])
        next_grow = min(next_grow, batch.due[k])
    batch.now.next_end = next_end
    batch.now.next_grow = next_grow


@rule
def finish(batch: Batch, pool: Any, log: Log, clock: Any, finished: Ints) -> None:
    """Those that have produced their last token leave, in order of admission. ``clock`` is at the next iteration."""
    if batch.now.next_end >= clock.iteration:
        return
    kept = 0
    for k in range(batch.now.count):
        seat = batch.order[k]
        if batch.end[k] < clock.iteration:
            _leave(batch, pool, log, clock, seat, FINISH, batch.final[seat])
            finished[batch.request[seat]] = clock.now
            clock.finished += 1
        else:
            batch.order[k], batch.order[kept] = batch.order[kept], seat
            batch.end[kept], batch.due[kept] = batch.end[k], batch.due[k]
            kept += 1
    batch.now.count = kept
    find_next(batch)
