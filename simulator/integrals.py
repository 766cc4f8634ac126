"""Exact sums over rows of the ledger that follow each other.

What a row adds (slots times picoseconds) fits 64 bits, and is computed modulo 2^64; where it would not fit, that row is
done in Python's integers. Sums are taken of the upper and of the lower halves, so that they fit too.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.stretch import boundary, duration_ps

Columns = Mapping[str, NDArray[Any]]
"""Rows of ``ledger.COLUMNS``, as columns."""

_THIRD = np.uint64(pow(3, -1, 1 << 64))  # times this is divided by 3, modulo 2^64, for multiples of 3
MOST_PS = 1 << 62  # of a chunk, so that its times stay below 2^63
_MOST = 1 << 62  # slots times picoseconds of a row

PRODUCTS = ("used", "covered", "overprovision", "rounding", "free", "running", "largest", "time", "iteration")
"""What is summed: each times time; ``iteration`` is the time within iterations."""
_GROUP = np.array([0, 1, 2, 0, 0])
"""By what stopped the head of the queue: no refusal, too little free, enough free. Sums are kept apart for each."""

_TIMED = ("iterations", "first_ps", "extra_ps", "running")
_NEEDED = (*_TIMED, *PRODUCTS[:5], "largest")
_HALF, _LOWER = np.uint64(32), np.uint64((1 << 32) - 1)


class Chunk:
    """Rows that follow each other, summed up."""

    def __init__(self, rows: Columns, capacity: int, kv_token_ps: int) -> None:
        self._rows, self._capacity, self._kv_token_ps = rows, capacity, kv_token_ps
        self.starts = np.zeros(len(rows["why"]), np.uint64)
        np.cumsum(_times(_widened(rows, _TIMED), np.uint64(kv_token_ps))[:-1], out=self.starts[1:])
        count, first, extra, running = self._row(-1)
        self.duration_ps = int(self.starts[-1]) + extra + duration_ps(count, first, kv_token_ps * running)

    def sums(self, times_ps: Sequence[int]) -> NDArray[Any]:
        """Sums from the chunk's start to each of these times in it and to its end: [group, product, time], ints."""
        # A row of more than 2^64 ps is a chunk of its own, and then this is row 0 whatever the time is.
        within = np.array([min(time_ps, (1 << 64) - 1) for time_ps in times_ps], np.uint64)
        cut = np.searchsorted(self.starts, within, "right") - 1
        groups = _GROUP[self._rows["why"]]
        sums = self._before(groups, np.append(cut, len(groups)))
        if times_ps:
            starts = self.starts[cut].tolist()
            parts = [
                self._iterations(row, time_ps - start)
                for row, time_ps, start in zip(cut.tolist(), times_ps, starts, strict=True)
            ]
            counts, rests = np.array(parts, object).T
            sums[groups[cut], :, np.arange(len(cut))] += self._of(cut, counts, rests).T
        return sums

    def _before(self, groups: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
        """Sums of all that comes before each of these rows."""
        columns = _widened(self._rows, _NEEDED)
        whole = _products(columns, columns["iterations"], _gaps(columns), np.uint64(self._kv_token_ps))
        sums = np.zeros((3, len(PRODUCTS), len(rows)), object)
        rough_ps = rough_times_ps(self._rows, self._kv_token_ps)
        for row in np.flatnonzero(rough_ps * self._capacity > _MOST).tolist():
            whole[:, row] = 0
            count, _, extra, _ = self._row(row)
            exact = self._of(np.array([row]), *np.array([[count], [0 if count else extra]], object))
            sums[groups[row]] += exact * (rows > row)
        for group, into in enumerate(sums):
            own = np.flatnonzero(groups == group)
            if not len(own):
                continue
            at = np.searchsorted(own, rows)
            halves = []
            for half in (whole[:, own] >> _HALF, whole[:, own] & _LOWER):
                passed = np.zeros((len(PRODUCTS), len(own) + 1), np.uint64)
                np.cumsum(half, axis=1, out=passed[:, 1:])
                halves.append(passed[:, at].astype(object))
            into += halves[0] * (1 << 32) + halves[1]
        return sums

    def _of(self, rows: NDArray[Any], counts: NDArray[Any], rests_ps: NDArray[Any]) -> NDArray[Any]:
        """Products of the first ``counts`` iterations of these rows and what follows, in Python's integers."""
        columns = {name: self._rows[name][rows].astype(object) for name in _NEEDED}
        return _products(columns, counts, rests_ps, self._kv_token_ps)

    def _row(self, row: int) -> tuple[int, int, int, int]:
        count, first, extra, running = (int(self._rows[name][row]) for name in _TIMED)
        return count, first, extra, running

    def _iterations(self, row: int, time_ps: int) -> tuple[int, int]:
        """How many whole iterations the first ``time_ps`` of a row have, and what is left over."""
        count, first, extra, running = self._row(row)
        step = self._kv_token_ps * running
        if count == 0 or time_ps < first + extra:
            return 0, time_ps
        if first or step:
            count = min(boundary(time_ps - extra + 1, first, step) - 1, count)
        return count, time_ps - extra - duration_ps(count, first, step)


def _widened(rows: Columns, names: Sequence[str]) -> Columns:
    return {name: rows[name].astype(np.uint64) for name in names}


def _gaps(rows: Columns) -> NDArray[Any]:
    """Duration of the rows that are gaps, 0 for the others."""
    return np.where(rows["iterations"] == 0, rows["extra_ps"], rows["iterations"].dtype.type(0))


def _times(rows: Columns, kv_token_ps: Any) -> NDArray[Any]:
    """Duration of each row, modulo 2^64."""
    count = rows["iterations"]
    times: NDArray[Any] = count * rows["first_ps"] + kv_token_ps * rows["running"] * _ones(count) + rows["extra_ps"]
    return times


def rough_times_ps(rows: Columns, kv_token_ps: int) -> NDArray[np.float64]:
    """Duration of each row, or a little more; never too little by more than floats are."""
    count = rows["iterations"].astype(np.float64)
    times: NDArray[np.float64] = count * (rows["first_ps"] + count * rows["running"] * (kv_token_ps / 2))
    return times + rows["extra_ps"]


def _ones(count: NDArray[Any]) -> NDArray[Any]:
    """0 + 1 + ... + (count - 1), in the type of ``count``; below 2^32 iterations."""
    ones: NDArray[Any] = count * (count - (count > 0)) // 2
    return ones


def _products(rows: Columns, count: NDArray[Any], rest_ps: NDArray[Any], kv_token_ps: Any) -> NDArray[Any]:
    """PRODUCTS of the first ``count`` iterations of each row and ``rest_ps`` of what follows, in their type."""
    first, running, used = (rows[name] for name in ("first_ps", "running", "used"))
    extra = rows["extra_ps"] * (count > 0)
    step, ones = kv_token_ps * running, _ones(count)
    thrice = ones * (2 * count - (count > 0))  # of the squares 0, 1, 4, ...
    squares = thrice // 3 if thrice.dtype == object else thrice * _THIRD
    time = extra + count * first + step * ones + rest_ps
    products = np.empty((len(PRODUCTS), len(time)), time.dtype)
    products[0] = (extra + count * first) * used + (first * running + step * used) * ones + step * running * squares
    products[0] += rest_ps * (used + running * count)
    for into, name in zip(products[1:7], PRODUCTS[1:7], strict=True):
        np.multiply(rows[name], time, out=into)
    products[7] = time
    products[8] = time * (rows["iterations"] > 0)
    return products
