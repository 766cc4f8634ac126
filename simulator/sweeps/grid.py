"""Grids in the command line's mini-language: one text stands for several values.

``paged:block_size={1,8,16}`` is three allocators, ``--capacity 8000,16000`` two pools, ``--rate 1:8:0.5`` every half
from 1 to 8: START:STOP:STEP has both ends in it, and is reckoned in decimals, so that 0.1:0.3:0.1 ends with 0.3. A
part of a list may be a range, in braces too. In Python numbers do as well, and whatever holds several of them: a list,
a range, an array, a set (in ascending order).
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from decimal import Decimal, InvalidOperation
from itertools import islice, product
from numbers import Integral
from typing import Any

from allocators.base import InputError, in_short, whole

Several = int | float | str | Iterable[int | float]
"""One number, a text of several, or several numbers."""

MOST_VALUES = 100_000
"""The most values one text may stand for, and the most runs of a sweep."""

_MOST_DIGITS = 12  # before and behind the point, so that the decimals stay exact
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"[-+.\deE]+(:[-+.\deE]+){1,2}")


def expand(spec: str) -> list[str]:
    """The specs that a spec with lists in braces stands for, the last list changing fastest.

    Raises InputError for braces that do not match, an empty list, a part of a list that is empty, or too many specs.
    """
    pieces = _BRACES.split(spec)  # text, list, text, list, ..., text
    if any(brace in text for text in pieces[::2] for brace in "{}"):
        raise InputError(f"{spec!r}: braces must come in pairs, one list in each, as in paged:block_size={{1,8,16}}")
    if any(not text.strip() for text in pieces[1::2]):
        raise InputError(f"{spec!r}: a list in braces is empty; give values, as in paged:block_size={{1,8,16}}")
    choices = [[text] if nth % 2 == 0 else _values(f"{spec!r}", text) for nth, text in enumerate(pieces)]
    check_runs(choices)
    return ["".join(chosen) for chosen in product(*choices)]


def wholes(name: str, given: Several, at_least: int = 1) -> list[int]:
    """The whole numbers that ``given`` stands for, in order. Raises InputError for anything else, or for none."""
    values = [_whole(name, text) for text in _values(name, given)] if isinstance(given, str) else several(name, given)
    found = [whole(name, value, at_least) for value in values]
    _check_some(name, found)
    return found


def positives(name: str, given: Several) -> list[float]:
    """The finite numbers above 0 that ``given`` stands for. Raises InputError for anything else, or for none."""
    texts = _values(name, given) if isinstance(given, str) else several(name, given)
    found = []
    for text in texts:
        try:
            number = math.nan if isinstance(text, bool) else float(text)
        except (ValueError, TypeError):
            number = math.nan
        if not 0 < number < math.inf:
            said = text if isinstance(text, str) else in_short(text)
            raise InputError(f"{name}(={said}) must be a finite number > 0")
        found.append(number)
    _check_some(name, found)
    return found


def seeds_of(name: str, given: Several) -> list[int]:
    """The seeds: so many from 0 on for one number, those listed for several."""
    if isinstance(given, str) and given.strip().isdecimal():
        given = int(given)
    if isinstance(given, Integral | float) and not isinstance(given, bool):
        count = whole(name, given)
        if count > MOST_VALUES:
            raise InputError(f"{name}(={count}) must be at most {MOST_VALUES:,}")
        return list(range(count))
    return wholes(name, given, at_least=0)


def several(name: str, given: Any) -> list[Any]:
    """The values that something holds, or it alone; a set's in ascending order. Raises InputError for too many."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        return [given]
    if hasattr(given, "tolist"):  # an array: its numbers as Python has them
        given = given.tolist()
        return given if isinstance(given, list) else [given]
    found = list(islice(given, MOST_VALUES + 1))
    if len(found) > MOST_VALUES:
        raise InputError(f"{name} has more than {MOST_VALUES:,} values")
    return sorted(found, key=_place) if isinstance(given, Set) else found


def check_runs(choices: Iterable[Sequence[object]]) -> int:
    """How many combinations there are of these. Raises InputError for more than a sweep can have."""
    count = math.prod(map(len, choices))
    if count > MOST_VALUES:
        raise InputError(f"the grid has {count:,} runs; {MOST_VALUES:,} is the most")
    return count


def _place(value: object) -> tuple[float, str]:
    """Where a value of a set goes: numbers by size, then the rest by name."""
    number = float(value) if isinstance(value, int | float) else math.inf
    return number, str(value)


def _values(name: str, text: str) -> list[str]:
    """The parts of a list, ranges spelled out."""
    found: list[str] = []
    for part in text.split(","):
        part = part.strip()
        if not part:
            raise InputError(f"{name}: the list {text!r} has a part with nothing in it; give value,value or START:STOP")
        found += _range(name, part) if _RANGE.fullmatch(part) else [part]
    return found


def _range(name: str, text: str) -> list[str]:
    try:
        start, stop, *rest = map(Decimal, text.split(":"))
        step = rest[0] if rest else Decimal(1)
    except InvalidOperation:
        raise InputError(f"{name}: {text!r} must be START:STOP or START:STOP:STEP, in decimals") from None
    if not step > 0 or not start <= stop:
        raise InputError(f"{name}: the range {text!r} is empty; START <= STOP and STEP > 0 have something in them")
    if any(abs(number.adjusted()) > _MOST_DIGITS for number in (start, stop, step)):
        raise InputError(f"{name}: the numbers of the range {text!r} must have at most {_MOST_DIGITS} digits")
    if (stop - start) / step >= MOST_VALUES:
        raise InputError(f"{name}: the range {text!r} has more than {MOST_VALUES:,} values")
    return [f"{(start + step * nth).normalize():f}" for nth in range(int((stop - start) / step) + 1)]


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(f"{name}(={text}) must be a whole number, or a list of them") from None


def _check_some(name: str, values: Sequence[object]) -> None:
    if not values:
        raise InputError(f"{name} has no value: an empty grid has no runs")
