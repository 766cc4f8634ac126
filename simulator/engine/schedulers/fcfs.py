"""First come, first served: a whole prompt in the iteration that admits it, then one token in each (semantics.md, 3)."""

from typing import Any, NamedTuple

from allocators import pool as ask
from allocators.seam import answer, rule
from simulator.engine.batch import NEVER, Batch, extend, find_next, join, seat_of_next
from simulator.engine.log import Log
from simulator.engine.preemption import preempt_newest
from simulator.engine.queue import BATCH, EXTERNAL, NOBODY, PREEMPTED, RESIDUAL, TOKENS, Queue, head_of, take_head
from simulator.engine.schedulers.seam import schedule


class Fcfs(NamedTuple):
    """Its settings; NEVER where there is no limit."""

    max_batch: int
    max_batch_tokens: int
    swap_slots: int
    """Room on the host; -1: preemption recomputes."""
    contiguous: bool
    """Whether a request must lie in one run,"""
    tail_slots: int
    """and the slots that can never be handed out: both of the allocator."""


@answer(schedule, Fcfs)
def _fcfs(policy: Fcfs, batch: Batch, queue: Queue, pool: Any, log: Log, clock: Any) -> int:
    if _grow(policy, batch, queue, pool, log, clock):
        return PREEMPTED
    return _admit(policy, batch, queue, pool, log, clock)


@rule
def _grow(policy: Fcfs, batch: Batch, queue: Queue, pool: Any, log: Log, clock: Any) -> bool:
    """Room for one more token, oldest first; without room the newest loses its memory. Was anyone preempted?"""
    if clock.iteration < batch.now.next_grow:
        return False
    preemptions, iteration = queue.now.preemptions, clock.iteration
    k = 0
    while k < batch.now.count:
        if batch.due[k] > iteration or extend(batch, pool, log, clock, k):
            k += 1
        else:
            preempt_newest(batch, queue, pool, log, clock, policy.swap_slots)
    find_next(batch)
    return queue.now.preemptions > preemptions


@rule
def _admit(policy: Fcfs, batch: Batch, queue: Queue, pool: Any, log: Log, clock: Any) -> int:
    """The queue in its order, until a check stops its head. Returns which."""
    new_tokens = batch.now.count
    while True:
        head = clock.head = head_of(queue, clock)
        if head < 0:
            return NOBODY
        running = batch.now.count
        if running >= policy.max_batch:
            return BATCH
        prompt, output = queue.prompt[head], queue.output[head]
        new_tokens += prompt
        if new_tokens > policy.max_batch_tokens and running:
            return TOKENS
        if head == clock.refused and batch.now.releases == clock.refused_at:
            return _refused(policy, batch, clock.asked)  # no room is no room until something is released
        held = ask.allocate(pool, seat_of_next(batch), head, prompt, output, running == 0)
        if held < prompt:
            if held or running == 0:
                clock.broken = 1 + held
            clock.refused, clock.refused_at = head, batch.now.releases
            clock.asked = ask.asked_slots(pool, prompt, output)
            return _refused(policy, batch, clock.asked)
        states = take_head(queue, clock)
        clock.swapped += states
        clock.prefilled += 0 if states else prompt
        join(batch, pool, log, clock, head, held, prompt, output)


@rule
def _refused(policy: Fcfs, batch: Batch, asked: int) -> int:
    """Why there is no room for so many slots."""
    return EXTERNAL if policy.contiguous and asked <= batch.now.free - policy.tail_slots else RESIDUAL
