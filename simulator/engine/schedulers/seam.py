"""What the loop asks a scheduler: one question, answered by the type of its policy."""

from typing import Any

from allocators.seam import question


@question
def schedule(policy: Any, batch: Any, queue: Any, pool: Any, log: Any, clock: Any) -> int:
    """Decide one iteration: grow, preempt, admit. Returns what stopped the head of the queue, ``queue.NOBODY`` etc.

    It sets ``clock.head`` to the row that was stopped, and adds what it has prefilled and swapped to
    ``clock.prefilled`` and ``clock.swapped``.
    """
