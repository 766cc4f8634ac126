"""CSV cut into columns of text, many rows at a time. Nothing is copied: a column is positions in the text."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from allocators.base import InputError
from simulator.traces.text.fields import Codes, Fields, IntArray
from simulator.traces.text.opening import MAX_LINE_BYTES, Table, Text, check_line, first_line

_COMMA, _NEWLINE, _RETURN, _QUOTE = b',\n\r"'


@dataclass(frozen=True)
class Header:
    """The first row of a CSV text: the names in it, the position after it, and the number of the next line."""

    names: list[str]
    end: int
    next_line: int


def csv_header(text: bytes) -> Header:
    """The header of a CSV text; names may be quoted, and then hold commas and newlines.

    Raises InputError on a quote that is not closed, and on a header that is longer than a line may be.
    """
    _, _, number = first_line(text)
    used: list[bytes] = []

    def lines() -> Iterator[str]:
        begin = _begin_of_line(text, number)
        while begin < len(text):
            end = text.find(b"\n", begin) + 1 or len(text)
            used.append(text[begin:end])
            yield used[-1].decode("utf-8", "replace").replace("\r\n", "\n")
            begin = end

    try:
        names = next(csv.reader(lines(), strict=True, skipinitialspace=True), [])
    except csv.Error as error:
        raise InputError(f"line {number}: the header cannot be read ({error})") from None
    end = _begin_of_line(text, number) + sum(map(len, used))
    return Header([name.strip() for name in names], end, number + len(used))


def _begin_of_line(text: bytes, number: int) -> int:
    """Where a line begins, from 1."""
    place = 0
    for _ in range(number - 1):
        place = text.index(b"\n", place) + 1
    return place


def csv_tables(text: Text, places: Mapping[str, int]) -> Iterator[Table]:
    """The rows of a CSV text below its header, some at a time. ``places``: the names of columns, and which they are.

    Fields may be quoted (RFC 4180), and then hold commas, newlines and doubled quotes. Blank lines are skipped; rows
    with more or fewer fields than the header are misfits. Raises InputError on a quote that is never closed, opens
    inside a field or closes before its end: where rows end could not be told then. And on a row that is too long.
    """
    header = csv_header(text.head)
    fields, skipped, line = len(header.names), header.end, header.next_line
    rest = b""
    for chunk in text.chunks:
        rest += chunk
        rest, skipped = rest[skipped:], max(0, skipped - len(rest))
        end = _end_of_rows(rest)
        if end:
            table, lines = _cut(rest[:end], fields, places, line)
            yield table
            line += lines
            rest = rest[end:]
        elif len(rest) > MAX_LINE_BYTES:
            _cut(rest, fields, places, line)  # a quote astray, if there is one
            check_line(len(rest), line)
    if rest:
        yield _cut(rest, fields, places, line)[0]


def _end_of_rows(text: bytes) -> int:
    """Where the last whole row of a text ends; 0 if none does."""
    if b'"' not in text:
        return text.rfind(b"\n") + 1
    data = np.frombuffer(text, np.uint8)
    newline, quote = np.flatnonzero(data == _NEWLINE), np.flatnonzero(data == _QUOTE)
    # An odd number of quotes before it: inside a quoted field.
    newline = newline[np.searchsorted(quote, newline) % 2 == 0]
    return int(newline[-1]) + 1 if newline.size else 0


def _cut(chunk: bytes, fields: int, places: Mapping[str, int], first: int) -> tuple[Table, int]:
    """The rows of a chunk of whole lines, the first of them on line ``first``, and how many lines end in it."""
    data = np.frombuffer(chunk, np.uint8)
    lines = newline = np.flatnonzero(data == _NEWLINE)
    comma = np.flatnonzero(data == _COMMA)
    if b'"' in chunk:
        quote = np.flatnonzero(data == _QUOTE)
        _check_quotes(data, quote, lines, first)
        newline = newline[np.searchsorted(quote, newline) % 2 == 0]
        comma = comma[np.searchsorted(quote, comma) % 2 == 0]
    start = np.concatenate([[0], newline + 1])
    end = np.concatenate([newline, [len(data)]])
    end -= (end > start) & (data[end - 1] == _RETURN)
    visible = Fields(data, start, end).stripped()
    kept = visible.start < visible.end
    start, end = start[kept], end[kept]
    line = first + (np.flatnonzero(kept) if newline is lines else np.searchsorted(lines, start))
    longest = int((end - start).argmax()) if start.size else 0
    if start.size:
        check_line(int(end[longest] - start[longest]), int(line[longest]))
    low, misfit = _commas(comma, start, end, fields)
    comma = np.append(comma, 0)
    columns = {}
    for name, place in places.items():
        begin = start if place == 0 else comma.take(low + (place - 1), mode="clip") + 1
        stop = end if place == fields - 1 else comma.take(low + place, mode="clip")
        if misfit.any():
            begin, stop = np.where(misfit, 0, begin), np.where(misfit, 0, stop)
        if b'"' in chunk:
            quoted = (stop - begin >= 2) & (data.take(begin, mode="clip") == _QUOTE)
            begin, stop = begin + quoted, stop - quoted
        columns[name] = Fields(data, begin, stop, csv=True)
    return Table(columns, misfit, f"not the header's {fields} fields", line), len(lines)


def _commas(
    comma: IntArray, start: IntArray, end: IntArray, fields: int
) -> tuple[IntArray, "np.ndarray[tuple[int], np.dtype[np.bool_]]"]:
    """Which comma is the first of each row, and whether the row has another number of fields than it should."""
    low = np.arange(len(start)) * (fields - 1)
    if fields > 1 and len(comma) == len(start) * (fields - 1):
        inside = (comma[low] > start - 1) & (comma[low + (fields - 2)] < end)
        if inside.all():
            return low, np.zeros(len(start), np.bool_)
    low, high = np.searchsorted(comma, start), np.searchsorted(comma, end)
    return low, high - low + 1 != fields


def _check_quotes(data: Codes, quote: IntArray, lines: IntArray, first: int) -> None:
    """Raise InputError unless every quote opens at the start of a field or closes at its end, or is doubled inside."""
    opening, closing = quote[::2], quote[1::2]
    before = data.take(opening - 1, mode="clip")
    astray = opening[(opening > 0) & ~np.isin(before, [_COMMA, _NEWLINE, _QUOTE])]
    behind = data.take(closing + 1, mode="clip")
    astray = np.append(
        astray, closing[(closing + 1 < len(data)) & ~np.isin(behind, [_COMMA, _NEWLINE, _RETURN, _QUOTE])]
    )
    if len(opening) > len(closing):
        astray = np.append(astray, opening[-1])
    if astray.size:
        line = first + int(np.searchsorted(lines, astray.min()))
        raise InputError(f'line {line}: a quote (") that does not enclose a field; inside one it is written twice')
