"""From a file to columns: which format it is in, then row by row. Whatever is in it, only InputError is raised."""

import importlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import chain
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd

from allocators.base import InputError
from simulator.csvtext import csv_header, csv_tables
from simulator.fields import Fields
from simulator.files import Table, Text, first_line, is_parquet, open_text
from simulator.formats import FORMATS, NEUTRAL, OWN_FORMATS, OwnFormat, Reader
from simulator.jsonstream import holds_objects, object_rows
from simulator.jsontext import Row, Rows, is_json, json_rows, json_tables, table_rows
from simulator.lookalikes import lookalike
from simulator.parquet import cell, parquet_columns, parquet_tables
from simulator.rows import read_tables
from simulator.schema import Columns, Format, Reading, Report, short

_NAMES, _NAME_CHARS = 50, 40  # of a first row: enough to see what it is like
_SIMILAR = 0.6  # of two names: less is chance
_BEGINNING = 1 << 16  # bytes that show the first row; a list of JSON may be one line of gigabytes


def read_file(
    path: str | PathLike[str], format: str | Reader | None = None, reading: Reading | None = None
) -> tuple[Columns, Report]:
    """Read a trace file: CSV or JSON, plain or gzip, or Parquet.

    ``format``: None to recognise it from the content; the name of one in :data:`FORMATS` or of a reader registered;
    the dotted path of a reader; or a reader itself. Raises InputError, one line that names the file.
    """
    reading = reading or Reading()
    told: Counter[str] = Counter()
    form = _named(format)
    try:
        text = open_text(path, reading.advance)
        if isinstance(form, OwnFormat):
            return _read_own(form, text, reading, told)
        if form is None and (own := _own_format(text)) is not None:
            return _read_own(own, text, reading, told)
        form, tables = _recognise_or_name(path, text, form, reading, told)
        return read_tables(form, tables, reading, told)
    except InputError as error:
        raise type(error)(f"trace file {short(str(path))}: {error}") from None


def format_of(path: str | PathLike[str]) -> str:
    """The name of the format that a file looks to be in, by its beginning. Raises InputError when it is none."""
    text = open_text(path)
    if (own := _own_format(text)) is not None:
        return own.name
    return _recognise(path, text, None, Reading(), Counter())[0].name


def read_frame(frame: pd.DataFrame) -> tuple[Columns, Report]:
    """Read a DataFrame with the columns of the neutral format, as if it had been written to a file first.

    Raises InputError, without a name in front, when a column is not there and on the first row that cannot be used.
    """
    labels = [str(label) for label in frame.columns]
    places = _places(NEUTRAL, labels)
    texts = {name: Fields.of(_cells(frame.iloc[:, place])) for name, place in places.items()}
    tables = [Table(texts, np.zeros(len(frame), np.bool_), "")]
    columns, report = read_tables(NEUTRAL, tables, Reading(strict=True), Counter())
    return columns, replace(report, format="frame")


def _cells(column: "pd.Series[Any]") -> list[str]:
    """The cells of a column as they would stand in a file; a missing one is empty."""
    missing = column.isna().tolist()
    return ["" if no else cell(value) for value, no in zip(column.tolist(), missing, strict=True)]


def _named(wanted: str | Reader | None) -> Format | OwnFormat | None:
    """The format that is asked for."""
    if wanted is None:
        return None
    if not isinstance(wanted, str):
        return OwnFormat(getattr(wanted, "__name__", "own"), wanted)
    known = {form.name: form for form in FORMATS} | OWN_FORMATS
    if wanted in known:
        return known[wanted]
    module, _, attribute = wanted.rpartition(".")
    unknown = (
        f"format(={wanted!r}) must be one of {', '.join(known)}, or a reader of your own as package.module.function"
    )
    if not module:
        raise InputError(unknown)
    try:
        reader = getattr(importlib.import_module(module), attribute, None)
    except ImportError as error:
        raise InputError(f"{unknown} ({module} cannot be imported: {error})") from None
    if not callable(reader):
        raise InputError(f"{unknown} ({module} has no function {attribute})")
    return OwnFormat(attribute, reader)


def _own_format(text: Text) -> OwnFormat | None:
    """The first registered reader that knows a text by its first line."""
    if is_parquet(text):
        return None
    line = first_line(text.head[:_BEGINNING])[0]
    return next((own for own in OWN_FORMATS.values() if own.matches is not None and own.matches(line)), None)


def _read_own(form: OwnFormat, text: Text, reading: Reading, told: "Counter[str]") -> tuple[Columns, Report]:
    """Read a text with a reader of the user's own."""
    if is_parquet(text):
        raise InputError(f"is a Parquet file: the reader {form.name} is for lines of text")
    columns, report = read_tables(NEUTRAL, json_tables(_own_rows(form, text), NEUTRAL.columns), reading, told)
    return columns, replace(report, format=form.name)


def _own_rows(form: OwnFormat, text: Text) -> Rows:
    place = 0

    def lines() -> Iterator[str]:
        nonlocal place
        rest = b""
        for chunk in text.chunks:
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                place += 1
                yield line.decode().removesuffix("\r")
        if rest:
            place += 1
            yield rest.decode().removesuffix("\r")

    try:
        for row in form.reader(lines()):
            if not isinstance(row, Mapping):
                raise TypeError(f"it yields {short(repr(row))}, no mapping of columns")
            yield place, {name: cell(row[name]) for name in NEUTRAL.columns if row.get(name) is not None}
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"the reader {form.name} failed at line {place}: {type(error).__name__}: {error}") from error


def _recognise_or_name(
    path: str | PathLike[str], text: Text, wanted: Format | None, reading: Reading, told: "Counter[str]"
) -> tuple[Format, Iterator[Table]]:
    """The format of a text, and its rows. Of a known kind of file that is no trace, the error says what it is."""
    try:
        return _recognise(path, text, wanted, reading, told)
    except InputError:
        what = lookalike(text.head[:_BEGINNING])
        if what is None:
            raise
        raise InputError(what) from None


def _recognise(
    path: str | PathLike[str], text: Text, wanted: Format | None, reading: Reading, told: "Counter[str]"
) -> tuple[Format, Iterator[Table]]:
    """The format of a text, if it is not known, and its rows."""
    if is_parquet(text):
        found = parquet_columns(path)
        form = _choose(", ".join(found), dict.fromkeys(found, ""), "csv", wanted)
        return form, _edited(
            form, parquet_tables(path, _places(form, found), reading.advance), len(found), reading, told
        )
    line, _, number = first_line(text.head[:_BEGINNING])
    if not is_json(text):
        found = csv_header(text.head)
        form = _choose(line, dict.fromkeys(found, ""), "csv", wanted)
        return form, _edited(form, csv_tables(text, _places(form, found)), len(found), reading, told)
    rows = object_rows(text) if holds_objects(text) else json_rows(text)
    first = next(rows, (number, {}))
    if first[1] is None:
        raise InputError(f"line {number} is not a JSON object: {short(line)}")
    form = _choose(line, first[1], "json", wanted)
    rows = chain([first], rows)
    return form, json_tables(form.edit(rows, reading, told) if form.edit else rows, form.columns)


def _edited(
    form: Format, tables: Iterator[Table], fields: int, reading: Reading, told: "Counter[str]"
) -> Iterator[Table]:
    """Tables of a format whose rows are rewritten, and those of any other as they are. ``fields``: of the header."""
    if form.edit is None:
        return tables
    rows = form.edit(table_rows(tables), reading, told)
    return json_tables(rows, form.columns, f"not the header's {fields} fields")


def _choose(line: str, first: Row, kind: str, wanted: Format | None) -> Format:
    """The format with this first row; the one wanted, if it has the columns for it."""
    known = [form for form in FORMATS if kind in form.kind.split("|") and wanted in (None, form)]
    for form in known:
        if not _missing(form, first) and (wanted is not None or form.matches(first)):
            return form
    # The format that lacks the fewest columns is most likely meant, if it has any of them or was asked for.
    for form in sorted(known, key=lambda form: len(_missing(form, first))):
        missing = _missing(form, first)
        if 0 < len(missing) < len(form.needed) or (missing and wanted):
            raise InputError(f"{_lacks(missing, list(first))} (taken for the format {form.name})")
    for mark, word in ((";", "semicolons"), ("\t", "tabs")):
        if kind == "csv" and line.count(mark) >= 1 and line.count(mark) >= line.count(","):
            raise InputError(f"is separated by {word}: save it with commas; it begins with {short(line)}")
    if wanted:
        needs = f"it needs {wanted.kind.upper().replace('|', ' or ')} with {', '.join(wanted.needed)}"
        raise InputError(f"is not in the format {wanted.name}: it begins with {short(line)}; {needs}")
    names = ", ".join(form.name for form in _nearest_first(kind, list(first)))
    raise InputError(f"is in none of the known formats: it begins with {short(line)}; nearest first, they are {names}")


def _nearest_first(kind: str, found: Sequence[str]) -> list[Format]:
    """All formats, those with the most columns of similar names first; of as many, those of the same kind."""
    names = [name[:_NAME_CHARS].lower() for name in found[:_NAMES]]

    def distance(form: Format) -> tuple[float, bool]:
        columns = [name.partition("|")[0].lower() for name in form.needed]
        nearest = (
            max((SequenceMatcher(None, column, name).ratio() for name in names), default=0) for column in columns
        )
        return -sum(ratio for ratio in nearest if ratio > _SIMILAR), kind not in form.kind.split("|")

    return sorted(FORMATS, key=distance)


def _missing(form: Format, first: Row) -> list[str]:
    """The columns that a format needs and a first row lacks."""
    return [name for name in form.needed if not set(name.split("|")) & first.keys()]


def _places(form: Format, found: Sequence[str]) -> dict[str, int]:
    """Which columns of a table hold what is read of it. Raises InputError when one is lacking or there twice."""
    missing = [name for name in form.needed if not set(name.split("|")) & set(found)]
    if missing:
        raise InputError(_lacks(missing, found))
    places = {}
    for column in dict.fromkeys((*form.columns, *form.also)):
        there = [name for name in column.split("|") if name in found]
        if there and found.count(there[0]) > 1:
            raise InputError(f"has the column {there[0]} more than once")
        if there:
            places[column] = found.index(there[0])
    return places


def _lacks(missing: Sequence[str], found: Sequence[str]) -> str:
    """The complaint about columns that are not there."""
    plural = "s" if len(missing) > 1 else ""
    return f"lacks the column{plural} {', '.join(missing)}; found {short(', '.join(found))}"
