"""Trace files as their publishers wrote them: a line a format in :data:`FORMATS`, recognised from the content.

Every format comes down to three columns (time, prompt tokens, output tokens) and two more where a file has them
(session, block hashes). A row that cannot be used is dropped and counted by reason; a file that cannot be used is an
InputError of one line. Whatever the bytes in the file, nothing else is raised.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd

from allocators.base import InputError, one_of
from simulator.fields import Fields
from simulator.files import Table, csv_header, csv_tables, first_line, json_row, json_tables, load
from simulator.rows import DATE, MILLISECONDS, SECONDS, Columns, Format, Report, read_tables, short


def _is_mooncake(row: Mapping[str, object]) -> bool:
    # Qwen-Bailian and RAGPulse name their columns alike, but count in seconds.
    return "chat_id" not in row and isinstance(row["timestamp"], int) and isinstance(row.get("hash_ids", []), list)


NEUTRAL = Format(
    "neutral", csv_tables, SECONDS, "arrival_s", "prompt_tokens", "output_tokens", "session", "block_hashes"
)

FORMATS = (
    NEUTRAL,
    Format("azure", csv_tables, DATE, "TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    Format(
        "mooncake",
        json_tables,
        MILLISECONDS,
        "timestamp",
        "input_length",
        "output_length",
        block_hashes="hash_ids",
        matches=_is_mooncake,
    ),
)
"""Every format; the first that matches is taken. A new one is a line here."""


def read_file(path: str | PathLike[str], strict: bool = False, format: str | None = None) -> tuple[Columns, Report]:
    """Read a trace file, plain or gzip, in the format it is recognised to have or the one named.

    With ``strict``, a row that would be dropped is an error. Raises InputError, one line that names the file.
    """
    if format is not None:
        one_of("format", format, [known.name for known in FORMATS])
    try:
        text = load(path)
        form, columns = _recognise(text, format)
        return read_tables(form, form.tables(text, columns), strict)
    except InputError as error:
        raise InputError(f"trace file {short(str(path))}: {error}") from None


def read_frame(frame: pd.DataFrame) -> tuple[Columns, Report]:
    """Read a DataFrame with the columns of the neutral format, as if it had been written to a file first.

    Raises InputError, without a name in front, when a column is not there and on the first row that cannot be used.
    """
    labels = [str(label) for label in frame.columns]
    missing = [name for name in NEUTRAL.needed if name not in labels]
    if missing:
        raise InputError(_lacks(missing, labels))
    wanted = {*NEUTRAL.needed, NEUTRAL.session, NEUTRAL.block_hashes} & set(labels)
    _check_once(wanted, labels)
    texts = {name: Fields.of(_cells(frame.iloc[:, labels.index(name)])) for name in wanted}
    columns, report = read_tables(NEUTRAL, [Table(texts, np.zeros(len(frame), np.bool_), "")], strict=True)
    return columns, replace(report, format="frame")


def _cells(column: "pd.Series[Any]") -> list[str]:
    """The cells of a column as they would stand in a file; a missing one is empty, a sequence is spelled out."""
    missing = column.isna().tolist()
    return ["" if no else _cell(value) for value, no in zip(column.tolist(), missing, strict=True)]


def _cell(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple | np.ndarray) else str(value)


def _recognise(text: bytes, wanted: str | None) -> tuple[Format, list[str]]:
    """The format of a text, and which of the format's columns to read."""
    line, _, number = first_line(text)
    is_json = line.startswith(("{", "["))
    known = [f for f in FORMATS if (f.tables is json_tables) == is_json and wanted in (None, f.name)]
    first = json_row(line) if is_json else dict.fromkeys(csv_header(text), "")
    if first is None and line.startswith("{"):
        raise InputError(f"line {number} is not a JSON object: {short(line)}")
    first = first or {}
    complete = [f for f in known if set(f.needed) <= set(first) and (wanted is not None or f.matches(first))]
    if not complete:
        raise InputError(_unknown(line, first, known, wanted))
    form = complete[0]
    # JSON lines may leave out in the first row what they have in another.
    columns = [name for name in (*form.needed, form.session, form.block_hashes) if name in first or (name and is_json)]
    if not is_json:
        _check_once(columns, csv_header(text))
    return form, columns


def _check_once(columns: Iterable[str], found: Sequence[str]) -> None:
    """Raise InputError if one of these columns is there more than once."""
    for name in columns:
        if found.count(name) > 1:
            raise InputError(f"has the column {name} more than once")


def _unknown(line: str, first: Mapping[str, object], known: Sequence[Format], wanted: str | None) -> str:
    """The complaint about a text that no format matches."""
    # The format that lacks the fewest columns is most likely meant, if it has any of them or was asked for.
    for form in sorted(known, key=lambda form: len(set(form.needed) - set(first))):
        missing = [name for name in form.needed if name not in first]
        if 0 < len(missing) < len(form.needed) or (missing and wanted):
            return f"{_lacks(missing, list(first))} (taken for the format {form.name})"
    shapes = "; ".join(f"{form.name} ({','.join(form.needed)})" for form in FORMATS)
    kind = f"not in the format {wanted}" if wanted else "in none of the known formats"
    return f"is {kind}: it begins with {short(line)}; known are {shapes}"


def _lacks(missing: Sequence[str], found: Sequence[str]) -> str:
    """The complaint about columns that are not there."""
    plural = "s" if len(missing) > 1 else ""
    return f"lacks the column{plural} {', '.join(missing)}; found {short(', '.join(found))}"
