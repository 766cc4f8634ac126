"""From a trace to what is served of it, and from a server that is done to a :class:`~simulator.results.run.Run`."""

from collections.abc import Callable, Sequence

import numpy as np

from allocators.base import Allocator
from simulator.engine.bins import SUMS
from simulator.engine.clock import serve
from simulator.engine.layout import Layout
from simulator.engine.pools import fits_empty
from simulator.engine.server import Server
from simulator.engine.wide import integers
from simulator.results.decisions import DecisionLog
from simulator.results.ledger import integrals_of
from simulator.results.outcomes import Outcomes, Requests
from simulator.results.record import STATUS, Source
from simulator.results.run import Run
from simulator.results.tables import timeline_table
from simulator.server.settings import Settings
from simulator.traces.trace import Trace


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
    trace, rows = requests.trace, requests.rows
    engine = Server(
        allocator, settings, rows, trace.arrival_ns, trace.prompt_tokens[rows], requests.output[rows], edges_ps, log
    )
    end_ps = settings.window_ps[1] if settings.window_ps else None
    layouts = serve(engine, end_ps, layout_times_ps, on_progress)
    return engine, layouts


def run_of(
    allocator: Allocator,
    settings: Settings,
    requests: Requests,
    engine: Server,
    layouts: list[Layout],
    log: DecisionLog | None,
    edges_ps: list[int] | None,
) -> Run:
    """The run that a server has made. ``edges_ps``: of the timeline, None for none."""
    stop_ps = engine.now_ps
    window_ps = settings.window_ps or (0, stop_ps)
    duration_ps = min(window_ps[1], stop_ps) - min(window_ps[0], stop_ps)
    outcomes = Outcomes(requests, engine, settings.window_ps is not None and stop_ps >= window_ps[1])
    sums = integers(engine.bins.sums)
    parts = integrals_of(sums, int(allocator.tail_slots))
    counted = {"iterations": int(engine.clock.iteration), "peak_batch": int(engine.batch.now.peak)}
    counted |= {"preemptions": int(engine.queue.now.preemptions)}
    counted |= {reason: outcomes.count(reason) for reason in ("finished", "too_long", "never_fits")}
    returning = sums[..., SUMS.index("returning")].sum(axis=1).tolist()
    edges = edges_ps if edges_ps is not None and duration_ps else []
    return Run(
        trace=Source.of(requests.trace),
        allocator=allocator.spec,
        capacity=int(allocator.capacity),
        settings=settings,
        duration_ps=duration_ps,
        integrals={name: sum(values) for name, values in parts.items()},
        counts=counted,
        timeline=timeline_table(edges, parts, outcomes.waiting(), returning, engine.bins.preemptions),
        requests=outcomes,  # type: ignore[arg-type]
        layouts=tuple(layouts),
        decisions=None if log is None else log.frame(),
    )


def turned_away(trace: Trace, allocator: Allocator, settings: Settings) -> Requests:
    """Who is rejected on arrival, and why; outputs are truncated if so set."""
    rejected, output = np.full(len(trace), -1, np.int8), trace.output_tokens
    prompt, limit = trace.prompt_tokens, settings.max_model_len
    if limit is not None:
        beyond = prompt + output > limit
        if settings.too_long == "truncate":
            beyond = prompt >= limit
            output = np.where(beyond, output, np.minimum(output, limit - prompt))
        rejected[beyond] = STATUS.index("too_long")
    fits = fits_empty(allocator, prompt, output)
    rejected[(rejected < 0) & ~fits] = STATUS.index("never_fits")
    return Requests(trace, rejected, output, np.flatnonzero(rejected < 0))
