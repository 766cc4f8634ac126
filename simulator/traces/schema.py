"""What a trace file is read by and into: a format, how to read, columns, and the report on what was read."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from allocators.base import InputError
from simulator.traces.text.fields import Flags, IntArray
from simulator.traces.text.jsontext import EditedRows, Row, Rows
from simulator.traces.text.opening import ignore
from simulator.traces.text.token_counts import TokenCounter

ObjectArray = NDArray[np.object_]
Edit = Callable[[Rows, "Reading", "Counter[str]"], EditedRows]
"""Rows rewritten on their way, one into none, one or several; what is told to the counter becomes a note."""


class NoArrivalsError(InputError):
    """A file of lengths only, and no rate to give it arrivals."""


@dataclass(frozen=True)
class Reading:
    """How a file is to be read.

    ``strict``: a row that would be dropped is an error. ``rate`` (requests a second) and ``seed``: Poisson arrivals for
    a file of lengths only; with ``lengths_only`` no arrivals are needed, and none is made up. ``counter`` counts the
    tokens in a file of texts. ``advance`` is told the bytes of the file as they are read.
    """

    strict: bool = False
    rate: float | None = None
    seed: int = 0
    lengths_only: bool = False
    counter: TokenCounter = field(default_factory=TokenCounter)
    advance: Callable[[int], object] = ignore


def _any(row: Row) -> bool:
    """Matches every first row."""
    del row
    return True


@dataclass(frozen=True)
class Format:
    """One format of trace files: which columns are which, and the unit of its time.

    ``kind``: csv, json, or csv|json. ``time`` ("" in a format of lengths only), ``prompt`` and ``output`` name the
    columns it needs, ``session``, ``block_hashes`` and ``status`` those it may have ("" for none); ``a|b`` is a column
    that may be called a or b. ``matches`` tells it by its first row (of CSV: the header's names) from another format
    with the same columns. ``block_tokens``: the tokens of a prefix block, where the format says so. ``edit`` rewrites
    rows; ``signs`` are the columns needed before it does, where they are others, and ``also`` more that it looks at.
    ``clock``: what its time counts from, if that is known (see :mod:`simulator.traces.notes`). ``remark``: noted of
    every file. ``dates``: the time may be a date too, in all rows or none. ``stated``: the unit of a number is; else
    seconds are assumed, and that is noted; a number too large for seconds is an error. ``doubt``: why not even seconds
    can be assumed.
    """

    name: str
    kind: str
    unit: int
    time: str
    prompt: str
    output: str
    session: str = ""
    block_hashes: str = ""
    status: str = ""
    matches: Callable[[Row], bool] = _any
    block_tokens: int | None = None
    edit: Edit | None = None
    signs: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    clock: str = ""
    remark: str = ""
    dates: bool = False
    stated: bool = True
    doubt: str = ""

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns a file must have."""
        return self.signs or tuple(name for name in (self.time, self.prompt, self.output) if name)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, where a file has them."""
        every = (self.time, self.prompt, self.output, self.session, self.block_hashes, self.status)
        return tuple(name for name in every if name)


@dataclass(frozen=True)
class Report:
    """What was read: rows in the file, rows kept, rows dropped by reason, and rows earlier than one before them.

    ``origin``: the first arrival as the file has it. ``resolution_ns``: the coarsest power of ten, up to 1 s, of which
    all times are multiples. ``block_tokens``: tokens of a prefix block (None: not known). ``notes``: what else a
    reader should know, a line each.
    """

    format: str
    rows: int
    kept: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    out_of_order: int = 0
    origin: str = ""
    resolution_ns: int = 1
    block_tokens: int | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One line for a person: ``azure: 100 rows read, 98 kept; dropped: output below 1 (2); 3 out of order``."""
        parts = [f"{self.format}: {self.rows:,} rows read, {self.kept:,} kept"]
        if self.dropped:
            parts.append(f"dropped: {listed(self.dropped)}")
        if self.out_of_order:
            parts.append(f"{self.out_of_order:,} out of order, sorted")
        return "; ".join(parts)


@dataclass(frozen=True)
class Columns:
    """Rows of a trace in the order of their file: nanoseconds from any origin, tokens, and what else there is."""

    time_ns: IntArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    session: ObjectArray | None = None
    block_hashes: ObjectArray | None = None

    def take(self, rows: slice | Flags | IntArray) -> "Columns":
        """These rows."""
        return Columns(
            self.time_ns[rows],
            self.prompt_tokens[rows],
            self.output_tokens[rows],
            None if self.session is None else self.session[rows],
            None if self.block_hashes is None else self.block_hashes[rows],
        )


def objects(values: Iterable[object]) -> ObjectArray:
    """The values as a one-dimensional array of objects, even where they are sequences of one length."""
    return np.fromiter(values, np.object_)


def listed(dropped: Mapping[str, int]) -> str:
    """The reasons rows were dropped for, with their counts, the most frequent first."""
    ordered = sorted(dropped.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{reason} ({count:,})" for reason, count in ordered)
