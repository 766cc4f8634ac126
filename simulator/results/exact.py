"""Whole numbers of any size in columns, their sums, and picoseconds as seconds, rounded once, at the end.

64 bits hold 106 days of picoseconds. One request can wait longer, and all of them together easily do.
"""

from collections.abc import Iterable, Sequence
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[Any]
"""Whole numbers: of int64 where all of them fit, else Python's ints in an array of objects."""

_PER_S = 10**12
_FLOATS_HOLD = 1 << 53  # whole numbers up to here are floats without rounding


def whole_numbers(values: Iterable[int]) -> Ints:
    """Whole numbers of any size as a column.

    numpy left to choose makes floats where some need a sign and others all 64 bits.
    """
    numbers = list(values)
    try:
        return np.array(numbers, np.int64)
    except OverflowError:
        return np.array(numbers, object)


def exact_sum(values: Ints) -> int:
    """The sum of a column, whatever its size; up to 2^31 numbers."""
    if values.dtype == object:
        return sum(values.tolist())
    upper, lower = values >> 32, values & ((1 << 32) - 1)
    return (int(upper.sum()) << 32) + int(lower.sum())


def added(columns: Sequence[Ints]) -> Ints:
    """Columns of numbers >= 0 of the same length, added up row by row."""
    fit = sum(int(values.max(initial=0)) for values in columns) < 1 << 63
    total = sum(values.astype(np.int64 if fit else object) for values in columns)
    return whole_numbers(np.asarray(total).tolist()) if not fit else np.asarray(total)


def seconds_of(times_ps: Ints | Sequence[int | None]) -> NDArray[np.float64]:
    """Picoseconds as the nearest floats of seconds; None is NaN."""
    if not isinstance(times_ps, np.ndarray) or times_ps.dtype == object:
        return np.array([nan if time_ps is None else time_ps / _PER_S for time_ps in times_ps], np.float64)
    seconds: NDArray[np.float64] = times_ps / _PER_S
    far = np.flatnonzero(np.abs(times_ps) > _FLOATS_HOLD)
    if len(far):  # numpy would round these twice
        seconds[far] = _rounded_once(times_ps[far])
    return seconds


def _rounded_once(times_ps: NDArray[np.int64]) -> NDArray[np.float64]:
    """Seconds of 64-bit picoseconds. With the 64 bits that a long double has on x86 the quotient decides which float is
    nearest, unless it lies halfway between two; those are left to Python, and on other machines all are."""
    if np.finfo(np.longdouble).nmant < 63:
        return np.array([time_ps / _PER_S for time_ps in times_ps.tolist()], np.float64)
    quotient = times_ps.astype(np.longdouble) / np.longdouble(_PER_S)
    seconds = quotient.astype(np.float64)
    beside = np.nextafter(seconds, np.where(quotient > seconds, np.inf, -np.inf))
    halfway = np.flatnonzero(quotient - seconds == beside - quotient)
    seconds[halfway] = [time_ps / _PER_S for time_ps in times_ps[halfway].tolist()]
    return seconds
