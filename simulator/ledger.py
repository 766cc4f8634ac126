"""Where every slot was, integrated over time exactly. Passive: the engine tells it, it never asks.

The engine records a row for each stretch of iterations (``simulator/stretch.py``) and for each gap. Rows come by
the million, so they are kept and integrated as columns, and still exactly: a sum of products of 64-bit integers is
computed twice, modulo 2^64 in integers and roughly in floats, and only one whole number agrees with both.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.stretch import boundary, duration_ps, used_slot_ps

CATEGORIES = ("used", "reservation", "overprovision", "rounding", "external", "residual", "idle")
"""Where a slot can be (semantics.md section 4). In every iteration they sum to the capacity."""

IDLE, RESIDUAL, EXTERNAL = 0, 1, 2
"""Why slots are free in a row: nobody was refused; someone was; someone was, although enough was free."""

COLUMNS = (
    "iterations",  # 0: a gap between iterations
    "first_ps",  # duration of the first iteration, or of the gap
    "running",  # requests
    "used",  # token states in the first iteration; each later one has `running` more
    "covered",  # slots held that are or will be written
    "overprovision",
    "rounding",
    "free",
    "largest",  # the longest run that could be handed out
    "why",  # IDLE, RESIDUAL or EXTERNAL
)
"""A row. All but the duration and the token states stay the same throughout it."""

SATURATED = tuple(f"saturated_{category}" for category in CATEGORIES)
"""The categories again, over the iterations with a refusal only."""

INTEGRALS = (*CATEGORIES, *SATURATED, "iteration_ps", "saturated_ps", "external_ps", "running", "largest")
"""What is integrated over time: slots (or requests) times picoseconds; those in ``_ps`` are times."""

PACK_VALUES = len(COLUMNS) << 16
"""The buffer is to be packed when it has this many values: 65,536 rows."""

_WORD = 1 << 64
_THIRD = np.uint64(pow(3, -1, _WORD))  # times this is divided by 3, modulo 2^64, for multiples of 3
_MOST_PS = 1 << 62  # of a chunk, so that its times stay below 2^63

Columns = Mapping[str, NDArray[Any]]


class Ledger:
    """Rows of one run over a pool of ``capacity`` slots, of which ``tail_slots`` can never be handed out."""

    def __init__(self, capacity: int, tail_slots: int, kv_token_ps: int) -> None:
        self.capacity, self.tail_slots, self.kv_token_ps = capacity, tail_slots, kv_token_ps
        self.buffer = array("q")
        self.record = self.buffer.extend
        """Record a row: a tuple of ints in the order of COLUMNS."""
        self._packed: list[Columns] = []

    def pack(self) -> None:
        """Move the buffer into columns of the smallest types, after checking that every row adds up."""
        rows = np.array(self.buffer, np.int64).reshape(-1, len(COLUMNS))
        del self.buffer[:]
        if len(rows):
            wide = dict(zip(COLUMNS, rows.T, strict=True))
            self._check(wide)
            self._packed.append({name: values.astype(np.min_scalar_type(values.max())) for name, values in wide.items()})

    def _check(self, rows: Columns) -> None:
        """Conservation: in every iteration the categories are not negative and sum to the capacity."""
        held = rows["covered"] + rows["overprovision"] + rows["rounding"]
        most_used = rows["used"] + rows["running"] * np.maximum(rows["iterations"] - 1, 0)
        wrong = (held + rows["free"] != self.capacity) | (most_used > rows["covered"])
        wrong |= rows["largest"] > rows["free"] - self.tail_slots
        for values in rows.values():
            wrong |= values < 0
        if wrong.any():
            row = {name: int(values[wrong.argmax()]) for name, values in rows.items()}
            raise AssertionError(f"the ledger does not sum to the capacity {self.capacity}: {row}")

    def integrate(self, edges_ps: Sequence[int]) -> list[dict[str, int]]:
        """Integrals over each bin ``edges_ps[k] .. edges_ps[k + 1]``, exact, keyed by INTEGRALS.

        Edges ascend from 0 or later; what lies behind the last row counts nothing.
        """
        self.pack()
        start, before = 0, np.zeros(len(INTEGRALS), object)
        up_to: list[NDArray[Any]] = []
        for rows in self._chunks():
            chunk = _Chunk(rows, self.kv_token_ps, self.tail_slots)
            while len(up_to) < len(edges_ps) and edges_ps[len(up_to)] < start + chunk.duration_ps:
                up_to.append(before + chunk.integrals(edges_ps[len(up_to)] - start))
            start, before = start + chunk.duration_ps, before + chunk.integrals(chunk.duration_ps)
        up_to += [before] * (len(edges_ps) - len(up_to))
        return [dict(zip(INTEGRALS, high - low, strict=True)) for low, high in pairwise(up_to)]

    def _chunks(self) -> Iterator[Columns]:
        """The packed columns, those that last too long halved until they do not or are a single row."""
        waiting = self._packed[::-1]
        while waiting:
            rows = waiting.pop()
            count = len(rows["why"])
            if count > 1 and _times(_widened(rows, np.float64), float(self.kv_token_ps)).sum() > _MOST_PS:
                for half in (slice(count // 2, None), slice(0, count // 2)):
                    waiting.append({name: values[half] for name, values in rows.items()})
            else:
                yield rows


class _Chunk:
    """Rows that follow each other, with the integrals of all of them before any of them."""

    def __init__(self, rows: Columns, kv_token_ps: int, tail_slots: int) -> None:
        self._rows, self._kv_token_ps, self._tail_slots = rows, kv_token_ps, tail_slots
        whole, rough = _widened(rows, np.uint64), _widened(rows, np.float64)
        self._ends = np.cumsum(_times(whole, np.uint64(kv_token_ps)))
        self._whole = _integrals(whole, np.uint64(kv_token_ps), np.uint64(tail_slots)).cumsum(axis=1)
        self._rough = _integrals(rough, float(kv_token_ps), float(tail_slots)).cumsum(axis=1)
        last = len(self._ends) - 1
        self.duration_ps = self._start(last) + self._row_time(last)

    def _start(self, row: int) -> int:
        return int(self._ends[row - 1]) if row else 0

    def _row_time(self, row: int) -> int:
        count, first, running = (int(self._rows[name][row]) for name in ("iterations", "first_ps", "running"))
        return duration_ps(count, first, self._kv_token_ps * running) if count else first

    def integrals(self, until_ps: int) -> NDArray[Any]:
        """Integrals from the chunk's start to ``until_ps`` after it, in the order of INTEGRALS, as Python ints."""
        row = min(int(np.searchsorted(self._ends, np.uint64(min(until_ps, _WORD - 1)), "right")), len(self._ends) - 1)
        part = self._part(row, until_ps - self._start(row))
        if row == 0:
            return part
        pairs = zip(self._whole[:, row - 1].tolist(), self._rough[:, row - 1].tolist(), strict=True)
        return part + np.array([_nearest(whole, rough) for whole, rough in pairs], object)

    def _part(self, row: int, time_ps: int) -> NDArray[Any]:
        """Integrals over the first ``time_ps`` of a row, in plain integers."""
        values = {name: int(column[row]) for name, column in self._rows.items()}
        used_ps = 0
        if values["iterations"] and self._row_time(row):
            first, running, used = values["first_ps"], values["running"], values["used"]
            step = self._kv_token_ps * running
            done = min(boundary(time_ps + 1, first, step) - 1, values["iterations"])
            rest = time_ps - duration_ps(done, first, step)
            used_ps = used_slot_ps(done, first, step, used, running) + rest * (used + running * done)
        return np.array(_weighed(values, time_ps, used_ps, self._tail_slots), object)


def _widened(rows: Columns, kind: type[np.generic]) -> Columns:
    return {name: values.astype(kind) for name, values in rows.items()}


def _nearest(whole: int, rough: float) -> int:
    """The integer that is ``whole`` modulo 2^64 and nearest to ``rough``."""
    return whole + ((int(rough) - whole + _WORD // 2) // _WORD) * _WORD


def _times(rows: Columns, kv_token_ps: Any) -> NDArray[Any]:
    """Duration of each row, in the type of the columns."""
    count, first = rows["iterations"], rows["first_ps"]
    return np.where(count > 0, count * first + kv_token_ps * rows["running"] * _ones(count), first)


def _ones(count: NDArray[Any]) -> NDArray[Any]:
    """1 + 2 + ... + (count - 1). Exact in 64 bits below 2^32 iterations; no integer may go below 0 here."""
    return count * np.where(count > 0, count - (count > 0), 0).astype(count.dtype) // 2


def _integrals(rows: Columns, kv_token_ps: Any, tail_slots: Any) -> NDArray[Any]:
    """Integrals over each row, ``[len(INTEGRALS), rows]``: modulo 2^64 for integer columns, roughly for floats."""
    count, first, running, used = (rows[name] for name in ("iterations", "first_ps", "running", "used"))
    step, ones = kv_token_ps * running, _ones(count)
    twice = ones * np.where(count > 0, 2 * count - (count > 0), 0).astype(count.dtype)
    squares = twice * _THIRD if count.dtype == np.uint64 else twice / 3
    used_ps = count * first * used + (first * running + step * used) * ones + step * running * squares
    return np.stack(np.broadcast_arrays(*_weighed(rows, _times(rows, kv_token_ps), used_ps, tail_slots)))


def _weighed(row: Mapping[str, Any], time_ps: Any, used_ps: Any, tail_slots: Any) -> list[Any]:
    """A row's integrals in the order of INTEGRALS, from its time and its token states times time.

    Works on Python ints and on columns of any type alike: one formula for all three ways to compute it.
    """
    kind = getattr(time_ps, "dtype", None)
    one = 1 if kind is None else kind.type(1)
    external = (row["why"] == EXTERNAL) * one
    residual = (row["why"] == RESIDUAL) * one
    refused = external + residual
    parts = [
        used_ps,
        row["covered"] * time_ps - used_ps,
        row["overprovision"] * time_ps,
        row["rounding"] * time_ps,
        (row["free"] - tail_slots) * external * time_ps,
        (row["free"] * residual + tail_slots * external) * time_ps,
        row["free"] * (one - refused) * time_ps,
    ]
    in_iteration = (row["iterations"] > 0) * one
    times = [in_iteration * time_ps, refused * time_ps, external * time_ps]
    return [*parts, *(part * refused for part in parts), *times, row["running"] * time_ps, row["largest"] * time_ps]
