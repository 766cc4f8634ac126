"""JSON texts cut into rows: one object a line, the objects of lists, or objects of any size one after another.

Benchmarks write a whole run as one object, on one line of a gigabyte or on a million short ones. Such an object is
walked through member by member, and a long array item by item, of which only what a format reads is kept.
"""

from collections.abc import Iterator

from allocators.base import InputError
from simulator.traces.text.jsoncursor import BrokenError, Cursor
from simulator.traces.text.jsontext import Row, Rows, json_row
from simulator.traces.text.opening import MAX_LINE_BYTES, Text, check_line

_WHOLE = ("resourceSpans", "input_lens", "request_rate", "experiments")
"""An object with one of these may be longer than a line of a trace can be."""

_SKIPPED = ("itls", "ttfts", "latencies", "generated_texts")
"""Arrays that no format reads; they are most of a file."""

_SPLIT = "experiments"
"""genai-perf's one object: the rows are its ``experiments[].requests[]``."""


def is_json(text: Text) -> bool:
    """Whether a text begins as JSON does."""
    return text.head.lstrip().startswith((b"{", b"["))


def json_rows(text: Text) -> Rows:
    """The rows of a text of JSON: of lists, of lines (blank ones are skipped), or of objects of any size.

    Raises InputError on what is too long, and where a list or an object breaks off, or a list is followed by anything
    but another: what comes after is lost.
    """
    if text.head.lstrip().startswith(b"["):
        return _list_rows(text)
    return object_rows(text) if holds_objects(text) else _line_rows(text)


def _line_rows(text: Text) -> Rows:
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


def _list_rows(text: Text) -> Rows:
    """The objects of lists, one list after the other. The elements are decoded one by one."""
    cursor = Cursor(text.chunks)
    number = 0
    while cursor.at_text():
        if cursor.peek() != "[":
            raise InputError(f"line {cursor.line}: more than blanks stands after the list, and it is no other list")
        inside = False
        try:
            for _ in cursor.items():
                inside = True
                cursor.peek()
                line, value = cursor.line, cursor.value()
                inside = False
                number += 1
                yield line, value if isinstance(value, dict) else None
        except BrokenError:
            if cursor.peek() and not inside:
                raise InputError(f"line {cursor.line}: neither a comma nor a bracket after a row of the list") from None
            raise InputError(f"row {number + 1} (line {cursor.line}) of the list is no whole JSON object") from None


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
    while cursor.at_text():
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
    """The rows of one object: itself, or its parts; the line of each, and whether it is a part.

    An object with two values for a key, of which none is meant for certain, is None.
    """
    line = cursor.line
    row: dict[str, object] = {}
    split = contradicts = False
    for name in cursor.members():
        if name == _SPLIT and cursor.peek() == "[":
            split = True
            for part_line, part in _requests(cursor):
                yield part_line, part, True
            continue
        if name in _SKIPPED:
            cursor.skip()
            value: object = []
        else:
            value = cursor.value()
        contradicts |= row.setdefault(name, value) != value
    if not split:
        yield line, None if contradicts else row, False


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
