"""Files opened and cut into columns of text, whatever a spreadsheet, a web server or a failed download did to them."""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import cast

import numpy as np

from allocators.base import InputError
from simulator.fields import Codes, Fields, Flags, IntArray

CHUNK_BYTES = 4 << 20
CHUNK_LINES = 50_000
_COMMA, _NEWLINE, _RETURN, _QUOTE = b',\n\r"'
_FOREIGN = (
    (b"version https://git-lfs.github.com/", "a Git-LFS pointer, not the data: fetch it with git lfs pull"),
    (b"\xff\xfe", "UTF-16 text: save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text: save it as UTF-8"),
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"BZh", "bzip2: unpack it first"),
    (b"\xfd7zXZ", "xz: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstd: unpack it first"),
    (b"PAR1", "a Parquet file: convert it to CSV first"),
)


@dataclass(frozen=True)
class Table:
    """Some rows of a file: a column of text for each name, all of the same length.

    ``misfit`` marks rows that could not be cut into columns (their fields are empty), ``misfit_reason`` says why,
    ``line`` is the line of the file a row begins on, from 1 (None: not from a file).
    """

    columns: Mapping[str, Fields]
    misfit: Flags
    misfit_reason: str
    line: IntArray | None = None


def load(path: str | PathLike[str]) -> bytes:
    """The text of a file as UTF-8 without byte-order mark, unpacked if it is gzip; lines end in LF or CRLF.

    Raises InputError (which does not name the file: the caller does) when there is no such text.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError("there is no such file") from None
    except IsADirectoryError:
        raise InputError("is a directory, not a file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"cannot be read: {reason}") from None
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except EOFError:
            raise InputError("is a gzip file that ends too early: fetch it again") from None
        except (OSError, zlib.error) as error:
            raise InputError(f"is a damaged gzip file ({error}): fetch it again") from None
    _check_text(data)
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data or data.isspace():
        raise InputError("is empty")
    # A lone CR ends lines in what old spreadsheets wrote on a Mac.
    return data if b"\n" in data else data.replace(b"\r", b"\n")


def _check_text(data: bytes) -> None:
    """Raise InputError, saying what it looks like, if the content is not UTF-8 text of a kind a trace can be in."""
    for magic, kind in _FOREIGN:
        if data.startswith(magic):
            raise InputError(f"is {kind}")
    if data[:200].lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        raise InputError("is a web page, not a trace: the download went wrong")
    if b"\0" in data:
        head = data[:1000]
        utf16 = max(head[::2].count(0), head[1::2].count(0)) > len(head) // 4
        raise InputError("is UTF-16 text: save it as UTF-8" if utf16 else "is binary: it holds NUL bytes")
    try:
        if not data.isascii():
            data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"is not UTF-8 text: byte 0x{data[error.start]:02x} in line {line}") from None


def first_line(text: bytes) -> tuple[str, int, int]:
    """The first line that is not blank, the position behind it, and its number from 1."""
    begin = len(text) - len(text.lstrip())
    begin = text.rfind(b"\n", 0, begin) + 1
    end = text.find(b"\n", begin)
    end = len(text) if end < 0 else end
    return text[begin:end].decode().strip(), end + 1, text.count(b"\n", 0, begin) + 1


def csv_header(text: bytes) -> list[str]:
    """The column names of a CSV text."""
    return [name.strip().removeprefix('"').removesuffix('"').strip() for name in first_line(text)[0].split(",")]


def csv_tables(text: bytes, names: Sequence[str]) -> Iterator[Table]:
    """The rows of a CSV text below its header, some at a time, with the columns ``names``.

    Fields may be quoted (RFC 4180), and then hold commas, newlines and doubled quotes. Blank lines are skipped; rows
    with more or fewer fields than the header are misfits. Raises InputError on a quote that is never closed, opens
    inside a field or closes before its end: where rows end could not be told then.
    """
    header = csv_header(text)
    _, position, line = first_line(text)
    # With quotes only a look at all of the text tells which newlines end a row.
    step = len(text) if b'"' in text else CHUNK_BYTES
    while position < len(text):
        stop = position + step
        stop = len(text) if stop >= len(text) else text.rfind(b"\n", position, stop) + 1 or text.find(b"\n", stop) + 1
        chunk = text[position : stop or len(text)]
        position += len(chunk)
        line += 1
        yield _cut(chunk, header, names, line)
        line += chunk.count(b"\n") - 1


def _cut(chunk: bytes, header: Sequence[str], names: Sequence[str], first: int) -> Table:
    """The rows of a chunk of whole lines, the first of them on line ``first``."""
    data = np.frombuffer(chunk, np.uint8)
    lines = newline = np.flatnonzero(data == _NEWLINE)
    comma = np.flatnonzero(data == _COMMA)
    if b'"' in chunk:
        quote = np.flatnonzero(data == _QUOTE)
        _check_quotes(data, quote, lines, first)
        # An odd number of quotes before it: inside a quoted field.
        newline = newline[np.searchsorted(quote, newline) % 2 == 0]
        comma = comma[np.searchsorted(quote, comma) % 2 == 0]
    start = np.concatenate([[0], newline + 1])
    end = np.concatenate([newline, [len(data)]])
    end -= (end > start) & (data[end - 1] == _RETURN)
    visible = Fields(data, start, end).stripped()
    kept = visible.start < visible.end
    start, end = start[kept], end[kept]
    low, high = np.searchsorted(comma, start), np.searchsorted(comma, end)
    misfit = high - low + 1 != len(header)
    comma = np.append(comma, 0)
    columns = {}
    for name in names:
        k = header.index(name)
        begin = start if k == 0 else comma.take(low + k - 1, mode="clip") + 1
        stop = end if k == len(header) - 1 else comma.take(low + k, mode="clip")
        begin, stop = np.where(misfit, 0, begin), np.where(misfit, 0, stop)
        quoted = (stop - begin >= 2) & (data.take(begin, mode="clip") == _QUOTE)
        columns[name] = Fields(data, begin + quoted, stop - quoted, csv=True)
    line = first + np.searchsorted(lines, start)
    return Table(columns, misfit, f"not the header's {len(header)} fields", line)


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


def json_row(line: str) -> Mapping[str, object] | None:
    """The object in a line of JSON, or None. Numbers with a point stay text, to be read exactly."""
    try:
        row = json.loads(line, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    return cast(Mapping[str, object], row) if isinstance(row, dict) else None


def json_tables(text: bytes, names: Sequence[str]) -> Iterator[Table]:
    """The rows of JSON lines, some at a time, with the columns ``names``; blank lines are skipped.

    Lines that are no JSON object are misfits. What is missing or null comes as an empty field.
    """
    lines = text.split(b"\n")
    for first in range(0, len(lines), CHUNK_LINES):
        chunk = lines[first : first + CHUNK_LINES]
        number = [k for k, line in enumerate(chunk) if line.strip()]
        rows = [json_row(chunk[k].decode()) for k in number]
        columns = {name: Fields.of([_as_text((row or {}).get(name)) for row in rows]) for name in names}
        misfit = np.array([row is None for row in rows], np.bool_)
        yield Table(columns, misfit, "not a JSON object", np.array(number, np.int64) + first + 1)


def _as_text(value: object) -> str:
    """A JSON value as a field of text."""
    return "" if value is None else value if isinstance(value, str) else str(value)
