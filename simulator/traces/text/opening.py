"""A trace file opened: clean text in chunks, whatever a spreadsheet, a web server or a failed download did to it."""

import codecs
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from os import PathLike
from pathlib import Path

import numpy as np

from allocators.base import InputError
from simulator.traces.text.fields import Fields, Flags, IntArray

CHUNK_BYTES = 1 << 19
BEGINNING = 1 << 16
"""Bytes that show the first row; a list of JSON may be one line of gigabytes."""

MAX_LINE_BYTES = 4 << 20
"""A longer line is no row of a trace: one of a million tokens in blocks of 16 takes a third of it."""

MAX_UNPACKING = 250
"""What is no row may unpack to so many times the size of a gzip file; logs reach 30, a decompression bomb 1,000.

Rows are not counted: equal ones reach 500, and there is a limit to their number already.
"""

_ROW_BYTES = 256  # a longer line that is packed so small is counted as no row

_UNPACKING_FROM = 64 << 20  # bytes; below, any factor is harmless
_HEAD_BYTES = 4096
_FOREIGN = (
    (b"version https://git-lfs.github.com/", "a Git-LFS pointer, not the data: fetch it with git lfs pull"),
    (b"\xff\xfe\0\0", "UTF-32 text: save it as UTF-8"),
    (b"\0\0\xfe\xff", "UTF-32 text: save it as UTF-8"),
    (b"\xff\xfe", "UTF-16 text: save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text: save it as UTF-8"),
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"BZh", "bzip2: unpack it first"),
    (b"\xfd7zXZ", "xz: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstd: unpack it first"),
)
_PARQUET = b"PAR1"


def ignore(count: int) -> None:
    """Progress that nobody watches."""
    del count


@dataclass(frozen=True)
class Table:
    """Some rows of a file: a column of text for each name, all of the same length.

    ``misfit`` marks rows that could not be cut into columns (their fields are empty), ``misfit_reason`` says why, and
    ``own_reasons`` why of rows with a reason of their own. ``line`` is the line of the file a row begins on, from 1
    (None: not from lines).
    """

    columns: Mapping[str, Fields]
    misfit: Flags
    misfit_reason: str
    line: IntArray | None = None
    own_reasons: Mapping[int, str] = field(default_factory=dict)

    def why_misfit(self, row: int) -> str:
        """Why a row that is a misfit is one."""
        return self.own_reasons.get(row, self.misfit_reason)


@dataclass(frozen=True)
class Text:
    """UTF-8 without a byte-order mark, lines ending in LF or CRLF; cut anywhere but inside a character.

    ``head`` is its first chunk, with one whole line at least that is not blank, if there are lines at all. ``chunks``
    is all of it, the head included, and can be gone through once.
    """

    head: bytes
    chunks: Iterator[bytes]


def open_text(path: str | PathLike[str], advance: Callable[[int], object] = ignore) -> Text:
    """Open a text, plain or gzip. ``advance`` is told the bytes of the file as they are read.

    A Parquet file comes as it is, see :func:`is_parquet`.

    Raises InputError (which does not name the file: the caller does), now or while the chunks are read, when it is no
    text of a kind that a trace can be in.
    """
    blocks = read_blocks(path, advance)
    first = next(blocks, b"")
    while 0 < len(first) < 2 and (more := next(blocks, b"")):
        first += more
    blocks = chain([first], blocks)
    if first.startswith(_PARQUET):
        return Text(first, blocks)
    pieces = _unpacked(blocks) if first.startswith(b"\x1f\x8b") else blocks
    head = bytearray()
    for piece in pieces:
        head += piece
        if len(head) >= _HEAD_BYTES and (len(head) > MAX_LINE_BYTES or b"\n" in head.lstrip()):
            break
    _check_kind(bytes(head))
    if not head.removeprefix(codecs.BOM_UTF8).strip():
        raise InputError("is empty")
    chunks = _clean(chain([bytes(head)], pieces), mac=b"\n" not in head)
    beginning = next(chunks)
    return Text(beginning, chain([beginning], chunks))


def is_parquet(text: Text) -> bool:
    """Whether it is no text at all but a Parquet file."""
    return text.head.startswith(_PARQUET)


def read_blocks(path: str | PathLike[str], advance: Callable[[int], object]) -> Iterator[bytes]:
    """The bytes of a file, some at a time. Raises InputError when it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            while block := file.read(CHUNK_BYTES):
                yield block
                advance(len(block))
    except FileNotFoundError:
        raise InputError("there is no such file") from None
    except IsADirectoryError:
        raise InputError("is a directory, not a file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"cannot be read: {reason}") from None


def _unpacked(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """What gzip members, one behind the other, unpack to. Never more than a chunk is unpacked at a time."""
    unpacker = zlib.decompressobj(wbits=31)
    packed = suspect = 0
    try:
        for block in blocks:
            packed += len(block)
            while block:
                if unpacker.eof:
                    block = block.lstrip(b"\0")  # padding, as tapes have it
                    if not block:
                        break
                    unpacker = zlib.decompressobj(wbits=31)
                given = len(block)
                piece = unpacker.decompress(block, CHUNK_BYTES)
                block = unpacker.unconsumed_tail or unpacker.unused_data
                if len(piece) > MAX_UNPACKING * (given - len(block)):
                    suspect += _no_rows(piece)
                if suspect > max(_UNPACKING_FROM, MAX_UNPACKING * (packed - len(block))):
                    raise InputError(
                        f"unpacks to more than {MAX_UNPACKING} times its size of what is no row (blank or long lines): "
                        "a decompression bomb; if it is a trace, gunzip it first"
                    )
                yield piece
        yield unpacker.flush()
    except zlib.error as error:
        raise InputError(f"is a damaged gzip file ({error}): fetch it again") from None
    if not unpacker.eof:
        raise InputError("is a gzip file that ends too early: fetch it again")


def _no_rows(piece: bytes) -> int:
    """How many bytes are in lines that are blank, or too long to be counted as rows."""
    data = np.frombuffer(piece, np.uint8)
    edges = np.concatenate([[0], np.flatnonzero(data == ord("\n")) + 1, [len(data)]])
    visible = np.concatenate([[0], np.cumsum(data > ord(" "))])[edges]
    length = np.diff(edges)
    return len(piece) - int(length[(np.diff(visible) > 0) & (length <= _ROW_BYTES)].sum())


def _check_kind(head: bytes) -> None:
    """Raise InputError, saying what it looks like, if a file that begins so cannot be a trace."""
    for magic, kind in _FOREIGN:
        if head.startswith(magic):
            raise InputError(f"is {kind}")
    if head[:200].removeprefix(codecs.BOM_UTF8).lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        raise InputError("is a web page, not a trace: the download went wrong")
    if any(_is_utf16(head[:1000], encoding) for encoding in ("utf-16-le", "utf-16-be")):
        raise InputError("is UTF-16 text: save it as UTF-8")


def _is_utf16(sample: bytes, encoding: str) -> bool:
    """Whether a beginning without a byte-order mark is UTF-16: it reads as text, half of it ASCII (digits, commas)."""
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeDecodeError:
        return False
    # Two letters of UTF-8 read as UTF-16 are one of another script, and two NUL bytes are no letter.
    return 2 * sum(map(str.isascii, text)) > len(text) and all(one.isprintable() or one in "\r\n\t" for one in text)


def _clean(pieces: Iterator[bytes], mac: bool) -> Iterator[bytes]:
    """The pieces as UTF-8, cut between characters. ``mac``: lines end in CR, as old spreadsheets wrote them."""
    line, rest = 1, b""
    begun = False
    for piece in pieces:
        text = rest + piece if rest else piece
        if not begun:
            text, begun = text.removeprefix(codecs.BOM_UTF8), True
        if b"\0" in text:
            line += text.count(b"\n", 0, text.index(b"\0"))
            raise InputError(f"holds a NUL byte in line {line}: it is binary, or damaged")
        rest = b""
        if not text.isascii():
            try:
                used = codecs.utf_8_decode(text, "strict", False)[1]
            except UnicodeDecodeError as error:
                raise _no_utf8(text[error.start], line + text.count(b"\n", 0, error.start)) from None
            text, rest = text[:used], text[used:]
        line += text.count(b"\n")
        yield text.replace(b"\r", b"\n") if mac else text
    if rest:
        raise _no_utf8(rest[0], line)


def _no_utf8(byte: int, line: int) -> InputError:
    return InputError(f"is not UTF-8 text: byte 0x{byte:02x} in line {line}")


def first_line(text: bytes) -> tuple[str, int, int]:
    """The first line that is not blank, the position behind it, and its number from 1.

    Raises InputError when it is too long for a line.
    """
    begin = len(text) - len(text.lstrip())
    begin = text.rfind(b"\n", 0, begin) + 1
    end = text.find(b"\n", begin)
    end = len(text) if end < 0 else end
    number = text.count(b"\n", 0, begin) + 1
    check_line(end - begin, number)
    return text[begin:end].decode("utf-8", "replace").strip(), end + 1, number


def check_line(length: int, number: int) -> None:
    """Raise InputError if a line, or a row, has more bytes than one of a trace can have."""
    if length > MAX_LINE_BYTES:
        raise InputError(f"line {number} is longer than {MAX_LINE_BYTES:,} bytes: that is no row of a trace")
