"""What a run leaves behind: its summary, timeline, requests and memory maps. Saved and loaded as plain files."""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from allocators.base import Extent, InputError
from simulator.decisions import DECISION_TYPES
from simulator.ledger import CATEGORIES, INTEGRALS, SATURATED
from simulator.settings import Settings
from simulator.trace import Trace
from simulator.waits import CAUSES

STATUS = ("finished", "running", "waiting", "not_arrived", "too_long", "never_fits")
"""What can have become of a request when the run stopped."""

COUNTS = ("iterations", "peak_batch", "preemptions", "finished", "too_long", "never_fits")
"""What is counted from time 0 to the stop."""

WAITED, WAIT = "wait_ps", "wait_{}_ps"
"""Columns of a run's requests: how long each waited, and how long for each of ``waits.CAUSES``. Picoseconds, ints."""

_FORMAT = "kvfrag run 3"
_HEAD, _TIMELINE, _REQUESTS, _DECISIONS = "run.json", "timeline.csv", "requests.csv", "decisions.csv"
_TABLES = (_TIMELINE, _REQUESTS, _DECISIONS)
REQUEST_TYPES: dict[str, Any] = {
    "arrival_s": "float64",
    "prompt_tokens": "int64",
    "output_tokens": "int64",
    "admitted_s": "float64",
    "finished_s": "float64",
    "preemptions": "int64",
    "status": pd.CategoricalDtype(list(STATUS)),
}
"""Of the columns of a run's requests; the others are whole numbers of any size."""


class Allocation(NamedTuple):
    """What one request holds at an instant; sizes in slots."""

    request: int
    """Row of the trace."""
    extents: tuple[Extent, ...]
    """In the order of its tokens; paged: one a block."""
    written_tokens: int
    final_tokens: int
    """Token states it will have written when it ends."""
    overprovision_slots: int
    """Asked for behind those, and never written."""


class Layout(NamedTuple):
    """The memory map at an instant: who holds what, in admission order. Whatever is not held is free."""

    time_ps: int
    iteration: int | None
    """The iteration that runs then, its writes included, from 0; None in a gap and behind the end."""
    allocations: tuple[Allocation, ...]
    used_slots: int = 0
    """Token states, and below the slots held, as the ledger has them in that iteration."""
    held_slots: int = 0

    @property
    def time_s(self) -> float:
        """The instant, in seconds from the first arrival."""
        return self.time_ps / 10**12


@dataclass(frozen=True)
class Source:
    """Which trace was replayed; no path and no clock, so that the same trace gives the same bytes."""

    name: str
    requests: int
    sha256: str

    @classmethod
    def of(cls, trace: Trace) -> "Source":
        """That of a trace."""
        return cls(trace.name, len(trace), trace.sha256)


@dataclass(frozen=True, eq=False)
class Run:
    """One replay of a trace against one allocator."""

    trace: Source
    allocator: str
    """The spec, defaults filled in."""
    capacity: int
    """Slots."""
    settings: Settings
    duration_ps: int
    """The time covered: from 0 to the end of the last iteration, or what the window has of it."""
    integrals: Mapping[str, int]
    """Exact integrals over the covered time, keyed by ``ledger.INTEGRALS``: slots or requests times picoseconds."""
    counts: Mapping[str, int]
    """Keyed by COUNTS; from time 0 to the stop."""
    timeline: pd.DataFrame
    """Equal time bins over the covered time (equal to a picosecond), a row each: start_s, end_s; mean slots of each
    category; mean requests running and waiting; largest_free in slots; refused_although_free, the part of the bin in
    which the head of the queue was refused although enough was free, 0 to 1; preemptions, a count."""
    requests: pd.DataFrame
    """A row each, in order of arrival: arrival_s, prompt_tokens, output_tokens (after truncation), admitted_s (first),
    finished_s, preemptions, and a status of STATUS; wait_ps, and how much of it for which cause (``waits.CAUSES``):
    wait_external_ps, wait_too_little_free_ps, wait_max_batch_ps, wait_max_batch_tokens_ps, wait_behind_ps,
    wait_iteration_ps, wait_preempted_ps. Whole picoseconds; they sum to wait_ps. With a window too, all of it is from
    time 0 to the stop, which is the end of the iteration that reaches the window's."""
    layouts: tuple[Layout, ...] = ()
    """Memory maps at the times asked for."""
    decisions: pd.DataFrame | None = None
    """The decision log, if it was asked for: a row an extent, columns ``decisions.DECISION_TYPES``."""
    label: str | None = None
    """What to call it in tables and pictures, if not by its allocator."""
    warnings: tuple[str, ...] = ()
    """What is worth a word about it, a sentence each: rejected requests, an assumed GPU, ..."""

    @property
    def name(self) -> str:
        """The label in tables and pictures."""
        return self.label or self.allocator

    def summary(self) -> dict[str, Any]:
        """The figures of the run, the same keys as ``--json``. Shares are fractions of capacity x time, or None."""
        whole = self.integrals

        def share(names: tuple[str, ...], time_ps: int) -> dict[str, float] | None:
            if not time_ps:
                return None
            parts = zip(CATEGORIES, names, strict=True)
            return {category: whole[name] / (self.capacity * time_ps) for category, name in parts}

        return {
            "allocator": self.allocator,
            "capacity": self.capacity,
            "duration_s": self.duration_ps / 10**12,
            "saturated_s": whole["saturated_ps"] / 10**12,
            "iterations": self.counts["iterations"],
            "peak_batch": self.counts["peak_batch"],
            "mean_batch": _ratio(whole["running"], whole["iteration_ps"]),
            "preemptions": self.counts["preemptions"],
            "finished": self.counts["finished"],
            "rejected": {reason: self.counts[reason] for reason in ("too_long", "never_fits")},
            "prompts_over_budget": self.prompts_over_budget(),
            "share": share(CATEGORIES, self.duration_ps),
            "share_saturated": share(SATURATED, whole["saturated_ps"]),
            "mean_largest_free": _ratio(whole["largest"], self.duration_ps),
            "refused_although_free_s": whole["external_ps"] / 10**12,
            "mean_wait": {f"{cause}_s": mean_s for cause, mean_s in self.waits_s().items()},
            "warnings": list(self.warnings),
        }

    def prompts_over_budget(self) -> int:
        """Prompts longer than max_batch_tokens, of requests that were not rejected: each waits for an empty server."""
        budget = self.settings.max_batch_tokens
        if budget is None:
            return 0
        served = ~self.requests["status"].isin(["too_long", "never_fits"])
        return int((served & (self.requests["prompt_tokens"] > budget)).sum())

    def waits_s(self) -> dict[str, float]:
        """Why requests waited: mean seconds a request, by cause; of all that arrived and were not turned away.

        From time 0 to the stop, whatever the window.
        """
        waited = self.requests[self.requests["status"].isin(["finished", "running", "waiting"])]
        columns = {cause: waited[WAIT.format(cause)] for cause in CAUSES}
        return {cause: float(times_ps.mean()) / 10**12 if len(waited) else 0.0 for cause, times_ps in columns.items()}

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``run.json`` and a CSV a table (timeline, requests, decisions) into a folder, all of them or nothing.

        The folder is made; one that holds an earlier run is replaced. Raises InputError for one that holds
        anything else, or that cannot be written.
        """
        check_folder(Path(folder))
        tables = {
            name: frame.to_csv(index=False, lineterminator="\n").encode()
            for name, frame in ((_TIMELINE, self.timeline), (_REQUESTS, self.requests), (_DECISIONS, self.decisions))
            if frame is not None
        }
        head = {
            "format": _FORMAT,
            "trace": asdict(self.trace),
            "allocator": self.allocator,
            "capacity": self.capacity,
            "settings": self.settings.to_dict(),
            "duration_ps": self.duration_ps,
            "integrals": dict(self.integrals),
            "counts": dict(self.counts),
            "label": self.label,
            "warnings": list(self.warnings),
            "sha256": {name: _sha256(content) for name, content in tables.items()},
            "layouts": self.layouts,
        }
        files = {_HEAD: json.dumps(head, indent=1, default=int).encode() + b"\n", **tables}
        target = Path(os.path.realpath(folder))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".kvfrag-") as scratch:
                made, earlier = Path(scratch, "made"), Path(scratch, "earlier")
                made.mkdir()
                for name, content in files.items():
                    (made / name).write_bytes(content)
                if target.exists():
                    target.rename(earlier)
                try:
                    made.rename(target)
                except BaseException:
                    if earlier.exists():
                        earlier.rename(target)
                    raise
        except OSError as error:
            raise InputError(f"{folder} cannot be written: {error.strerror}") from None

    def to_html(self, path: str | os.PathLike[str], *others: "Run") -> None:
        """Write one page to scrub through the run, and ``others`` of the same trace beside it: ``simulator/page.py``.

        Raises InputError when one of them has no decision log, plotly is missing, or the file cannot be written.
        """
        from simulator.page import write_page

        write_page([self, *others], path)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Run":
        """Read what :meth:`save` wrote. Raises InputError when it is not there, is not a run, or is damaged."""
        source = Path(folder)
        try:
            head = json.loads((source / _HEAD).read_bytes())
            if head["format"] != _FORMAT:
                raise InputError(f"its format is {head['format']!r}, and this version reads {_FORMAT!r}")
            tables = {name: (source / name).read_bytes() for name in _TABLES if name in head["sha256"]}
            for name, content in tables.items():
                if _sha256(content) != head["sha256"][name]:
                    raise InputError(f"{name} is not what was saved")
            return cls(
                trace=Source(**head["trace"]),
                allocator=str(head["allocator"]),
                capacity=int(head["capacity"]),
                settings=Settings.from_dict(head["settings"]),
                duration_ps=int(head["duration_ps"]),
                integrals={name: int(head["integrals"][name]) for name in INTEGRALS},
                counts={name: int(head["counts"][name]) for name in COUNTS},
                timeline=_frame(tables[_TIMELINE], "float64"),
                requests=_frame(tables[_REQUESTS], REQUEST_TYPES),
                layouts=tuple(_layout(*layout) for layout in head["layouts"]),
                decisions=_frame(tables[_DECISIONS], DECISION_TYPES) if _DECISIONS in tables else None,
                label=head["label"],
                warnings=tuple(map(str, head.get("warnings", ()))),  # earlier versions had none
            )
        except OSError as error:
            raise InputError(f"{source} is not a saved run: {error.strerror} ({error.filename})") from None
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            kind = "" if isinstance(error, InputError) else f"{type(error).__name__} "
            raise InputError(f"{source} is not a saved run, or is damaged: {kind}{error}") from None


def check_folder(folder: Path) -> None:
    """Raise InputError unless a run can be saved there: nothing is there yet, or an empty folder, or a saved run."""
    try:
        try:
            held = sorted(path.name for path in folder.iterdir())
        except FileNotFoundError:
            held = []
        foreign = [name for name in held if name not in (_HEAD, *_TABLES)]
        if held and not foreign and not _is_head(folder / _HEAD):
            foreign = held
        if foreign:
            raise InputError(f"{folder} must be new or empty, or a saved run to replace; it holds {foreign[0]}")
        if folder.exists() and (os.path.ismount(folder) or folder.samefile(".")):
            raise InputError(f"{folder} is the current folder or a mount, and cannot be replaced: name a folder in it")
        above = next(parent for parent in Path(os.path.realpath(folder)).parents if parent.exists())
        with tempfile.TemporaryDirectory(dir=above, prefix=".kvfrag-"):
            pass
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}") from None


def _is_head(path: Path) -> bool:
    """Whether this is the head of a saved run, of whatever version."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return b'"format": "kvfrag run ' in file.read(100)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _frame(content: bytes, types: Any) -> pd.DataFrame:
    """A table as it was before it was written. Python reads the floats: to the bit, which not every pandas does."""
    frame = pd.read_csv(BytesIO(content), dtype=object)
    if isinstance(types, dict):
        for name in set(frame.columns) - set(types):
            frame[name] = np.array([int(number) for number in frame[name]])
    return frame.astype(types)


def _ratio(amount: int, time_ps: int) -> float | None:
    return amount / time_ps if time_ps else None


def _layout(time_ps: int, iteration: int | None, allocations: list[list[Any]], used: int, held: int) -> Layout:
    own = (Allocation(request, tuple(Extent(*e) for e in extents), *rest) for request, extents, *rest in allocations)
    return Layout(time_ps, iteration, tuple(own), used, held)
