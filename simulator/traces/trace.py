"""A trace: which requests come when, and how long they are."""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from allocators.base import InputError
from simulator.messages.showing import Facts, Shown
from simulator.traces.columns import hash_column, seconds_ns, whole_column
from simulator.traces.formats import Reader
from simulator.traces.public.catalogue import find_file
from simulator.traces.reading import read_file, read_frame
from simulator.traces.schema import Columns, ObjectArray, Reading, Report, objects, short
from simulator.traces.text.fields import MAX_TIME_NS, MAX_TOKENS, Flags, IntArray
from simulator.traces.text.opening import ignore
from simulator.traces.text.stdin import file_name
from simulator.traces.tokenizer import Tokenizer, token_counter
from simulator.traces.workload.profile import profiles
from simulator.traces.workload.workload import (
    Workload,
    WorkloadOptions,
    is_profile_file,
    parse_workload,
    split_workload,
)

_GAPS_AT_ONCE = 1 << 20


class ReadOptions(TypedDict, total=False):
    """The options of :meth:`Trace.read` that :func:`open_trace` hands on."""

    format: str | Reader | None
    rate: float | None
    seed: int
    count_tokens: Tokenizer | None
    columns: str | Mapping[str, str] | None
    advance: Callable[[int], object]


@dataclass(frozen=True, eq=False, repr=False)
class Trace(Shown):
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
    def read(
        cls,
        path: str | PathLike[str],
        strict: bool = False,
        format: str | Reader | None = None,
        *,
        rate: float | None = None,
        seed: int = 0,
        count_tokens: Tokenizer | None = None,
        columns: str | Mapping[str, str] | None = None,
        advance: Callable[[int], object] = ignore,
    ) -> "Trace":
        """Read a trace file, plain or gzip, of any format in :data:`simulator.traces.formats.FORMATS`, or Parquet.

        The format is recognised from the content unless named; see :func:`simulator.register_reader` for one's own.
        ``columns`` says which column is which in any other file: ``{"arrival": "time", "prompt": "input_len", "output":
        "output_len"}`` or ``"arrival=time,prompt=input_len,output=output_len"``, with ``session`` and ``block_hashes``
        if there are; ``created:ms`` tells the unit of a time, and ``usage.prompt_tokens`` is a path in JSON. The path
        ``-`` is standard input.
        Rows that cannot be used are dropped and counted in ``report``; with ``strict``, the first one is an error. A
        file of lengths only gets Poisson arrivals of ``rate`` requests a second and ``seed``. The tokens of texts are
        counted by ``count_tokens``: a ``tokenizer.json``, a function (text -> tokens), or its dotted path, whose code
        is run; else they are words, or characters where a text hardly has blanks. ``advance`` is told the bytes of the
        file as they are read. Raises InputError, one line that names the file.
        """
        reading = Reading(strict, rate, seed, counter=token_counter(count_tokens), advance=advance)
        read, report = read_file(path, format, reading, columns)
        return cls._from(read, file_name(path), report)

    @classmethod
    def workload(
        cls,
        name: str,
        rate: float | None = None,
        duration_s: float | None = None,
        seed: int = 0,
        **options: Unpack[WorkloadOptions],
    ) -> "Trace":
        """Draw a synthetic trace from a measured length profile; the arguments are those of :class:`Workload`."""
        return cls.of_workload(Workload(name, rate, duration_s, seed=seed, **options))

    @classmethod
    def of_workload(cls, workload: Workload) -> "Trace":
        """Draw a workload. Its randomness comes from one generator, made here from its seed."""
        arrival_ns, prompt, output = workload.draw(np.random.default_rng(workload.seed))
        return cls.from_columns(arrival_ns, prompt, output, name=str(workload))

    @classmethod
    def from_frame(
        cls, frame: pd.DataFrame, name: str = "frame", columns: str | Mapping[str, str] | None = None
    ) -> "Trace":
        """Read a DataFrame with the columns of the neutral format: arrival_s, prompt_tokens, output_tokens.

        ``session`` and ``block_hashes`` (sequences of numbers) may be there too; any others are left alone. The columns
        may have other usual names, or those that ``columns`` says, as in :meth:`read`. Arrivals are seconds, dates or
        durations. Seconds are read as they would be printed, a float32 as a float32 is, to whole nanoseconds. Raises
        InputError on a row that cannot be used.
        """
        try:
            read, report = read_frame(frame, columns)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        return cls._from(read, name, report)

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
        arrival = whole_column(f"arrival_ns of {name}", arrival_ns, 0, MAX_TIME_NS)
        prompt = whole_column(f"prompt_tokens of {name}", prompt_tokens, 1, MAX_TOKENS)
        output = whole_column(f"output_tokens of {name}", output_tokens, 1, MAX_TOKENS)
        columns = Columns(
            arrival,
            prompt,
            output,
            None if session is None else objects("" if key is None else str(key) for key in session),
            None if block_hashes is None else hash_column(name, block_hashes),
        )
        lengths = {len(column) for column in vars(columns).values() if column is not None}
        if len(lengths) > 1:
            raise InputError(f"the columns of {name} must be of one length; there are {sorted(lengths)}")
        return cls._from(columns, name)

    @classmethod
    def _from(cls, columns: Columns, name: str, report: Report | None = None) -> "Trace":
        """Sort valid columns by (arrival, row) and make the first arrival 0."""
        if (columns.time_ns[1:] < columns.time_ns[:-1]).any():
            columns = columns.take(np.argsort(columns.time_ns, kind="stable"))
        arrival_ns = columns.time_ns - columns.time_ns[0]
        # A column with nothing in it is none.
        session, hashes = (e if e is not None and any(e) else None for e in (columns.session, columns.block_hashes))
        return cls(name, arrival_ns, columns.prompt_tokens, columns.output_tokens, session, hashes, report)

    def __len__(self) -> int:
        return len(self.arrival_ns)

    def told(self) -> tuple[str, Facts]:
        """The trace in a few lines."""
        columns = {"prompt": self.prompt_tokens, "output": self.output_tokens}
        lengths = {
            name: f"{tokens.mean():,.1f} tokens on average, at most {tokens.max():,}"
            for name, tokens in columns.items()
        }
        return f"Trace {self.name}", {
            "requests": f"{len(self):,}",
            "arrivals": f"over {self.duration_s:,.1f} s" if self.duration_s else "all at once",
            **lengths,
            **({} if self.session is None else {"sessions": f"{len(set(self.session.tolist()) - {''}):,}"}),
            **({} if self.block_hashes is None else {"prefix blocks": "of the prompts, as hashes"}),
        }

    def __getitem__(self, rows: slice | Flags | IntArray) -> "Trace":
        """The requests of these rows (``trace[:100]``, a mask, or row numbers) as a trace that begins at 0."""
        if not isinstance(rows, slice | np.ndarray):
            raise TypeError(f"a trace is sliced by a slice or an array of rows, not by {rows!r}")
        every = Columns(self.arrival_ns, self.prompt_tokens, self.output_tokens, self.session, self.block_hashes)
        columns = every.take(rows)
        if not len(columns.time_ns):
            raise InputError(f"no request of {self.name} is among the rows {rows}")
        return self._from(columns, self.name)

    def between(self, start_s: float | str, end_s: float | str) -> "Trace":
        """The requests with start <= arrival < end, in seconds from the first arrival, as a trace that begins at 0."""
        start, end = (seconds_ns(name, value) for name, value in (("start", start_s), ("end", end_s)))
        if start >= end:
            raise InputError(f"start(={start_s}) must be before end(={end_s}), in seconds")
        first, last = np.searchsorted(self.arrival_ns, [start, end]).tolist()
        if first == last:
            raise InputError(
                f"no request of {self.name} arrives from {start_s} to {end_s} s; it lasts {self.duration_s} s"
            )
        return self[first:last]

    def scaled(self, rate: float = 1.0, lengths: float = 1.0) -> "Trace":
        """The same requests ``rate`` times as often, and ``lengths`` times as long (to whole tokens, at least 1).

        The ratios of gaps stay, and so does their deviation / mean. Block hashes go where lengths change: they would
        no longer be those of the prompts.
        """
        for name, factor in (("rate", rate), ("lengths", lengths)):
            if not 0 < factor < math.inf:
                raise InputError(f"{name}(={factor:g}) must be a finite factor > 0")
        span = self.duration_s / rate
        if span > MAX_TIME_NS / 1e9:
            raise InputError(f"rate(={rate:g}) must be larger: arrivals would go beyond {MAX_TIME_NS / 1e9:g} s")
        # Extended precision, where the machine has it: an int64 has more digits than a float.
        arrival = np.rint(self.arrival_ns / np.longdouble(rate)).astype(np.int64)
        columns = Columns(arrival, self.prompt_tokens, self.output_tokens, self.session, self.block_hashes)
        if lengths != 1:
            tokens = [np.maximum(np.rint(t * lengths), 1) for t in (self.prompt_tokens, self.output_tokens)]
            if max(t.max() for t in tokens) > MAX_TOKENS:
                raise InputError(f"lengths(={lengths:g}) must be smaller: {MAX_TOKENS:,} tokens are the most")
            prompt, output = (t.astype(np.int64) for t in tokens)
            columns = Columns(arrival, prompt, output, self.session)
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

    def write(self, path: str | PathLike[str]) -> None:
        """Write the trace in the neutral format, exactly: ``.csv``, ``.csv.gz`` or ``.parquet``, by the name's end.

        Raises InputError when it cannot be written. What was there before stays until the new file is complete.
        """
        from simulator.traces.write import write_trace

        write_trace(self, Path(path))

    def to_frame(self) -> pd.DataFrame:
        """The trace as a DataFrame in the neutral format.

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
    """The statistics of a trace: rows, duration_s, rate_per_s, ...; mean, p50, p99 and max of its tokens.

    ``duration_s``: from the first arrival to the last. ``rate_per_s``: rows / duration_s. ``gap_cv``: standard
    deviation / mean of the rows - 1 gaps between arrivals, of these gaps themselves (divided by their number, not one
    less), None for fewer than two. Both are None where all arrive at once. ``sessions``: how many different ones;
    ``rows_with_blocks``: how many rows have block hashes; None where the trace has none. p50 and p99: on the straight
    line between neighbours in rank.
    """
    spread = bool(trace.arrival_ns[-1])
    return {
        "rows": len(trace),
        "duration_s": trace.duration_s,
        "rate_per_s": len(trace) / trace.duration_s if spread else None,
        "gap_cv": _gap_cv(trace.arrival_ns) if spread and len(trace) > 2 else None,
        "sessions": None if trace.session is None else len(set(trace.session.tolist()) - {""}),
        "rows_with_blocks": None if trace.block_hashes is None else sum(map(bool, trace.block_hashes.tolist())),
        "prompt_tokens": _distribution(trace.prompt_tokens),
        "output_tokens": _distribution(trace.output_tokens),
    }


def _gap_cv(arrival_ns: IntArray) -> float:
    """Standard deviation / mean of the gaps, a chunk of them at a time."""
    gaps = len(arrival_ns) - 1
    mean = int(arrival_ns[-1]) / gaps
    chunks = (arrival_ns[first : first + _GAPS_AT_ONCE + 1] for first in range(0, gaps, _GAPS_AT_ONCE))
    return math.sqrt(sum(float(((np.diff(chunk) - mean) ** 2).sum()) for chunk in chunks) / gaps) / mean


def _distribution(tokens: IntArray) -> dict[str, float]:
    p50, p99 = np.percentile(tokens, [50, 99]).tolist()
    return {"mean": float(tokens.mean()), "p50": p50, "p99": p99, "max": int(tokens.max())}


def open_trace(text: str, strict: bool = False, **options: Unpack[ReadOptions]) -> Trace:
    """The trace that a command line names.

    That is a file; ``-``, standard input; a public trace that was downloaded, ``azure-2023-conv``; or a workload,
    ``sharegpt:rate=4,duration=900``, whose lengths may also come from a file (a profile, a trace) or a public trace.
    ``options`` are those of :meth:`Trace.read`. Raises InputError, one line, when it is none of these, or no good one.
    """
    path = find_file(text)
    if path is not None and not is_profile_file(path):
        return Trace.read(path, strict, **options)
    name = split_workload(text)[0]
    if path is None and name not in profiles() and find_file(name) is None:
        known = f"workloads are {', '.join(profiles())}"
        raise InputError(f"{short(text)} is neither a file nor a workload; {known}")
    silent = ("advance", "seed")
    if given := [option for option, value in options.items() if value is not None and option not in silent]:
        raise InputError(f"{' and '.join(given)} is for a file of requests, and {short(text)} is a workload")
    return Trace.of_workload(parse_workload(text) if path is None else Workload(text))
