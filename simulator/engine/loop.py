"""The loop: iterations one after the other, and many at once where nothing is decided. It knows no policy."""

from typing import Any, NamedTuple

from allocators.seam import record, rule
from simulator.engine.batch import NEVER, Batch, finish
from simulator.engine.bins import Bins, add_growth, add_preemptions, add_time, move_to_bin, next_edge
from simulator.engine.compiled import compiled
from simulator.engine.log import Log, is_full
from simulator.engine.queue import (
    EXTERNAL,
    NOBODY,
    PREEMPTED,
    RESIDUAL,
    TOKENS,
    Queue,
    first_arrival,
    next_arrival,
    tell_waits,
)
from simulator.engine.schedulers.seam import ONE, UNTIL_ARRIVAL, schedule

SERVED, REACHED, LOOK, FULL, PAUSE, BROKEN, UNBALANCED = range(7)
"""Why the loop returns: all are served; the time asked for is reached; somebody wants to look into the planned
iterations; the log is full; it has gone on for long; an allocator broke a promise; the slots do not sum up."""

FARTHEST_PS = 1 << 61
"""The latest time that may be asked for, 26 days: after it the clock has to be set back. No iteration takes 2^62 ps."""

_PASSES = 1 << 16  # between two pauses: for progress, and for Ctrl-C, which compiled code does not hear


class Cost(NamedTuple):
    """Picoseconds, see ``simulator.server.cost.StepCost``."""

    base: int
    prefill_token: int
    sequence: int
    kv_token: int
    swapped_token: int


def new_clock() -> Any:
    """``now`` in picoseconds and ``iteration``, of the next one; what is decided for it, and how many run alike:
    ``prefilled``, ``swapped`` tokens, ``joining``: new tokens of those admitted, less one each; ``why`` the ``head`` of
    the queue was stopped; ``alike``, see ``schedulers/seam.py``; ``count`` iterations, the first of ``first_ps`` +
    ``extra_ps``, ``length_ps`` in all; ``planned``, until they have run. ``finished`` requests; ``broken``: 1 + the
    slots that an allocator gave for a request that needs more, or below 0 a fault of the scheduler. ``refused``: the
    row that was refused last, ``asked`` slots, after ``refused_at`` releases."""
    return record(
        now=0, iteration=0, prefilled=0, swapped=0, joining=0, why=0, head=-1, alike=0, count=0, first_ps=0,
        extra_ps=0, length_ps=0, planned=0, finished=0, broken=0, refused=-1, refused_at=0, asked=0,
    )  # fmt: skip


@compiled
def advance(
    policy: Any,
    batch: Batch,
    queue: Queue,
    pool: Any,
    log: Log,
    cost: Cost,
    bins: Bins,
    clock: Any,
    until: int,
    look: int,
    capacity: int,
) -> int:
    """Serve until an iteration reaches ``until``, or those that are planned hold ``look``. Returns why it stopped."""
    for _ in range(_PASSES):
        if not clock.planned:
            if clock.now >= until:
                return REACHED
            if is_full(log):
                return FULL
            if batch.now.count == 0 and first_arrival(queue) > clock.now:
                if queue.now.first == len(queue.line):
                    return SERVED
                target = min(first_arrival(queue), until)
                if look < target:
                    return LOOK
                _pass_gap(batch, bins, clock, target)
                continue
            _plan(policy, batch, queue, cost, bins, clock, until)
            if clock.broken:
                return BROKEN
            if not _is_balanced(batch, clock, capacity):
                return UNBALANCED
        if clock.now + clock.length_ps > look:
            return LOOK
        _run(batch, queue, cost, bins, clock)
        finish(batch, pool, log, clock, queue.finished)
    return PAUSE


@rule
def _pass_gap(batch: Batch, bins: Bins, clock: Any, target: int) -> None:
    """Nobody runs and nobody waits until ``target``."""
    while clock.now < target:
        end = min(target, next_edge(bins, target))
        add_time(bins, batch, 0, end - clock.now, 0, 0)
        clock.now = end
        move_to_bin(bins, end)


@rule
def _plan(policy: Any, batch: Batch, queue: Queue, cost: Cost, bins: Bins, clock: Any, until: int) -> None:
    """Grow and admit; then how many iterations run alike, and how long they take."""
    clock.prefilled = clock.swapped = clock.joining = 0
    clock.head, clock.alike = -1, ONE
    batch.now.used += batch.now.count
    preemptions = queue.now.preemptions
    clock.why = schedule(policy)
    add_preemptions(bins, clock.now, queue.now.preemptions - preemptions)
    running = batch.now.count
    clock.first_ps = cost.base + cost.sequence * running + cost.kv_token * batch.now.used
    clock.extra_ps = cost.prefill_token * clock.prefilled + cost.swapped_token * clock.swapped
    step_ps = cost.kv_token * running
    clock.count = _alike(batch, queue, bins, clock, step_ps, until)
    clock.length_ps = clock.extra_ps + series(clock.first_ps, step_ps, clock.count)
    clock.planned = 1


@rule
def _alike(batch: Batch, queue: Queue, bins: Bins, clock: Any, step_ps: int, until: int) -> int:
    """How many iterations run alike: up to an end, a grow, an arrival that matters, ``until`` or an edge of a bin."""
    admitted = clock.prefilled + clock.swapped > 0
    if clock.alike == ONE or clock.why == PREEMPTED or (clock.why == TOKENS and admitted):
        return 1  # the scheduler wants to be asked, or the next one has new tokens for who waits
    count = min(batch.now.next_end + 1, batch.now.next_grow) - clock.iteration
    first_ps, start = clock.first_ps, clock.now + clock.extra_ps
    # count x their time must fit 62 bits, and so must all on the way to it.
    while count > 1 and (first_ps > FARTHEST_PS // count // count or step_ps > FARTHEST_PS // count // count // count):
        count //= 2
    if count <= 1:
        return 1
    if clock.why == NOBODY or clock.alike == UNTIL_ARRIVAL:
        until = min(until, next_arrival(queue, clock))
    if until - start <= series(first_ps, step_ps, count):
        count = _reaching(until - start, first_ps, step_ps, count)
    edge = next_edge(bins, NEVER)
    if edge - start < series(first_ps, step_ps, count):
        # The last one ends at the edge or before it; one across an edge runs by itself.
        across = _reaching(edge - start, first_ps, step_ps, count)
        count = across if series(first_ps, step_ps, across) == edge - start else max(across - 1, 1)
    return count


@rule
def series(first_ps: int, step_ps: int, count: int) -> int:
    """first + (first + step) + (first + 2 step) + ...: how long ``count`` iterations take."""
    return count * first_ps + step_ps * (count * (count - 1) // 2)


@rule
def _reaching(time_ps: int, first_ps: int, step_ps: int, most: int) -> int:
    """The least number of iterations, from 1 to ``most``, that take as long as this, or longer."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if series(first_ps, step_ps, middle) >= time_ps:
            high = middle
        else:
            low = middle + 1
    return low


@rule
def _is_balanced(batch: Batch, clock: Any, capacity: int) -> bool:
    """Conservation: in every iteration that is planned the categories are not negative and sum to the capacity."""
    now = batch.now
    used = now.used + now.count * (clock.count - 1)
    held = now.covered + now.overprovision + now.rounding
    return held + now.free == capacity and 0 <= used <= now.covered and 0 <= now.largest <= now.free


@rule
def _run(batch: Batch, queue: Queue, cost: Cost, bins: Bins, clock: Any) -> None:
    """The planned iterations run: the ledger, the waits, the clock."""
    end, count, running = clock.now + clock.length_ps, clock.count, batch.now.count
    group = 2 if clock.why == EXTERNAL else 1 if clock.why == RESIDUAL or clock.why == PREEMPTED else 0
    tell_waits(queue, clock, clock.why, clock.head, end)
    if count > 1:
        add_growth(bins, batch, group, clock.first_ps, cost.kv_token * running, count)
    while clock.now < end:
        part = min(end, next_edge(bins, end))
        add_time(bins, batch, group, part - clock.now, queue.now.back, 1)
        clock.now = part
        move_to_bin(bins, part)
    batch.now.used += running * (count - 1)
    clock.iteration += count
    clock.planned = 0
