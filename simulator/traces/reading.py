"""From a file to columns: which format it is in, then row by row. Whatever is in it, only InputError is raised."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from os import PathLike

import numpy as np
import pandas as pd

from allocators.base import InputError, in_short
from allocators.dotted import own
from simulator.messages.words import short
from simulator.traces.columns import NARROW_FLOATS, column_texts, holds_durations, narrow_float, precision_note
from simulator.traces.formats import FORMATS, NEUTRAL, OWN_FORMATS, OwnFormat, Reader
from simulator.traces.logs.lookalikes import lookalike
from simulator.traces.naming import named_format, of_durations, usual_format
from simulator.traces.own_readers import own_format, read_own
from simulator.traces.parquet import column_kinds, parquet_columns, parquet_tables
from simulator.traces.recognition import chosen, missing, places
from simulator.traces.rows import read_tables
from simulator.traces.schema import Columns, Format, NoArrivalsError, Reading, Report
from simulator.traces.text.csvtext import csv_header, csv_tables
from simulator.traces.text.fields import Fields
from simulator.traces.text.first_rows import beginning, merged
from simulator.traces.text.jsonstream import is_json, json_rows
from simulator.traces.text.jsontext import json_tables, table_rows
from simulator.traces.text.opening import BEGINNING, Table, Text, first_line, is_parquet, open_text
from simulator.traces.text.stdin import DASH, shown, standard_input


def read_file(
    path: str | PathLike[str],
    format: str | Reader | None = None,
    reading: Reading | None = None,
    columns: str | Mapping[str, str] | None = None,
) -> tuple[Columns, Report]:
    """Read a trace file: CSV or JSON, plain or gzip, or Parquet; ``-`` is standard input.

    ``format``: None to recognise it from the content; the name of one in :data:`FORMATS` or of a reader registered;
    the dotted path of a reader; or a reader itself. ``columns``, in place of it: the names of the file's columns, see
    :func:`simulator.traces.naming.named_format`. Raises InputError, one line that names the file.
    """
    reading = reading or Reading()
    told: Counter[str] = Counter()
    if columns is not None and format is not None:
        raise InputError("format and columns both say what the columns of a file are; give one of them")
    form = _named(format)
    if str(path) == DASH:
        path = standard_input()
    try:
        text = open_text(path, reading.advance)
        if isinstance(form, OwnFormat):
            return read_own(form, text, reading, told)
        if form is None and columns is None and (known := own_format(text)) is not None:
            return read_own(known, text, reading, told)
        form, tables = _recognise_or_name(path, text, form if columns is None else columns, reading, told)
        return read_tables(form, tables, reading, told)
    except InputError as error:
        raise type(error)(f"{shown(path)}: {error}") from None


def format_of(path: str | PathLike[str]) -> str:
    """The name of the format that a file looks to be in, by its beginning. Raises InputError when it is none."""
    text = open_text(path)
    if (known := own_format(text)) is not None:
        return known.name
    return _recognise(path, text, None, Reading(), Counter())[0].name


def read_frame(frame: pd.DataFrame, columns: str | Mapping[str, str] | None = None) -> tuple[Columns, Report]:
    """Read a DataFrame with the columns of the neutral format, as if it had been written to a file first.

    They may have other usual names, or those that ``columns`` says. Raises InputError, without a name in front, when a
    column is not there and on the first row that cannot be used.
    """
    labels = [str(label) for label in frame.columns]
    form = NEUTRAL
    if columns is not None:
        form = named_format(columns, labels, NEUTRAL.kind)
    elif missing(NEUTRAL, dict.fromkeys(labels, "")):
        usual = usual_format(labels, NEUTRAL.kind)
        form = usual if usual is not None and usual.time else form
    columns_of = {name: frame.iloc[:, place] for name, place in places(form, labels).items()}
    narrow = None
    if form.time:
        narrow = narrow_float(columns_of[form.time].dtype)
        if holds_durations(columns_of[form.time]):
            form = of_durations(form)
    texts = {name: Fields.of(column_texts(column)) for name, column in columns_of.items()}
    tables = [Table(texts, np.zeros(len(frame), np.bool_), "")]
    read, report = read_tables(form, tables, Reading(strict=True), Counter())
    notes = report.notes if narrow is None else (*report.notes, precision_note(form.time, narrow))
    return read, replace(report, format="frame", notes=notes)


def _named(wanted: str | Reader | None) -> Format | OwnFormat | None:
    """The format that is asked for."""
    if wanted is None:
        return None
    if not isinstance(wanted, str):
        return OwnFormat(getattr(wanted, "__name__", "own"), wanted)
    known = {form.name: form for form in FORMATS} | OWN_FORMATS
    if wanted in known:
        return known[wanted]
    unknown = (
        f"format(={in_short(wanted)}) must be one of {', '.join(known)}, "
        "or a reader of your own as package.module.function"
    )
    return OwnFormat(wanted.rpartition(".")[2], own(wanted, unknown, "function"))


def _recognise_or_name(
    path: str | PathLike[str],
    text: Text,
    wanted: Format | str | Mapping[str, str] | None,
    reading: Reading,
    told: "Counter[str]",
) -> tuple[Format, Iterator[Table]]:
    """The format of a text, and its rows. Of a known kind of file that is no trace, the error says what it is."""
    try:
        return _recognise(path, text, wanted, reading, told)
    except NoArrivalsError:
        raise
    except InputError:
        what = None if isinstance(wanted, str | Mapping) else lookalike(text.head[:BEGINNING])
        if what is None:
            raise
        raise InputError(what) from None


def _recognise(
    path: str | PathLike[str],
    text: Text,
    wanted: Format | str | Mapping[str, str] | None,
    reading: Reading,
    told: "Counter[str]",
) -> tuple[Format, Iterator[Table]]:
    """The format of a text, if it is not known, and its rows. ``wanted``: a format, or the names of columns."""
    if is_parquet(text):
        found = parquet_columns(path)
        form = chosen(", ".join(found), dict.fromkeys(found, ""), "csv", wanted, reading)
        kind = column_kinds(path, form).get(form.time)
        if kind == "duration":
            form = of_durations(form)
        if (narrow := NARROW_FLOATS.get(kind or "")) is not None:
            form = replace(form, remark="; ".join(filter(None, (form.remark, precision_note(form.time, narrow)))))
        tables = parquet_tables(path, places(form, found), reading.advance)
        return form, _edited(form, tables, len(found), reading, told)
    line, _, number = first_line(text.head[:BEGINNING])
    if not is_json(text):
        found = csv_header(text.head).names
        form = chosen(line, dict.fromkeys(found, ""), "csv", wanted, reading)
        return form, _edited(form, csv_tables(text, places(form, found)), len(found), reading, told)
    first, rows = beginning(json_rows(text))
    objects = [row for _, row in first if row is not None]
    if first and (not objects or (first[0][1] is None and not line.startswith("["))):
        raise InputError(f"line {number} is not a JSON object: {short(line)}")
    form = chosen(line, merged(objects), "json", wanted, reading)
    return form, json_tables(form.edit(rows, reading, told) if form.edit else rows, form.columns)


def _edited(
    form: Format, tables: Iterator[Table], fields: int, reading: Reading, told: "Counter[str]"
) -> Iterator[Table]:
    """Tables of a format whose rows are rewritten, and those of any other as they are. ``fields``: of the header."""
    if form.edit is None:
        return tables
    rows = form.edit(table_rows(tables), reading, told)
    return json_tables(rows, form.columns, f"not the header's {fields} fields")
