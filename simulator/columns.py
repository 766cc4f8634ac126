"""Columns and times given in Python rather than in a file: checked, and told by name and row when they are wrong."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from allocators.base import InputError
from simulator.fields import MAX_TIME_NS, OK, Fields, IntArray, read_times
from simulator.schema import ObjectArray, objects, short


def seconds_ns(name: str, value: float | str) -> int:
    """Seconds in whole nanoseconds, or an InputError."""
    times, problem = read_times(Fields.of([str(value)]), 9)
    if problem[0] != OK:
        raise InputError(f"{name}(={value}) must be a number of seconds, 0 to {MAX_TIME_NS // 10**9:,}")
    return int(times[0])


def hash_column(name: str, block_hashes: Iterable[Iterable[int]]) -> ObjectArray:
    """Block hashes as tuples of int, or an InputError that names the first row that holds anything else."""
    column = objects(tuple(hashes) for hashes in block_hashes)
    for row, hashes in enumerate(column.tolist()):
        if not all(isinstance(value, int | np.integer) and 0 <= value < 2**64 for value in hashes):
            wrong = short(str(hashes))
            raise InputError(f"block_hashes of {name}: row {row + 1} (={wrong}) must hold whole numbers, 0 to 2^64 - 1")
        column[row] = tuple(map(int, hashes))
    return column


def whole_column(name: str, values: ArrayLike, least: int, most: int) -> IntArray:
    """A one-dimensional column of whole numbers as int64, or an InputError that names the first bad value."""
    column = np.asarray(values)
    if column.ndim != 1 or not len(column):
        raise InputError(f"{name} must be a column of at least one number; its shape is {column.shape}")
    if column.dtype.kind not in "iu":
        raise InputError(f"{name} must hold whole numbers; it holds {column.dtype} (first value {column[0]!r})")
    bad = np.flatnonzero((column < least) | (column > most))
    if bad.size:
        raise InputError(
            f"{name}: row {bad[0] + 1} (={column[bad[0]]}) must be a whole number from {least} to {most:,}"
        )
    return column.astype(np.int64)
