"""The decision log: who got, and gave back, which extents, in order. Passive, and kept only when asked for.

It is all that is needed to carry out a run again, on device memory for instance, or to draw it address by address:
between decisions every running request writes one token state an iteration.
"""

from array import array
from collections.abc import Sequence

import numpy as np
import pandas as pd

from allocators.base import Allocator, Extent

KINDS = ("admit", "grow", "finish", "preempt")
"""``admit``: placed, and ``tokens`` token states are written in this iteration. ``grow``: extents that are new, or
longer than they were. ``finish`` and ``preempt``: all of them given back, with ``tokens`` written."""

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
    """Written by the engine, decision by decision."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._numbers = array("q")
        self._times_ps: list[int] = []
        self._extents: dict[int, tuple[Extent, ...]] = {}

    def admit(self, iteration: int, now_ps: int, request: int, tokens: int) -> None:
        """A request was placed, and prefills ``tokens`` (or swaps them in)."""
        self._extents[request] = ()
        self._changed("admit", iteration, now_ps, request, tokens)

    def grow(self, iteration: int, now_ps: int, requests: Sequence[int]) -> None:
        """These got more memory, in this order."""
        for request in requests:
            self._changed("grow", iteration, now_ps, request, 0)

    def release(self, kind: str, iteration: int, now_ps: int, request: int, tokens: int) -> None:
        """A request that had written ``tokens`` gave everything back: ``finish`` or ``preempt``."""
        del self._extents[request]
        self._row(kind, iteration, now_ps, request, -1, Extent(-1, 0), tokens)

    def frame(self) -> pd.DataFrame:
        """The log so far."""
        rows = np.array(self._numbers, np.int64).reshape(-1, len(DECISION_TYPES) - 1)
        names = [name for name in DECISION_TYPES if name != "time_s"]
        columns = dict(zip(names, rows.T, strict=True))
        columns["time_s"] = np.array([time_ps / 10**12 for time_ps in self._times_ps])
        columns["kind"] = pd.Categorical.from_codes(columns["kind"], dtype=DECISION_TYPES["kind"])  # type: ignore[call-overload]
        return pd.DataFrame({name: columns[name] for name in DECISION_TYPES})

    def _changed(self, kind: str, iteration: int, now_ps: int, request: int, tokens: int) -> None:
        before, after = self._extents[request], self._allocator.extents(request)
        self._extents[request] = after
        for index, extent in enumerate(after):
            if index >= len(before) or extent != before[index]:
                self._row(kind, iteration, now_ps, request, index, extent, tokens)

    def _row(
        self, kind: str, iteration: int, now_ps: int, request: int, index: int, extent: Extent, tokens: int
    ) -> None:
        self._numbers.extend((iteration, KINDS.index(kind), request, index, *extent, tokens))
        self._times_ps.append(now_ps)
