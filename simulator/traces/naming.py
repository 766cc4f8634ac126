"""Which column is which: by the usual names for arrivals, prompts and outputs, or as the user says.

Units are stated or assumed aloud, never guessed. A time is a date, or a number in the unit that the user gives
(``created:ms``) or that the column's name ends in (``created_ms``). A number without either is taken for seconds, a
note says so, and one that cannot be seconds is an error.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from allocators.base import InputError
from simulator.messages.words import printable, short
from simulator.traces.notes import DATE, MICROSECONDS, MILLISECONDS, NANOSECONDS, SECONDS
from simulator.traces.notes import UNITS as SPOKEN
from simulator.traces.schema import Format
from simulator.traces.text.jsontext import Row, alternatives, literal

ROLES = ("arrival", "prompt", "output", "session", "block_hashes")
UNITS = {"s": SECONDS, "ms": MILLISECONDS, "us": MICROSECONDS, "ns": NANOSECONDS, "date": DATE}

_UNIT_WORDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), SECONDS),
    **dict.fromkeys(("ms", "msec", "milli", "millis", "millisecond", "milliseconds"), MILLISECONDS),
    **dict.fromkeys(("us", "usec", "micro", "micros", "microsecond", "microseconds"), MICROSECONDS),
    **dict.fromkeys(("ns", "nsec", "nano", "nanos", "nanosecond", "nanoseconds"), NANOSECONDS),
}
_ARRIVALS = {
    *("arrival", "arrival time", "arrival timestamp", "arrival ts", "arrival date", "arrived", "arrived at"),
    *("request arrival", "request arrival time"),
}
_TIMES = {
    *("time", "timestamp", "ts", "t", "date", "datetime", "date time", "event time", "log time"),
    *("created", "created at", "created time", "created on", "creation time", "when"),
    *("start", "start time", "start timestamp", "start ts", "start date", "started", "started at"),
    *("request time", "request timestamp", "request ts", "request start", "request start time", "request date"),
    *("requested at", "received", "received at", "received time", "sent", "sent at", "sent time"),
    *("submit time", "submitted", "submitted at", "issue time", "issued at", "enqueue time", "enqueued at"),
    *("epoch", "epoch time", "unix", "unix time", "unix timestamp", "time unix", "start time unix", "timestamp unix"),
}
_TOKENS = {
    "prompt": ("prompt", "prompts", "input", "inputs", "context", "prefill", "in", "isl"),
    "output": ("output", "outputs", "completion", "generated", "generation", "gen", "response", "decode", "out", "osl"),
}
_COUNTS = {"tokens", "token", "toks", "tok", "len", "length", "lens", "count", "number", "num", "n", "of"}
_ALONE = {"isl", "osl"}  # sequence lengths already
_USAGE = {"usage"}  # the object that OpenAI's answers have token counts in
_OTHERS = {
    "session": {"session", "session id", "conversation", "conversation id", "thread id", "dialog id", "dialogue id"},
    "block_hashes": {"block hashes", "hash ids"},
}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PART = re.compile(r'\s*(\w+)\s*=\s*("(?:[^"]|"")*"[^,]*|[^,"]*)(,|$)')
_SIMILAR = 0.6  # of two names: less is chance
_MOST_NAMES, _DEEPEST = 50, 4


def names_of(row: Row) -> list[str]:
    """The names of a row's values, those of objects inside it as paths: ``usage.prompt_tokens``."""
    return list(_leaves(row, "", 1))


def _leaves(row: Row, front: str, depth: int) -> Iterator[str]:
    for name, value in row.items():
        if isinstance(value, Mapping) and value and depth < _DEEPEST:
            yield from _leaves(value, f"{front}{name}.", depth + 1)
        else:
            yield f"{front}{name}"


def usual_format(names: Sequence[str], kind: str) -> Format | None:
    """The neutral format with the columns that have usual names; without a time if none has one of a time.

    None without a prompt and an output. Raises InputError where two columns may be meant.
    """
    found = {role: _best(role, names) for role in ROLES}
    if not (found["prompt"] and found["output"]):
        return None
    for role in ("arrival", "prompt", "output"):
        if len(found[role]) > 1:
            raise InputError(f"has several columns for {role}: {', '.join(found[role])}; {option_hint(names)}")
    first = {role: some[0] for role, some in found.items() if some}
    return _format("neutral", kind, first, None, "columns by their usual names")


def named_format(columns: str | Mapping[str, str], names: Sequence[str], kind: str) -> Format:
    """The format with the columns that a user names. Raises InputError, with the file's columns, for wrong ones."""
    there = f"the columns of the file are {short(', '.join(names), 400)}"
    wanted = _parsed(columns, there)
    unknown = [role for role in wanted if role not in ROLES]
    if unknown:
        raise InputError(f"columns: unknown key {short(unknown[0])}; the keys are {', '.join(ROLES)}; {there}")
    lacking = [role for role in ("prompt", "output") if not wanted.get(role)]
    if lacking:
        raise InputError(f"columns: {lacking[0]}=NAME is lacking; {there}")
    unit = None
    if wanted.get("arrival", "") not in names:
        wanted, unit = _without_unit(wanted, there)
    for role, name in wanted.items():
        if name not in names and not any(other.startswith(f"{name}.") for other in names):
            raise InputError(f"columns: {role}={name}: there is no such column; {there}")
        if (others := [other for other in wanted if other != role and wanted[other] == name]) and others:
            raise InputError(f"columns: {name} cannot be both {role} and {others[0]}; {there}")
    return _format("columns", kind, wanted, unit)


def with_doubt(form: Format, known: Iterable[Format]) -> Format:
    """The format with usual names; where they are those of known formats, in whose units is not to be told."""
    columns = (form.time, form.prompt, form.output)
    same = [f"{one.name} ({SPOKEN[one.unit]})" for one in known if one.time and one.needed == columns]
    if form.stated or not same:
        return form
    return replace(form, doubt=f"may be in any unit, for the columns are named as in {', '.join(same)}")


def of_durations(form: Format) -> Format:
    """The format where the times are durations, which know their unit themselves, whatever the column is called."""
    return replace(form, unit=SECONDS, dates=False, stated=True, doubt="")


def as_option(columns: Mapping[str, str], unit: str = "") -> str:
    """The option that names these columns, and the unit of the arrival, as one types it in a shell."""
    parts = {role: _quoted(name) for role, name in columns.items()}
    if unit:
        parts["arrival"] += f":{unit}"
    return "--columns " + shlex.quote(printable(",".join(f"{role}={name}" for role, name in parts.items())))


def option_hint(names: Sequence[str]) -> str:
    """The option for a file with these columns, ready to be typed; COLUMN where none of them looks right."""
    guesses: dict[str, str] = {}
    for role in ("arrival", "prompt", "output"):
        left = [name for name in names[:_MOST_NAMES] if name not in guesses.values()]
        usual = [name for name in _best(role, names) if name in left]
        guesses[role] = usual[0] if usual else _similar(role, left)
    return f"say which is which: {as_option(guesses)}"


def of_columns(form: Format) -> dict[str, str]:
    """The columns of a format by their role, as :func:`named_format` takes them."""
    every = zip(ROLES, (form.time, form.prompt, form.output, form.session, form.block_hashes), strict=True)
    return {role: alternatives(name)[0] for role, name in every if name}


def _format(name: str, kind: str, columns: Mapping[str, str], unit: int | None, remark: str = "") -> Format:
    if remark:
        remark = f"{remark}: {', '.join(f'{role}={column}' for role, column in columns.items())}"
    plain = {role: literal(column) for role, column in columns.items()}
    said = _unit_in(columns.get("arrival", "")) if unit is None else unit
    return Format(
        name,
        kind,
        SECONDS if said is None else said,
        time=plain.get("arrival", ""),
        prompt=plain["prompt"],
        output=plain["output"],
        session=plain.get("session", ""),
        block_hashes=plain.get("block_hashes", ""),
        remark=remark,
        dates=unit is None,
        stated=said is not None or "arrival" not in columns,
    )


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _unit_in(name: str) -> int | None:
    """The unit that a column's name ends in."""
    words = _words(name)
    return _UNIT_WORDS.get(words[-1]) if len(words) > 1 else None


def _best(role: str, names: Sequence[str]) -> list[str]:
    """The columns that are most likely meant by a role."""
    ranks = {name: rank for name in names if (rank := _rank(role, name)) is not None}
    return [name for name, rank in ranks.items() if rank == min(ranks.values())]


def _rank(role: str, name: str) -> int | None:
    """How well a name fits a role, 0 is best; None where it does not."""
    words = _words(name)
    if role == "arrival":
        if _unit_in(name) is not None:
            words = words[:-1]
        text = " ".join(words)
        return 0 if text in _ARRIVALS else 1 if text in _TIMES else None
    if role in _OTHERS:
        return 0 if " ".join(words) in _OTHERS[role] else None
    said, rest = [word for word in words if word in _TOKENS[role]], set(words) - set(_TOKENS[role])
    if len(said) != 1 or rest - _COUNTS - _USAGE:
        return None
    if rest & _USAGE:
        return 1 if rest & _COUNTS else None
    return 0 if rest & _COUNTS or said[0] in _ALONE else 2


def _similar(role: str, names: Sequence[str]) -> str:
    """The name that is most like a usual one of a role; COLUMN where none is."""
    usual = (*_ARRIVALS, *_TIMES) if role == "arrival" else [f"{word} tokens" for word in _TOKENS[role]]
    likeness = {
        name: max(SequenceMatcher(None, one, " ".join(_words(name[:_MOST_NAMES]))).ratio() for one in usual)
        for name in names
    }
    best = max(likeness, key=lambda name: likeness[name], default="")
    return best if best and likeness[best] > _SIMILAR else "COLUMN"


def _parsed(columns: str | Mapping[str, str], there: str) -> dict[str, str]:
    """The column of each role, from a text such as ``arrival=time,prompt="in, tokens",output=out``."""
    if not isinstance(columns, str):
        return {str(role): str(name) for role, name in columns.items()}
    found: dict[str, str] = {}
    place = 0
    while place < len(columns) or not place:
        part = _PART.match(columns, place)
        if part is None:
            raise InputError(f"columns(={short(columns)}) must be like arrival=NAME,prompt=NAME,output=NAME; {there}")
        role, name = part[1], part[2].strip()
        if role in found:
            raise InputError(f"columns: {role} is given twice; {there}")
        if name.startswith('"'):
            quoted, _, rest = name[1:].replace('""', "\0").partition('"')
            name = quoted.replace("\0", '"') + rest
        found[role] = name
        place = part.end() + (not part[3] and place == part.end())
    return found


def _without_unit(wanted: dict[str, str], there: str) -> tuple[dict[str, str], int | None]:
    """The arrival's column without the unit after it, and that unit."""
    name, colon, unit = wanted.get("arrival", "").rpartition(":")
    if not colon:
        return wanted, None
    if unit not in UNITS:
        raise InputError(f"columns: arrival={name}:{unit}: the unit must be one of {', '.join(UNITS)}; {there}")
    return {**wanted, "arrival": name}, UNITS[unit]


def _quoted(name: str) -> str:
    """A column's name as it stands in the option."""
    return '"' + name.replace('"', '""') + '"' if "," in name or '"' in name else name
