"""Where every slot was, integrated over time exactly. Passive: the engine tells it, it never asks.

The engine records a row for each stretch of iterations (``simulator/stretch.py``) and for each gap. Rows come by
the million, so they are kept and integrated as columns, and still exactly: a sum of products of 64-bit integers is
computed twice, modulo 2^64 in integers and roughly in floats, and only one whole number agrees with both.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.stretch import boundary, duration_ps

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

PACK_VALUES = len(COLUMNS) << 12
"""The buffer is packed when it has this many values: 4,096 rows, which fit a cache."""

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
            self._packed.append(
                {name: values.astype(np.min_scalar_type(values.max())) for name, values in wide.items()}
            )

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
            hint = "if the allocator is your own, allocators.check_allocator tells what it breaks"
            raise AssertionError(f"the ledger does not sum to the capacity {self.capacity}: {row}; {hint}")

    def integrate(self, edges_ps: Sequence[int]) -> dict[str, list[int]]:
        """Integrals over each bin ``edges_ps[k] .. edges_ps[k + 1]``, exact: for each of INTEGRALS, an int a bin.

        Edges ascend from 0 or later; what lies behind the last row counts nothing.
        """
        self.pack()
        start, before = 0, np.zeros((len(INTEGRALS), 1), object)
        up_to, found = [before[:, :0]], 0
        for rows in self._chunks():
            chunk = _Chunk(rows, self.kv_token_ps, self.tail_slots)
            inside = edges_ps[found : bisect_left(edges_ps, start + chunk.duration_ps)]
            reached = before + chunk.integrals([*(edge - start for edge in inside), chunk.duration_ps])
            up_to.append(reached[:, :-1])
            found += len(inside)
            start, before = start + chunk.duration_ps, reached[:, -1:]
        up_to.append(np.repeat(before, len(edges_ps) - found, axis=1))
        return dict(zip(INTEGRALS, np.diff(np.concatenate(up_to, axis=1)).tolist(), strict=True))

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
    """Rows that follow each other, their integrals accumulated; in whole numbers modulo 2^64, and roughly."""

    def __init__(self, rows: Columns, kv_token_ps: int, tail_slots: int) -> None:
        self._rows, self._kv_token_ps, self._tail_slots = rows, kv_token_ps, tail_slots
        self._last = len(rows["why"]) - 1
        self._starts = np.zeros(self._last + 1, np.uint64)
        np.cumsum(_times(_widened(rows, np.uint64), np.uint64(kv_token_ps))[:-1], out=self._starts[1:])
        count, first, running = (int(rows[name][-1]) for name in ("iterations", "first_ps", "running"))
        self._last_ps = duration_ps(count, first, kv_token_ps * running) if count else first
        self.duration_ps = int(self._starts[-1]) + self._last_ps

    def integrals(self, times_ps: Sequence[int]) -> NDArray[Any]:
        """Integrals from the chunk's start to each of these times after it: INTEGRALS x times, as Python ints."""
        # A row of more than 2^64 ps is a chunk of its own, and then this is row 0 whatever the cut-off time is.
        cut = np.array([min(time_ps, _WORD - 1) for time_ps in times_ps], np.uint64)
        rows = np.searchsorted(self._starts, cut, "right") - 1
        starts = self._starts[rows].tolist()
        parts = [
            self._iterations(row, time_ps - start)
            for row, time_ps, start in zip(rows.tolist(), times_ps, starts, strict=True)
        ]
        return _nearest(self._accumulated(np.uint64, rows, parts), self._accumulated(np.float64, rows, parts))

    def _iterations(self, row: int, time_ps: int) -> tuple[int, int]:
        """How many whole iterations the first ``time_ps`` of a row have, and what is left over."""
        count, first, running = (int(self._rows[name][row]) for name in ("iterations", "first_ps", "running"))
        step = self._kv_token_ps * running
        if count and (first or step):
            count = min(boundary(time_ps + 1, first, step) - 1, count)
        return count, time_ps - duration_ps(count, first, step)

    def _accumulated(self, kind: type[np.generic], rows: NDArray[Any], parts: list[tuple[int, int]]) -> NDArray[Any]:
        """Integrals up to a place in each of ``rows``, ``[len(INTEGRALS), len(rows)]``, in numbers of this kind."""
        kv_token_ps, tail_slots = np.array([self._kv_token_ps, self._tail_slots]).astype(kind)
        columns = _widened(self._rows, kind)
        before = np.zeros((len(INTEGRALS), self._last + 2), kind)
        whole = _integrals(columns, columns["iterations"], _gaps(columns), kv_token_ps, tail_slots)
        np.cumsum(whole, axis=1, out=before[:, 1:])
        counts, rests = (np.array([part[side] % _WORD for part in parts], np.uint64).astype(kind) for side in (0, 1))
        cut = {name: values[rows] for name, values in columns.items()}
        reached: NDArray[Any] = before[:, rows] + _integrals(cut, counts, rests, kv_token_ps, tail_slots)
        return reached


def _widened(rows: Columns, kind: type[np.generic]) -> Columns:
    return {name: values.astype(kind) for name, values in rows.items()}


def _nearest(whole: NDArray[np.uint64], rough: NDArray[np.float64]) -> NDArray[Any]:
    """The integers that are ``whole`` modulo 2^64 and nearest to ``rough``, as Python ints."""
    words = np.rint((rough - whole) / _WORD)
    exact: NDArray[Any] = whole.astype(object)
    if words.any():
        exact += np.array(list(map(int, words.ravel().tolist())), object).reshape(words.shape) * _WORD
    return exact


def _gaps(rows: Columns) -> NDArray[Any]:
    """Duration of the rows that are gaps, 0 for the others."""
    return np.where(rows["iterations"] == 0, rows["first_ps"], rows["iterations"].dtype.type(0))


def _times(rows: Columns, kv_token_ps: Any) -> NDArray[Any]:
    """Duration of each row, in the type of the columns."""
    count = rows["iterations"]
    times: NDArray[Any] = count * rows["first_ps"] + kv_token_ps * rows["running"] * _ones(count) + _gaps(rows)
    return times


def _ones(count: NDArray[Any]) -> NDArray[Any]:
    """0 + 1 + ... + (count - 1), in the type of ``count``; below 2^32 iterations."""
    ones: NDArray[Any] = count * (count - (count > 0)) // 2
    return ones


def _integrals(
    rows: Columns, count: NDArray[Any], rest_ps: NDArray[Any], kv_token_ps: Any, tail_slots: Any
) -> NDArray[Any]:
    """Integrals over the first ``count`` iterations of each row and ``rest_ps`` of what follows: INTEGRALS x rows."""
    first, running, used, why = (rows[name] for name in ("first_ps", "running", "used", "why"))
    step, ones = kv_token_ps * running, _ones(count)
    thrice = ones * (2 * count - (count > 0))
    squares = thrice * _THIRD if count.dtype == np.uint64 else thrice / 3
    time = count * first + step * ones + rest_ps
    used_time = count * first * used + (first * running + step * used) * ones + step * running * squares
    used_time += rest_ps * (used + running * count)
    free_time, tail_time = rows["free"] * time, tail_slots * time
    integrals = np.zeros((len(INTEGRALS), len(time)), time.dtype)
    integrals[0] = used_time
    integrals[1] = rows["covered"] * time - used_time
    integrals[2] = rows["overprovision"] * time
    integrals[3] = rows["rounding"] * time
    np.copyto(integrals[4], free_time - tail_time, where=why == EXTERNAL)
    np.copyto(integrals[5], tail_time, where=why == EXTERNAL)
    np.copyto(integrals[5], free_time, where=why == RESIDUAL)
    np.copyto(integrals[6], free_time, where=why == IDLE)
    size = len(CATEGORIES)
    np.copyto(integrals[size : 2 * size], integrals[:size], where=why != IDLE)
    in_iteration, saturated, external, batch, largest = integrals[2 * size :]
    np.copyto(in_iteration, time, where=rows["iterations"] > 0)
    np.copyto(saturated, time, where=why != IDLE)
    np.copyto(external, time, where=why == EXTERNAL)
    np.multiply(running, time, out=batch)
    np.multiply(rows["largest"], time, out=largest)
    return integrals
