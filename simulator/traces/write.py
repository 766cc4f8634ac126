"""Traces written in the neutral format, whole or not at all, and exactly: what is read again is the same trace."""

import gzip
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from allocators.base import InputError
from simulator.files.writing import replacing
from simulator.traces.notes import SECONDS, plain_decimal
from simulator.traces.parquet import pyarrow
from simulator.traces.requests import RequestTable

ENDINGS = (".csv", ".csv.gz", ".parquet")
EXACT_FLOAT_NS = 2**23 * 10**9
"""Up to so many nanoseconds (97 days) a float of seconds is exact to the nanosecond."""

_ROWS_AT_ONCE = 1 << 16


def check_ending(path: Path, name: str = "") -> str:
    """The ending of a file that a trace can be written to, or an InputError."""
    for ending in reversed(ENDINGS):
        if path.name.lower().endswith(ending):
            if ending == ".parquet":
                pyarrow()
            return ending
    raise InputError(f"{name or 'path'}(={path}) must end in one of {', '.join(ENDINGS)}")


def write_trace(trace: RequestTable, path: Path, advance: Callable[[int], object] | None = None) -> None:
    """Write a trace to a file in the neutral format. ``advance`` is told the rows as they are written.

    Raises InputError when the file cannot be written, or cannot hold a session.
    """
    ending = check_ending(path)
    if ending != ".parquet" and trace.session is not None:
        for row, session in enumerate(trace.session.tolist()):
            if "\0" in session:
                raise InputError(
                    f"{path} cannot be written: the session of row {row + 1} holds a NUL byte; Parquet can"
                )
    write = _write_parquet if ending == ".parquet" else _write_gzip if ending == ".csv.gz" else _write_csv
    with replacing(path) as file:
        for rows in write(trace, file):
            if advance is not None:
                advance(rows)


def _parts(trace: RequestTable) -> Iterator["slice[int, int, None]"]:
    for first in range(0, len(trace), _ROWS_AT_ONCE):
        yield slice(first, min(first + _ROWS_AT_ONCE, len(trace)))


def _write_csv(trace: RequestTable, file: IO[bytes]) -> Iterator[int]:
    extras = [name for name in ("session", "block_hashes") if getattr(trace, name) is not None]
    file.write(",".join(["arrival_s", "prompt_tokens", "output_tokens", *extras]).encode() + b"\n")
    for part in _parts(trace):
        columns: list[Iterable[str]] = [
            (plain_decimal(time, SECONDS) for time in trace.arrival_ns[part].tolist()),
            map(str, trace.prompt_tokens[part].tolist()),
            map(str, trace.output_tokens[part].tolist()),
        ]
        if trace.session is not None:
            columns.append(map(_quoted, trace.session[part].tolist()))
        if trace.block_hashes is not None:
            columns.append(_quoted(str(list(hashes))) for hashes in trace.block_hashes[part].tolist())
        lines = "\n".join(map(",".join, zip(*columns, strict=True)))
        file.write(lines.encode("utf-8", "replace") + b"\n")
        yield part.stop - part.start


def _quoted(text: str) -> str:
    """A field as RFC 4180 has it. A carriage return alone must be quoted too: at a line's end it would be lost."""
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in '",\r\n') else text


def _write_gzip(trace: RequestTable, file: IO[bytes]) -> Iterator[int]:
    # Without the time and the name the same trace has the same bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
        yield from _write_csv(trace, packed)  # type: ignore[arg-type]


def _write_parquet(trace: RequestTable, file: IO[bytes]) -> Iterator[int]:
    library = pyarrow()
    exact = int(trace.arrival_ns[-1]) < EXACT_FLOAT_NS
    fields = {
        "arrival_s": library.float64() if exact else library.decimal128(19, 9),
        "prompt_tokens": library.int64(),
        "output_tokens": library.int64(),
    }
    if trace.session is not None:
        fields["session"] = library.string()
    if trace.block_hashes is not None:
        fields["block_hashes"] = library.list_(library.uint64())
    schema = library.schema(list(fields.items()))
    with library.parquet.ParquetWriter(file, schema) as writer:
        for part in _parts(trace):
            arrival: Any = trace.arrival_ns[part] / 1e9
            if not exact:
                arrival = [plain_decimal(time, SECONDS) for time in trace.arrival_ns[part].tolist()]
                arrival = library.array(arrival).cast(fields["arrival_s"])
            columns = [arrival, trace.prompt_tokens[part], trace.output_tokens[part]]
            if trace.session is not None:
                columns.append([s.encode("utf-8", "replace").decode() for s in trace.session[part].tolist()])
            if trace.block_hashes is not None:
                columns.append([list(hashes) for hashes in trace.block_hashes[part].tolist()])
            arrays = [library.array(column, type=kind) for column, kind in zip(columns, fields.values(), strict=True)]
            writer.write_batch(library.record_batch(arrays, schema=schema))
            yield part.stop - part.start
