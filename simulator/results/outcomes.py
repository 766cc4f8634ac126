"""What became of each request of a run: columns as the server leaves them, and the table that is made when asked for.

The table takes a multiple of the memory of these columns, and of millions of requests nobody looks at it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.engine.server import Server
from simulator.results.exact import Ints, exact_sum
from simulator.results.record import STATUS
from simulator.results.tables import requests_table
from simulator.results.waits import CAUSES, ROWS, waits_by_cause
from simulator.traces.trace import Trace

_AT_ONCE = 1 << 20  # rows

WAITING = STATUS.index("waiting")


class Requests(NamedTuple):
    """What is to be served. ``rejected``: by row of the trace, a place in STATUS, or -1."""

    trace: Trace
    rejected: NDArray[np.int8]
    output: NDArray[np.int64]
    """Tokens, after truncation."""
    rows: NDArray[np.int64]
    """Those that are not rejected."""


class Outcomes:
    """Of the requests that a server has served, or turned away; ``stopped``: a window ended before all were done."""

    def __init__(self, requests: Requests, server: Server, stopped: bool) -> None:
        self._trace, self._rejected, self._output, self._rows = requests
        self._stop_ps = server.now_ps
        self._kind = object if max(self._stop_ps, int(self._trace.arrival_ns[-1]) * 1000) >> 63 else np.int64
        self._admitted, self._finished = server.times(0), server.times(1)
        self._preemptions, self._waits = server.queue.preemptions, server.waits_ps
        running = server.batch.request[server.batch.order[: server.batch.now.count]]
        self.status = self._status(running, stopped)

    def _status(self, running: NDArray[np.int64], stopped: bool) -> NDArray[np.int8]:
        """What became of each row, as a place in STATUS."""
        status = np.where(self._rejected >= 0, self._rejected, WAITING).astype(np.int8)
        status[self._rows[self._finished.column >= 0]] = STATUS.index("finished")
        status[self._rows[running]] = STATUS.index("running")
        if stopped:
            status[self._trace.arrival_ns > self._stop_ps // 1000] = STATUS.index("not_arrived")
        return status

    def count(self, state: str) -> int:
        """How many are in a state of STATUS."""
        return int((self.status == STATUS.index(state)).sum())

    def waiting(self) -> Iterator[tuple[Ints, Ints]]:
        """From when to when each waited for the first time, some rows at once: numbers beyond 64 bits take much memory.

        From its arrival to its admission, or the end of the run; no time at all if it never waited.
        """
        for begin in range(0, len(self._trace), _AT_ONCE):
            yield self._waiting(slice(begin, begin + _AT_ONCE))

    def _waiting(self, part: slice) -> tuple[Ints, Ints]:
        arrivals = self._trace.arrival_ns[part].astype(self._kind) * 1000
        starts = arrivals.copy()
        starts[self.status[part] == WAITING] = self._stop_ps
        first, end = np.searchsorted(self._rows, [part.start, part.stop])
        admitted = self._admitted.of(slice(first, end))
        known = (admitted >= 0).astype(bool)
        starts[self._rows[first:end][known] - part.start] = admitted[known]
        return arrivals, starts

    def waits_s(self) -> dict[str, float]:
        """Mean seconds a request waited, by cause; of all that arrived and were not turned away."""
        sums = {cause: exact_sum(self._waits[row]) for cause, row in ROWS.items()}
        first = sum(exact_sum(starts - arrivals) for arrivals, starts in self.waiting())
        sums["behind"] = first - sum(sums[cause] for cause in sums if cause != "preempted")
        waited = sum(self.count(state) for state in ("finished", "running", "waiting"))
        return {cause: sums[cause] / (waited * 10**12) if waited else 0.0 for cause in CAUSES}

    def table(self) -> pd.DataFrame:
        """``Run.requests``."""
        rows = len(self._trace)
        admitted_ps, finished_ps = (np.full(rows, -1, self._kind) for _ in range(2))
        admitted_ps[self._rows], finished_ps[self._rows] = (
            times.of(slice(None)) for times in (self._admitted, self._finished)
        )
        preemptions = np.zeros(rows, np.int64)
        preemptions[self._rows] = self._preemptions
        waits = waits_by_cause(self._waits, self._rows, *self._waiting(slice(0, rows)))
        return requests_table(self._trace, self._output, self.status, admitted_ps, finished_ps, preemptions, waits)
