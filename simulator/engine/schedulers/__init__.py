"""Schedulers, a file each: what grows, who is preempted and who is admitted in an iteration.

Those of the project by name, and what one of a user's own is written with: see docs/architecture.md.
"""

from collections.abc import Callable, Mapping

from simulator.engine.queue import BATCH, EXTERNAL, NOBODY, PREEMPTED, RESIDUAL, TOKENS
from simulator.engine.schedulers.fcfs import Fcfs
from simulator.engine.schedulers.seam import ONE, UNTIL_ARRIVAL, UNTIL_LEAVING, State
from simulator.engine.schedulers.steps import admit, grow, head, preempt, row_at, waiting

__all__ = [
    "BATCH",
    "EXTERNAL",
    "NOBODY",
    "ONE",
    "PREEMPTED",
    "RESIDUAL",
    "SCHEDULERS",
    "TOKENS",
    "UNTIL_ARRIVAL",
    "UNTIL_LEAVING",
    "Scheduler",
    "State",
    "admit",
    "grow",
    "head",
    "preempt",
    "row_at",
    "waiting",
]

Scheduler = Callable[[State], int]
"""One of a user's own: it decides an iteration, and returns what stopped the next request, or NOBODY."""

SCHEDULERS: Mapping[str, type[State]] = {"fcfs": Fcfs}
"""Every scheduler of the project, by the type of its state. A new one is a file and a line here."""
