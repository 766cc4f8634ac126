"""``simulate``: a trace, an allocator and a server's settings in; a :class:`~simulator.run.Run` out."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Unpack

from allocators import make_allocator
from allocators.base import Allocator, InputError, in_short, whole
from simulator.cost import StepCost
from simulator.decisions import DecisionLog
from simulator.engine import Server as Engine
from simulator.engine import serve
from simulator.inputs import (
    AnyAllocator,
    AnyTrace,
    check_allocator_or_spec,
    check_own_limit,
    held_by,
    trace_of,
    with_own_block_size,
    with_own_limit,
)
from simulator.ledger import Ledger
from simulator.progress import progress_bar
from simulator.run import Run, Source
from simulator.run_notes import run_warnings
from simulator.served import Requests, Served
from simulator.server.hardware import Server, ServerFields, server_of
from simulator.settings import MOST_SECONDS, MOST_SLOTS, Settings, to_ps
from simulator.tables import requests_table, timeline_table
from simulator.waits import waits_ps

_LONGEST_PS = 1 << 62  # of an iteration, so that the ledger's 64-bit numbers hold it


def simulate(
    trace: AnyTrace,
    allocator: AnyAllocator,
    *,
    capacity: int | None = None,
    block_size: int | None = None,
    timeline_bins: int = 1000,
    layout_times_s: Iterable[float] = (),
    decisions: bool = False,
    progress: bool | None = None,
    **settings: Unpack[ServerFields],
) -> Run:
    """Replay a trace against a new allocator: an old one's free lists remember, even when all of it is free.

    ``trace``: a Trace, or what a command line takes for one. ``allocator``: an allocator, or its spec, such as
    ``"paged:block_size=16"``, for a pool of ``capacity`` slots, of ``memory="12GiB"`` of a ``model``, or of what a
    ``gpu`` has left beside the model. ``settings`` are those of :class:`~simulator.server.hardware.ServerFields`:
    the fields of :class:`~simulator.settings.Settings` (cost, max_model_len, max_batch, ...) and what says on what
    hardware the server runs (model, gpu, tensor_parallel_size, ...); what was assumed is in ``run.warnings``.
    ``max_model_len`` is the allocator's when it has one and none is given. ``block_size``: of a ``paged`` spec that
    names none. ``timeline_bins``: rows of ``run.timeline``, 0 for none. ``layout_times_s``: when to keep a memory
    map, in seconds from the first arrival. ``decisions``: keep the decision log, which the run needs to be carried
    out on a device or drawn over time. ``progress``: whether a run of more than two seconds shows a bar on standard
    error; None: in a terminal or a notebook.

    Raises InputError for settings that are not allowed or do not go together.
    """
    trace, allocator = trace_of(trace), with_own_block_size(allocator, block_size)
    label = allocator if isinstance(allocator, str) else None
    allocator, server = _allocator_and_server(allocator, {"capacity": capacity, **settings})
    chosen = server.settings
    bins = whole("timeline_bins", timeline_bins, at_least=0)
    layout_times_ps = sorted(map(_layout_time_ps, layout_times_s))
    if allocator.free_slots != allocator.capacity:
        raise InputError(f"{allocator.spec} already holds memory: make a new one for each run")
    arrivals_ps = [time_ns * 1000 for time_ns in trace.arrival_ns.tolist()]
    prompts, outputs = trace.prompt_tokens.tolist(), trace.output_tokens.tolist()
    status = _reject(prompts, outputs, allocator, chosen)
    rows = [row for row, rejected in enumerate(status) if not rejected]

    ledger = Ledger(allocator.capacity, allocator.tail_slots, chosen.cost.kv_token, allocator.grow_slots or 0)
    log = DecisionLog(allocator) if decisions else None
    with progress_bar(len(rows), allocator.spec.partition(":")[0], "req", progress) as bar:
        engine = Engine(
            *(allocator, chosen, ledger, Requests(arrivals_ps, prompts, outputs, rows)),
            layout_times_ps,
            log=log,
            on_progress=lambda finished: bar.update(finished - bar.n),
        )
        served = serve(engine)
        bar.update(served.finished - bar.n)
    if not served.running and allocator.free_slots != allocator.capacity:
        raise AssertionError(f"{allocator.spec}: nothing runs any more, and {allocator.free_slots} slots are free")

    status = _final_status(status, arrivals_ps, served)
    start_ps, stop_ps = 0, served.end_ps
    if chosen.window_ps is not None:
        start_ps, stop_ps = min(chosen.window_ps[0], stop_ps), min(chosen.window_ps[1], stop_ps)
    duration_ps = stop_ps - start_ps
    count = max(min(bins, duration_ps), 1)
    edges = [start_ps + duration_ps * k // count for k in range(count + 1)]
    parts = ledger.integrate(edges)
    starts_ps = _starts_ps(arrivals_ps, status, served)
    waits = waits_ps(ledger, arrivals_ps, starts_ps, served.requeued_ps, served.end_ps)
    preemptions = sum(served.preemptions.values())
    counted = {"iterations": served.iterations, "peak_batch": served.peak_batch, "preemptions": preemptions}
    counted |= {reason: status.count(reason) for reason in ("finished", "too_long", "never_fits")}
    run = Run(
        trace=Source.of(trace),
        allocator=allocator.spec,
        capacity=int(allocator.capacity),
        settings=chosen,
        duration_ps=duration_ps,
        integrals={name: sum(values) for name, values in parts.items()},
        counts=counted,
        timeline=timeline_table(edges if bins and duration_ps else [], parts, arrivals_ps, starts_ps, served),
        requests=requests_table(trace, outputs, status, served, waits),
        layouts=tuple(served.layouts),
        decisions=None if log is None else log.frame(),
    )
    return replace(run, label=label, warnings=(*server.warnings, *run_warnings(run, allocator)))


def _allocator_and_server(allocator: AnyAllocator, given: dict[str, Any]) -> tuple[Allocator, Server]:
    """The allocator, made if it is a spec, and the server; two different ``max_model_len`` are an error."""
    check_allocator_or_spec(allocator)
    if isinstance(allocator, str):
        server = server_of(given)
        assert server.slots is not None
        allocator = make_allocator(allocator, server.slots, server.settings.max_model_len)
    else:
        server = server_of(with_own_limit(allocator, given), held=held_by(allocator))
        check_own_limit(allocator, server.settings.max_model_len)
    _check_size(int(allocator.capacity), server.settings.cost)
    return allocator, server


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
    raise InputError(f"layout_times_s(={in_short(time_s)}) must be numbers of seconds from 0 to {MOST_SECONDS:g}")


def _reject(prompts: list[int], outputs: list[int], allocator: Allocator, settings: Settings) -> list[str]:
    """Why each request is turned away on arrival, "" when it is not. Truncates ``outputs`` in place if so set."""
    limit = settings.max_model_len
    status = [""] * len(prompts)
    for row, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        if limit is not None and prompt + output > limit:
            if settings.too_long == "reject" or prompt >= limit:
                status[row] = "too_long"
                continue
            outputs[row] = output = limit - prompt
        if not allocator.fits_empty(prompt, output):
            status[row] = "never_fits"
    return status


def _final_status(rejected: list[str], arrivals_ps: list[int], served: Served) -> list[str]:
    """What became of each row: rejected, or finished, running, waiting or not arrived when the run stopped."""
    status = []
    for row, reason in enumerate(rejected):
        if served.stopped and arrivals_ps[row] > served.end_ps:
            status.append("not_arrived")
        elif reason:
            status.append(reason)
        elif served.finished_ps[row] is not None:
            status.append("finished")
        else:
            status.append("running" if row in served.running else "waiting")
    return status


def _starts_ps(arrivals_ps: list[int], status: list[str], served: Served) -> list[int]:
    """When each request had waited for the first time: its admission, the end of the run, or no time at all."""
    starts_ps = []
    for arrival_ps, admitted_ps, state in zip(arrivals_ps, served.admitted_ps, status, strict=True):
        if admitted_ps is not None:
            starts_ps.append(admitted_ps)
        else:
            starts_ps.append(served.end_ps if state == "waiting" else arrival_ps)
    return starts_ps
