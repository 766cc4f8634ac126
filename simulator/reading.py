"""From a file to columns: which format it is in, then row by row. Whatever is in it, only InputError is raised."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from os import PathLike

import numpy as np
import pandas as pd

from allocators.base import InputError
from allocators.dotted import own
from simulator.columns import NARROW_FLOATS, column_texts, holds_durations, narrow_float, precision_note
from simulator.csvtext import csv_header, csv_tables
from simulator.fields import Fields
from simulator.files import BEGINNING, Table, Text, first_line, is_parquet, open_text
from simulator.first_rows import beginning, merged
from simulator.formats import FORMATS, NEUTRAL, OWN_FORMATS, OwnFormat, Reader
from simulator.jsontext import Row, alternatives, is_json, json_rows, json_tables
from simulator.naming import named_format, names_of, of_durations, option_hint, usual_format, with_doubt
from simulator.own_readers import own_format, read_own
from simulator.parquet import column_kinds, parquet_columns, parquet_tables
from simulator.rows import NO_ARRIVALS, read_tables
from simulator.schema import Columns, Format, NoArrivalsError, Reading, Report, short
from simulator.stdin import DASH, shown, standard_input

_NAMES, _NAME_CHARS = 50, 40  # of a first row: enough to see what it is like
_SIMILAR = 0.6  # of two names: less is chance


def read_file(
    path: str | PathLike[str],
    format: str | Reader | None = None,
    reading: Reading | None = None,
    columns: str | Mapping[str, str] | None = None,
) -> tuple[Columns, Report]:
    """Read a trace file: CSV or JSON, plain or gzip, or Parquet; ``-`` is standard input.

    ``format``: None to recognise it from the content; the name of one in :data:`FORMATS` or of a reader registered;
    the dotted path of a reader; or a reader itself. ``columns``, in place of it: the names of the file's columns, see
    :func:`simulator.naming.named_format`. Raises InputError, one line that names the file.
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
        form, tables = _recognise(path, text, form if columns is None else columns, reading, told)
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
    elif _missing(NEUTRAL, dict.fromkeys(labels, "")):
        usual = usual_format(labels, NEUTRAL.kind)
        form = usual if usual is not None and usual.time else form
    places = _places(form, labels)
    columns_of = {name: frame.iloc[:, place] for name, place in places.items()}
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
        f"format(={wanted!r}) must be one of {', '.join(known)}, or a reader of your own as package.module.function"
    )
    if "." not in wanted or wanted.startswith("."):
        raise InputError(unknown)
    return OwnFormat(wanted.rpartition(".")[2], own(wanted, unknown, "function"))


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
        form = _chosen(", ".join(found), dict.fromkeys(found, ""), "csv", wanted, reading)
        kind = column_kinds(path, form).get(form.time)
        if kind == "duration":
            form = of_durations(form)
        if (narrow := NARROW_FLOATS.get(kind or "")) is not None:
            form = replace(form, remark="; ".join(filter(None, (form.remark, precision_note(form.time, narrow)))))
        return form, parquet_tables(path, _places(form, found), reading.advance)
    line, _, number = first_line(text.head[:BEGINNING])
    if not is_json(text):
        found = csv_header(text.head).names
        form = _chosen(line, dict.fromkeys(found, ""), "csv", wanted, reading)
        return form, csv_tables(text, _places(form, found))
    first, rows = beginning(json_rows(text))
    objects = [row for _, row in first if row is not None]
    if first and (not objects or (first[0][1] is None and not line.startswith("["))):
        raise InputError(f"line {number} is not a JSON object: {short(line)}")
    form = _chosen(line, merged(objects), "json", wanted, reading)
    return form, json_tables(form.edit(rows, reading, told) if form.edit else rows, form.columns)


def _chosen(
    line: str, first: Row, kind: str, wanted: Format | str | Mapping[str, str] | None, reading: Reading
) -> Format:
    """The format of a file with this first row; of one without arrivals known, only if none are needed."""
    if isinstance(wanted, str | Mapping):
        form = named_format(wanted, names_of(first), kind)
    else:
        form = _choose(line, first, kind, wanted)
    others = first.keys() - {alternatives(column)[0] for column in form.columns}
    needs_arrivals = not form.time and reading.rate is None and not reading.lengths_only
    if needs_arrivals and others and form.edit is None:
        raise NoArrivalsError(f"{NO_ARRIVALS}; or if a column has them, {option_hint(names_of(first))}")
    return form


def _choose(line: str, first: Row, kind: str, wanted: Format | None) -> Format:
    """The format with this first row; the one wanted, if it has the columns for it."""
    known = [form for form in FORMATS if form.kind == kind and wanted in (None, form)]
    fitting = [form for form in known if not _missing(form, first) and (wanted is not None or form.matches(first))]
    timed = [form for form in fitting if form.time or form.edit]
    if timed:
        return timed[0]
    usual = usual_format(names_of(first), kind) if wanted is None else None
    if usual is not None and (usual.time or not fitting):
        return with_doubt(usual, FORMATS)
    if fitting:
        return fitting[0]
    # The format that lacks the fewest columns is most likely meant, if it has any of them or was asked for.
    for form in sorted(known, key=lambda form: len(_missing(form, first))):
        missing = _missing(form, first)
        if 0 < len(missing) < len(form.needed) or (missing and wanted):
            hint = "" if wanted else f"; or {option_hint(names_of(first))}"
            raise InputError(f"{_lacks(missing, list(first))} (taken for the format {form.name}){hint}")
    for mark, word in ((";", "semicolons"), ("\t", "tabs")):
        if kind == "csv" and line.count(mark) >= 1 and line.count(mark) >= line.count(","):
            raise InputError(f"is separated by {word}: save it with commas; it begins with {short(line)}")
    if wanted:
        kind = "JSON" if wanted.kind == "json" else "CSV"
        needs = f"it needs {kind} with {', '.join(wanted.needed)}"
        raise InputError(f"is not in the format {wanted.name}: it begins with {short(line)}; {needs}")
    nearest = ", ".join(dict.fromkeys(form.name for form in _nearest_first(kind, list(first))))
    names = names_of(first)
    if kind == "csv" and all(name.replace(".", "", 1).isdecimal() for name in names if name):
        way = f"put a line with names above it, such as {','.join(NEUTRAL.needed)}"
    else:
        way = option_hint(names) if names else ""
    columns = f"its columns are {short(', '.join(names), 400)}" if names else f"it begins with {short(line)}"
    told = "; ".join(part for part in (columns, way, f"nearest first, they are {nearest}") if part)
    raise InputError(f"is in none of the known formats: {told}")


def _nearest_first(kind: str, found: Sequence[str]) -> list[Format]:
    """All formats, those with the most columns of similar names first; of as many, those of the same kind."""
    names = [name[:_NAME_CHARS].lower() for name in found[:_NAMES]]

    def distance(form: Format) -> tuple[float, bool]:
        columns = [name.partition("|")[0].lower() for name in form.needed]
        nearest = (
            max((SequenceMatcher(None, column, name).ratio() for name in names), default=0) for column in columns
        )
        return -sum(ratio for ratio in nearest if ratio > _SIMILAR), form.kind != kind

    return sorted(FORMATS, key=distance)


def _missing(form: Format, first: Row) -> list[str]:
    """The columns that a format needs and a first row lacks."""
    return [name for name in form.needed if not set(alternatives(name)) & first.keys()]


def _places(form: Format, found: Sequence[str]) -> dict[str, int]:
    """Which columns of a table hold what is read of it. Raises InputError when one is lacking or there twice."""
    missing = [name for name in form.needed if not set(alternatives(name)) & set(found)]
    if missing:
        raise InputError(_lacks(missing, found))
    places = {}
    for column in form.columns:
        there = [name for name in alternatives(column) if name in found]
        if there and found.count(there[0]) > 1:
            raise InputError(f"has the column {there[0]} more than once")
        if there:
            places[column] = found.index(there[0])
    return places


def _lacks(missing: Sequence[str], found: Sequence[str]) -> str:
    """The complaint about columns that are not there."""
    plural = "s" if len(missing) > 1 else ""
    return f"lacks the column{plural} {', '.join(missing)}; found {short(', '.join(found))}"
