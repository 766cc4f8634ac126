"""What the readers of logs share: going row by row, nested values, failed requests counted by few, short reasons."""

from collections import Counter
from collections.abc import Callable, Mapping

from simulator.traces.schema import Edit, Reading
from simulator.traces.text.jsontext import Dropped, EditedRows, Row, Rows

MOST_REASONS = 8
"""How many reasons of a file are told apart: some name the request in each."""

_MOST_CHARS = 60


class Failures:
    """The reasons for which requests of one file failed."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, why: object) -> Dropped:
        """The row of a request that failed. ``why``: a text, a traceback (its last line counts), a code."""
        lines = str(why).strip().splitlines()
        words = "".join(letter if letter.isprintable() else " " for letter in lines[-1] if lines) if lines else ""
        reason = " ".join(words.split())[:_MOST_CHARS].rstrip() or "no reason given"
        if reason not in self._seen and len(self._seen) >= MOST_REASONS:
            reason = "another reason"
        self._seen.add(reason)
        return Dropped(f"failed: {reason}")


def row_by_row(make: Callable[[Row, Failures, "Counter[str]"], Row | Dropped | None]) -> Edit:
    """The edit that makes one row of each, or leaves it out (None); what it tells the counter becomes a note."""

    def edit(rows: Rows, reading: Reading, told: "Counter[str]") -> EditedRows:
        del reading
        failures = Failures()
        for line, row in rows:
            if row is None:
                yield line, None
            elif (made := make(row, failures, told)) is not None:
                yield line, made

    return edit


def within(value: object, *path: str) -> object:
    """What stands at the end of a path of names in nested JSON objects; None where there is nothing."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def in_words(error: object, *names: str) -> object:
    """An error that is an object of JSON: its members of these names, as far as they are there."""
    if not isinstance(error, Mapping):
        return error
    return " ".join(str(error[name]) for name in names if error.get(name) not in (None, ""))
