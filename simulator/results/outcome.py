"""From a trace to what is served of it, and from a server that is done to a :class:`~simulator.results.run.Run`."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocators.base import Allocator
from simulator.engine.bins import SUMS
from simulator.engine.clock import serve
from simulator.engine.layout import Layout
from simulator.engine.server import Server, fits_empty
from simulator.engine.wide import integers
from simulator.results.decisions import DecisionLog
from simulator.results.exact import Ints
from simulator.results.ledger import integrals_of
from simulator.results.record import STATUS, Source
from simulator.results.run import Run
from simulator.results.tables import requests_table, timeline_table
from simulator.results.waits import waits_by_cause
from simulator.server.settings import Settings
from simulator.traces.trace import Trace


class Requests(NamedTuple):
    """What is to be served. ``rejected``: by row of the trace, a place in STATUS, or -1."""

    rejected: NDArray[np.int8]
    output: NDArray[np.int64]
    """Tokens, after truncation."""
    rows: NDArray[np.int64]
    """Those that are not rejected, and of these:"""
    arrival_ns: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]


def served(
    allocator: Allocator,
    settings: Settings,
    requests: Requests,
    edges_ps: list[int],
    layout_times_ps: Sequence[int] = (),
    log: DecisionLog | None = None,
    on_progress: Callable[[int], object] = bool,
) -> tuple[Server, list[Layout]]:
    """One run. ``on_progress`` is told how many requests have finished."""
    rows, output = requests.rows, requests.output[requests.rows]
    engine = Server(
        allocator, settings, rows, requests.arrival_ns, requests.prompt_tokens.copy(), output, edges_ps, log
    )
    end_ps = settings.window_ps[1] if settings.window_ps else None
    layouts = serve(engine, end_ps, layout_times_ps, on_progress)
    return engine, layouts


def run_of(
    trace: Trace,
    allocator: Allocator,
    settings: Settings,
    requests: Requests,
    engine: Server,
    layouts: list[Layout],
    log: DecisionLog | None,
    edges_ps: list[int] | None,
) -> Run:
    """The run that a server has made. ``edges_ps``: of the timeline, None for none."""
    stop_ps, rows = engine.now_ps, requests.rows
    stopped = settings.window_ps is not None and stop_ps >= settings.window_ps[1]
    kind = object if max(stop_ps, int(trace.arrival_ns[-1]) * 1000) >> 62 else np.int64
    arrivals_ps = trace.arrival_ns.astype(kind) * 1000
    admitted_ps, finished_ps = (np.full(len(trace), -1, kind) for _ in range(2))
    admitted_ps[rows], finished_ps[rows] = (
        engine.times_ps(engine.queue.admitted, 0),
        engine.times_ps(engine.queue.finished, 1),
    )
    running = rows[engine.batch.request[engine.batch.order[: engine.batch.now.count]]]
    status = _status(requests.rejected, finished_ps, running, arrivals_ps > stop_ps if stopped else None)
    starts_ps = np.where(
        admitted_ps >= 0, admitted_ps, np.where(status == STATUS.index("waiting"), stop_ps, arrivals_ps)
    ).astype(kind)
    waits = waits_by_cause(engine.waits_ps, rows, arrivals_ps, starts_ps)
    preemptions = np.zeros(len(trace), np.int64)
    preemptions[rows] = engine.queue.preemptions
    window_ps = settings.window_ps or (0, stop_ps)
    duration_ps = min(window_ps[1], stop_ps) - min(window_ps[0], stop_ps)
    sums = integers(engine.bins.sums)
    parts = integrals_of(sums, int(allocator.tail_slots))
    counted = {"iterations": int(engine.clock.iteration), "peak_batch": int(engine.batch.now.peak)}
    counted |= {"preemptions": int(engine.queue.now.preemptions)}
    counted |= {
        reason: int((status == STATUS.index(reason)).sum()) for reason in ("finished", "too_long", "never_fits")
    }
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
        timeline=timeline_table(edges, parts, (arrivals_ps, starts_ps), returning, engine.bins.preemptions),
        requests=requests_table(trace, requests.output, status, admitted_ps, finished_ps, preemptions, waits),
        layouts=tuple(layouts),
        decisions=None if log is None else log.frame(),
    )


def turned_away(trace: Trace, allocator: Allocator, settings: Settings) -> Requests:
    """Who is rejected on arrival, and why; outputs are truncated if so set."""
    rejected, output = np.full(len(trace), -1, np.int8), trace.output_tokens.copy()
    prompt, limit = trace.prompt_tokens, settings.max_model_len
    if limit is not None:
        beyond = prompt + output > limit
        if settings.too_long == "truncate":
            beyond = prompt >= limit
            output = np.where(beyond, output, np.minimum(output, limit - prompt))
        rejected[beyond] = STATUS.index("too_long")
    fits = fits_empty(allocator, prompt, output)
    rejected[(rejected < 0) & ~fits] = STATUS.index("never_fits")
    rows = np.flatnonzero(rejected < 0)
    return Requests(rejected, output, rows, trace.arrival_ns[rows], prompt[rows])


def _status(
    rejected: NDArray[np.int8], finished_ps: Ints, running: NDArray[np.int64], not_arrived: NDArray[np.bool_] | None
) -> NDArray[np.int8]:
    """What became of each row, as a place in STATUS."""
    status = np.where(rejected >= 0, rejected, STATUS.index("waiting")).astype(np.int8)
    status[(finished_ps >= 0).astype(bool)] = STATUS.index("finished")
    status[running] = STATUS.index("running")
    if not_arrived is not None:
        status[not_arrived.astype(bool)] = STATUS.index("not_arrived")
    return status
