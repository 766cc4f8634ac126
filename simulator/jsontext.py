"""JSON cut into rows: one object a line, or the objects of one list, never more than one of them at a time."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import cast

import numpy as np

from allocators.base import InputError
from simulator.fields import Fields
from simulator.files import Table, Text, check_line

Row = Mapping[str, object]
Rows = Iterator[tuple[int, Row | None]]
"""The line each row begins on, from 1, and the row, or None where there is no JSON object."""


@dataclass(frozen=True)
class Dropped:
    """A row that cannot be used, and why, as it is counted: ``failed: Bad Gateway``."""

    reason: str


EditedRows = Iterator[tuple[int, Row | Dropped | None]]
"""Rows, some of which may have been found to be of no use."""

ROWS_AT_ONCE = 50_000
MAX_OBJECT_CHARS = 64 << 20
"""A longer object in a list is no conversation."""

_BETWEEN = re.compile(r"[ \t\r\n]*,?[ \t\r\n]*")


class Decimals(str):
    """A JSON number with a point or an exponent, as it was written: a float would not keep every digit."""


def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(parse_float=Decimals, parse_constant=str)


def json_row(line: str) -> Row | None:
    """The object in a line of JSON, or None. Numbers with a point stay text, to be read exactly."""
    try:
        row = json.loads(line, parse_float=Decimals, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    return cast(Row, row) if isinstance(row, dict) else None


def is_json(text: Text) -> bool:
    """Whether a text begins as JSON does."""
    return text.head.lstrip().startswith((b"{", b"["))


def json_rows(text: Text) -> Rows:
    """The rows of JSON lines (blank ones are skipped), or of one list of objects.

    Raises InputError on a line or an object that is too long, and where a list breaks off: what comes behind is lost.
    """
    return _elements(text) if text.head.lstrip().startswith(b"[") else _lines(text)


def _lines(text: Text) -> Rows:
    number, rest = 0, b""
    for chunk in text.chunks:
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        check_line(len(rest), number + len(lines) + 1)
        for line in lines:
            number += 1
            check_line(len(line), number)
            if line.strip():
                yield number, json_row(line.decode())
    if rest.strip():
        yield number + 1, json_row(rest.decode())


def _elements(text: Text) -> Rows:
    decoder = _decoder()
    chunks = (chunk.decode() for chunk in text.chunks)
    buffer = next(chunks)
    place = buffer.index("[") + 1
    line, row, wanted = 1 + buffer.count("\n", 0, place), 0, 1
    while True:
        between = _BETWEEN.match(buffer, place)
        begin = between.end() if between else place
        try:
            if buffer[begin : begin + 1] == "]":
                return
            value, end = decoder.raw_decode(buffer, begin)
            if not isinstance(value, dict):
                raise ValueError
        except (ValueError, RecursionError) as error:
            # Not all of it is here yet, or never will be. Twice as much each time: an object is decoded a few times.
            more = list(islice(chunks, wanted)) if _may_go_on(buffer, begin, error) else []
            if not more:
                line += buffer.count("\n", place, begin)
                raise InputError(f"row {row + 1} (line {line}) of the list is no whole JSON object") from None
            buffer, place, wanted = buffer[place:] + "".join(more), 0, 2 * wanted
            continue
        row, wanted = row + 1, 1
        line += buffer.count("\n", place, begin)
        yield line, cast(Row, value)
        line += buffer.count("\n", begin, end)
        place = end


def _may_go_on(buffer: str, begin: int, error: Exception) -> bool:
    """Whether what could not be decoded may be the beginning of an object."""
    begun = buffer[begin : begin + 1] in ("", "{")
    return begun and len(buffer) - begin <= MAX_OBJECT_CHARS and not isinstance(error, RecursionError)


def json_tables(rows: EditedRows, names: Sequence[str], misfit_reason: str = "not a JSON object") -> Iterator[Table]:
    """Rows, some at a time, with the columns ``names``; ``a|b`` is the column a, or b where there is no a.

    What is missing or null comes as an empty field; a row that is None, or dropped, is a misfit.
    """
    while some := list(islice(rows, ROWS_AT_ONCE)):
        columns = {name: Fields.of([_field(row, name.split("|")) for _, row in some]) for name in names}
        misfit = np.array([row is None or isinstance(row, Dropped) for _, row in some], np.bool_)
        why = {place: row.reason for place, (_, row) in enumerate(some) if isinstance(row, Dropped)}
        yield Table(columns, misfit, misfit_reason, np.array([line for line, _ in some], np.int64), why)


def table_rows(tables: Iterator[Table]) -> Rows:
    """The rows of tables, each as an object of texts; a misfit is None."""
    number = 0
    for table in tables:
        for place in range(len(table.misfit)):
            number += 1
            line = number if table.line is None else int(table.line[place])
            row = {name: column.text(place) for name, column in table.columns.items()}
            yield line, None if table.misfit[place] else row


def _field(row: Row | Dropped | None, names: Sequence[str]) -> str:
    """A JSON value as a field of text."""
    there = row if isinstance(row, Mapping) else {}
    value = next((there[name] for name in names if there.get(name) is not None), "")
    return value if isinstance(value, str) else str(value)
