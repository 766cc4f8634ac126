"""Files read by a user's own reader: its rows are checked, sorted and counted as those of any file."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from allocators.base import InputError
from simulator.messages.words import short
from simulator.traces.columns import cell
from simulator.traces.formats import NEUTRAL, OWN_FORMATS, OwnFormat
from simulator.traces.rows import read_tables
from simulator.traces.schema import Columns, Reading, Report
from simulator.traces.text.jsontext import Rows, json_tables
from simulator.traces.text.opening import BEGINNING, Text, first_line, is_parquet


def own_format(text: Text) -> OwnFormat | None:
    """The first registered reader that knows a text by its first line."""
    if is_parquet(text):
        return None
    line = first_line(text.head[:BEGINNING])[0]
    return next((own for own in OWN_FORMATS.values() if own.matches is not None and own.matches(line)), None)


def read_own(form: OwnFormat, text: Text, reading: Reading, told: "Counter[str]") -> tuple[Columns, Report]:
    """Read a text with a reader of the user's own."""
    if is_parquet(text):
        raise InputError(f"is a Parquet file: the reader {form.name} is for lines of text")
    columns, report = read_tables(NEUTRAL, json_tables(_own_rows(form, text), NEUTRAL.columns), reading, told)
    return columns, replace(report, format=form.name)


def _own_rows(form: OwnFormat, text: Text) -> Rows:
    place = 0

    def lines() -> Iterator[str]:
        nonlocal place
        rest = b""
        for chunk in text.chunks:
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                place += 1
                yield line.decode().removesuffix("\r")
        if rest:
            place += 1
            yield rest.decode().removesuffix("\r")

    try:
        for row in form.reader(lines()):
            if not isinstance(row, Mapping):
                raise TypeError(f"it yields {short(repr(row))}, no mapping of columns")
            yield place, {name: cell(row[name]) for name in NEUTRAL.columns if row.get(name) is not None}
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"the reader {form.name} failed at line {place}: {type(error).__name__}: {error}") from error
