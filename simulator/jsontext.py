"""JSON cut into rows: one object a line, or the objects of one or more lists, never more than one of them at a time.

Cut by Python's own decoder, value by value. A streaming parser (ijson over YAJL) is no slower, but refuses NaN, which
Python's own logs have, stops at the first bad line of a log, and does not say which line that is.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any, cast

import numpy as np

from allocators.base import InputError
from simulator.fields import Fields
from simulator.files import Table, Text, check_line

Row = Mapping[str, object]
Rows = Iterator[tuple[int, Row | None]]
"""The line each row begins on, from 1, and the row, or None where there is no JSON object."""

ROWS_AT_ONCE = 50_000
MAX_OBJECT_CHARS = 64 << 20
"""A longer object in a list is no conversation."""

MISFIT = "not a JSON object, or one with two values for a key"

_BAR = "\0"  # stands for | in the name of a column: no text holds it
_BLANK = re.compile(r"[ \t\r\n]*")
_BETWEEN_LISTS = re.compile(r"[ \t\r\n\ufeff]*")
_BEGINNINGS = tuple('{["-0123456789tfnNI')  # of a JSON value, NaN and Infinity among them
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


def _decoded(text: str, begin: int) -> tuple[Any, int]:
    """The JSON value that begins at a place of a text, and where it ends. Raises ValueError and RecursionError."""
    try:
        return _DECODER.raw_decode(text, begin)
    except json.JSONDecodeError:
        raise
    except ValueError:  # a whole number of more digits than Python makes numbers of
        return _OF_LONG_NUMBERS.raw_decode(text, begin)


def json_row(line: str) -> Row | None:
    """The object in a line of JSON, or None. Numbers with a point stay text, to be read exactly."""
    try:
        row, end = _decoded(line, _skipped(_BETWEEN_LISTS, line, 0))
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and _skipped(_BLANK, line, end) == len(line) else None


def is_json(text: Text) -> bool:
    """Whether a text begins as JSON does."""
    return text.head.lstrip().startswith((b"{", b"["))


def json_rows(text: Text) -> Rows:
    """The rows of JSON lines (blank ones are skipped), or of lists of objects, one after the other.

    Raises InputError on a line or an object that is too long, and where a list breaks off or is followed by anything
    but another: what comes after is lost.
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
    cursor = _Cursor(chunk.decode() for chunk in text.chunks)
    while cursor.skip(_BETWEEN_LISTS):
        if cursor.next != "[":
            raise InputError(f"line {cursor.line}: more than blanks stands after the list, and it is no other list")
        cursor.step()
        cursor.skip(_BLANK)
        first = True
        while cursor.next != "]":
            if not first:
                if cursor.next not in (",", ""):
                    raise InputError(f"line {cursor.line}: neither a comma nor a bracket after a row of the list")
                cursor.step()
                cursor.skip(_BLANK)
            line, value = cursor.line, cursor.value()
            yield line, cast(Row, value) if isinstance(value, dict) else None
            cursor.skip(_BLANK)
            first = False
        cursor.step()


class _Cursor:
    """A place in a text that comes in pieces: what is before it is forgotten. ``line``: its line, from 1."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces = pieces
        self._buffer, self._place = "", 0
        self.line, self._values = 1, 0

    @property
    def next(self) -> str:
        """The character at the place; "" at the end of the text, and where no more of it was looked for."""
        return self._buffer[self._place : self._place + 1]

    def step(self, characters: int = 1) -> None:
        """Go on by so many characters."""
        self.line += self._buffer.count("\n", self._place, self._place + characters)
        self._place += characters

    def skip(self, what: re.Pattern[str]) -> bool:
        """Go on to the first character that is none of these, and say whether there is one."""
        while True:
            self.step(_skipped(what, self._buffer, self._place) - self._place)
            if self.next or not self._more(1):
                return bool(self.next)

    def value(self) -> object:
        """The JSON value that begins here; the place is then its end."""
        wanted = 1
        while True:
            try:
                value, end = _decoded(self._buffer, self._place)
                if end < len(self._buffer) or not self._more(1):  # a number may go on in the next piece
                    self.step(end - self._place)
                    self._values += 1
                    return value
            except RecursionError:
                raise self.broken() from None
            except ValueError:
                # Not all of it is here yet, or never will be. Twice as much each time: a value is decoded a few times.
                if self.next not in _BEGINNINGS or not self._more(wanted):
                    raise self.broken() from None
                wanted *= 2

    def broken(self) -> InputError:
        """That no row of a list is here, or no comma after one."""
        return InputError(f"row {self._values + 1} (line {self.line}) of the list is no whole JSON object")

    def _more(self, pieces: int) -> bool:
        """Read so many pieces more; False where there is none, or too much for a value already."""
        if len(self._buffer) - self._place > MAX_OBJECT_CHARS:
            return False
        more = list(islice(self._pieces, pieces))
        self._buffer, self._place = self._buffer[self._place :] + "".join(more), 0
        return bool(more)


def _skipped(what: re.Pattern[str], text: str, begin: int) -> int:
    """The first place from ``begin`` on where there are none of these characters."""
    found = what.match(text, begin)
    return begin if found is None else found.end()


def json_tables(rows: Rows, names: Sequence[str]) -> Iterator[Table]:
    """Rows, some at a time, with the columns ``names``; ``a|b`` is the column a, or b where there is no a.

    What is missing or null comes as an empty field; a row that is None is a misfit.
    """
    while some := list(islice(rows, ROWS_AT_ONCE)):
        columns = {name: Fields.of([_field(row, alternatives(name)) for _, row in some]) for name in names}
        misfit = np.array([row is None for _, row in some], np.bool_)
        yield Table(columns, misfit, MISFIT, np.array([line for line, _ in some], np.int64))


def _field(row: Row | None, names: Sequence[str]) -> str:
    """A JSON value as a field of text, that of the first of these names that has one."""
    return value_text(next((value for name in names if (value := value_at(row, name)) is not None), "")) if row else ""


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
