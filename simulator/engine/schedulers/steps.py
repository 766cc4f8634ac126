"""The steps that schedulers are made of: grow, preempt, look at who waits, admit (docs/semantics.md, 3)."""

from allocators import pool as ask
from allocators.seam import rule
from simulator.engine.batch import extend, find_next, join, seat_of_next
from simulator.engine.preemption import preempt_newest
from simulator.engine.queue import BATCH, EXTERNAL, NOBODY, RESIDUAL, TOKENS, head_of, place_of, take, waiting_count
from simulator.engine.schedulers.faults import NOT_WAITING
from simulator.engine.schedulers.seam import State


@rule
def grow(state: State) -> bool:
    """Room for one more token, oldest first; without room the newest loses its memory. Was anyone preempted?"""
    batch, queue, clock = state.batch, state.queue, state.clock
    if clock.iteration < batch.now.next_grow:
        return False
    preemptions, iteration = queue.now.preemptions, clock.iteration
    k = 0
    while k < batch.now.count:
        if batch.due[k] > iteration or extend(batch, state.pool, state.log, clock, k):
            k += 1
        else:
            preempt(state)
    find_next(batch)
    return bool(queue.now.preemptions > preemptions)


@rule
def preempt(state: State) -> None:
    """Take all memory from the newest running request; it returns to the head of the queue."""
    preempt_newest(state.batch, state.queue, state.pool, state.log, state.clock, state.limits.swap_slots)


@rule
def head(state: State) -> int:
    """The row at the head of the queue, first come or preempted last; -1: nobody waits."""
    return head_of(state.queue, state.clock)


@rule
def waiting(state: State) -> int:
    """How many wait."""
    return waiting_count(state.queue, state.clock)


@rule
def row_at(state: State, place: int) -> int:
    """Who waits at a place of the queue, from 0: those that were preempted, the newest first, then by arrival."""
    return int(state.queue.line[state.queue.now.first + place])


@rule
def admit(state: State, row: int) -> int:
    """Let a row that waits run, with all its prompt in this iteration. Returns what stops it: NOBODY, if nothing does.

    Three checks, the first that fails stops it: ``max_batch``, ``max_batch_tokens``, memory. ``clock.head`` is the row.
    """
    limits, batch, queue, pool, clock = state.limits, state.batch, state.queue, state.pool, state.clock
    if clock.broken:  # what is told is the first
        return RESIDUAL
    clock.head = row
    running = batch.now.count
    if running >= limits.max_batch:
        return BATCH
    place = place_of(queue, clock, row)
    if place < 0:
        clock.broken = NOT_WAITING
        return RESIDUAL
    prompt, output = queue.prompt[row], queue.output[row]
    if running + clock.joining + prompt > limits.max_batch_tokens and running:
        return TOKENS
    if row == clock.refused and batch.now.releases == clock.refused_at:
        return _refused(state)  # no room is no room until something is released
    held = ask.allocate(pool, seat_of_next(batch), row, prompt, output, running == 0)
    if held < prompt:
        if held or running == 0:
            clock.broken = 1 + held
        clock.refused, clock.refused_at = row, batch.now.releases
        clock.asked = ask.asked_slots(pool, prompt, output)
        return _refused(state)
    states = take(queue, clock, place)
    clock.joining += prompt - 1
    clock.swapped += states
    clock.prefilled += 0 if states else prompt
    join(batch, pool, state.log, clock, row, held, prompt, output)
    return NOBODY


@rule
def _refused(state: State) -> int:
    """Why there is no room for what was asked last."""
    enough = state.clock.asked <= state.batch.now.free - state.limits.tail_slots
    return EXTERNAL if state.limits.contiguous and enough else RESIDUAL
