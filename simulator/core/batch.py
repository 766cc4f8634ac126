"""The running batch: who runs, in order of admission, and what all of them hold.

One law says how many token states a request has: **one more after every iteration**. So a sequence is kept as
``offset``, and has ``offset + i`` token states once iteration i has run; nothing is written while it decodes. One that
computes another number of tokens in an iteration (a prompt, a chunk of it, nothing) is moved by the difference.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from simulator.core import pool as ask
from simulator.core.seam import record

NEVER = 1 << 62

ADMIT, GROW, FINISH, PREEMPT = range(4)


class Batch(NamedTuple):
    """Entry k of each array is the k-th running sequence, in order of admission."""

    now: Any
    """``count`` sequences; ``used``, ``covered``, ``overprovision``, ``rounding`` slots; ``next_end``, ``next_grow``: the
    first iteration in which someone ends, or needs room."""
    request: np.ndarray
    seat: np.ndarray
    offset: np.ndarray
    held: np.ndarray
    final: np.ndarray
    over: np.ndarray
    end: np.ndarray
    """The iteration in which it produces its last token."""
    due: np.ndarray
    """The first iteration for which it lacks room; NEVER when it lacks none until its end."""
    seats: np.ndarray
    """A stack of the seats: those from ``count`` on are vacant."""


class Log(NamedTuple):
    """Decisions, in order; emptied by whoever called the loop."""

    now: Any
    """``on``, ``events``, ``extents``: how many of each there are; ``room_events``, ``room_extents``."""
    events: np.ndarray
    """iteration, time, kind, request, tokens, slots held before and after."""
    extents: np.ndarray
    """Start and slots of what is given back, release by release."""


def new_batch(seats: int) -> Batch:
    columns = [np.zeros(seats, np.int64) for _ in range(8)]
    now = record(count=0, used=0, covered=0, overprovision=0, rounding=0, next_end=NEVER, next_grow=NEVER, peak=0)
    return Batch(now, *columns, np.arange(seats))


@njit(_nrt=False, forceinline=True)
def log_event(log, clock, kind, request, tokens, before, after):
    event = log.events[log.now.events]
    event[0], event[1], event[2], event[3] = clock.iteration, clock.now, kind, request
    event[4], event[5], event[6] = tokens, before, after
    log.now.events += 1


@njit(_nrt=False, forceinline=True)
def join(batch, pool, log, clock, request, seat, held, tokens, prompt, output):
    """A sequence starts with ``tokens`` of its prompt in this iteration; its memory is held already."""
    k = batch.now.count
    final = prompt + output - 1
    asked = ask.asked_slots(pool, prompt, output)
    # Only one that has all its memory from the start can have asked for more than it will write.
    over = max(asked - final, 0) if held >= final else 0
    batch.request[k], batch.seat[k], batch.held[k], batch.final[k], batch.over[k] = request, seat, held, final, over
    batch.offset[k] = tokens - clock.iteration
    batch.end[k] = clock.iteration + output - 1 if tokens == prompt else NEVER
    _set_due(batch, k)
    now = batch.now
    now.count = k + 1
    now.peak = max(now.peak, k + 1)
    now.used += tokens
    now.covered += min(held, final)
    now.overprovision += over
    now.rounding += max(held - final - over, 0)
    now.next_end = min(now.next_end, batch.end[k])
    if log.now.on:
        log_event(log, clock, ADMIT, request, tokens, 0, held)


@njit(_nrt=False, forceinline=True)
def _set_due(batch, k):
    batch.due[k] = batch.held[k] - batch.offset[k] + 1 if batch.held[k] < batch.final[k] else NEVER
    batch.now.next_grow = min(batch.now.next_grow, batch.due[k])


@njit(_nrt=False, forceinline=True)
def extend(batch, pool, log, clock, k):
    """Room for one more token of sequence k; False when there is none."""
    added = ask.extend(pool, batch.seat[k])
    if added == 0:
        return False
    held, final = batch.held[k], batch.final[k]
    batch.held[k] = held + added
    covered = min(held + added, final) - held
    batch.now.covered += covered
    batch.now.rounding += added - covered
    _set_due(batch, k)
    if log.now.on:
        log_event(log, clock, GROW, batch.request[k], 0, held, held + added)
    return True


@njit(_nrt=False, forceinline=True)
def leave(batch, pool, log, clock, k, kind, states):
    """Sequence k gives everything back, with ``states`` written; its place in the arrays is for the caller to fill."""
    if log.now.on:
        log.now.extents += ask.copy_extents(pool, batch.seat[k], log.extents, log.now.extents)
        log_event(log, clock, kind, batch.request[k], states, batch.held[k], batch.held[k])
    ask.free(pool, batch.seat[k])
    now, held, final, over = batch.now, batch.held[k], batch.final[k], batch.over[k]
    now.used -= states
    now.covered -= min(held, final)
    now.overprovision -= over
    now.rounding -= max(held - final - over, 0)


@njit(_nrt=False, forceinline=True)
def drop_newest(batch, pool, log, clock):
    """Take everything from the newest sequence, before this iteration's writes; returns its token states."""
    k = batch.now.count - 1
    states = batch.offset[k] + clock.iteration - 1
    leave(batch, pool, log, clock, k, PREEMPT, states)
    batch.now.count = k
    batch.now.used -= 1  # it does not write in this iteration
    batch.seats[k] = batch.seat[k]
    return states


@njit(_nrt=False, forceinline=True)
def look_ahead(batch):
    """Find anew who ends first, and who first needs room."""
    next_end = next_grow = NEVER
    for k in range(batch.now.count):
        next_end = min(next_end, batch.end[k])
        next_grow = min(next_grow, batch.due[k])
    batch.now.next_end = next_end
    batch.now.next_grow = next_grow


@njit(_nrt=False, forceinline=True)
def finish(batch, pool, log, clock, finished):
    """Those that have produced their last token leave, in order of admission. ``clock`` stands at the next iteration."""
    if batch.now.next_end >= clock.iteration:
        return
    kept = 0
    for k in range(batch.now.count):
        if batch.end[k] < clock.iteration:
            leave(batch, pool, log, clock, k, FINISH, batch.final[k])
            finished[batch.request[k]] = clock.now
            clock.finished += 1
        else:
            if kept != k:
                _move(batch, kept, k)
            kept += 1
    _vacate(batch, kept)
    batch.now.count = kept
    look_ahead(batch)


@njit(_nrt=False, forceinline=True)
def _move(batch, to, k):
    seat = batch.seat[to]
    batch.request[to], batch.seat[to], batch.offset[to] = batch.request[k], batch.seat[k], batch.offset[k]
    batch.held[to], batch.final[to], batch.over[to] = batch.held[k], batch.final[k], batch.over[k]
    batch.end[to], batch.due[to] = batch.end[k], batch.due[k]
    batch.seat[k] = seat  # the vacant seats gather behind those that are kept


@njit(_nrt=False, forceinline=True)
def _vacate(batch, kept):
    for k in range(kept, batch.now.count):
        batch.seats[k] = batch.seat[k]
