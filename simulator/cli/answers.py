"""``kvfrag size``, ``fit`` and ``advise``: answers, found by simulating. Each prints a short table, and why."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from allocators.base import whole
from simulator.cli.option_groups import with_groups
from simulator.cli.options import (
    Explain,
    Json,
    Quiet,
    TraceArgument,
    TraceOptions,
    json_file,
    note,
    note_all,
    progress,
    whole_number,
)
from simulator.cli.server_options import (
    AllocatorOptions,
    BatchOptions,
    HardwareOptions,
    PoolOptions,
    ServerOptions,
    allocator_of,
    server_from,
)
from simulator.cli.tables.report import write_json
from simulator.files.writing import check_outputs
from simulator.results.record import Source
from simulator.results.run_notes import merged
from simulator.server.hardware import Server
from simulator.server.settings import Settings
from simulator.sweeps.grid import seeds_of
from simulator.traces.public.catalogue import find_file
from simulator.traces.trace import Trace

_ANY_POOL_SLOTS = 1 << 20
"""A pool in which the spec of an allocator is tried before anything else is done."""

_TARGET, _LENGTHS = "Target", "Requests"


@with_groups
def size(
    trace: TraceArgument,
    max_refused: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Of the time, in how much memory may be refused: such as 1% or 0.01.",
            rich_help_panel=_TARGET,
        ),
    ] = None,
    max_wait_p99: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long 99 % of the requests may wait at most, such as 2s.",
            rich_help_panel=_TARGET,
        ),
    ] = None,
    checks: Annotated[
        int, whole_number("N", "How many smaller pools, and how many larger ones, to try besides.", section=_TARGET)
    ] = 6,
    *,
    allocators: AllocatorOptions,
    hardware: HardwareOptions,
    batch: BatchOptions,
    server: ServerOptions,
    reading: TraceOptions,
    json_to: Json = None,
    explain: Explain = False,
    quiet: Quiet = False,
) -> None:
    """Find the smallest pool with which a trace is served well enough, for each allocator."""
    from simulator.answers.sizing import size as smallest
    from simulator.answers.target import Target
    from simulator.cli.tables.answers_report import print_sizes

    target = Target.of(max_refused, max_wait_p99, ("--max-refused", "--max-wait-p99"))
    whole("--checks", checks, at_least=0)
    specs = allocators.specs()
    chosen = server_from(hardware, batch, server, pool="sought")
    for spec in specs:
        allocator_of(spec, max(_ANY_POOL_SLOTS, batch.max_model_len or 0), batch.max_model_len)
    check_outputs({"--json": json_file(json_to)}, [find_file(trace), hardware.model])
    requests = reading.read(trace, quiet)

    wanted: dict[str, Any] = {"max_refused": max_refused, "max_wait_p99": max_wait_p99, "checks": checks}
    sizes = []
    with progress(0, "size", "run", quiet) as bar:
        for spec in specs:
            found = smallest(requests, spec, on_run=bar.update, **wanted, **vars(chosen.settings))
            told = (*chosen.warnings, *found.warnings, *chosen.too_small_for(found.capacity))
            sizes.append(replace(found, warnings=told))
    warnings = merged([(spec, found.warnings) for spec, found in zip(specs, sizes, strict=True)])
    if json_to is not None:
        head = _head(requests, chosen.settings, chosen, warnings)
        content = {**head, "target": target.to_dict(), "sizes": [one.to_dict() for one in sizes]}
        each = chosen.bytes_per_slot
        for one in content["sizes"]:
            one["bytes"] = None if each is None else one["capacity"] * each
        write_json(json_to, content)
    if json_to != "-":
        print_sizes(requests, specs, sizes, chosen, explain)
    note_all(quiet, warnings)


@with_groups
def fit(
    workload: Annotated[
        str,
        typer.Option(
            metavar="LENGTHS",
            help="Whose lengths: sharegpt, azure-conv, ..., a profile or a trace.",
            rich_help_panel=_LENGTHS,
        ),
    ],
    max_model_len: Annotated[int, whole_number("N", "Longest prompt + output, in tokens.", section=_LENGTHS)],
    allocators: AllocatorOptions,
    pool: PoolOptions,
    hardware: HardwareOptions,
    json_to: Json = None,
    explain: Explain = False,
    quiet: Quiet = False,
) -> None:
    """How many requests fit into a pool at once, on average and at worst, for each allocator."""
    from simulator.answers.fitting import ALLOCATORS, ITERATION, backlog, idle_options
    from simulator.answers.fitting import fit as fitted
    from simulator.cli.tables.answers_report import print_fits

    specs = allocators.specs(ALLOCATORS)
    chosen = server_from(pool, hardware, timed=False)
    slots = chosen.slots
    assert slots is not None
    for spec in specs:
        allocator_of(spec, slots, max_model_len)
    check_outputs({"--json": json_file(json_to)}, [find_file(workload), hardware.model])
    requests = backlog(workload, slots, max_model_len)
    if idle := idle_options(workload):
        note(quiet, f"{' and '.join(idle)} of {workload} make no difference: all requests are there from the beginning")

    fits = [fitted(requests, spec, slots, max_model_len, progress=False if quiet else None) for spec in specs]
    fits = [replace(one, warnings=(*chosen.warnings, *one.warnings)) for one in fits]
    warnings = merged([(spec, one.warnings) for spec, one in zip(specs, fits, strict=True)])
    if json_to is not None:
        head = _head(requests, Settings(cost=ITERATION, max_model_len=max_model_len), chosen, warnings)
        of = {"capacity": slots, "max_model_len": max_model_len}
        write_json(json_to, {**head, **of, "fits": [asdict(one) for one in fits]})
    if json_to != "-":
        print_fits(requests, specs, fits, max_model_len, chosen, explain)
    note_all(quiet, warnings)


@with_groups
def advise(
    trace: TraceArgument,
    within: Annotated[
        str,
        typer.Option(
            metavar="SHARE",
            help="How much worse than the best block size may be: 1% or 0.01.",
            rich_help_panel=_TARGET,
        ),
    ] = "1%",
    *,
    pool: PoolOptions,
    hardware: HardwareOptions,
    batch: BatchOptions,
    server: ServerOptions,
    reading: TraceOptions,
    json_to: Json = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="For what is drawn at random: N seeds, or which: 3,7. Default: 5.",
            rich_help_panel=TraceOptions.section,
        ),
    ] = None,
    explain: Explain = False,
    quiet: Quiet = False,
) -> None:
    """Compare the block sizes of a paged pool: from the lengths of a trace, and with a pool from replays too."""
    from simulator.answers.advice import BLOCK_SIZES, compare
    from simulator.answers.target import parse_share
    from simulator.cli.tables.advice_report import print_advice
    from simulator.sweeps.sources import drawn_traces

    most_below = float(parse_share("--within", within))
    if seeds is not None:
        seeds_of("--seeds", seeds)
    chosen = server_from(pool, hardware, batch, server, pool="optional")
    slots = chosen.slots
    check_outputs({"--json": json_file(json_to)}, [find_file(trace), hardware.model])
    silent = iter([quiet])  # a file that is read for each seed is noted once

    def read(text: str, rate: float | None = None, seed: int = 0) -> Trace:
        return replace(reading, rate=rate).read(text, next(silent, True), seed)

    traces = drawn_traces(trace, seeds, reading.rate, read)
    with progress(0 if slots is None else len(traces) * len(BLOCK_SIZES), "advise", "run", quiet) as bar:
        advice = compare(traces, BLOCK_SIZES, chosen, most_below, bar.update)
    if json_to is not None:
        first = next(iter(traces.values()))
        head = _head(first, chosen.settings, chosen, advice.warnings)
        write_json(json_to, {**head, "capacity": slots, **advice.to_dict()})
    if json_to != "-":
        print_advice(advice, chosen, explain)
    note_all(quiet, advice.warnings)


def _head(trace: Trace, settings: Settings, server: Server, warnings: Sequence[str]) -> dict[str, Any]:
    """What an answer is about, as ``kvfrag run --json`` has it."""
    return {
        "trace": asdict(Source.of(trace)),
        "settings": settings.to_dict(),
        "pool": None if server.pool is None else server.pool.to_dict(),
        "warnings": list(warnings),
    }
