"""JSON objects of any size, one after another, of which only what a format reads is kept.

Benchmarks write a whole run as one object, on one line of a gigabyte or on a million short ones. So an object is walked
through member by member, and a long array item by item.
"""

import json
from collections.abc import Iterator
from itertools import islice

from allocators.base import InputError
from simulator.files import MAX_LINE_BYTES, Text
from simulator.jsontext import Decimals, Row, Rows, json_row

MAX_VALUE_CHARS = 64 << 20
"""A longer value is none of a log: the arrays of a million requests take a tenth of it."""

_WHOLE = ("resourceSpans", "input_lens", "request_rate", "experiments")
"""An object with one of these may be longer than a line of a trace can be."""

_SKIPPED = ("itls", "ttfts", "latencies", "generated_texts")
"""Arrays that no format reads; they are most of a file."""

_SPLIT = "experiments"
"""genai-perf's one object: the rows are its ``experiments[].requests[]``."""

_CUT_CHARS = 16  # from the end of what is there: what is wrong so near may be only cut off
_DECODER = json.JSONDecoder(parse_float=Decimals, parse_constant=str)


class BrokenError(Exception):
    """No JSON, or only the beginning of it. ``line``: where, from 1."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


class Cursor:
    """A place in a JSON text, of which no more is in memory than the value that is read.

    What is read raises BrokenError where the text is no JSON or ends, and InputError where a value is too long.
    """

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = (chunk.decode() for chunk in chunks)
        self._buffer, self._place = "", 0
        self._counted, self._line = 0, 1  # how far lines are counted, and the line there

    @property
    def line(self) -> int:
        """The line of the place, from 1."""
        self._line += self._buffer.count("\n", self._counted, self._place)
        self._counted = self._place
        return self._line

    def peek(self) -> str:
        """The next character that is not blank; "" at the end."""
        while True:
            rest = self._buffer
            while self._place < len(rest) and rest[self._place] in " \t\r\n":
                self._place += 1
            if self._place < len(rest) or not self._read(1):
                return self._buffer[self._place : self._place + 1]

    def value(self) -> object:
        """The value that begins here. Numbers with a point stay text (:class:`Decimals`), to be read exactly."""
        self.peek()
        wanted = 1
        while True:
            try:
                value, end = _DECODER.raw_decode(self._buffer, self._place)
            except (ValueError, RecursionError) as error:
                if not self._may_go_on(error) or not self._read(wanted):
                    raise self._broken(error) from None
                wanted *= 2  # a value is decoded only a few times
                continue
            # A number at the end may go on: of 1.5e-3, 1 and 1.5 are numbers too.
            if end + 2 < len(self._buffer) or self._buffer[end - 1] in '}]"' or not self._read(1):
                self._place = end
                return value

    def items(self) -> Iterator[None]:
        """Stop at each item of the list that begins here; the caller reads it before the next."""
        return self._parts("[", "]")

    def members(self) -> Iterator[str]:
        """Stop at the value of each member of the object that begins here, and say its name; as with items."""
        for _ in self._parts("{", "}"):
            name = self.value() if self.peek() == '"' else None
            if not isinstance(name, str):
                raise BrokenError(self.line, "Expecting property name enclosed in double quotes")
            self._take(":")
            yield name

    def skip(self) -> None:
        """Read the value that begins here, a list by its items, and forget it."""
        if self.peek() != "[":
            self.value()
            return
        for _ in self.items():
            self.value()

    def skip_line(self) -> None:
        """Go to the end of the line."""
        while (end := self._buffer.find("\n", self._place)) < 0:
            self._place = len(self._buffer)
            if not self._read(1):
                return
        self._place = end

    def _parts(self, begin: str, end: str) -> Iterator[None]:
        self._take(begin)
        if self.peek() == end:
            self._take(end)
            return
        while True:
            yield
            if self.peek() == end:
                self._take(end)
                return
            self._take(",")

    def _take(self, character: str) -> None:
        if self.peek() != character:
            raise BrokenError(self.line, f"Expecting {character!r}")
        self._place += 1

    def _may_go_on(self, error: Exception) -> bool:
        """Whether what could not be decoded may be the beginning of a value."""
        if not isinstance(error, json.JSONDecodeError):
            return False
        cut = error.msg.startswith("Unterminated") or error.pos > len(self._buffer) - _CUT_CHARS
        if cut and len(self._buffer) - self._place > MAX_VALUE_CHARS:
            raise InputError(f"line {self.line}: a value is longer than {MAX_VALUE_CHARS:,} characters: that is no log")
        return cut

    def _broken(self, error: Exception) -> BrokenError:
        """What is wrong with the value that begins here, and on which line."""
        if not isinstance(error, json.JSONDecodeError):
            return BrokenError(self.line, "a value that is too deep, or a number that is too long")
        return BrokenError(self.line + self._buffer.count("\n", self._place, error.pos), error.msg)

    def _read(self, chunks: int) -> bool:
        """Read some more, and let go of what lies before the place; False at the end."""
        more = list(islice(self._chunks, chunks))
        if more:
            self._line, self._counted = self.line, 0
            self._buffer, self._place = self._buffer[self._place :] + "".join(more), 0
        return bool(more)


def holds_objects(text: Text) -> bool:
    """Whether :func:`object_rows` is to read a text: its first object is no line, or one that may be very long."""
    if not text.head.lstrip().startswith(b"{"):
        return False
    line, newline, _ = text.head.lstrip().partition(b"\n")
    if not newline and len(line) > MAX_LINE_BYTES:
        return True
    first = json_row(line.decode("utf-8", "replace"))
    return first is None or bool(first.keys() & set(_WHOLE))


def object_rows(text: Text) -> Rows:
    """The JSON objects of a text, one after another, without the arrays that no format reads.

    Of genai-perf's object the requests come as rows. An object that is broken is a row of None, if it is on one line
    and the next begins on another. Raises InputError where it is not.
    """
    cursor = Cursor(text.chunks)
    while cursor.peek():
        line, whole = cursor.line, True
        try:
            for row_line, row, is_part in _object(cursor):
                whole &= not is_part
                yield row_line, row
        except BrokenError as error:
            if error.line != line or not whole:
                raise InputError(f"line {error.line} is no JSON ({error}), or the file breaks off there") from None
            yield line, None
            cursor.skip_line()


def _object(cursor: Cursor) -> Iterator[tuple[int, Row | None, bool]]:
    """The rows of one object: itself, or its parts; the line of each, and whether it is a part."""
    line = cursor.line
    row: dict[str, object] = {}
    split = False
    for name in cursor.members():
        if name == _SPLIT and cursor.peek() == "[":
            split = True
            for part_line, part in _requests(cursor):
                yield part_line, part, True
        elif name in _SKIPPED:
            cursor.skip()
            row[name] = []
        else:
            row[name] = cursor.value()
    if not split:
        yield line, row, False


def _requests(cursor: Cursor) -> Rows:
    """What stands in ``requests`` of each item of a list."""
    for _ in cursor.items():
        for name in cursor.members():
            if name != "requests" or cursor.peek() != "[":
                cursor.skip()
                continue
            for _ in cursor.items():
                cursor.peek()
                line, value = cursor.line, cursor.value()
                yield line, value if isinstance(value, dict) else None
