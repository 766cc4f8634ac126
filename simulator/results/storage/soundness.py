"""Whether a run can be: its numbers have the right types and signs, and add up. For runs that come from files."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from allocators.base import InputError, in_short
from simulator.engine.layout import Layout
from simulator.results.exact import added, exact_sum, seconds_of
from simulator.results.ledger import CATEGORIES, SATURATED
from simulator.results.record import WAITED, Record
from simulator.results.storage.folder import DECISIONS, REQUESTS, TIMELINE
from simulator.server.settings import MOST_SLOTS

_CLOSE = 1e-9  # of the pool and the time: means are floats


def check_keys(what: str, found: object, allowed: Iterable[str]) -> None:
    """Raise InputError unless the names found are exactly those allowed, in any order."""
    if not isinstance(found, dict | pd.Index):
        raise InputError(f"{what} must have names and values; it is a {type(found).__name__}")
    expected = list(allowed)
    for name in expected:
        if name not in found:
            raise InputError(f"{what} lacks {name!r}")
    for name in found:
        if name not in expected:
            raise InputError(f"{what} has an unknown {name!r}")


def check_whole(name: str, value: object, least: int = 0, most: int | None = None) -> int:
    """``value``, or an InputError unless it is a whole number in ``least .. most``."""
    if type(value) is not int or value < least or (most is not None and value > most):
        limits = f">= {least}" if most is None else f"from {least} to {most}"
        raise InputError(f"{name}(={str(value)[:40]}) must be a whole number {limits}")
    return value


def check_text(name: str, value: object) -> None:
    """Raise InputError unless ``value`` is a text."""
    if not isinstance(value, str):
        raise InputError(f"{name}(={in_short(value)}) must be a text")


def check_run(run: Record) -> None:
    """Raise InputError, naming what is wrong, for a run that no simulation can have had."""
    check_whole("capacity", run.capacity, 1, MOST_SLOTS)
    for name, text in (
        ("allocator", run.allocator),
        ("trace: name", run.trace.name),
        ("label", "" if run.label is None else run.label),
    ):
        check_text(name, text)
    check_whole("trace: requests", run.trace.requests, 1)
    _check_integrals(run)
    _check_requests(run)
    _check_counts(run)
    if len(run.timeline):
        _check_timeline(run)
    for number, layout in enumerate(run.layouts):
        _check_layout(f"layouts[{number}]", layout, run)
    if run.decisions is not None:
        _check_decisions(run.decisions, run)


def _check_integrals(run: Record) -> None:
    whole, peak = run.integrals, run.counts["peak_batch"]
    for what, names, time, time_ps in (
        ("the categories", CATEGORIES, "duration_ps", run.duration_ps),
        ("the saturated categories", SATURATED, "saturated_ps", whole["saturated_ps"]),
    ):
        found, expected = sum(whole[name] for name in names), run.capacity * time_ps
        _expect(found == expected, f"integrals: {what} add up to {found}, and capacity x {time} is {expected}")
    limits = [
        ("external_ps", "saturated_ps", whole["saturated_ps"]),
        ("saturated_ps", "iteration_ps", whole["iteration_ps"]),
        ("iteration_ps", "duration_ps", run.duration_ps),
        ("largest", "capacity x duration_ps", run.capacity * run.duration_ps),
        ("running", "peak_batch x iteration_ps", peak * whole["iteration_ps"]),
        *((part, name, whole[name]) for part, name in zip(SATURATED, CATEGORIES, strict=True)),
    ]
    for name, other, limit in limits:
        _expect(whole[name] <= limit, f"integrals: {name}(={whole[name]}) must be <= {other}, which is {limit}")


def _check_requests(run: Record) -> None:
    frame, each = run.requests, partial(_each, REQUESTS)
    given = run.trace.requests
    _expect(len(frame) == given, f"{REQUESTS} has {len(frame)} rows, and the trace {given} requests")
    for name, least in (("prompt_tokens", 1), ("output_tokens", 1), ("preemptions", 0)):
        each(name, frame[name] >= least, f"is below {least}")
    arrival, admitted, finished = (frame[f"{name}_s"].to_numpy() for name in ("arrival", "admitted", "finished"))
    each("arrival_s", _are_times(arrival), "is no time from 0 on")
    each("arrival_s", _ascend(arrival), "is before that of the row above")
    status = frame["status"]
    ended, ran = (status == "finished").to_numpy(), status.isin(["finished", "running"]).to_numpy()
    may_have_run = ran | (status == "waiting").to_numpy()  # one that waits may have been preempted
    was_admitted = ~np.isnan(admitted)
    each("admitted_s", np.where(was_admitted, may_have_run, ~ran), "does not go with the status")
    each("admitted_s", ~was_admitted | _are_times(admitted) & (admitted >= arrival), "is before the arrival")
    each("finished_s", np.isnan(finished) != ended, "does not go with the status")
    each("finished_s", ~ended | _are_times(finished) & (finished >= admitted), "is before the admission")
    waited = {name: frame[f"{name}_ps"].to_numpy() for name in WAITED}
    for name, times_ps in waited.items():
        each(f"{name}_ps", times_ps >= 0, "is below 0")
        each(f"{name}_s", frame[f"{name}_s"].to_numpy() == seconds_of(times_ps), f"is not what {name}_ps says")
    whole, *parts = waited.values()
    each("wait_ps", whole == added(parts), "is not the sum of its causes")


def _check_counts(run: Record) -> None:
    frame, counts = run.requests, run.counts
    found = {name: int((frame["status"] == name).sum()) for name in ("finished", "too_long", "never_fits")}
    found["preemptions"] = exact_sum(frame["preemptions"].to_numpy())
    for name, count in found.items():
        _expect(counts[name] == count, f"counts: {name}(={counts[name]}) must be {count}, as {REQUESTS} says")
    peak, most = counts["peak_batch"], run.settings.max_batch or len(frame)
    least = int(counts["iterations"] > 0)
    _expect(least <= peak <= most * least, f"counts: peak_batch(={peak}) must be from {least} to {most * least}")


def _check_timeline(run: Record) -> None:
    frame, each, count = run.timeline, partial(_each, TIMELINE), len(run.timeline)
    start_ps = run.settings.window_ps[0] if run.settings.window_ps else 0
    edges = seconds_of([start_ps + run.duration_ps * k // count for k in range(count + 1)])
    for name, expected in (("start_s", edges[:-1]), ("end_s", edges[1:])):
        each(name, frame[name] == expected, f"is not that of {count} equal bins")
    for name in frame.columns[2:]:
        each(name, _are_times(frame[name].to_numpy()), "is no number from 0 on")
    held = frame[list(CATEGORIES)].to_numpy().sum(axis=1)
    each("used", np.abs(held - run.capacity) <= _CLOSE * run.capacity, "and its other slots are not the capacity")
    lengths = np.diff([float(run.duration_ps * k // count) for k in range(count + 1)])
    integrated = {name: name for name in (*CATEGORIES, "running")}
    integrated |= {"largest_free": "largest", "refused_although_free": "external_ps"}
    for name, integral in integrated.items():
        found, whole = float((frame[name].to_numpy() * lengths).sum()), run.integrals[integral]
        close = abs(found - whole) <= _CLOSE * max(run.capacity * run.duration_ps, whole)
        _expect(close, f"{TIMELINE}, column {name} adds up to {found:g}, and integrals: {integral} is {whole:g}")
    begun, most = float(frame["preemptions"].sum()), run.counts["preemptions"]
    right = begun <= most if run.settings.window_ps else begun == most
    _expect(right, f"{TIMELINE}, column preemptions adds up to {begun:g}, and counts: preemptions is {most}")


def _check_layout(name: str, layout: Layout, run: Record) -> None:
    check_whole(f"{name}: time_ps", layout.time_ps)
    if layout.iteration is not None:
        check_whole(f"{name}: iteration", layout.iteration, 0, run.counts["iterations"] - 1)
    check_whole(f"{name}: held_slots", layout.held_slots, 0, run.capacity)
    check_whole(f"{name}: used_slots", layout.used_slots, 0, layout.held_slots)
    for held in layout.allocations:
        check_whole(f"{name}: request", held.request, 0, run.trace.requests - 1)
        check_whole(f"{name}: final_tokens", held.final_tokens)
        check_whole(f"{name}: written_tokens", held.written_tokens, 0, held.final_tokens)
        check_whole(f"{name}: overprovision_slots", held.overprovision_slots)
        for extent in held.extents:
            check_whole(f"{name}: start of an extent", extent.start, 0, run.capacity - 1)
            check_whole(f"{name}: slots of an extent", extent.slots, 1, run.capacity - extent.start)


def _check_decisions(frame: pd.DataFrame, run: Record) -> None:
    each, columns = partial(_each, DECISIONS), {name: frame[name].to_numpy() for name in frame.columns}
    iteration, time_s, request, index = (columns[name] for name in ("iteration", "time_s", "request", "index"))
    each("iteration", _within(iteration, 0, run.counts["iterations"]), "is not one of the run")
    each("iteration", _ascend(iteration), "is below that of the row above")
    each("time_s", _are_times(time_s), "is no time from 0 on")
    each("time_s", _ascend(time_s), "is before that of the row above")
    each("request", _within(request, 0, run.trace.requests - 1), "is no row of the trace")
    each("index", _within(index, -1, run.capacity - 1), "is not from -1 to below the capacity")
    start, slots = columns["start"], columns["slots"]
    in_pool = _within(start, 0, run.capacity - 1) & (slots >= 1) & (slots <= run.capacity - start)
    each(
        "start", np.where(index >= 0, in_pool, (start == -1) & (slots == 0)), "and its slots are no extent of the pool"
    )
    each("tokens", _within(columns["tokens"], 0, run.capacity), "is not from 0 to the capacity")


def _are_times(values: NDArray[Any]) -> NDArray[Any]:
    found: NDArray[Any] = (values >= 0) & (values < np.inf)
    return found


def _within(values: NDArray[Any], least: int, most: int) -> NDArray[Any]:
    found: NDArray[Any] = (values >= least) & (values <= most)
    return found


def _ascend(values: NDArray[Any]) -> NDArray[Any]:
    """For each value, whether it is at least the one before it."""
    found = np.ones(len(values), bool)
    found[1:] = values[1:] >= values[:-1]
    return found


def _expect(right: bool, what: str) -> None:
    if not right:
        raise InputError(what)


def _each(table: str, column: str, right: Any, what: str) -> None:
    """Raise InputError that names the first row of a table, from 1, in which a column is not right."""
    wrong = ~np.asarray(right, bool)
    if wrong.any():
        raise InputError(f"{table}, column {column}: row {int(wrong.argmax()) + 1} {what}")
