"""Columns and times given in Python rather than in a file: checked, and told by name and row when they are wrong."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from allocators.base import InputError
from simulator.messages.words import short
from simulator.traces.notes import NANOSECONDS, SECONDS, plain_decimal
from simulator.traces.schema import ObjectArray, objects
from simulator.traces.text.fields import MAX_TIME_NS, OK, Fields, IntArray, read_times

NarrowFloat = type[np.float16] | type[np.float32]
NARROW_FLOATS: dict[str, NarrowFloat] = {"float16": np.float16, "float32": np.float32}
_SEEN_AT_S = {np.float16: 1_000, np.float32: 1_000_000}  # where a precision is told


def cell(value: object) -> str:
    """A value as it would stand in a file: a sequence spelled out, a duration in seconds, a whole float as whole.

    Any other float is as short as its own precision allows: a float32 of 0.1 is 0.1, not 0.10000000149011612.
    """
    if isinstance(value, list | tuple | np.ndarray):
        return " ".join(map(str, value))
    if isinstance(value, float | np.floating) and value.is_integer():
        return str(int(value))
    if isinstance(value, timedelta | np.timedelta64):
        return plain_decimal(pd.Timedelta(value).as_unit("ns").value, SECONDS - NANOSECONDS)
    return str(value)


def column_texts(column: "pd.Series[Any]") -> list[str]:
    """The cells of a column of a DataFrame as they would stand in a file; a missing one is empty."""
    narrow = narrow_float(column.dtype) or (lambda value: value)
    missing = column.isna().tolist()
    return ["" if no else cell(narrow(value)) for value, no in zip(column.tolist(), missing, strict=True)]


def narrow_float(kind: Any) -> NarrowFloat | None:
    """The kind of float with fewer than 64 bits that a column of this dtype holds, if it does."""
    if isinstance(kind, pd.CategoricalDtype):
        kind = kind.categories.dtype
    kind = getattr(kind, "numpy_dtype", kind)
    return NARROW_FLOATS.get(str(kind))


def holds_durations(column: "pd.Series[Any]") -> bool:
    """Whether the values of a column of a DataFrame are durations, the first of them at least."""
    first = column.dropna().head(1).tolist()
    return bool(first) and isinstance(first[0], timedelta | np.timedelta64)


def precision_note(name: str, narrow: NarrowFloat) -> str:
    """What a note says of times that are such floats."""
    seen_s = _SEEN_AT_S[narrow]
    step_s = float(np.spacing(narrow(seen_s)))
    return f"{name} holds {narrow.__name__}, which is exact to {step_s:.2g} s only at {seen_s:,} s; read as printed"


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
