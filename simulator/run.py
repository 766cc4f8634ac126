"""What a run leaves behind: its summary, its timeline, its requests, its memory maps. Saved and loaded as plain files."""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from allocators.base import Extent, InputError
from simulator.ledger import CATEGORIES, SATURATED
from simulator.settings import Settings

_FORMAT = "kvfrag run 1"


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
    allocations: tuple[Allocation, ...]

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
    """iterations, peak_batch, preemptions, finished, too_long, never_fits; from time 0 to the stop."""
    timeline: pd.DataFrame
    """Equal time bins over the covered time (equal to a picosecond), a row each: start_s, end_s; mean slots of each
    category; mean requests running and waiting; largest_free in slots."""
    requests: pd.DataFrame
    """A row each, in order of arrival: arrival_s, prompt_tokens, output_tokens (after truncation), admitted_s (first),
    finished_s, preemptions, status: finished, running, waiting, not_arrived, too_long or never_fits."""
    layouts: tuple[Layout, ...] = ()
    """Memory maps at the times asked for."""
    label: str | None = None
    """What to call it in tables and pictures, if not by its allocator."""

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
            "share": share(CATEGORIES, self.duration_ps),
            "share_saturated": share(SATURATED, whole["saturated_ps"]),
            "mean_largest_free": _ratio(whole["largest"], self.duration_ps),
            "refused_although_free_s": whole["external_ps"] / 10**12,
        }

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``run.json``, ``timeline.csv`` and ``requests.csv`` into a folder, all of them or nothing.

        The folder is made; one that holds an earlier run is replaced. Raises InputError for one that holds
        anything else, or that cannot be written.
        """
        target = Path(folder)
        check_folder(target)
        head = {
            "format": _FORMAT,
            "trace": asdict(self.trace),
            "allocator": self.allocator,
            "capacity": self.capacity,
            "settings": self.settings.to_dict(),
            "duration_ps": self.duration_ps,
            "integrals": dict(self.integrals),
            "counts": dict(self.counts),
            "layouts": self.layouts,
            "label": self.label,
        }
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".kvfrag-") as scratch:
                made = Path(scratch) / "run"
                made.mkdir()
                (made / "run.json").write_text(json.dumps(head, indent=1) + "\n")
                self.timeline.to_csv(made / "timeline.csv", index=False)
                self.requests.to_csv(made / "requests.csv", index=False)
                if target.exists():
                    target.rename(Path(scratch) / "old")
                made.rename(target)
        except OSError as error:
            raise InputError(f"{target} cannot be written: {error.strerror}") from None

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Run":
        """Read what :meth:`save` wrote. Raises InputError when it is not there or is not a run."""
        source = Path(folder)
        try:
            head = json.loads((source / "run.json").read_text())
            if head["format"] != _FORMAT:
                raise InputError(f"{source} has the format {head['format']!r}; this version reads {_FORMAT!r}")
            return cls(
                Source(**head["trace"]),
                head["allocator"],
                head["capacity"],
                Settings.from_dict(head["settings"]),
                head["duration_ps"],
                head["integrals"],
                head["counts"],
                pd.read_csv(source / "timeline.csv", float_precision="round_trip"),
                pd.read_csv(source / "requests.csv", float_precision="round_trip"),
                tuple(_layout(*layout) for layout in head["layouts"]),
                head["label"],
            )
        except OSError as error:
            raise InputError(f"{source} is not a saved run: {error.strerror} ({error.filename})") from None
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{source} is not a saved run, or is damaged: {type(error).__name__} {error}") from None


def check_folder(folder: Path) -> None:
    """Raise InputError unless a run can be saved there: nothing is there yet, or an empty folder, or a saved run."""
    if folder.is_dir():
        if any(folder.iterdir()) and not (folder / "run.json").exists():
            raise InputError(f"{folder} must be a new or empty folder, or one that holds a saved run")
    elif folder.exists():
        raise InputError(f"{folder} must be a folder; it is a file")


def _ratio(amount: int, time_ps: int) -> float | None:
    return amount / time_ps if time_ps else None


def _layout(time_ps: int, allocations: list[list[Any]]) -> Layout:
    return Layout(
        time_ps,
        tuple(
            Allocation(request, tuple(Extent(*e) for e in extents), *rest) for request, extents, *rest in allocations
        ),
    )
