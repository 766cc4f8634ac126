"""The decision log: who got, and gave back, which extents, in order. Passive, and kept only when asked for.

It is all that is needed to carry out a run again, on device memory for instance, or to draw it address by address:
between decisions every running request writes one token state an iteration.
"""

from array import array
from collections.abc import Sequence
from itertools import chain

import numpy as np
import pandas as pd

from allocators.base import Allocator

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
    """Written by the engine, decision by decision.

    A grow lengthens the last extent of a request or appends some, so what it held at any time is a beginning of what it
    holds in the end. Only how many slots that was is noted as it happens: the extents are asked for once, when the
    request is about to give them back, and a run of many small blocks costs no more than its decisions.
    """

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._events = array("q")  # iteration, kind, request, tokens, stay, slots held before and after
        self._times_ps: list[int] = []
        self._running: dict[int, tuple[int, int]] = {}  # request -> its stay, and the slots it holds
        self._extents = array("q")  # start and slots, those of a stay in their order
        self._first: list[int] = []  # of each stay: the place of its first extent

    def admit(self, iteration: int, now_ps: int, request: int, tokens: int) -> None:
        """A request was placed, and prefills ``tokens`` (or swaps them in)."""
        self._running[request] = len(self._first), 0
        self._first.append(0)
        self._more("admit", iteration, now_ps, request, tokens)

    def grow(self, iteration: int, now_ps: int, requests: Sequence[int]) -> None:
        """These got more memory, in this order."""
        for request in requests:
            self._more("grow", iteration, now_ps, request, 0)

    def release(self, kind: str, iteration: int, now_ps: int, request: int, tokens: int) -> None:
        """A request that has written ``tokens`` is about to give everything back: ``finish`` or ``preempt``."""
        self._keep_extents(request)
        stay, held = self._running.pop(request)
        self._events.extend((iteration, KINDS.index(kind), request, tokens, stay, held, held))
        self._times_ps.append(now_ps)

    def frame(self) -> pd.DataFrame:
        """The log so far."""
        for still_running in self._running:
            self._keep_extents(still_running)
        iteration, kind, request, tokens, stay, before, after = np.array(self._events, np.int64).reshape(-1, 7).T
        starts, slots = np.array(self._extents, np.int64).reshape(-1, 2).T
        # All stays one behind the other: slot k of a stay is slot ``ends[first] - slots[first] + k`` of all of them.
        ends = np.cumsum(slots)
        first = np.array(self._first, np.int64)[stay]
        base = (ends - slots)[first]
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

    def _more(self, kind: str, iteration: int, now_ps: int, request: int, tokens: int) -> None:
        stay, before = self._running[request]
        after = self._allocator.held_slots(request)
        self._running[request] = stay, after
        self._events.extend((iteration, KINDS.index(kind), request, tokens, stay, before, after))
        self._times_ps.append(now_ps)

    def _keep_extents(self, request: int) -> None:
        self._first[self._running[request][0]] = len(self._extents) // 2
        self._extents.extend(chain.from_iterable(self._allocator.extents(request)))
