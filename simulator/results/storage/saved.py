"""A run as files, and back: ``run.json`` and one CSV per table. What is loaded is what was saved, to the bit."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from io import BytesIO
from math import nan
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from allocators.base import Extent, InputError
from simulator.engine.layout import Allocation, Layout
from simulator.results.decisions import DECISION_TYPES
from simulator.results.exact import whole_numbers
from simulator.results.ledger import INTEGRALS
from simulator.results.record import COUNTS, REQUEST_TYPES, TIMELINE_TYPES, Record, Source
from simulator.results.storage.folder import (
    DECISIONS,
    HEAD,
    REQUESTS,
    TIMELINE,
    check_folder,
    read_files,
    sha256,
    write_files,
)
from simulator.results.storage.soundness import check_keys, check_run, check_text, check_whole
from simulator.server.settings import NEWER, Settings

AnyRecord = TypeVar("AnyRecord", bound=Record)

FORMAT = "kvfrag run 4"
_TYPES: Mapping[str, Mapping[str, Any]] = {
    TIMELINE: TIMELINE_TYPES,
    REQUESTS: REQUEST_TYPES,
    DECISIONS: DECISION_TYPES,
}
_KEYS = (
    *("format", "trace", "allocator", "capacity", "settings", "duration_ps", "integrals", "counts", "label", "sha256"),
    *("layouts", "warnings"),
)


def save_run(run: Record, folder: Path) -> None:
    """Write a run into a folder, as :meth:`Run.save` says."""
    check_folder(folder)
    frames = {TIMELINE: run.timeline, REQUESTS: run.requests, DECISIONS: run.decisions}
    tables = {
        name: frame.to_csv(index=False, lineterminator="\n").encode()
        for name, frame in frames.items()
        if frame is not None
    }
    head = {
        "format": FORMAT,
        "trace": asdict(run.trace),
        "allocator": run.allocator,
        "capacity": run.capacity,
        "settings": run.settings.to_saved(),
        "duration_ps": run.duration_ps,
        "integrals": dict(run.integrals),
        "counts": dict(run.counts),
        "label": run.label,
        "warnings": list(run.warnings),
        "sha256": {name: sha256(content) for name, content in tables.items()},
        "layouts": run.layouts,
    }
    try:
        write_files(folder, json.dumps(head, indent=1, default=int).encode() + b"\n", tables)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}") from None


def load_run(folder: Path, kind: type[AnyRecord]) -> AnyRecord:
    """Read what :func:`save_run` wrote, as a ``kind`` of record.

    Raises InputError that names the folder and what is wrong with it.
    """
    try:
        head, tables = read_files(folder)
        return _run(json.loads(head), tables, kind)
    except OSError as error:
        raise InputError(f"{folder} is not a saved run: {error.strerror} ({error.filename})") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        name = "" if isinstance(error, InputError) else f"{type(error).__name__} "
        told = " ".join(str(error).split())
        raise InputError(f"{folder} is not a saved run, or is damaged: {name}{told}") from None


def read_table(name: str, content: bytes) -> pd.DataFrame:
    """A table as it was before it was written; ``name`` says which. Raises InputError that names a wrong column."""
    types = _TYPES[name]
    frame = pd.read_csv(BytesIO(content), dtype=str, keep_default_na=False, na_filter=False)
    check_keys(f"the header of {name}", frame.columns, types)
    columns = {}
    for column, kind in types.items():
        try:
            columns[column] = _column(frame[column].tolist(), kind)
        except (ValueError, OverflowError) as error:
            raise InputError(f"{name}, column {column}: {error}") from None
    return pd.DataFrame(columns)


def _run(head: dict[str, Any], tables: Mapping[str, bytes], kind: type[AnyRecord]) -> AnyRecord:
    """A run from its head and its tables. Raises InputError for what cannot be."""
    if head.get("format") != FORMAT:
        raise InputError(f"its format is {head.get('format')!r}, and this version reads {FORMAT!r}")
    check_keys(HEAD, head, _KEYS)
    for name in (TIMELINE, REQUESTS):
        if name not in tables:
            raise InputError(f"{HEAD}: sha256 lacks {name!r}")
    for name, allowed in (("integrals", INTEGRALS), ("counts", COUNTS), ("trace", ("name", "requests", "sha256"))):
        check_keys(f"{HEAD}: {name}", head[name], allowed)
    settings = head["settings"]
    if isinstance(settings, dict):
        settings = NEWER | settings
    check_keys(f"{HEAD}: settings", settings, Settings().to_dict())
    check_text("cost", settings["cost"])
    check_text("scheduler", settings["scheduler"])
    run = kind(
        trace=Source(**head["trace"]),
        allocator=head["allocator"],
        capacity=check_whole("capacity", head["capacity"], 1),
        settings=Settings.from_dict(settings),
        duration_ps=check_whole("duration_ps", head["duration_ps"]),
        integrals={name: check_whole(f"integrals: {name}", head["integrals"][name]) for name in INTEGRALS},
        counts={name: check_whole(f"counts: {name}", head["counts"][name]) for name in COUNTS},
        timeline=read_table(TIMELINE, tables[TIMELINE]),
        requests=read_table(REQUESTS, tables[REQUESTS]),
        layouts=tuple(_layouts(head["layouts"])),
        decisions=read_table(DECISIONS, tables[DECISIONS]) if DECISIONS in tables else None,
        label=head["label"],
        warnings=tuple(_texts("warnings", head["warnings"])),
    )
    check_run(run)
    return run


def _column(texts: list[str], kind: Any) -> Any:
    """A column of a table, from what is written there."""
    if kind == "float64":  # Python reads the floats: to the bit, which not every pandas does
        return np.array([float(text) if text else nan for text in texts], np.float64)
    if kind == "whole":
        return whole_numbers(map(int, texts))
    if kind == "int64":
        return np.array([int(text) for text in texts], np.int64)
    unknown = set(texts) - set(kind.categories)
    if unknown:
        raise ValueError(f"unknown {min(unknown)!r}; known are {', '.join(kind.categories)}")
    return pd.Categorical(texts, dtype=kind)


def _texts(name: str, entries: object) -> Iterator[str]:
    if not isinstance(entries, list):
        raise InputError(f"{name} must be a list")
    for number, entry in enumerate(entries):
        check_text(f"{name}[{number}]", entry)
        yield entry


def _layouts(entries: object) -> Iterator[Layout]:
    if not isinstance(entries, list):
        raise InputError("layouts must be a list")
    for number, entry in enumerate(entries):
        try:
            yield _layout(*entry)
        except (TypeError, ValueError):
            fields = ", ".join(Layout._fields)
            raise InputError(f"layouts[{number}] must be {fields}, each as it was saved") from None


def _layout(time_ps: int, iteration: int | None, allocations: list[list[Any]], used: int, held: int) -> Layout:
    own = (Allocation(request, tuple(Extent(*e) for e in extents), *rest) for request, extents, *rest in allocations)
    return Layout(time_ps, iteration, tuple(own), used, held)
