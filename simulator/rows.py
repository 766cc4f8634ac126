"""From rows of text to the rows of a trace: what is usable is kept, what is not is dropped and counted by reason."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from allocators.base import InputError
from simulator.dates import read_dates
from simulator.fields import (
    MAX_TIME_NS,
    MAX_TOKENS,
    OK,
    PROBLEMS,
    Codes,
    Flags,
    IntArray,
    read_counts,
    read_hashes,
    read_times,
)
from simulator.files import Table

ObjectArray = NDArray[np.object_]
DATE, SECONDS, MILLISECONDS, MICROSECONDS, NANOSECONDS = -1, 9, 6, 3, 0
"""The unit of a format's time: decimal places from it down to nanoseconds, or a date."""


def _any(row: Mapping[str, object]) -> bool:
    """Matches every first row."""
    del row
    return True


@dataclass(frozen=True)
class Format:
    """One format of trace files: how it is cut into rows, which columns are which, and the unit of its time.

    ``tables`` cuts a text into rows with the columns asked for. ``time``, ``prompt`` and ``output`` name the columns it
    needs, ``session`` and ``block_hashes`` those it may have ("" for none). ``matches`` tells it by its first row (of
    CSV: the header's names) from another format with the same columns.
    """

    name: str
    tables: Callable[[bytes, Sequence[str]], Iterator[Table]]
    unit: int
    time: str
    prompt: str
    output: str
    session: str = ""
    block_hashes: str = ""
    matches: Callable[[Mapping[str, object]], bool] = _any

    @property
    def needed(self) -> tuple[str, str, str]:
        """The columns a file must have."""
        return self.time, self.prompt, self.output


@dataclass(frozen=True)
class Report:
    """What was read: rows in the file, rows kept, rows dropped by reason, and rows earlier than one before them."""

    format: str
    rows: int
    kept: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    out_of_order: int = 0

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


def read_tables(form: Format, tables: Iterable[Table], strict: bool) -> tuple[Columns, Report]:
    """Read the tables cut from one file.

    Raises InputError when no row is usable, when times with and without a UTC offset are mixed and, with ``strict``,
    on the first row that would be dropped.
    """
    parts: list[Columns] = []
    dropped: Counter[str] = Counter()
    first_of: dict[bool, str] = {}  # where the first date with a UTC offset is, and the first without
    rows = 0
    for table in tables:
        columns, aware, reason = _read_rows(form, table)
        unusable = np.flatnonzero(reason)
        if strict and unusable.size:
            raise InputError(_complaint(form, table, rows, int(unusable[0]), int(reason[unusable[0]])))
        codes, counts = np.unique(reason[unusable], return_counts=True)
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            dropped[_reason(code, table)] += count
        for kind in (True, False) if form.unit == DATE else ():
            of_kind = np.flatnonzero((aware == kind) & (reason == 0))
            if of_kind.size:
                first_of.setdefault(kind, _place(table, rows, int(of_kind[0])))
        if len(first_of) > 1:
            raise InputError(f"mixes times with a UTC offset ({first_of[True]}) and without ({first_of[False]})")
        rows += len(reason)
        parts.append(columns.take(reason == 0))
    kept = sum(len(part.time_ns) for part in parts)
    if not kept:
        raise InputError(f"has no usable row among {rows:,}: {listed(dropped)}" if rows else "has no rows")
    time_ns = np.concatenate([part.time_ns for part in parts])
    out_of_order = int((time_ns < np.maximum.accumulate(time_ns)).sum())
    columns = Columns(
        time_ns,
        np.concatenate([part.prompt_tokens for part in parts]),
        np.concatenate([part.output_tokens for part in parts]),
        _join([part.session for part in parts]),
        _join([part.block_hashes for part in parts]),
    )
    return columns, Report(form.name, rows, kept, dict(dropped), out_of_order)


def _read_rows(form: Format, table: Table) -> tuple[Columns, Flags, Codes]:
    """All rows of a table, whether each knows its UTC offset, and why it cannot be used.

    That is 0, or 8 x the column's place in ``_WORDS`` + the problem's in ``PROBLEMS``, or 1 for a misfit.
    """
    text = table.columns
    aware = np.zeros(len(table.misfit), np.bool_)
    if form.unit == DATE:
        time_ns, bad_time, aware = read_dates(text[form.time])
    else:
        time_ns, bad_time = read_times(text[form.time], form.unit)
    prompt, bad_prompt = read_counts(text[form.prompt])
    output, bad_output = read_counts(text[form.output])
    session = objects(text[form.session].texts()) if form.session in text else None
    hashes, bad_hashes = None, np.zeros(len(aware), np.uint8)
    if form.block_hashes in text:
        lists, bad_hashes = read_hashes(text[form.block_hashes])
        hashes = objects(lists)
    reason = table.misfit.astype(np.uint8)
    for place, problem in enumerate((bad_time, bad_prompt, bad_output, bad_hashes), start=1):
        reason = np.where((reason == 0) & (problem != OK), np.uint8(8 * place) + problem, reason)
    return Columns(time_ns, prompt, output, session, hashes), aware, reason


def objects(values: Iterable[object]) -> ObjectArray:
    """The values as a one-dimensional array of objects, even where they are sequences of one length."""
    return np.fromiter(values, np.object_)


def _join(parts: Sequence[ObjectArray | None]) -> ObjectArray | None:
    """The parts of a column end to end; None where there is no such column."""
    column = [part for part in parts if part is not None]
    return np.concatenate(column) if column else None


_WORDS = ("", "time", "prompt", "output", "block hashes")
_TOKENS = f"a whole number from 1 to {MAX_TOKENS:,}"
_LAST_S = MAX_TIME_NS // 10**9


def _reason(code: int, table: Table) -> str:
    """Why a row was dropped, as it is counted."""
    return f"{_WORDS[code // 8]} {PROBLEMS[code % 8]}" if code >= 8 else table.misfit_reason


def _complaint(form: Format, table: Table, rows_before: int, row: int, code: int) -> str:
    """What is wrong with an unusable row: its place, the column, the value, and what is allowed."""
    place = _place(table, rows_before, row)
    if code < 8:
        return f"{place}: {table.misfit_reason}"
    time = "a date such as 2023-11-16 18:17:03.97, 1970 to 2255" if form.unit == DATE else f"0 to {_LAST_S:,} s"
    name, allowed = (
        ("", ""),
        (form.time, time),
        (form.prompt, _TOKENS),
        (form.output, _TOKENS),
        (form.block_hashes, "whole numbers from 0 to 2^64 - 1, as in [0, 1, 2]"),
    )[code // 8]
    return f"{place}: {name}(={short(table.columns[name].text(row))}) is {PROBLEMS[code % 8]}; it must be {allowed}"


def _place(table: Table, rows_before: int, row: int) -> str:
    """A row by its number among the rows, from 1, and by the line of the file it begins on."""
    line = "" if table.line is None else f" (line {table.line[row]})"
    return f"row {rows_before + row + 1}{line}"


def listed(dropped: Mapping[str, int]) -> str:
    """The reasons rows were dropped for, with their counts, the most frequent first."""
    ordered = sorted(dropped.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{reason} ({count:,})" for reason, count in ordered)


def short(text: str, length: int = 120) -> str:
    """A text quoted, on one line and not too long."""
    return repr(text if len(text) <= length else text[:length] + "...")
