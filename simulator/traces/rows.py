"""From rows of text to the rows of a trace: what is usable is kept, what is not is dropped and counted by reason."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from allocators.base import InputError
from simulator.messages.words import short
from simulator.traces.kept import Kept
from simulator.traces.naming import as_option, of_columns
from simulator.traces.notes import DATE, arrival_notes, origin, resolution_ns
from simulator.traces.schema import Columns, Format, NoArrivalsError, Reading, Report, listed, objects
from simulator.traces.text.dates import AWARE, NAIVE, NUMBER, read_arrivals
from simulator.traces.text.fields import (
    MAX_ROWS,
    MAX_TIME_NS,
    MAX_TOKENS,
    OK,
    OUT_OF_RANGE,
    PROBLEMS,
    Codes,
    read_counts,
    read_hashes,
)
from simulator.traces.text.jsontext import alternatives
from simulator.traces.text.opening import Table
from simulator.traces.workload.arrivals import poisson_arrivals, positive

NO_ARRIVALS = "has lengths but no arrivals: give a rate in requests a second, --rate 4 (Python: rate=4)"


def read_tables(form: Format, tables: Iterable[Table], reading: Reading, told: Counter[str]) -> tuple[Columns, Report]:
    """Read the tables cut from one file. ``told``: notes, and how many rows each is about.

    Raises InputError when no row is usable, when there are too many, when times with and without a UTC offset, or dates
    and numbers, are mixed, when a number cannot be in the unit that is assumed, when arrivals are lacking, or there in
    spite of a rate, and with ``strict`` on the first row to be dropped.
    """
    if reading.rate is not None and form.time:
        raise InputError("has arrivals of its own: a rate is for a file of lengths only (scale changes the rate)")
    if reading.rate is None and not form.time and not reading.lengths_only:
        raise NoArrivalsError(NO_ARRIVALS)
    if reading.rate is not None:
        positive("rate", reading.rate)
    kept = Kept()
    dropped: Counter[str] = Counter()
    first_of: dict[int, str] = {}  # where the first time of each kind is
    rows = 0
    for table in tables:
        columns, kinds, reason = _read_rows(form, table)
        unusable = np.flatnonzero(reason)
        _check_unit(form, table, rows, kinds, reason)
        if reading.strict and unusable.size:
            raise InputError(_complaint(form, table, rows, int(unusable[0]), int(reason[unusable[0]])))
        dropped += _reasons(table, reason)
        usable = np.flatnonzero(reason == 0) if unusable.size else slice(None)
        for kind in np.flatnonzero(np.bincount(kinds[usable])).tolist():
            first_of.setdefault(kind, _place(table, rows, int(np.flatnonzero((kinds == kind) & (reason == 0))[0])))
        if len(first_of) > 1:
            raise InputError(_mixture(first_of))
        rows += len(reason)
        if rows > MAX_ROWS:
            raise InputError(f"has more than {MAX_ROWS:,} rows: cut it first")
        kept.add(columns.take(usable))
        told += _row_notes(form, table, columns, reason)
    if rows == sum(dropped.values()):
        no_rows = "; ".join(["has no rows", *_told(told)])
        raise InputError(f"has no usable row among {rows:,}: {listed(dropped)}" if rows else no_rows)
    columns = kept.joined()
    return _timed(form, columns, reading, told, Report(form.name, rows, len(columns.time_ns), dict(dropped)), first_of)


def _timed(
    form: Format, columns: Columns, reading: Reading, told: Counter[str], report: Report, kinds: Iterable[int]
) -> tuple[Columns, Report]:
    """The columns with the arrivals they lack, and the report with what the arrivals tell."""
    notes = [*_told(told), *reading.counter.notes()]
    time_ns, origin_text, late = columns.time_ns, "", 0
    if reading.rate is not None:
        generator = np.random.default_rng(reading.seed)
        time_ns = poisson_arrivals(reading.rate, report.kept, 0.0, generator)
        columns = replace(columns, time_ns=time_ns)
        notes.append(f"the file has no arrivals: Poisson ones, {reading.rate:g} a second, seed {reading.seed}")
    elif form.time:
        in_order = bool((time_ns[1:] >= time_ns[:-1]).all())
        late = 0 if in_order else int((time_ns < np.maximum.accumulate(time_ns)).sum())
        ordered = time_ns if in_order else np.sort(time_ns)
        unit = form.unit if NUMBER in kinds else DATE
        origin_text = origin(int(ordered[0]), unit, AWARE in kinds, form.clock)
        notes += arrival_notes(ordered, unit)
        if unit != DATE and not form.stated:
            notes.append(f"no unit is given for {form.time}: taken for seconds; if it is in ms, {_in_ms(form)}")
    if form.remark:
        notes.append(form.remark)
    report = replace(
        report,
        out_of_order=late,
        origin=origin_text,
        resolution_ns=resolution_ns(time_ns),
        block_tokens=form.block_tokens if columns.block_hashes is not None else None,
        notes=tuple(notes),
    )
    return columns, report


def _read_rows(form: Format, table: Table) -> tuple[Columns, Codes, Codes]:
    """All rows of a table, the kind of each time, and why a row cannot be used.

    That is 0, or 8 x the column's place in ``_WORDS`` + the problem's in ``PROBLEMS``, or 1 for a misfit.
    """
    text = table.columns
    rows = len(table.misfit)
    if form.time:
        time_ns, bad_time, kinds = read_arrivals(text[form.time], form.unit, form.dates)
    else:
        time_ns, bad_time, kinds = np.zeros(rows, np.int64), np.zeros(rows, np.uint8), np.zeros(rows, np.uint8)
    prompt, bad_prompt = read_counts(text[form.prompt])
    output, bad_output = read_counts(text[form.output])
    session = None
    if form.session in text:
        # The neutral format keeps every session as it is; elsewhere a blank one is none.
        keys = text[form.session] if form.name == "neutral" else text[form.session].stripped()
        session = objects(keys.texts())
    hashes, bad_hashes = None, np.zeros(rows, np.uint8)
    if form.block_hashes in text:
        lists, bad_hashes = read_hashes(text[form.block_hashes])
        hashes = objects(lists)
    reason = table.misfit.astype(np.uint8)
    for place, problem in enumerate((bad_time, bad_prompt, bad_output, bad_hashes), start=1):
        if problem.any():
            reason = np.where((reason == 0) & (problem != OK), np.uint8(8 * place) + problem, reason)
    return Columns(time_ns, prompt, output, session, hashes), kinds, reason


def _check_unit(form: Format, table: Table, rows_before: int, kinds: Codes, reason: Codes) -> None:
    """Raise InputError where a time without a stated unit cannot be in seconds, or may well be in another unit."""
    if form.stated:
        return
    beyond = reason == 8 * _WORDS.index("time") + OUT_OF_RANGE
    doubtful = np.flatnonzero((kinds == NUMBER) & (beyond | ((reason == 0) & bool(form.doubt))))
    if not doubtful.size:
        return
    row = int(doubtful[0])
    name, value = alternatives(form.time)[0], short(table.columns[form.time].text(row))
    why = form.doubt or f"is beyond {_LAST_S:,} s, so it is in another unit"
    raise InputError(
        f"{_place(table, rows_before, row)}: {name}(={value}) {why}: say which, s, ms, us or ns: {_in_ms(form)}"
    )


def _in_ms(form: Format) -> str:
    """The option that has the times of a format in milliseconds."""
    columns = of_columns(form)
    return as_option(columns, unit="ms")


def _mixture(first_of: Mapping[int, str]) -> str:
    """What is wrong with times of these kinds, the first of each there, in one file."""
    if NUMBER in first_of:
        date = next(place for kind, place in first_of.items() if kind != NUMBER)
        return f"mixes times that are dates ({date}) and numbers ({first_of[NUMBER]})"
    return f"mixes times with a UTC offset ({first_of[AWARE]}) and without ({first_of[NAIVE]})"


def _row_notes(form: Format, table: Table, columns: Columns, reason: Codes) -> "Counter[str]":
    """What is odd about usable rows, and about how many."""
    told: Counter[str] = Counter()
    usable = np.flatnonzero(reason == 0)
    if form.status in table.columns:
        words = [table.columns[form.status].text(row) for row in usable.tolist()]
        told["rows with a status other than ok, kept"] += sum(word not in ("", "ok") for word in words)
    if columns.block_hashes is not None and form.block_tokens is not None:
        blocks = -(-columns.prompt_tokens[usable] // form.block_tokens)
        there = np.array([len(hashes) for hashes in columns.block_hashes[usable]], np.int64)
        told[f"rows whose block hashes are not one for each {form.block_tokens} prompt tokens"] += int(
            ((there > 0) & (there != blocks)).sum()
        )
    return told


_WORDS = ("", "time", "prompt", "output", "block hashes")
_TOKENS = f"a whole number from 1 to {MAX_TOKENS:,}"
_LAST_S = MAX_TIME_NS // 10**9


def _told(told: Mapping[str, int]) -> list[str]:
    """Notes, each with how many rows it is about."""
    return [f"{text}: {count:,}" for text, count in told.items() if count]


def _reasons(table: Table, reason: Codes) -> "Counter[str]":
    """Why rows of a table are dropped, and how many for each reason."""
    dropped: Counter[str] = Counter(table.why_misfit(row) for row in np.flatnonzero(reason == 1).tolist())
    codes, counts = np.unique(reason[reason >= 8], return_counts=True)
    for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
        dropped[f"{_WORDS[code // 8]} {PROBLEMS[code % 8]}"] += count
    return dropped


def _complaint(form: Format, table: Table, rows_before: int, row: int, code: int) -> str:
    """What is wrong with an unusable row: its place, the column, the value, and what is allowed."""
    place = _place(table, rows_before, row)
    if code < 8:
        return f"{place}: {table.why_misfit(row)}"
    date = "a date such as 2023-11-16 18:17:03.97, 1970 to 2255, 0 to 9 fraction digits"
    time = date if form.unit == DATE else f"0 to {_LAST_S:,} s" + (f", or {date}" if form.dates else "")
    column, allowed = (
        ("", ""),
        (form.time, time),
        (form.prompt, _TOKENS),
        (form.output, _TOKENS),
        (form.block_hashes, "whole numbers from 0 to 2^64 - 1, as in [0, 1, 2]"),
    )[code // 8]
    value, name = short(table.columns[column].text(row)), alternatives(column)[0]
    return f"{place}: {name}(={value}) is {PROBLEMS[code % 8]}; it must be {allowed}"


def _place(table: Table, rows_before: int, row: int) -> str:
    """A row by its number among the rows, from 1, and by the line of the file it begins on."""
    line = "" if table.line is None else f" (line {table.line[row]})"
    return f"row {rows_before + row + 1}{line}"
