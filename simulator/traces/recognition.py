"""Which format a file is in, by its first row; or what it lacks of the format that is nearest."""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

from allocators.base import InputError
from simulator.messages.words import short
from simulator.traces.formats import FORMATS, NEUTRAL
from simulator.traces.naming import named_format, names_of, option_hint, usual_format, with_doubt
from simulator.traces.rows import NO_ARRIVALS
from simulator.traces.schema import Format, NoArrivalsError, Reading
from simulator.traces.text.jsontext import Row, alternatives

_NAMES, _NAME_CHARS = 50, 40  # of a first row: enough to see what it is like
_SIMILAR = 0.6  # of two names: less is chance


def chosen(
    line: str, first: Row, kind: str, wanted: Format | str | Mapping[str, str] | None, reading: Reading
) -> Format:
    """The format of a file with this first row; of one without arrivals known, only if none are needed."""
    if isinstance(wanted, str | Mapping):
        form = named_format(wanted, names_of(first), kind)
    else:
        form = _choose(line, first, kind, wanted)
    others = first.keys() - {alternatives(column)[0] for column in form.columns}
    needs_arrivals = not form.time and reading.rate is None and not reading.lengths_only
    if needs_arrivals and others and form.edit is None:
        raise NoArrivalsError(f"{NO_ARRIVALS}; or if a column has them, {option_hint(names_of(first))}")
    return form


def _choose(line: str, first: Row, kind: str, wanted: Format | None) -> Format:
    """The format with this first row; the one wanted, if it has the columns for it."""
    known = [form for form in FORMATS if kind in form.kind.split("|") and wanted in (None, form)]
    fitting = [form for form in known if not missing(form, first) and (wanted is not None or form.matches(first))]
    timed = [form for form in fitting if form.time or form.edit]
    if timed:
        return timed[0]
    usual = usual_format(names_of(first), kind) if wanted is None else None
    if usual is not None and (usual.time or not fitting):
        return with_doubt(usual, FORMATS)
    if fitting:
        return fitting[0]
    # The format that lacks the fewest columns is most likely meant, if it has any of them or was asked for.
    for form in sorted(known, key=lambda form: len(missing(form, first))):
        lacking = missing(form, first)
        if 0 < len(lacking) < len(form.needed) or (lacking and wanted):
            hint = "" if wanted else f"; or {option_hint(names_of(first))}"
            raise InputError(f"{_lacks(lacking, list(first))} (taken for the format {form.name}){hint}")
    for mark, word in ((";", "semicolons"), ("\t", "tabs")):
        if kind == "csv" and line.count(mark) >= 1 and line.count(mark) >= line.count(","):
            raise InputError(f"is separated by {word}: save it with commas; it begins with {short(line)}")
    if wanted:
        needs = f"it needs {wanted.kind.upper().replace('|', ' or ')} with {', '.join(wanted.needed)}"
        raise InputError(f"is not in the format {wanted.name}: it begins with {short(line)}; {needs}")
    nearest = ", ".join(dict.fromkeys(form.name for form in _nearest_first(kind, list(first))))
    names = names_of(first)
    if kind == "csv" and all(name.replace(".", "", 1).isdecimal() for name in names if name):
        way = f"put a line with names above it, such as {','.join(NEUTRAL.needed)}"
    else:
        way = option_hint(names) if names else ""
    columns = f"its columns are {short(', '.join(names), 400)}" if names else f"it begins with {short(line)}"
    told = "; ".join(part for part in (columns, way, f"nearest first, they are {nearest}") if part)
    raise InputError(f"is in none of the known formats: {told}")


def _nearest_first(kind: str, found: Sequence[str]) -> list[Format]:
    """All formats, those with the most columns of similar names first; of as many, those of the same kind."""
    names = [name[:_NAME_CHARS].lower() for name in found[:_NAMES]]

    def distance(form: Format) -> tuple[float, bool]:
        columns = [name.partition("|")[0].lower() for name in form.needed]
        nearest = (
            max((SequenceMatcher(None, column, name).ratio() for name in names), default=0) for column in columns
        )
        return -sum(ratio for ratio in nearest if ratio > _SIMILAR), kind not in form.kind.split("|")

    return sorted(FORMATS, key=distance)


def missing(form: Format, first: Row) -> list[str]:
    """The columns that a format needs and a first row lacks."""
    return [name for name in form.needed if not set(alternatives(name)) & first.keys()]


def places(form: Format, found: Sequence[str]) -> dict[str, int]:
    """Which columns of a table hold what is read of it. Raises InputError when one is lacking or there twice."""
    if lacking := missing(form, dict.fromkeys(found, "")):
        raise InputError(_lacks(lacking, found))
    where = {}
    for column in dict.fromkeys((*form.columns, *form.also)):
        there = [name for name in alternatives(column) if name in found]
        if there and found.count(there[0]) > 1:
            raise InputError(f"has the column {there[0]} more than once")
        if there:
            where[column] = found.index(there[0])
    return where


def _lacks(lacking: Sequence[str], found: Sequence[str]) -> str:
    """The complaint about columns that are not there."""
    plural = "s" if len(lacking) > 1 else ""
    return f"lacks the column{plural} {', '.join(lacking)}; found {short(', '.join(found))}"
