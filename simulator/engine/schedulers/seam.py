"""What the loop asks a scheduler: one question, answered by the type of the state that it is handed."""

from typing import Any, NamedTuple

from allocators.seam import question

ONE, UNTIL_ARRIVAL, UNTIL_LEAVING = range(3)
"""How long a scheduler would decide nothing new, which it may say in ``clock.alike``. For this iteration only, which is
always right, and slow; until a request arrives, ends or needs room; until one ends or needs room, and whoever arrives
meanwhile changes nothing unless nobody waits."""


class Limits(NamedTuple):
    """The settings of a scheduler; ``batch.NEVER`` where there is no limit."""

    max_batch: int
    max_batch_tokens: int
    swap_slots: int
    """Room on the host; -1: preemption recomputes."""
    contiguous: bool
    """Whether a request must lie in one run,"""
    tail_slots: int
    """and the slots that can never be handed out: both of the allocator."""


class State(NamedTuple):
    """A server at the start of an iteration, which a scheduler looks at and changes; each has a type of its own."""

    limits: Limits
    batch: Any
    """Who runs, in order of admission: ``batch.Batch``."""
    queue: Any
    """Who waits: ``queue.Queue``."""
    pool: Any
    log: Any
    clock: Any
    """``now``, ``iteration``; ``head`` and ``alike`` are for the scheduler to set: see ``loop.new_clock``."""


@question
def schedule(state: Any) -> int:
    """Decide one iteration: grow, preempt, admit. Returns what stopped the head of the queue, ``queue.NOBODY`` etc.

    ``clock.head`` is then the row that was stopped, and ``clock.alike`` how long nothing new would be decided.
    """
