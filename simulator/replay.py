"""``simulate``: a trace, an allocator and a server's settings in; a :class:`~simulator.run.Run` out."""

from collections.abc import Iterable
from typing import TypedDict, Unpack

from allocators.base import Allocator, InputError, whole
from simulator.cost import StepCost
from simulator.decisions import DecisionLog
from simulator.engine import Server, serve
from simulator.ledger import Ledger
from simulator.progress import progress_bar
from simulator.run import Run, Source
from simulator.served import Requests, Served
from simulator.settings import MOST_SECONDS, MOST_SLOTS, Settings, to_ps
from simulator.tables import requests_table, timeline_table
from simulator.trace import Trace
from simulator.waits import waits_ps

_LONGEST_PS = 1 << 62  # of an iteration, so that the ledger's 64-bit numbers hold it


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
    arrivals_ps = [time_ns * 1000 for time_ns in trace.arrival_ns.tolist()]
    prompts, outputs = trace.prompt_tokens.tolist(), trace.output_tokens.tolist()
    status = _reject(prompts, outputs, allocator, chosen)
    rows = [row for row, rejected in enumerate(status) if not rejected]

    ledger = Ledger(allocator.capacity, allocator.tail_slots, chosen.cost.kv_token, allocator.grow_slots or 0)
    log = DecisionLog(allocator) if decisions else None
    with progress_bar(len(rows), allocator.spec.partition(":")[0], "req", progress) as bar:
        server = Server(
            *(allocator, chosen, ledger, Requests(arrivals_ps, prompts, outputs, rows)),
            layout_times_ps,
            log=log,
            on_progress=lambda finished: bar.update(finished - bar.n),
        )
        served = serve(server)
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
    return Run(
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
