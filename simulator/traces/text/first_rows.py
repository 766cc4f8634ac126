"""The first rows of JSON, by which its format is told: a value that is null in one row is there in another."""

from itertools import chain

from allocators.base import InputError
from simulator.traces.text.jsontext import Row, Rows

_ROWS_LOOKED_AT, _CHARS_LOOKED_AT = 100, 1 << 20


def beginning(rows: Rows) -> tuple[list[tuple[int, Row | None]], Rows]:
    """The first rows, and all of them. What is wrong with the text after them is raised when it is reached."""
    first: list[tuple[int, Row | None]] = []
    chars = 0
    try:
        while len(first) < _ROWS_LOOKED_AT and chars <= _CHARS_LOOKED_AT and (one := next(rows, None)) is not None:
            first.append(one)
            chars += len(str(one[1]))
    except InputError as error:
        if not first:
            raise
        return first, _then_raise(list(first), error)
    return first, chain(first, rows)


def _then_raise(first: list[tuple[int, Row | None]], error: InputError) -> Rows:
    yield from first
    raise error


def merged(rows: list[Row]) -> Row:
    """The values of these rows; for each name the first that is not null: what is lacking in one is in another."""
    merged: dict[str, object] = {}
    for row in rows:
        merged |= {name: value for name, value in row.items() if merged.get(name) is None}
    return merged
