"""JSON values and rows of them: decoded without losing a digit, found by their names, made into columns of text."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any

import numpy as np

from simulator.traces.text.fields import Fields
from simulator.traces.text.opening import Table

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
MISFIT = "not a JSON object, or one with two values for a key"

BLANKS = " \t\r\n"
BETWEEN = BLANKS + "\ufeff"
"""What may stand between the values of a text: byte-order marks too, where files were put together."""

_BAR = "\0"  # stands for | in the name of a column: no text holds it
_LONGEST_WHOLE = 30  # digits of a whole number that is written out


class Decimals(str):
    """A JSON number with a point or an exponent, as it was written: a float would not keep every digit."""


class _Contradiction:
    """Stands for an object with two values for one key: which of them is meant cannot be told."""


def _object(pairs: list[tuple[str, Any]]) -> object:
    row = dict(pairs)
    if len(row) < len(pairs) and any(row[key] != value for key, value in pairs):
        return _Contradiction()
    return row


def _null(_: str) -> None:
    """NaN and the infinities, which are no JSON but are written nevertheless, say as much as null."""


def _decoder(**options: Any) -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=_object, parse_float=Decimals, parse_constant=_null, **options)


_DECODER = _decoder()
_OF_LONG_NUMBERS = _decoder(parse_int=Decimals)


def decoded(text: str, begin: int) -> tuple[Any, int]:
    """The JSON value that begins at a place of a text, and where it ends. Raises ValueError and RecursionError."""
    try:
        return _DECODER.raw_decode(text, begin)
    except json.JSONDecodeError:
        raise
    except ValueError:  # a whole number of more digits than Python makes numbers of
        return _OF_LONG_NUMBERS.raw_decode(text, begin)


def json_row(line: str) -> Row | None:
    """The object in a line of JSON, or None. Numbers with a point stay text, to be read exactly."""
    text = line.lstrip(BETWEEN).rstrip(BLANKS)
    try:
        row, end = decoded(text, 0)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and end == len(text) else None


def json_tables(rows: EditedRows, names: Sequence[str], misfit_reason: str = MISFIT) -> Iterator[Table]:
    """Rows, some at a time, with the columns ``names``; ``a|b`` is the column a, or b where there is no a.

    What is missing or null comes as an empty field; a row that is None, or dropped, is a misfit.
    """
    while some := list(islice(rows, ROWS_AT_ONCE)):
        columns = {name: Fields.of([_field(row, alternatives(name)) for _, row in some]) for name in names}
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
    """A JSON value as a field of text, that of the first of these names that has one."""
    if not isinstance(row, Mapping):
        return ""
    return value_text(next((value for name in names if (value := value_at(row, name)) is not None), ""))


def alternatives(column: str) -> list[str]:
    """The names that a column of a format may have: a and b of ``a|b``."""
    return [name.replace(_BAR, "|") for name in column.split("|")]


def literal(name: str) -> str:
    """The column of a format that is called just so, a bar in its name or not."""
    return name.replace("|", _BAR)


def value_at(row: Row, name: str) -> object:
    """The value of a row by its name, or by the path to it: ``usage.prompt_tokens``. None where there is none."""
    if name in row or "." not in name:
        return row.get(name)
    value: object = row
    for step in name.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def value_text(value: object) -> str:
    """A JSON value as a text; numbers that are equal are the same text where they are whole: 7 and 7.0."""
    if isinstance(value, Decimals):
        try:
            number = Decimal(value)
        except InvalidOperation:  # an exponent that no number has
            return value
        if number.adjusted() < _LONGEST_WHOLE and number == number.to_integral_value():
            return str(int(number))
    return value if isinstance(value, str) else str(value)
