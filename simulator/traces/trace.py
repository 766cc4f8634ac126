"""A trace: which requests come when, and how long they are."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypedDict, Unpack

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from allocators.base import InputError
from simulator.messages.words import short
from simulator.traces.columns import hash_column, whole_column
from simulator.traces.formats import Reader
from simulator.traces.public.catalogue import find_file
from simulator.traces.reading import read_file, read_frame
from simulator.traces.requests import RequestTable
from simulator.traces.schema import Columns, Reading, objects
from simulator.traces.text.fields import MAX_TIME_NS, MAX_TOKENS
from simulator.traces.text.opening import ignore
from simulator.traces.text.stdin import file_name
from simulator.traces.text.tokenizer import Tokenizer, token_counter
from simulator.traces.workload.profile import profiles
from simulator.traces.workload.workload import (
    Workload,
    WorkloadOptions,
    is_profile_file,
    parse_workload,
    split_workload,
)
from simulator.traces.write import write_trace


class ReadOptions(TypedDict, total=False):
    """The options of :meth:`Trace.read` that :func:`open_trace` hands on."""

    format: str | Reader | None
    rate: float | None
    seed: int
    count_tokens: Tokenizer | None
    columns: str | Mapping[str, str] | None
    advance: Callable[[int], object]


@dataclass(frozen=True, eq=False, repr=False)
class Trace(RequestTable):
    """A :class:`RequestTable` with its ways in and out: files, frames, columns and workloads.

    Make one with :meth:`read`, :meth:`workload`, :meth:`from_frame` or :meth:`from_columns`.
    """

    @classmethod
    def read(
        cls,
        path: str | PathLike[str],
        strict: bool = False,
        format: str | Reader | None = None,
        *,
        rate: float | None = None,
        seed: int = 0,
        count_tokens: Tokenizer | None = None,
        columns: str | Mapping[str, str] | None = None,
        advance: Callable[[int], object] = ignore,
    ) -> "Trace":
        """Read a trace file, plain or gzip, of any format in :data:`simulator.traces.formats.FORMATS`, or Parquet.

        The format is recognised from the content unless named; see :func:`simulator.register_reader` for one's own.
        ``columns`` says which column is which in any other file: ``{"arrival": "time", "prompt": "input_len", "output":
        "output_len"}`` or ``"arrival=time,prompt=input_len,output=output_len"``, with ``session`` and ``block_hashes``
        if there are; ``created:ms`` tells the unit of a time, and ``usage.prompt_tokens`` is a path in JSON. The path
        ``-`` is standard input.
        Rows that cannot be used are dropped and counted in ``report``; with ``strict``, the first one is an error. A
        file of lengths only gets Poisson arrivals of ``rate`` requests a second and ``seed``. The tokens of texts are
        counted by ``count_tokens``: a ``tokenizer.json``, a function (text -> tokens), or its dotted path, whose code
        is run; else they are words, or characters where a text hardly has blanks. ``advance`` is told the bytes of the
        file as they are read. Raises InputError, one line that names the file.
        """
        reading = Reading(strict, rate, seed, counter=token_counter(count_tokens), advance=advance)
        read, report = read_file(path, format, reading, columns)
        return cls._from(read, file_name(path), report)

    @classmethod
    def workload(
        cls,
        name: str,
        rate: float | None = None,
        duration_s: float | None = None,
        seed: int = 0,
        **options: Unpack[WorkloadOptions],
    ) -> "Trace":
        """Draw a synthetic trace from a measured length profile; the arguments are those of :class:`Workload`."""
        return cls.of_workload(Workload(name, rate, duration_s, seed=seed, **options))

    @classmethod
    def of_workload(cls, workload: Workload) -> "Trace":
        """Draw a workload. Its randomness comes from one generator, made here from its seed."""
        arrival_ns, prompt, output = workload.draw(np.random.default_rng(workload.seed))
        return cls.from_columns(arrival_ns, prompt, output, name=str(workload))

    @classmethod
    def from_frame(
        cls, frame: pd.DataFrame, name: str = "frame", columns: str | Mapping[str, str] | None = None
    ) -> "Trace":
        """Read a DataFrame with the columns of the neutral format: arrival_s, prompt_tokens, output_tokens.

        ``session`` and ``block_hashes`` (sequences of numbers) may be there too; any others are left alone. The columns
        may have other usual names, or those that ``columns`` says, as in :meth:`read`. Arrivals are seconds, dates or
        durations. Seconds are read as they would be printed, a float32 as a float32 is, to whole nanoseconds. Raises
        InputError on a row that cannot be used.
        """
        try:
            read, report = read_frame(frame, columns)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        return cls._from(read, name, report)

    @classmethod
    def from_columns(
        cls,
        arrival_ns: ArrayLike,
        prompt_tokens: ArrayLike,
        output_tokens: ArrayLike,
        *,
        session: Iterable[str | None] | None = None,
        block_hashes: Iterable[Iterable[int]] | None = None,
        name: str = "columns",
    ) -> "Trace":
        """A trace of these columns: whole numbers, arrivals in nanoseconds from any origin and in any order.

        Raises InputError on columns that are empty, of different lengths, or hold anything else.
        """
        arrival = whole_column(f"arrival_ns of {name}", arrival_ns, 0, MAX_TIME_NS)
        prompt = whole_column(f"prompt_tokens of {name}", prompt_tokens, 1, MAX_TOKENS)
        output = whole_column(f"output_tokens of {name}", output_tokens, 1, MAX_TOKENS)
        columns = Columns(
            arrival,
            prompt,
            output,
            None if session is None else objects("" if key is None else str(key) for key in session),
            None if block_hashes is None else hash_column(name, block_hashes),
        )
        lengths = {len(column) for column in vars(columns).values() if column is not None}
        if len(lengths) > 1:
            raise InputError(f"the columns of {name} must be of one length; there are {sorted(lengths)}")
        return cls._from(columns, name)

    def write(self, path: str | PathLike[str]) -> None:
        """Write the trace in the neutral format, exactly: ``.csv``, ``.csv.gz`` or ``.parquet``, by the name's end.

        Raises InputError when it cannot be written. What was there before stays until the new file is complete.
        """
        write_trace(self, Path(path))


def open_trace(text: str, strict: bool = False, **options: Unpack[ReadOptions]) -> Trace:
    """The trace that a command line names.

    That is a file; ``-``, standard input; a public trace that was downloaded, ``azure-2023-conv``; or a workload,
    ``sharegpt:rate=4,duration=900``, whose lengths may also come from a file (a profile, a trace) or a public trace.
    ``options`` are those of :meth:`Trace.read`. Raises InputError, one line, when it is none of these, or no good one.
    """
    path = find_file(text)
    if path is not None and not is_profile_file(path):
        return Trace.read(path, strict, **options)
    name = split_workload(text)[0]
    if path is None and name not in profiles() and find_file(name) is None:
        known = f"workloads are {', '.join(profiles())}"
        raise InputError(f"{short(text)} is neither a file nor a workload; {known}")
    silent = ("advance", "seed")
    if given := [option for option, value in options.items() if value is not None and option not in silent]:
        raise InputError(f"{' and '.join(given)} is for a file of requests, and {short(text)} is a workload")
    return Trace.of_workload(parse_workload(text) if path is None else Workload(text))
