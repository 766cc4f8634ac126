"""``simulate``: a trace, an allocator and a server's settings in; a :class:`~simulator.run.Run` out."""

import copy
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from allocators.base import Allocator, InputError, whole
from simulator.cost import StepCost
from simulator.decisions import DecisionLog
from simulator.engine.bins import SUMS
from simulator.engine.clock import serve
from simulator.engine.server import Server, fits_empty, pool_of
from simulator.engine.wide import integers
from simulator.ledger import integrals_of
from simulator.progress import progress_bar
from simulator.run import STATUS, Layout, Run, Source
from simulator.settings import MOST_SECONDS, MOST_SLOTS, Settings, to_ps
from simulator.tables import requests_table, timeline_table
from simulator.trace import Trace
from simulator.waits import Exact, waits_by_cause

_LONGEST_PS = 1 << 61  # of an iteration, so that the loop's 64-bit numbers hold it
_BEYOND_PS = 1 << 100  # later than any run ends


class SettingsFields(TypedDict, total=False):
    """The fields of :class:`~simulator.settings.Settings`, as keywords."""

    cost: StepCost
    max_model_len: int | None
    max_batch: int | None
    max_batch_tokens: int | None
    too_long: str
    preemption: str
    swap_slots: int
    window_s: tuple[float | str, float | str] | None


def simulate(
    trace: Trace,
    allocator: Allocator,
    *,
    timeline_bins: int = 1000,
    layout_times_s: Iterable[float] = (),
    decisions: bool = False,
    progress: bool | None = None,
    **settings: Unpack[SettingsFields],
) -> Run:
    """Replay a trace against a new allocator: an old one's free lists remember, even when all of it is free.

    ``settings`` are the fields of :class:`~simulator.settings.Settings`: cost, max_model_len, max_batch, ...;
    ``max_model_len`` is the allocator's when it has one and none is given. ``timeline_bins``: rows of
    ``run.timeline``, 0 for none. ``layout_times_s``: when to keep a memory map, in seconds from the first arrival.
    ``decisions``: keep the decision log, which the run needs to be carried out on a device or drawn over time.
    ``progress``: whether a run of more than two seconds shows a bar on standard error; None: in a terminal or a
    notebook.

    Raises InputError for settings that are not allowed or do not go together.
    """
    if not isinstance(trace, Trace):
        raise InputError(f"trace(={trace!r}) must be a Trace, such as Trace.read(path)")
    if isinstance(allocator, type) or not isinstance(allocator, Allocator):
        raise InputError(f"allocator(={allocator!r}) must be an allocator, such as Paged(15_728)")
    chosen = _settings(allocator, settings)
    bins = whole("timeline_bins", timeline_bins, at_least=0)
    layout_times_ps = sorted(map(_layout_time_ps, layout_times_s))
    if allocator.free_slots != allocator.capacity:
        raise InputError(f"{allocator.spec} already holds memory: make a new one for each run")
    requests = _turned_away(trace, allocator, chosen)
    start_ps, end_ps = chosen.window_ps or (0, None)
    name = allocator.spec.partition(":")[0]
    with progress_bar((2 if bins else 1) * len(requests.rows), name, "req", progress) as bar:
        edges = [start_ps, _BEYOND_PS if end_ps is None else end_ps]
        if bins:
            # The edges of the bins are known when the run is over: it is made twice, and is the same.
            stop_ps = _served(_copy(allocator), chosen, requests, edges, bar=bar)[0].now_ps
            duration_ps = max(min(stop_ps, edges[1]) - start_ps, 0)
            count = max(min(bins, duration_ps), 1)
            edges = [min(start_ps, stop_ps) + duration_ps * k // count for k in range(count + 1)]
        log = DecisionLog() if decisions else None
        server, layouts = _served(allocator, chosen, requests, edges, layout_times_ps, log, bar)
    if not server.batch.now.count and allocator.free_slots != allocator.capacity:
        raise AssertionError(f"{allocator.spec}: nothing runs any more, and {allocator.free_slots} slots are free")
    return _run_of(trace, allocator, chosen, requests, server, layouts, log, edges if bins else None)


class Requests(NamedTuple):
    """What is to be served. ``rejected``: by row of the trace, a place in STATUS, or -1."""

    rejected: NDArray[np.int8]
    output: NDArray[np.int64]
    """Tokens, after truncation."""
    rows: NDArray[np.int64]
    """Those that are not rejected, and of these:"""
    arrival_ns: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]


def _served(
    allocator: Allocator,
    settings: Settings,
    requests: Requests,
    edges_ps: list[int],
    layout_times_ps: Sequence[int] = (),
    log: DecisionLog | None = None,
    bar: "tqdm[Any] | None" = None,
) -> tuple[Server, list[Layout]]:
    """One run."""
    rows, output = requests.rows, requests.output[requests.rows]
    server = Server(allocator, settings, rows, requests.arrival_ns, requests.prompt_tokens.copy(), output, edges_ps, log)
    before = 0 if bar is None else bar.n
    end_ps = settings.window_ps[1] if settings.window_ps else None
    layouts = serve(server, end_ps, layout_times_ps, lambda done: bar and bar.update(before + done - bar.n))
    return server, layouts


def _copy(allocator: Allocator) -> Allocator:
    """Another allocator in the same state, for the first of two runs."""
    try:
        return copy.deepcopy(allocator)
    except Exception as error:
        raise InputError(
            f"{allocator.spec} cannot be copied ({type(error).__name__}: {error}), as a run with a timeline needs: "
            "timeline_bins=0 makes one without"
        ) from error


def _run_of(
    trace: Trace,
    allocator: Allocator,
    settings: Settings,
    requests: Requests,
    server: Server,
    layouts: list[Layout],
    log: DecisionLog | None,
    edges_ps: list[int] | None,
) -> Run:
    """The run that a server has made. ``edges_ps``: of the timeline, None for none."""
    stop_ps, rows = server.now_ps, requests.rows
    stopped = settings.window_ps is not None and stop_ps >= settings.window_ps[1]
    kind = object if max(stop_ps, int(trace.arrival_ns[-1]) * 1000) >> 62 else np.int64
    arrivals_ps = trace.arrival_ns.astype(kind) * 1000
    admitted_ps, finished_ps = (np.full(len(trace), -1, kind) for _ in range(2))
    admitted_ps[rows], finished_ps[rows] = server.times_ps(server.queue.admitted, 0), server.times_ps(server.queue.finished, 1)
    running = rows[server.batch.request[: server.batch.now.count]]
    status = _status(requests.rejected, finished_ps, running, arrivals_ps > stop_ps if stopped else None)
    starts_ps = np.where(admitted_ps >= 0, admitted_ps, np.where(status == STATUS.index("waiting"), stop_ps, arrivals_ps)).astype(kind)
    waits = waits_by_cause(server.waits_ps, rows, arrivals_ps, starts_ps)
    preemptions = np.zeros(len(trace), np.int64)
    preemptions[rows] = server.queue.preemptions
    window_ps = settings.window_ps or (0, stop_ps)
    duration_ps = min(window_ps[1], stop_ps) - min(window_ps[0], stop_ps)
    sums = integers(server.bins.sums)
    parts = integrals_of(sums, int(allocator.tail_slots))
    counted = {"iterations": int(server.clock.iteration), "peak_batch": int(server.batch.now.peak)}
    counted |= {"preemptions": int(server.queue.now.preemptions)}
    counted |= {reason: int((status == STATUS.index(reason)).sum()) for reason in ("finished", "too_long", "never_fits")}
    returning = sums[..., SUMS.index("returning")].sum(axis=1).tolist()
    edges = edges_ps if edges_ps is not None and duration_ps else []
    return Run(
        trace=Source.of(trace),
        allocator=allocator.spec,
        capacity=int(allocator.capacity),
        settings=settings,
        duration_ps=duration_ps,
        integrals={name: sum(values) for name, values in parts.items()},
        counts=counted,
        timeline=timeline_table(edges, parts, (arrivals_ps, starts_ps), returning, server.bins.preemptions),
        requests=requests_table(trace, requests.output, status, admitted_ps, finished_ps, preemptions, waits),
        layouts=tuple(layouts),
        decisions=None if log is None else log.frame(),
    )


def _settings(allocator: Allocator, given: SettingsFields) -> Settings:
    """The settings, with the allocator's ``max_model_len`` where it has one; two different ones are an error."""
    unknown = set(given) - set(SettingsFields.__annotations__)
    if unknown:
        allowed = ", ".join(SettingsFields.__annotations__)
        raise InputError(f"unknown setting {sorted(unknown)[0]!r}; choose from {allowed}")
    own = getattr(allocator, "max_model_len", None)
    if given.get("max_model_len") is None:
        given = given | {"max_model_len": own}
    settings = Settings(**given)
    if own not in (None, settings.max_model_len):
        raise InputError(f"max_model_len(={settings.max_model_len}) must be the allocator's, which is {own}")
    _check_size(int(allocator.capacity), settings.cost)
    return settings


def _check_size(capacity: int, cost: StepCost) -> None:
    """Raise InputError unless the numbers of any iteration fit the ledger."""
    if capacity > MOST_SLOTS:
        raise InputError(f"capacity(={capacity}) must be <= {MOST_SLOTS:,} slots")
    longest_s, most_s = (ps // 10**12 for ps in (cost.duration_ps(capacity, capacity, capacity, capacity), _LONGEST_PS))
    if longest_s >= most_s:
        raise InputError(
            f"cost(={cost}) must be lower: an iteration over all of {capacity:,} slots could take {longest_s:,} s, "
            f"and {most_s:,} s is the most"
        )


def _layout_time_ps(time_s: float) -> int:
    try:
        if 0 <= float(time_s) <= MOST_SECONDS:
            return to_ps(time_s)
    except (ValueError, TypeError):
        pass
    raise InputError(f"layout_times_s(={time_s!r}) must be numbers of seconds from 0 to {MOST_SECONDS:g}")


def _turned_away(trace: Trace, allocator: Allocator, settings: Settings) -> Requests:
    """Who is rejected on arrival, and why; outputs are truncated if so set."""
    rejected, output = np.full(len(trace), -1, np.int8), trace.output_tokens.copy()
    prompt, limit = trace.prompt_tokens, settings.max_model_len
    if limit is not None:
        beyond = prompt + output > limit
        if settings.too_long == "truncate":
            beyond = prompt >= limit
            output = np.where(beyond, output, np.minimum(output, limit - prompt))
        rejected[beyond] = STATUS.index("too_long")
    fits = fits_empty(pool_of(allocator, np.zeros(0, np.int64), 0), prompt, output)
    rejected[(rejected < 0) & ~fits] = STATUS.index("never_fits")
    rows = np.flatnonzero(rejected < 0)
    return Requests(rejected, output, rows, trace.arrival_ns[rows], prompt[rows])


def _status(
    rejected: NDArray[np.int8], finished_ps: Exact, running: NDArray[np.int64], not_arrived: NDArray[np.bool_] | None
) -> NDArray[np.int8]:
    """What became of each row, as a place in STATUS."""
    status = np.where(rejected >= 0, rejected, STATUS.index("waiting")).astype(np.int8)
    status[(finished_ps >= 0).astype(bool)] = STATUS.index("finished")
    status[running] = STATUS.index("running")
    if not_arrived is not None:
        status[not_arrived.astype(bool)] = STATUS.index("not_arrived")
    return status
