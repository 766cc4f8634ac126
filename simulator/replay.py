"""``simulate``: a trace, an allocator and a server's settings in; a :class:`~simulator.results.run.Run` out."""

import copy
from collections.abc import Callable, Iterable
from typing import Any, Unpack

from tqdm import tqdm

from allocators import make_allocator
from allocators.base import Allocator, InputError, in_short, whole
from simulator.engine.schedulers.named import name_of
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
from simulator.messages.progress import progress_bar
from simulator.results.decisions import DecisionLog
from simulator.results.run import Run
from simulator.results.run_notes import run_warnings
from simulator.results.served import run_of, served, turned_away
from simulator.server.cost import StepCost
from simulator.server.hardware import Server, server_of
from simulator.server.keywords import ServerFields
from simulator.server.settings import FCFS, MOST_SECONDS, MOST_SLOTS, Settings, to_ps

_LONGEST_PS = 1 << 62  # of an iteration, so that the loop's 64-bit numbers hold it
_BEYOND_PS = 1 << 100  # later than any run ends


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
    the fields of :class:`~simulator.server.settings.Settings` (cost, max_model_len, max_batch, ...) and what says on
    what hardware the server runs (model, gpu, tensor_parallel_size, ...); what was assumed is in ``run.warnings``.
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
    if not isinstance(layout_times_s, Iterable) or isinstance(layout_times_s, str):
        raise InputError(f"layout_times_s(={in_short(layout_times_s)}) must be a list of numbers of seconds")
    layout_times_ps = sorted(map(_layout_time_ps, layout_times_s))
    if allocator.free_slots != allocator.capacity:
        raise InputError(f"{allocator.spec} already holds memory: make a new one for each run")
    requests = turned_away(trace, allocator, chosen)
    log = DecisionLog() if decisions else None
    with progress_bar(len(requests.rows), allocator.spec.partition(":")[0], "req", progress) as bar:
        if bins:
            # Where a bin ends is known when the run is over: it is made twice, and is the same.
            made = _another(allocator, label, chosen.max_model_len)
            first, _ = served(made, chosen, requests, [_BEYOND_PS, _BEYOND_PS], on_progress=_shown(bar, 0, 2))
            stop_ps, done = first.now_ps, int(first.clock.finished)
            del first  # its columns are as large as those of the next one
            edges, shown = _edges(chosen, stop_ps, bins), _shown(bar, done, 2)
        else:
            edges, shown = list(chosen.window_ps or (0, _BEYOND_PS)), _shown(bar, 0, 1)
        engine, layouts = served(allocator, chosen, requests, edges, layout_times_ps, log, shown)
    if bins and engine.now_ps != stop_ps:
        raise _differs(allocator, chosen, stop_ps, engine.now_ps)
    if not engine.batch.now.count and allocator.free_slots != allocator.capacity:
        raise AssertionError(f"{allocator.spec}: nothing runs any more, and {allocator.free_slots} slots are free")
    run = run_of(allocator, chosen, requests, engine, layouts, log, edges if bins else None)
    return run.told_of(label, (*server.warnings, *engine.asking.notes, *run_warnings(run, allocator)))


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
    _check_numbers(allocator)
    _check_size(int(allocator.capacity), server.settings.cost)
    return allocator, server


def _check_numbers(allocator: Allocator) -> None:
    """Raise InputError for an allocator whose sizes are none."""
    for name, least in (("capacity", 1), ("tail_slots", 0), ("free_slots", 0), ("largest_free_slots", 0)):
        value = whole(f"{type(allocator).__name__}.{name}", getattr(allocator, name), at_least=least)
        if value > max(int(allocator.capacity), MOST_SLOTS):
            raise InputError(f"{type(allocator).__name__}.{name}(={value}) must be at most {MOST_SLOTS:,}")


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


def _differs(allocator: Allocator, settings: Settings, first_ps: int, second_ps: int) -> RuntimeError:
    """The same run came out otherwise: somebody keeps something from one to the next, or is random."""
    who, tells = allocator.spec, "allocators.check_allocator"
    if settings.scheduler != FCFS:
        who, tells = f"{who} or scheduler {name_of(settings.scheduler)}", f"{tells} or simulator.check_scheduler"
    return RuntimeError(
        f"{who} broke a promise: the same run ended at {first_ps:,} ps and {second_ps:,} ps; "
        f"the same calls must give the same answers: {tells} tells more"
    )


def _edges(settings: Settings, stop_ps: int, bins: int) -> list[int]:
    """Of equal bins, to a picosecond, over what the window has of a run that stops then; each at least a picosecond."""
    start_ps, end_ps = settings.window_ps or (0, stop_ps)
    start_ps = min(start_ps, stop_ps)
    duration_ps = min(stop_ps, end_ps) - start_ps
    count = max(min(bins, duration_ps), 1)
    return [start_ps + duration_ps * k // count for k in range(count + 1)]


def _layout_time_ps(time_s: float) -> int:
    try:
        if 0 <= float(time_s) <= MOST_SECONDS:
            return to_ps(time_s)
    except (ValueError, TypeError):
        pass
    raise InputError(f"layout_times_s(={in_short(time_s)}) must be numbers of seconds from 0 to {MOST_SECONDS:g}")


def _another(allocator: Allocator, spec: str | None, max_model_len: int | None) -> Allocator:
    """One in the same state, for the first of two runs: made of the spec that was given, or else a copy, or made of the
    spec that it says it has."""
    if spec is not None:
        return make_allocator(spec, allocator.capacity, max_model_len)
    try:
        return copy.deepcopy(allocator)
    except Exception as error:
        try:
            return make_allocator(allocator.spec, int(allocator.capacity), max_model_len)
        except InputError:
            raise InputError(
                f"{allocator.spec} cannot be copied ({type(error).__name__}: {error}) or made again from its spec, as "
                "a run with a timeline needs: timeline_bins=0 makes one without"
            ) from error


def _shown(bar: "tqdm[Any]", before: int, runs: int) -> Callable[[int], object]:
    """Shows on a bar how many requests have finished; ``before``: in an earlier one of the ``runs`` that are made."""

    def show(finished: int) -> None:
        bar.update((before + finished) // runs - bar.n)

    return show
