"""A place in a JSON text of any size, which is walked through value by value.

Cut by Python's own decoder. A streaming parser (ijson over YAJL) is no slower, but refuses NaN, which Python's own logs
have, stops at the first bad line of a log, and does not say which line that is.
"""

import json
from collections.abc import Iterator
from itertools import islice

from allocators.base import InputError
from simulator.traces.text.jsontext import BETWEEN, BLANKS, decoded

MAX_VALUE_CHARS = 64 << 20
"""A longer value is none of a trace: the arrays of a million requests take a tenth of it."""

_CUT_CHARS = 16  # from the end of what is there: what is wrong so near may be only cut off


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
        return self._after(BLANKS)

    def at_text(self) -> bool:
        """Whether another text begins after blanks and byte-order marks, and not the end."""
        return bool(self._after(BETWEEN))

    def value(self) -> object:
        """The value that begins here. Numbers with a point stay text (:class:`~.jsontext.Decimals`)."""
        self.peek()
        wanted = 1
        while True:
            try:
                value, end = decoded(self._buffer, self._place)
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

    def _after(self, skipped: str) -> str:
        """Go to the next character that is none of these, and say it; "" at the end."""
        while True:
            while (found := self._buffer[self._place : self._place + 1]) and found in skipped:
                self._place += 1
            if found or not self._read(1):
                return found

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
            raise InputError(
                f"line {self.line}: a value is longer than {MAX_VALUE_CHARS:,} characters: that is none of a trace"
            )
        return cut

    def _broken(self, error: Exception) -> BrokenError:
        """What is wrong with the value that begins here, and on which line."""
        if not isinstance(error, json.JSONDecodeError):
            return BrokenError(self.line, "a value that is too deep")
        return BrokenError(self.line + self._buffer.count("\n", self._place, error.pos), error.msg)

    def _read(self, chunks: int) -> bool:
        """Read some more, and let go of what lies before the place; False at the end."""
        more = list(islice(self._chunks, chunks))
        if more:
            self._line, self._counted = self.line, 0
            self._buffer, self._place = self._buffer[self._place :] + "".join(more), 0
        return bool(more)
