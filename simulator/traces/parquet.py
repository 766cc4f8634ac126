"""Parquet, a compressed table of columns: read by pyarrow, which comes with ``pip install 'kvfrag[parquet]'``.

Columns become text, as they would stand in a CSV, so that rows are read, checked and counted as those of any file.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from allocators.base import InputError
from allocators.dotted import optional
from simulator.traces.columns import NARROW_FLOATS, cell
from simulator.traces.schema import Format
from simulator.traces.text.fields import Fields
from simulator.traces.text.jsontext import alternatives
from simulator.traces.text.opening import Table

ROWS_AT_ONCE = 1 << 16


def pyarrow() -> Any:
    """The library, or an InputError that says how to get it."""
    for name in ("pyarrow", "pyarrow.compute", "pyarrow.parquet"):
        optional(name, "Parquet needs pyarrow: pip install 'kvfrag[parquet]'")
    return sys.modules["pyarrow"]


@contextmanager
def _damage_told() -> Iterator[None]:
    """What pyarrow says of a file that it cannot read, as an InputError."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # of a damaged file it raises anything
        raise InputError(f"is a damaged Parquet file: {' '.join(str(error).split())[:200]}") from None


def parquet_columns(path: str | PathLike[str]) -> list[str]:
    """The names of the columns."""
    library = pyarrow()
    with _damage_told(), library.parquet.ParquetFile(Path(path)) as file:
        return [str(name) for name in file.schema_arrow.names]


def column_kinds(path: str | PathLike[str], form: Format) -> dict[str, str]:
    """What the columns of a format hold in a file: ``float16``, ``float32``, ``duration``, or "" for any other kind."""
    library = pyarrow()
    with _damage_told(), library.parquet.ParquetFile(Path(path)) as file:
        kinds = {str(column.name): _kind(library, column.type) for column in file.schema_arrow}
    names = {column: next((name for name in alternatives(column) if name in kinds), "") for column in form.columns}
    return {column: kinds.get(name, "") for column, name in names.items()}


def _kind(library: Any, kind: Any) -> str:
    narrow = {library.float16(): "float16", library.float32(): "float32"}
    return "duration" if library.types.is_duration(kind) else narrow.get(kind, "")


def parquet_tables(
    path: str | PathLike[str], places: Mapping[str, int], advance: Callable[[int], object]
) -> Iterator[Table]:
    """The rows of a file, some at a time. ``places``: the names of columns, and which of the file's they are."""
    library = pyarrow()
    size = Path(path).stat().st_size
    with _damage_told(), library.parquet.ParquetFile(Path(path)) as file:
        names = [file.schema_arrow.names[place] for place in places.values()]
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=names):
            columns = {name: _fields(library, batch.column(label)) for name, label in zip(places, names, strict=True)}
            yield Table(columns, np.zeros(batch.num_rows, np.bool_), "")
            advance(size * batch.num_rows // max(1, file.metadata.num_rows))


def _fields(library: Any, column: Any) -> Fields:
    """A column of text, without a copy where it is plain; null is an empty field."""
    if kind := _kind(library, column.type):
        narrow = NARROW_FLOATS.get(kind, lambda value: value)
        return Fields.of(["" if value is None else cell(narrow(value)) for value in column.to_pylist()])
    try:
        texts = library.compute.cast(column, library.large_string())
    except (library.ArrowNotImplementedError, library.ArrowInvalid):
        return Fields.of(["" if value is None else cell(value) for value in column.to_pylist()])
    texts = texts.fill_null("")
    _, offsets, content = texts.buffers()
    edges = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(content, np.uint8) if content is not None and content.size else np.zeros(1, np.uint8)
    return Fields(data, edges[:-1], edges[1:])
