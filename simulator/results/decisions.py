"""The decision log: who got, and gave back, which extents, in order. Passive, and kept only when asked for.

It is all that is needed to carry out a run again, on device memory for instance, or to draw it address by address:
between decisions every running request writes one token state an iteration.
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.engine.log import EVENT, KINDS

DECISION_TYPES = {
    "iteration": "int64",
    "time_s": "float64",
    "kind": pd.CategoricalDtype(list(KINDS)),
    "request": "int64",
    "index": "int64",
    "start": "int64",
    "slots": "int64",
    "tokens": "int64",
}
"""Columns of the log: a row an extent, in the order of the decisions. A row without an extent has index -1.

``iteration``: the first that runs with it, from 0; ``time_s``: when that begins; ``request``: row of the trace;
``start`` and ``slots`` of the extent; ``index``: its place among the request's extents.
"""


class DecisionLog:
    """Collects what the loop wrote down, part by part, and makes a table of it.

    A grow lengthens the last extent of a request or appends some, so what it held at any time is a beginning of what it
    holds in the end. Only how many slots that was is noted as it happens; the extents are written down once, when the
    request gives them back, and a run of many small blocks costs no more than its decisions.
    """

    def __init__(self) -> None:
        self._events: list[NDArray[np.int64]] = [np.zeros((0, len(EVENT)), np.int64)]
        self._times_ps: list[int] = []
        self._extents: list[NDArray[np.int64]] = [np.zeros((0, 2), np.int64)]
        self._still_held: list[int] = []

    def add(
        self, events: NDArray[np.int64], extents: NDArray[np.int64], rows: NDArray[np.int64], epoch_ps: int
    ) -> None:
        """More events in their order (columns EVENT), and the extents that they gave back.

        ``rows``: which row of the trace a request is. Times count from ``epoch_ps``.
        """
        events = events.copy()
        events[:, EVENT.index("request")] = rows[events[:, EVENT.index("request")]]
        self._times_ps += [epoch_ps + time_ps for time_ps in events[:, EVENT.index("time_ps")].tolist()]
        self._events.append(events)
        self._extents.append(extents.copy())

    def still_held(self, request: int, extents: NDArray[np.int64]) -> None:
        """What a request still holds at the end of the run."""
        self._still_held.append(request)
        self._extents.append(extents)

    def frame(self) -> pd.DataFrame:
        """The log so far."""
        events = np.concatenate(self._events)
        iteration, _, kind, request, tokens, before, after = events.T
        starts, slots = np.concatenate(self._extents).T
        # All stays one after the other: slot k of a stay is slot ``base + k`` of all of them.
        ends = np.cumsum(slots)
        stay, base_of = self._stays(kind, request, after, int(slots.sum()))
        base = base_of[stay]
        first = np.searchsorted(ends, base, side="right")
        released = kind >= KINDS.index("finish")
        begin = np.searchsorted(ends, base + before, side="right")
        end = np.where(released, begin + 1, np.searchsorted(ends, base + after, side="left") + 1)
        counts = end - begin
        event = np.repeat(np.arange(len(counts)), counts)
        extent = np.minimum(np.arange(len(event)) + np.repeat(end - np.cumsum(counts), counts), len(ends) - 1)
        none = released[event]
        columns = {
            "iteration": iteration[event],
            "time_s": np.array([time_ps / 10**12 for time_ps in self._times_ps])[event],
            "kind": pd.Categorical.from_codes(kind[event], dtype=DECISION_TYPES["kind"]),  # type: ignore[call-overload]
            "request": request[event],
            "index": np.where(none, -1, extent - first[event]),
            "start": np.where(none, -1, starts[extent]),
            "slots": np.where(none, 0, np.minimum(ends[extent], (base + after)[event]) - (ends - slots)[extent]),
            "tokens": tokens[event],
        }
        return pd.DataFrame(columns)

    def _stays(
        self, kind: NDArray[np.int64], request: NDArray[np.int64], after: NDArray[np.int64], slots: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each event, in which stay of its request it is; and for each stay where its slots begin."""
        order = np.argsort(request, kind="stable")
        stay = np.zeros(len(request), np.int64)
        stay[order] = np.cumsum(kind[order] == KINDS.index("admit")) - 1  # the first event of each is an admit
        released = np.flatnonzero(kind >= KINDS.index("finish"))
        given_back = after[released]
        base = np.zeros(int(stay.max(initial=-1)) + 1, np.int64)
        base[stay[released]] = np.cumsum(given_back) - given_back
        place = int(given_back.sum())
        last_event = {int(row): number for number, row in enumerate(request.tolist())} if self._still_held else {}
        for row in self._still_held:
            number = last_event[row]
            base[stay[number]] = place
            place += int(after[number])
        assert place == slots
        return stay, base
