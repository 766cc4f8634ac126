"""Columns of text, read to whole numbers exactly and many at a time.

A trace is text, and a float is not: ``0.1 + 0.2`` seconds must come out as 300,000,000 nanoseconds, halves
must go to even, and 27 million rows must not take an hour. So the digits are added up as whole numbers,
one character position of all rows at once; what that cannot read (exponents, signs, 20 digits and more)
goes through ``Decimal`` row by row. No float is involved anywhere.

A row that cannot be used gets one of the problem codes below instead of an exception.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
Flags = NDArray[np.bool_]
Codes = NDArray[np.uint8]

MAX_TIME_NS = 9 * 10**18
"""The latest time a file may hold: 9e9 s (285 years) from its origin, so that differences fit an int64."""

MAX_TOKENS = 10**9
"""The largest token count of one request; sums over a whole trace fit an int64 comfortably."""

MAX_ROWS = 100_000_000
"""The most requests of one trace; they take 2.4 GB."""

OK, MISSING, UNREADABLE, NEGATIVE, BELOW_ONE, FRACTIONAL, OUT_OF_RANGE = range(7)
PROBLEMS = ("ok", "missing or not finite", "unreadable", "negative", "below 1", "fractional", "out of range")
"""What each problem code says, behind the word for the column: ``output below 1``."""

_POWERS = np.array([10**k for k in range(20)], np.uint64)
_PLAIN_DIGITS = 19  # as many as always fit an unsigned 64-bit number
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_HASHES = re.compile(r"[ ]*\[?[0-9, ]*\]?[ ]*")
_NO_NUMBER = {"", "nan", "inf", "infinity", "null", "none", "na", "n/a", "<na>", "nat"}
_POINT, _ZERO = b".0"


@dataclass(frozen=True)
class Fields:
    """A column of text: field ``i`` is the UTF-8 bytes ``data[start[i]:end[i]]``.

    ``data`` (uint8) holds at least one byte; ``start`` and ``end`` have one entry a row. ``csv`` says that a quote
    inside a field is written twice.
    """

    data: Codes
    start: IntArray
    end: IntArray
    csv: bool = False

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Fields":
        """The column of these texts."""
        encoded = [text.encode("utf-8", "backslashreplace") for text in texts]
        end = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        start = np.concatenate([np.zeros(1, np.int64), end[:-1]])[: len(end)]
        # The byte at the end keeps `take` happy when every field is empty.
        return cls(np.frombuffer(b"".join(encoded) + b"\n", np.uint8), start, end)

    def __len__(self) -> int:
        return len(self.start)

    def text(self, row: int) -> str:
        """The field of one row."""
        text = self.data[self.start[row] : self.end[row]].tobytes().decode("utf-8", "replace")
        return text.replace('""', '"') if self.csv else text

    def texts(self) -> list[str]:
        """The fields of all rows."""
        return [self.text(row) for row in range(len(self))]

    def byte(self, position: int | IntArray) -> Codes:
        """The byte at ``position`` of each field; any byte where the field is shorter."""
        return self.data.take(self.start + position, mode="clip")

    def stripped(self) -> "Fields":
        """The same fields without blanks around them."""
        edges = (self.data.take(self.start, mode="clip"), self.data.take(self.end - 1, mode="clip"))
        if not any(((edge == 32) | (edge == 9)).any() for edge in edges):
            return self
        start, end = self.start.copy(), self.end.copy()
        for edge, other, step, look in ((start, end, 1, 0), (end, start, -1, -1)):
            rows = np.arange(len(self))
            while rows.size:
                here = self.data.take(edge[rows] + look, mode="clip")
                rows = rows[(edge[rows] != other[rows]) & ((here == 32) | (here == 9))]
                edge[rows] += step
        return Fields(self.data, start, end, self.csv)


def whole_numbers(fields: Fields, places: int, largest: int) -> tuple[IntArray, Codes]:
    """Each field x 10^places as a whole number, halves to even, and a problem code for each row.

    FRACTIONAL rows hold the rounded value; rows with another problem hold 0.
    """
    fields = fields.stripped()
    length = fields.end - fields.start
    value = np.zeros(len(fields), np.uint64)
    decimals = np.zeros(len(fields), np.int64)
    pointed = np.zeros(len(fields), np.bool_)
    plain = length > 0
    for position in range(min(int(length.max(initial=0)), _PLAIN_DIGITS + 1)):
        byte = fields.byte(position)
        digit = byte - np.uint8(_ZERO)
        inside = position < length
        is_digit = inside & (digit < 10)
        if is_digit.all():  # as a rule, and much faster than with a mask
            value *= np.uint64(10)
            value += digit
            decimals += pointed
            continue
        is_point = inside & (byte == _POINT) & ~pointed
        plain &= is_digit | is_point | ~inside
        np.multiply(value, np.uint64(10), out=value, where=is_digit)
        np.add(value, digit, out=value, where=is_digit)
        decimals += is_digit & pointed
        pointed |= is_point
    plain &= (length - pointed <= _PLAIN_DIGITS) & (length > pointed)

    up = _POWERS[np.clip(places - decimals, 0, _PLAIN_DIGITS)]
    fits = value <= np.uint64(largest) // up
    if (decimals <= places).all():  # nothing to round
        result = np.where(plain & fits, value, 0) * up
        problem = np.where(fits, np.uint8(OK), np.uint8(OUT_OF_RANGE))
    else:
        down = _POWERS[np.clip(decimals - places, 0, _PLAIN_DIGITS)]
        result = np.where(plain & (fits | (down > 1)), value, 0) * up
        result, rest = np.divmod(result, down)
        # rest against down - rest, not twice the rest against down: that would overflow.
        result += (rest > down - rest) | ((rest == down - rest) & (result % 2 == 1))
        fits |= down > 1
        fits &= result <= largest
        problem = np.where(fits, np.where(rest > 0, FRACTIONAL, OK), OUT_OF_RANGE).astype(np.uint8)
    values = np.where(fits, result, 0).astype(np.int64)
    for row in np.flatnonzero(~plain).tolist():
        values[row], problem[row] = _whole_number(fields.text(row), places, largest)
    return values, problem


def _whole_number(text: str, places: int, largest: int) -> tuple[int, int]:
    """One text x 10^places as a whole number, halves to even, and its problem code."""
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return 0, MISSING if is_missing(text) else UNREADABLE
    number = Decimal(text)
    if not number:
        return 0, OK
    if number < 0:
        return 0, NEGATIVE
    if number.adjusted() > 30:
        return 0, OUT_OF_RANGE
    if number.adjusted() < -30:
        return 0, FRACTIONAL
    exact = Context(prec=len(text) + 60)
    scaled = number.scaleb(places, exact)
    rounded = scaled.to_integral_value(ROUND_HALF_EVEN, exact)
    if rounded > largest:
        return 0, OUT_OF_RANGE
    return int(rounded), OK if rounded == scaled else FRACTIONAL


def is_missing(text: str) -> bool:
    """Whether a text says that there is nothing, or nothing finite."""
    return text.lower().lstrip("+-") in _NO_NUMBER


def read_counts(fields: Fields) -> tuple[IntArray, Codes]:
    """Token counts, whole numbers from 1 to MAX_TOKENS (446.0 is whole), and a problem code for each row."""
    values, problem = whole_numbers(fields, 0, MAX_TOKENS)
    below = (problem == NEGATIVE) | ((problem == OK) & (values < 1))
    problem[below] = BELOW_ONE
    return values, problem


def read_hashes(fields: Fields) -> tuple[list[tuple[int, ...]], Codes]:
    """Block hashes, a tuple of unsigned 64-bit numbers for each row, and a problem code for each row.

    Written as ``[0, 1, 2]`` or ``0 1 2``; an empty field has none.
    """
    rows: list[tuple[int, ...]] = []
    problem = np.zeros(len(fields), np.uint8)
    for row, text in enumerate(fields.texts()):
        hashes: tuple[int, ...] = ()
        items = text.strip("[ ]").replace(",", " ").split()
        if not _HASHES.fullmatch(text):
            problem[row] = UNREADABLE
        elif max(map(len, items), default=0) > 20 or max(hashes := tuple(map(int, items)), default=0) >= 2**64:
            problem[row] = OUT_OF_RANGE
        rows.append(hashes)
    return rows, problem


def read_times(fields: Fields, places: int) -> tuple[IntArray, Codes]:
    """Times to whole nanoseconds, and a problem code for each row.

    ``places`` is 9 for a file in seconds, 6 for milliseconds, 3 for microseconds, 0 for nanoseconds.
    """
    values, problem = whole_numbers(fields, places, MAX_TIME_NS)
    problem[problem == FRACTIONAL] = OK
    return values, problem
