"""A trace: which requests come when, and how long they are."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from allocators.base import InputError
from simulator.fields import MAX_TIME_NS, MAX_TOKENS, Flags, IntArray
from simulator.formats import read_file, read_frame
from simulator.rows import Columns, ObjectArray, Report, objects, short
from simulator.workload import Workload, parse_workload, profiles


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests in order of arrival, one row each; the columns have one entry a row and are read-only.

    ``arrival_ns``: nanoseconds from the first arrival, sorted. ``prompt_tokens`` and ``output_tokens``: at least 1.
    ``session``: which conversation (text, "" for none). ``block_hashes``: the prompt's prefix blocks (tuples of
    unsigned 64-bit numbers). These two are None where the trace has none. ``report``: what was read, if it was read.

    Make one with :meth:`read`, :meth:`workload`, :meth:`from_frame` or :meth:`from_columns`.
    """

    name: str
    arrival_ns: IntArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    session: ObjectArray | None = None
    block_hashes: ObjectArray | None = None
    report: Report | None = None

    def __post_init__(self) -> None:
        for column in (self.arrival_ns, self.prompt_tokens, self.output_tokens, self.session, self.block_hashes):
            if column is not None:
                column.setflags(write=False)

    @classmethod
    def read(cls, path: str | PathLike[str], strict: bool = False, format: str | None = None) -> "Trace":
        """Read a trace file, plain or gzip, of any format in :data:`simulator.formats.FORMATS`.

        The format is recognised from the content unless named. Rows that cannot be used are dropped and counted in
        ``report``; with ``strict``, the first one is an error. Raises InputError, one line that names the file.
        """
        columns, report = read_file(path, strict, format)
        return cls._from(columns, Path(path).name, report)

    @classmethod
    def workload(
        cls,
        name: str,
        rate: float | None = None,
        duration_s: float | None = None,
        seed: int = 0,
        requests: int | None = None,
        max_total: int | None = None,
    ) -> "Trace":
        """Draw a synthetic trace from a measured length profile; the arguments are those of :class:`Workload`."""
        return cls.of_workload(Workload(name, rate, duration_s, requests, seed, max_total))

    @classmethod
    def of_workload(cls, workload: Workload) -> "Trace":
        """Draw a workload. Its randomness comes from one generator, made here from its seed."""
        arrival_ns, prompt, output = workload.draw(np.random.default_rng(workload.seed))
        return cls.from_columns(arrival_ns, prompt, output, name=str(workload))

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, name: str = "frame") -> "Trace":
        """Read a DataFrame with the columns of the neutral format: arrival_s, prompt_tokens, output_tokens.

        ``session`` and ``block_hashes`` (sequences of numbers) may be there too; any others are left alone. Seconds are
        read as they would be printed, to whole nanoseconds. Raises InputError on a row that cannot be used.
        """
        try:
            columns, report = read_frame(frame)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        return cls._from(columns, name, report)

    @classmethod
    def from_columns(
        cls,
        arrival_ns: ArrayLike,
        prompt_tokens: ArrayLike,
        output_tokens: ArrayLike,
        *,
        session: Iterable[str | None] | None = None,
        block_hashes: Iterable[Iterable[int]] | None = None,
        name: str = "columns",
    ) -> "Trace":
        """A trace of these columns: whole numbers, arrivals in nanoseconds from any origin and in any order.

        Raises InputError on columns that are empty, of different lengths, or hold anything else.
        """
        arrival = _whole_column(f"arrival_ns of {name}", arrival_ns, 0, MAX_TIME_NS)
        prompt = _whole_column(f"prompt_tokens of {name}", prompt_tokens, 1, MAX_TOKENS)
        output = _whole_column(f"output_tokens of {name}", output_tokens, 1, MAX_TOKENS)
        columns = Columns(
            arrival,
            prompt,
            output,
            None if session is None else objects("" if key is None else str(key) for key in session),
            None if block_hashes is None else _hash_column(name, block_hashes),
        )
        lengths = {len(column) for column in vars(columns).values() if column is not None}
        if len(lengths) > 1:
            raise InputError(f"the columns of {name} must be of one length; there are {sorted(lengths)}")
        return cls._from(columns, name)

    @classmethod
    def _from(cls, columns: Columns, name: str, report: Report | None = None) -> "Trace":
        """Sort valid columns by (arrival, row) and make the first arrival 0."""
        rows = columns.take(np.argsort(columns.time_ns, kind="stable"))
        arrival_ns = rows.time_ns - rows.time_ns[0]
        # A column with nothing in it is none.
        session, hashes = (e if e is not None and any(e) else None for e in (rows.session, rows.block_hashes))
        return cls(name, arrival_ns, rows.prompt_tokens, rows.output_tokens, session, hashes, report)

    def __len__(self) -> int:
        return len(self.arrival_ns)

    def __getitem__(self, rows: slice | Flags | IntArray) -> "Trace":
        """The requests of these rows (``trace[:100]``, a mask, or row numbers) as a trace that begins at 0."""
        if not isinstance(rows, slice | np.ndarray):
            raise TypeError(f"a trace is sliced by a slice or an array of rows, not by {rows!r}")
        every = Columns(self.arrival_ns, self.prompt_tokens, self.output_tokens, self.session, self.block_hashes)
        columns = every.take(rows)
        if not len(columns.time_ns):
            raise InputError(f"no request of {self.name} is among the rows {rows}")
        return self._from(columns, self.name)

    @property
    def duration_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return int(self.arrival_ns[-1]) / 1e9

    @cached_property
    def sha256(self) -> str:
        """The hex digest of arrivals, prompts and outputs as little-endian int64, one column behind the other.

        The same however the trace was stored, and whatever it is called.
        """
        digest = hashlib.sha256()
        for column in (self.arrival_ns, self.prompt_tokens, self.output_tokens):
            digest.update(np.ascontiguousarray(column, "<i8").data)
        return digest.hexdigest()

    def to_frame(self) -> pd.DataFrame:
        """The trace as a DataFrame in the neutral format; ``to_csv(path, index=False)`` makes it a file.

        ``arrival_s`` (float) is exact to the nanosecond up to 97 days. ``session`` and ``block_hashes`` (lists of
        numbers) are there where the trace has them.
        """
        frame = pd.DataFrame(
            {
                "arrival_s": self.arrival_ns / 1e9,
                "prompt_tokens": self.prompt_tokens,
                "output_tokens": self.output_tokens,
            }
        )
        if self.session is not None:
            frame["session"] = self.session
        if self.block_hashes is not None:
            frame["block_hashes"] = objects([list(hashes) for hashes in self.block_hashes])
        return frame


def describe(trace: Trace) -> dict[str, Any]:
    """The statistics of a trace: rows, duration_s, rate_per_s, gap_cv; mean, p50, p99 and max of its tokens.

    ``duration_s``: from the first arrival to the last. ``rate_per_s``: rows / duration_s. ``gap_cv``: standard
    deviation / mean of the rows - 1 gaps between arrivals, of these gaps themselves (divided by their number, not one
    less). Both are None where all arrive at once. p50 and p99: on the straight line between neighbours in rank.
    """
    gaps = np.diff(trace.arrival_ns)
    spread = bool(gaps.any())
    return {
        "rows": len(trace),
        "duration_s": trace.duration_s,
        "rate_per_s": len(trace) / trace.duration_s if spread else None,
        "gap_cv": float(gaps.std() / gaps.mean()) if spread else None,
        "prompt_tokens": _distribution(trace.prompt_tokens),
        "output_tokens": _distribution(trace.output_tokens),
    }


def _distribution(tokens: IntArray) -> dict[str, float]:
    p50, p99 = np.percentile(tokens, [50, 99]).tolist()
    return {"mean": float(tokens.mean()), "p50": p50, "p99": p99, "max": int(tokens.max())}


def open_trace(text: str, strict: bool = False) -> Trace:
    """The trace that a command line names: an existing file, or else a workload, ``sharegpt:rate=4,duration=900``.

    Raises InputError, one line, when it is neither, or not a good one.
    """
    try:
        is_file = Path(text).exists()
    except (OSError, ValueError):  # too long for a name, or with a character none can have
        is_file = False
    if is_file and text:
        return Trace.read(text, strict)
    if text.partition(":")[0].strip() in profiles():
        return Trace.of_workload(parse_workload(text))
    raise InputError(f"{short(text)} is neither a file nor a workload; workloads are {', '.join(profiles())}")


def _hash_column(name: str, block_hashes: Iterable[Iterable[int]]) -> ObjectArray:
    """Block hashes as tuples of int, or an InputError that names the first row that holds anything else."""
    column = objects(tuple(hashes) for hashes in block_hashes)
    for row, hashes in enumerate(column.tolist()):
        if not all(isinstance(value, int | np.integer) and 0 <= value < 2**64 for value in hashes):
            wrong = short(str(hashes))
            raise InputError(f"block_hashes of {name}: row {row + 1} (={wrong}) must hold whole numbers, 0 to 2^64 - 1")
        column[row] = tuple(map(int, hashes))
    return column


def _whole_column(name: str, values: ArrayLike, least: int, most: int) -> IntArray:
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
