"""The time that a run covers: from the begin of its window, or 0, on; and why a run may cover none."""

from collections.abc import Mapping
from typing import Any

from allocators.base import InputError
from simulator.results.record import Record


def span_s(run: Record) -> tuple[float, float]:
    """Where what the run covers begins and ends, in seconds; the same twice when it covers no time."""
    start = 0.0 if run.settings.window_s is None else float(run.settings.window_s[0])
    return start, start + run.duration_ps / 10**12


def some_span_s(run: Record, what: str) -> tuple[float, float]:
    """The same, for ``what`` needs some time. Raises InputError that says why there is none."""
    start, end = span_s(run)
    if not end > start:
        raise no_time(run.name, run.summary(), what)
    return start, end


def no_time(name: str, summary: Mapping[str, Any], what: str) -> InputError:
    """The error for a run, of such a summary, that covers no time or kept no timeline, where ``what`` needs one."""
    if summary.get("duration_s"):
        return InputError(f"run {name!r} kept no timeline; {what} needs one: simulate(..., timeline_bins=1000)")
    rejected = {reason: count for reason, count in summary.get("rejected", {}).items() if count}
    counts = ", ".join(f"{count:,} {reason}" for reason, count in rejected.items())
    why = "no request ran" + (f" (rejected: {counts})" if counts else "")
    if summary.get("iterations"):
        why = "it was over before its window began, or its iterations cost no time"
    return InputError(f"run {name!r} covers no time; {what} needs some: {why}")
