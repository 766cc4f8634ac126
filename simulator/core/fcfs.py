"""First come, first served: a whole prompt in the iteration that admits it, then a token in each (semantics.md 3)."""

from typing import NamedTuple

from numba import njit

from simulator.core import pool as ask
from simulator.core.batch import NEVER, drop_newest, extend, join, look_ahead
from simulator.core.queue import BATCH, EXTERNAL, NOBODY, PREEMPTED, RESIDUAL, TOKENS, head_of, put_back, take_head
from simulator.core.seam import answers, question


class Fcfs(NamedTuple):
    max_batch: int
    max_batch_tokens: int
    swap_slots: int
    """-1: preemption recomputes."""
    contiguous: bool
    tail_slots: int


@question
def schedule(policy, batch, queue, pool, log, clock):
    """Grow, preempt and admit for one iteration; what stopped the head of the queue."""


@answers(schedule, Fcfs)
def _fcfs(policy, batch, queue, pool, log, clock):
    if _grow(policy, batch, queue, pool, log, clock):
        return PREEMPTED
    return _admit(policy, batch, queue, pool, log, clock)


@njit(_nrt=False, forceinline=True)
def _grow(policy, batch, queue, pool, log, clock):
    """Room for one more token, oldest first; whoever finds none takes it from the newest. Was anyone preempted?"""
    if clock.iteration < batch.now.next_grow:
        return False
    preemptions = queue.now.preemptions
    next_grow = NEVER
    k = 0
    while k < batch.now.count:
        if batch.due[k] <= clock.iteration and not extend(batch, pool, log, clock, k):
            _preempt_newest(policy, batch, queue, pool, log, clock)
        else:
            next_grow = min(next_grow, batch.due[k])
            k += 1
    batch.now.next_grow = next_grow
    if queue.now.preemptions == preemptions:
        return False
    look_ahead(batch)
    return True


@njit(_nrt=False, forceinline=True)
def _preempt_newest(policy, batch, queue, pool, log, clock):
    k = batch.now.count - 1
    row = batch.request[k]
    states = drop_newest(batch, pool, log, clock)
    to_host = queue.now.host + states <= policy.swap_slots
    if to_host:
        clock.swapped += states
    put_back(queue, clock, row, states, states + 1 - queue.prompt[row], to_host)


@njit(_nrt=False, forceinline=True)
def _admit(policy, batch, queue, pool, log, clock):
    tokens = batch.now.count
    while True:
        row = head_of(queue, clock)
        clock.head = row
        if row < 0:
            return NOBODY
        running = batch.now.count
        if running >= policy.max_batch:
            return BATCH
        prompt, output = queue.prompt[row], queue.output[row]
        tokens += prompt
        if tokens > policy.max_batch_tokens and running:
            return TOKENS
        seat = batch.seats[running]
        held = ask.allocate(pool, seat, row, prompt, output, running == 0)
        if held < prompt:
            if held or not running:
                clock.broken = 1 + held
                return RESIDUAL
            asked, free = ask.asked_slots(pool, prompt, output), ask.free_slots(pool) - policy.tail_slots
            return EXTERNAL if policy.contiguous and asked <= free else RESIDUAL
        states = take_head(queue, clock)
        clock.swapped += states
        if states == 0:
            clock.prefilled += prompt
        join(batch, pool, log, clock, row, seat, held, prompt, prompt, output)
