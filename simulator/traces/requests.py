"""The requests of a trace as columns: cut, scaled, and shown; where they come from and go to is told in trace.py."""

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pandas as pd

from allocators.base import InputError
from simulator.messages.showing import Facts, Shown
from simulator.traces.columns import seconds_ns
from simulator.traces.schema import Columns, ObjectArray, Report, objects
from simulator.traces.text.fields import MAX_TIME_NS, MAX_TOKENS, Flags, IntArray


@dataclass(frozen=True, eq=False, repr=False)
class RequestTable(Shown):
    """Requests in order of arrival, one row each; the columns have one entry per row and are read-only.

    ``arrival_ns``: nanoseconds from the first arrival, sorted. ``prompt_tokens`` and ``output_tokens``: at least 1.
    ``session``: which conversation (text, "" for none). ``block_hashes``: the prompt's prefix blocks (tuples of
    unsigned 64-bit numbers). These two are None where the trace has none. ``report``: what was read, if it was read.
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
    def _from(cls, columns: Columns, name: str, report: Report | None = None) -> Self:
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

    def __getitem__(self, rows: slice | Flags | IntArray) -> Self:
        """The requests of these rows (``trace[:100]``, a mask, or row numbers) as a trace that begins at 0."""
        if not isinstance(rows, slice | np.ndarray):
            raise TypeError(f"a trace is sliced by a slice or an array of rows, not by {rows!r}")
        every = Columns(self.arrival_ns, self.prompt_tokens, self.output_tokens, self.session, self.block_hashes)
        columns = every.take(rows)
        if not len(columns.time_ns):
            raise InputError(f"no request of {self.name} is among the rows {rows}")
        return self._from(columns, self.name)

    def between(self, start_s: float | str, end_s: float | str) -> Self:
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

    def scaled(self, rate: float = 1.0, lengths: float = 1.0) -> Self:
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
