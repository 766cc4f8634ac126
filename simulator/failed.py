"""Failed requests of a log: dropped, and counted by reasons that are few and short."""

from collections.abc import Mapping

from simulator.jsontext import Dropped

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
