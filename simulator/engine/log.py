"""The decisions of a run as they are made, in arrays that whoever calls the loop empties when they are nearly full."""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from allocators import pool as ask
from allocators.seam import record, rule

KINDS = ("admit", "grow", "finish", "preempt")
"""``admit``: placed, and ``tokens`` token states are written in this iteration. ``grow``: extents that are new, or
longer than they were. ``finish`` and ``preempt``: all of them given back, with ``tokens`` written."""

EVENT = ("iteration", "time_ps", "kind", "request", "tokens", "before", "after")
"""The columns of an event as the loop writes it; ``before`` and ``after``: slots held."""


ADMIT, GROW, FINISH, PREEMPT = range(4)
"""Kinds of decisions, in the order of KINDS."""

_AT_ONCE = 1 << 14  # events, and extents, between two times that the log is emptied


class Listener(Protocol):
    """Who is told the decisions, part by part, while a server runs."""

    def add(
        self, events: NDArray[np.int64], extents: NDArray[np.int64], rows: NDArray[np.int64], epoch_ps: int
    ) -> None:
        """Events in their order (columns EVENT), and the extents that they gave back.

        ``rows``: which row of the trace a request is. Times count from ``epoch_ps``.
        """

    def still_held(self, request: int, extents: NDArray[np.int64]) -> None:
        """What a request still holds at the end of the run."""


class Log(NamedTuple):
    """``events`` in their order; the extents of those that gave them back, release by release."""

    now: Any
    """``on``; ``events`` and ``extents``, how many there are."""
    events: NDArray[np.int64]
    extents: NDArray[np.int64]
    """Start and slots."""


def new_log(on: bool, seats: int, capacity: int) -> Log:
    """An empty log; of one that is not ``on`` nothing is ever written.

    Whatever a single iteration can add fits behind the point at which the log counts as full: each sequence may grow,
    be preempted, be admitted and finish; at most every slot is an extent of its own.
    """
    events, extents = (_AT_ONCE + 4 * seats, _AT_ONCE + capacity) if on else (0, 0)
    return Log(
        record(on=on, events=0, extents=0), np.zeros((events, len(EVENT)), np.int64), np.zeros((extents, 2), np.int64)
    )


@rule
def is_full(log: Log) -> bool:
    """Whether one more iteration might not fit."""
    return log.now.on and (log.now.events > _AT_ONCE or log.now.extents > _AT_ONCE)


@rule
def tell(log: Log, clock: Any, kind: int, request: int, tokens: int, before: int, after: int) -> None:
    """Write an event down."""
    event = log.events[log.now.events]
    event[0], event[1], event[2], event[3] = clock.iteration, clock.now, kind, request
    event[4], event[5], event[6] = tokens, before, after
    log.now.events += 1


@rule
def tell_extents(log: Log, pool: Any, seat: int) -> None:
    """Write down what a request is about to give back."""
    log.now.extents += ask.copy_extents(pool, seat, log.extents, log.now.extents)
