"""The running batch: who runs, in order of admission, and what all of them hold.

One law says how many token states a sequence has: **one more after each iteration**. So its ``offset`` is kept, and once
iteration i has run it has ``offset + i`` token states; nothing is written while it decodes. A prompt moves the offset.
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
    """Entry k of an array is the k-th running sequence in order of admission."""

    now: Any
    """``count`` of sequences and its ``peak``; ``releases`` so far; slots ``used``, ``covered`` (used, or written later), ``overprovision``
    and ``rounding`` of all together, ``free`` and ``largest`` (free run); ``next_end`` and ``next_grow``, the first
    iteration in which someone ends, and in which someone lacks room."""
    request: Ints
    seat: Ints
    offset: Ints
    held: Ints
    final: Ints
    """Token states at its end."""
    over: Ints
    """Slots asked for that it will never write."""
    end: Ints
    """The iteration in which it produces its last token."""
    due: Ints
    """The first iteration that it has no room for; NEVER when it has room until its end."""
    vacant: Ints
    """Seats; those from entry ``count`` on are free."""


def new_batch(seats: int, pool: Any) -> Batch:
    """Nobody runs."""
    now = record(
        count=0, peak=0, releases=0, used=0, covered=0, overprovision=0, rounding=0,
        free=ask.free_slots(pool), largest=ask.largest_free_slots(pool), next_end=NEVER, next_grow=NEVER,
    )  # fmt: skip
    return Batch(now, *(np.zeros(seats, np.int64) for _ in range(8)), np.arange(seats))


@rule
def seat_of_next(batch: Batch) -> int:
    """The seat that whoever joins next will have."""
    return batch.vacant[batch.now.count]


@rule
def join(batch: Batch, pool: Any, log: Log, clock: Any, request: int, held: int, prompt: int, output: int) -> None:
    """A sequence starts, and prefills all of its prompt in this iteration; its memory is held already."""
    k, final = batch.now.count, prompt + output - 1
    # One that still has to grow has asked for nothing beyond what it writes now.
    over = max(ask.asked_slots(pool, prompt, output) - final, 0) if held >= final else 0
    batch.request[k], batch.seat[k] = request, batch.vacant[k]
    batch.held[k], batch.final[k], batch.over[k] = held, final, over
    batch.offset[k], batch.end[k] = prompt - clock.iteration, clock.iteration + output - 1
    now = batch.now
    now.count = k + 1
    now.peak = max(now.peak, k + 1)
    now.next_end = min(now.next_end, batch.end[k])
    _set_due(batch, k)
    now.used += prompt
    _hold(batch, k, 1)
    _look_at(batch, pool)
    if log.now.on:
        tell(log, clock, ADMIT, request, prompt, 0, held)


@rule
def _hold(batch: Batch, k: int, sign: int) -> None:
    """Add to the sums (sign 1), or take out of them (-1), the slots that sequence k holds."""
    held, final, over = batch.held[k], batch.final[k], batch.over[k]
    batch.now.covered += sign * min(held, final)
    batch.now.overprovision += sign * over
    batch.now.rounding += sign * max(held - final - over, 0)


@rule
def _set_due(batch: Batch, k: int) -> None:
    batch.due[k] = batch.held[k] - batch.offset[k] + 1 if batch.held[k] < batch.final[k] else NEVER
    batch.now.next_grow = min(batch.now.next_grow, batch.due[k])


@rule
def _look_at(batch: Batch, pool: Any) -> None:
    """What is free has changed."""
    batch.now.free = ask.free_slots(pool)
    batch.now.largest = ask.largest_free_slots(pool)


@rule
def extend(batch: Batch, pool: Any, log: Log, clock: Any, k: int) -> bool:
    """Give sequence k room for one more token; False when there is none."""
    added = ask.extend(pool, batch.seat[k])
    if added == 0:
        return False
    before = batch.held[k]
    _hold(batch, k, -1)
    batch.held[k] = before + added
    _hold(batch, k, 1)
    _set_due(batch, k)
    _look_at(batch, pool)
    if log.now.on:
        tell(log, clock, GROW, batch.request[k], 0, before, before + added)
    return True


@rule
def _leave(batch: Batch, pool: Any, log: Log, clock: Any, k: int, kind: int, states: int) -> None:
    """Sequence k gives everything back, with ``states`` written; its entry is for the caller to fill."""
    if log.now.on:
        tell_extents(log, pool, batch.seat[k])
        tell(log, clock, kind, batch.request[k], states, batch.held[k], batch.held[k])
    ask.free(pool, batch.seat[k])
    batch.now.releases += 1
    batch.now.used -= states
    _hold(batch, k, -1)
    _look_at(batch, pool)


@rule
def drop_newest(batch: Batch, pool: Any, log: Log, clock: Any) -> int:
    """Take all memory from the newest sequence, before it writes in this iteration; returns its token states."""
    k = batch.now.count - 1
    states = batch.offset[k] + clock.iteration - 1
    _leave(batch, pool, log, clock, k, PREEMPT, states)
    batch.now.used -= 1  # counted when the iteration began
    batch.now.count = k
    batch.vacant[k] = batch.seat[k]
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
        if batch.end[k] < clock.iteration:
            _leave(batch, pool, log, clock, k, FINISH, batch.final[k])
            finished[batch.request[k]] = clock.now
            clock.finished += 1
        else:
            if kept < k:
                _swap(batch, kept, k)
            kept += 1
    for k in range(kept, batch.now.count):
        batch.vacant[k] = batch.seat[k]
    batch.now.count = kept
    find_next(batch)


@rule
def _swap(batch: Batch, to: int, k: int) -> None:
    """Move sequence k to an entry whose own has left, and leave the vacant seat in its place."""
    batch.seat[to], batch.seat[k] = batch.seat[k], batch.seat[to]
    batch.request[to], batch.offset[to] = batch.request[k], batch.offset[k]
    batch.held[to], batch.final[to], batch.over[to] = batch.held[k], batch.final[k], batch.over[k]
    batch.end[to], batch.due[to] = batch.end[k], batch.due[k]
