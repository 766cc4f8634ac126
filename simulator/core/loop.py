"""The loop: iterations one after the other, and many at once where nothing is decided. It knows no policy."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from simulator.core import pool as ask
from simulator.core.batch import NEVER, finish
from simulator.core.fcfs import schedule
from simulator.core.queue import EXTERNAL, NOBODY, PREEMPTED, RESIDUAL, TOKENS, next_arrival
from simulator.core.seam import record
from simulator.core.wide import add_product

IDLE, REACHED, LOOK, FULL, BROKEN, FAR = range(6)
"""Why the loop returned: nobody is left; the time asked for; a moment at which somebody looks; the log is full; an
allocator broke its promise, or the ledger does not sum up; the clock must be set back."""

MOST_PS = 1 << 60
PRODUCTS = ("used", "covered", "overprovision", "rounding", "free", "running", "largest", "time", "iteration")


class Cost(NamedTuple):
    base: int
    prefill_token: int
    sequence: int
    kv_token: int
    swapped_token: int


class Ledger(NamedTuple):
    now: Any
    """``bin``: the one that is being filled, -1 before the first."""
    edges: np.ndarray
    """Bin k lies between edge k and edge k + 1, in picoseconds."""
    sums: np.ndarray
    """[bin, group, product, word]; group: no refusal, too little free, external."""
    preemptions: np.ndarray
    capacity: int


def new_clock() -> Any:
    return record(now=0, iteration=0, prefilled=0, swapped=0, head=-1, finished=0, broken=0, planned=0, why=0, count=0,
                  first_ps=0, extra_ps=0, length_ps=0)  # fmt: skip


def new_ledger(edges, capacity) -> Ledger:
    bins = len(edges) - 1
    start = -1 if edges[0] > 0 else 0
    shape = (max(bins, 0), 3, len(PRODUCTS), 2)
    return Ledger(record(bin=start), edges, np.zeros(shape, np.uint64), np.zeros(max(bins, 0), np.int64), capacity)


@njit(_nrt=False, forceinline=True)
def series(first, step, count):
    """The sum of ``count`` numbers: first, first + step, first + 2 step, ..."""
    return count * first + step * (count * (count - 1) // 2)


@njit(_nrt=False, forceinline=True)
def reaching(time, first, step, most):
    """How many iterations it takes, at most ``most``, until their sum is ``time`` or more; at least 1."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if series(first, step, middle) >= time:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True, _nrt=False)
def advance(policy, batch, queue, pool, log, cost, ledger, clock, until, look):
    """Iterations, until one reaches ``until``, or ``look`` lies in the one that is planned. Returns why it stopped."""
    while True:
        if not clock.planned:
            if clock.now >= until:
                return REACHED
            if clock.now >= MOST_PS:
                return FAR
            if log.now.on and (log.now.events > log.now.room_events or log.now.extents > log.now.room_extents):
                return FULL
            if batch.now.count == 0 and queue.now.back == 0 and next_arrival(queue) > clock.now:
                if next_arrival(queue) == NEVER:
                    return IDLE
                target = min(next_arrival(queue), until)
                if look < target:
                    return LOOK
                _gap(ledger, pool, clock, target)
                continue
            _plan(policy, batch, queue, pool, log, cost, ledger, clock, until)
            if clock.broken:
                return BROKEN
        if clock.now + clock.length_ps > look:
            return LOOK
        if not _run(batch, queue, pool, cost, ledger, clock):
            return BROKEN
        finish(batch, pool, log, clock, queue.finished)


@njit(_nrt=False, forceinline=True)
def _gap(ledger, pool, clock, target):
    """Nobody runs and nobody waits until ``target``."""
    free, largest = ask.free_slots(pool), ask.largest_free_slots(pool)
    while clock.now < target:
        part = target - clock.now
        if ledger.now.bin < len(ledger.preemptions):
            part = min(part, ledger.edges[ledger.now.bin + 1] - clock.now)
        if 0 <= ledger.now.bin < len(ledger.preemptions):
            sums = ledger.sums[ledger.now.bin, 0]
            add_product(sums[4], free, part)
            add_product(sums[6], largest, part)
            add_product(sums[7], 1, part)
        clock.now += part
        _next_bin(ledger, clock.now)


@njit(_nrt=False, forceinline=True)
def _next_bin(ledger, now):
    """Move on to the bin in which ``now`` lies."""
    while ledger.now.bin < len(ledger.preemptions) and ledger.edges[ledger.now.bin + 1] <= now:
        ledger.now.bin += 1


@njit(_nrt=False, forceinline=True)
def _plan(policy, batch, queue, pool, log, cost, ledger, clock, until):
    """Grow, admit; then how many iterations run alike, and how long they take."""
    clock.prefilled = clock.swapped = 0
    batch.now.used += batch.now.count
    clock.head = -1
    preemptions = queue.now.preemptions
    why = schedule(policy, batch, queue, pool, log, clock)
    if why == PREEMPTED and 0 <= ledger.now.bin < len(ledger.preemptions):
        ledger.preemptions[ledger.now.bin] += queue.now.preemptions - preemptions
    running = batch.now.count
    step = cost.kv_token * running
    clock.why = why
    clock.first_ps = cost.base + cost.sequence * running + cost.kv_token * batch.now.used
    clock.extra_ps = cost.prefill_token * clock.prefilled + cost.swapped_token * clock.swapped
    count = min(batch.now.next_end + 1, batch.now.next_grow) - clock.iteration
    if why == PREEMPTED or (why == TOKENS and clock.prefilled + clock.swapped):
        count = 1
    count = _within_limits(batch, queue, ledger, clock, step, count, until)
    clock.count = count
    clock.length_ps = clock.extra_ps + series(clock.first_ps, step, count)
    clock.planned = 1


@njit(_nrt=False, forceinline=True)
def _within_limits(batch, queue, ledger, clock, step, count, until):
    """Fewer iterations: the last one is that which reaches ``until``, an arrival that matters, or an edge of the ledger.

    Before an edge the last is the one that ends at it or before: the one across is recorded by itself.
    """
    if count <= 1:
        return 1
    first, start = clock.first_ps, clock.now + clock.extra_ps
    # count x time must fit 62 bits.
    while count > 1 and count * (first + step * count) > MOST_PS // count:
        count //= 2
    if clock.why == NOBODY:
        until = min(until, next_arrival(queue))
    if until - start <= series(first, step, count):
        count = reaching(max(until - start, 0), first, step, count)
    if ledger.now.bin < len(ledger.preemptions):
        edge = ledger.edges[ledger.now.bin + 1]
        if edge - start < series(first, step, count):
            across = reaching(max(edge - start, 0), first, step, count)
            count = across if series(first, step, across) == edge - start else max(across - 1, 1)
    return count


@njit(_nrt=False, forceinline=True)
def _run(batch, queue, pool, cost, ledger, clock):
    """The planned iterations run: the ledger, the clock, and why the head waits."""
    now, count, running = clock.now, clock.count, batch.now.count
    held = batch.now.covered + batch.now.overprovision + batch.now.rounding
    free, largest = ask.free_slots(pool), ask.largest_free_slots(pool)
    used_last = batch.now.used + running * (count - 1)
    if held + free != ledger.capacity or used_last > batch.now.covered:
        return False
    end = now + clock.length_ps
    group = 2 if clock.why == EXTERNAL else 1 if clock.why in (RESIDUAL, PREEMPTED) else 0
    while now < end:
        part = end - now
        if ledger.now.bin < len(ledger.preemptions):
            part = min(part, ledger.edges[ledger.now.bin + 1] - now)
        if 0 <= ledger.now.bin < len(ledger.preemptions):
            _record(batch, cost, ledger, clock, group, part, free, largest)
        now += part
        _next_bin(ledger, now)
    _tell_waits(queue, clock, end)
    clock.now = end
    clock.iteration += count
    batch.now.used = used_last
    clock.planned = 0
    return True


@njit(_nrt=False, forceinline=True)
def _record(batch, cost, ledger, clock, group, time, free, largest):
    """Add the planned iterations, or the part of a single one that lies in the bin."""
    sums, running = ledger.sums[ledger.now.bin, group], batch.now.count
    add_product(sums[0], batch.now.used, time)
    if clock.count > 1:
        # Iteration i has i x running more: the sum of i x its length.
        count = clock.count
        ones, squares = count * (count - 1) // 2, (count - 1) * count * (2 * count - 1) // 6
        add_product(sums[0], running, clock.first_ps * ones + cost.kv_token * running * squares)
    add_product(sums[1], batch.now.covered, time)
    add_product(sums[2], batch.now.overprovision, time)
    add_product(sums[3], batch.now.rounding, time)
    add_product(sums[4], free, time)
    add_product(sums[5], running, time)
    add_product(sums[6], largest, time)
    add_product(sums[7], 1, time)
    add_product(sums[8], 1, time)


@njit(_nrt=False, forceinline=True)
def _tell_waits(queue, clock, end):
    """Why the head waited while these iterations ran; and who came in the midst of one while nobody waited."""
    if clock.why == NOBODY:
        row = queue.now.next
        while row < len(queue.arrival) and queue.arrival[row] < end:
            queue.waits[row, 4] = end - queue.arrival[row]
            row += 1
    elif clock.why != PREEMPTED and queue.now.back == 0:
        queue.waits[clock.head, clock.why - 1] += end - clock.now
