"""What a run says: its figures, tables and memory maps, and what their columns are."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import pandas as pd

from simulator.engine.layout import Layout
from simulator.messages.showing import Facts, Shown, percents
from simulator.messages.words import counted
from simulator.results.exact import exact_sum
from simulator.results.ledger import CATEGORIES, SATURATED
from simulator.results.views import view_shares
from simulator.results.waits import CAUSES
from simulator.server.settings import Settings
from simulator.traces.trace import Trace

STATUS = ("finished", "running", "waiting", "not_arrived", "too_long", "never_fits")
"""What can have become of a request when the run stopped."""

COUNTS = ("iterations", "peak_batch", "preemptions", "finished", "too_long", "never_fits")
"""What is counted from time 0 to the stop."""

WAITED = ("wait", *(f"wait_{cause}" for cause in CAUSES))
"""How long each request waited, and how long for each of ``waits.CAUSES``: with ``_s`` after these names in seconds,
with ``_ps`` exactly, in whole picoseconds of any size."""

REQUEST_TYPES: dict[str, Any] = {
    "arrival_s": "float64",
    "prompt_tokens": "int64",
    "output_tokens": "int64",
    "admitted_s": "float64",
    "finished_s": "float64",
    "preemptions": "int64",
    "status": pd.CategoricalDtype(list(STATUS)),
    **{f"{wait}_s": "float64" for wait in WAITED},
    **{f"{wait}_ps": "whole" for wait in WAITED},
}
"""Columns of a run's requests; ``whole``: int64, or Python's ints where one of them is larger."""

TIMELINE_TYPES: dict[str, Any] = dict.fromkeys(
    ("start_s", "end_s", *CATEGORIES, "running", "waiting", "largest_free", "refused_although_free", "preemptions"),
    "float64",
)
"""Columns of a run's timeline."""


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


class Columns(Protocol):
    """What a table of requests can be made of, and what is known without it."""

    def table(self) -> pd.DataFrame: ...

    def waits_s(self) -> dict[str, float]: ...


class _TableOnDemand:
    """The field ``requests``: a table, or columns of which it is made when it is first read."""

    def __get__(self, record: "Record | None", owner: type) -> pd.DataFrame:
        if record is None:
            raise AttributeError("requests")  # to dataclasses: there is no default
        given = record.__dict__["requests"]
        if not isinstance(given, pd.DataFrame):
            given = record.__dict__["requests"] = given.table()
        table: pd.DataFrame = given
        return table

    def __set__(self, record: "Record", given: pd.DataFrame | Columns) -> None:
        record.__dict__["requests"] = given


@dataclass(frozen=True, eq=False, repr=False)
class Record(Shown):
    """What one replay of a trace against one allocator says. :class:`Run` adds the ways to keep and to show it."""

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
    requests: pd.DataFrame = _TableOnDemand()  # type: ignore[assignment]
    """A row each, in order of arrival: arrival_s, prompt_tokens, output_tokens (after truncation), admitted_s (first),
    finished_s, preemptions, and a status of STATUS; wait_s, and how much of it for which cause (``waits.CAUSES``):
    wait_external_s, wait_too_little_free_s, wait_max_batch_s, wait_max_batch_tokens_s, wait_behind_s,
    wait_iteration_s, wait_preempted_s. Besides wait_ps, wait_external_ps, ...: the same as whole picoseconds of any
    size; the causes sum to wait_ps exactly. With a window too, all of it is from time 0 to the stop, which is the end
    of the iteration that reaches the window's."""
    layouts: tuple[Layout, ...] = ()
    """Memory maps at the times asked for."""
    decisions: pd.DataFrame | None = None
    """The decision log, if it was asked for: a row an extent, columns ``decisions.DECISION_TYPES``."""
    label: str | None = None
    """What to call it in tables and pictures, if not by its allocator."""
    warnings: tuple[str, ...] = ()
    """What is worth a word about it, a sentence each: rejected requests, an assumed GPU, ..."""

    def told_of(self, label: str | None, warnings: tuple[str, ...]) -> Self:
        """The same under a label, with warnings."""
        requests: Any = self.__dict__["requests"]  # as it is, so that no table is made of it
        return replace(self, requests=requests, label=label, warnings=warnings)

    @property
    def name(self) -> str:
        """The label in tables and pictures."""
        return self.label or self.allocator

    def told(self) -> tuple[str, Facts]:
        """The run in a few lines, where its pool went as the textbook has it."""
        figures = self.summary()
        share, duration_s = figures["share"], figures["duration_s"]
        refused = f"; memory refused in {100 * figures['saturated_s'] / duration_s:.1f} % of it" if duration_s else ""
        counts = {"rejected": sum(figures["rejected"].values()), "preemptions": figures["preemptions"]}
        served = [f"{figures['finished']:,} of {counted(self.trace.requests, 'request')}"]
        served += [f"{name} {count:,}" for name, count in counts.items() if count]
        return f"Run of {self.trace.name}", {
            "allocator": self.allocator if self.name == self.allocator else f"{self.name}, that is {self.allocator}",
            "capacity": counted(self.capacity, "slot"),
            "pool": "nothing ran" if share is None else percents(view_shares(share, "textbook")),
            "time": f"{duration_s:,.1f} s{refused}",
            "finished": "; ".join(served),
        }

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
        given: pd.DataFrame | Columns = self.__dict__["requests"]
        if not isinstance(given, pd.DataFrame):
            return given.waits_s()
        waited = self.requests[self.requests["status"].isin(["finished", "running", "waiting"])]
        sums_ps = {cause: exact_sum(waited[f"wait_{cause}_ps"].to_numpy()) for cause in CAUSES}
        return {cause: _ratio(sum_ps, len(waited) * 10**12) or 0.0 for cause, sum_ps in sums_ps.items()}


def _ratio(amount: int, time_ps: int) -> float | None:
    return amount / time_ps if time_ps else None
