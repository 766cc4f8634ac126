"""What a server is given to serve, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from simulator.run import Layout


@dataclass
class Served:
    """What happened, by row of the trace; times in picoseconds, None for what did not happen."""

    admitted_ps: list[int | None]
    finished_ps: list[int | None]
    preemptions: dict[int, int]
    requeued_ps: list[tuple[int, int, int]]
    """Waits after a preemption: who, from, to; a wait that had not ended yet ends with the run."""
    layouts: list[Layout] = field(default_factory=list)
    running: set[int] = field(default_factory=set)
    """Rows still running when it stopped."""
    finished: int = 0
    iterations: int = 0
    peak_batch: int = 0
    end_ps: int = 0
    stopped: bool = False
    """Whether the window's end stopped it."""


class Requests(NamedTuple):
    """What is served: the columns of a trace, and which rows of it are not rejected, in the order of arrival."""

    arrivals_ps: Sequence[int]
    prompt_tokens: Sequence[int]
    output_tokens: Sequence[int]
    rows: Sequence[int]
