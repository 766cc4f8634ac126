"""``kvfrag size``, ``fit`` and ``advise``: answers, found by simulating. Each prints a short table, and why."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from allocators import InputError
from allocators.base import whole
from simulator.catalogue import find_file
from simulator.options import (
    Columns,
    Format,
    Json,
    Quiet,
    Rate,
    Strict,
    Tokenizer,
    TraceArgument,
    json_file,
    note,
    progress,
    read_trace,
    whole_number,
)
from simulator.report import check_outputs, write_json
from simulator.run import Source
from simulator.server.models import load_model
from simulator.server_options import (
    Allocators,
    Capacity,
    Cost,
    Gpu,
    MaxBatch,
    MaxBatchTokens,
    MaxModelLen,
    Memory,
    Model,
    Preemption,
    SwapSlots,
    TooLong,
    Window,
    allocator_of,
    pool_slots,
    server_settings,
    step_cost,
)
from simulator.settings import Settings
from simulator.trace import Trace

_ANY_POOL_SLOTS = 1 << 20
"""A pool in which the spec of an allocator is tried before anything else is done."""


def size(
    trace: TraceArgument,
    allocator: Allocators,
    max_refused: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Of the time, in how much memory may be refused: such as 1% or 0.01."),
    ] = None,
    max_wait_p99: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long 99 % of the requests may wait at most, such as 2s.")
    ] = None,
    checks: Annotated[int, whole_number("N", "How many smaller pools, and how many larger ones, to try besides.")] = 6,
    model: Model = None,
    gpu: Gpu = None,
    max_model_len: MaxModelLen = None,
    max_batch: MaxBatch = None,
    max_batch_tokens: MaxBatchTokens = None,
    too_long: TooLong = "reject",
    preemption: Preemption = "recompute",
    swap_slots: SwapSlots = None,
    cost: Cost = None,
    window: Window = None,
    json_to: Json = None,
    format: Format = None,
    columns: Columns = None,
    tokenizer: Tokenizer = None,
    rate: Rate = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Find the smallest pool with which a trace is served well enough, for each allocator."""
    from simulator.answers_report import print_sizes
    from simulator.sizing import size as smallest
    from simulator.target import Target

    target = Target.of(max_refused, max_wait_p99, ("--max-refused", "--max-wait-p99"))
    whole("--checks", checks, at_least=0)
    settings = server_settings(
        *(max_model_len, max_batch, max_batch_tokens, too_long, preemption, swap_slots),
        *(step_cost(cost, model, gpu), window),
    )
    of = None if model is None else load_model(model)
    for spec in allocator:
        allocator_of(spec, max(_ANY_POOL_SLOTS, max_model_len or 0), max_model_len)
    check_outputs({"--json": json_file(json_to)}, [find_file(trace), model])
    requests = read_trace(trace, strict, quiet, format, rate, tokenizer, columns=columns)

    wanted: dict[str, Any] = {"max_refused": max_refused, "max_wait_p99": max_wait_p99, "checks": checks}
    with progress(0, "size", "run", quiet) as bar:
        sizes = [smallest(requests, spec, on_run=bar.update, **wanted, **_fields(settings)) for spec in allocator]
    if json_to is not None:
        content = {**_head(requests, settings), "target": target.to_dict(), "sizes": [one.to_dict() for one in sizes]}
        for one in content["sizes"]:
            one["bytes"] = None if of is None else one["capacity"] * of.bytes_per_slot
        write_json(json_to, content)
    if json_to != "-":
        print_sizes(requests, allocator, sizes, of)


def fit(
    workload: Annotated[
        str, typer.Option(metavar="LENGTHS", help="Whose lengths: sharegpt, azure-conv, ..., a profile or a trace.")
    ],
    max_model_len: Annotated[int, whole_number("N", "Longest prompt + output, in tokens.")],
    allocator: Annotated[
        list[str] | None,
        typer.Option("-a", "--allocator", metavar="SPEC", help="In place of the four that are compared by default."),
    ] = None,
    capacity: Capacity = None,
    memory: Memory = None,
    model: Model = None,
    json_to: Json = None,
    quiet: Quiet = False,
) -> None:
    """How many requests fit into a pool at once, on average and at worst, for each allocator."""
    from simulator.answers_report import print_fits
    from simulator.fitting import ALLOCATORS, backlog, idle_options
    from simulator.fitting import fit as fitted

    slots = pool_slots(capacity, memory, model)
    of = None if model is None else load_model(model)
    specs: Sequence[str] = allocator or ALLOCATORS
    for spec in specs:
        allocator_of(spec, slots, max_model_len)
    check_outputs({"--json": json_file(json_to)}, [find_file(workload), model])
    requests = backlog(workload, slots, max_model_len)
    if idle := idle_options(workload):
        note(quiet, f"{' and '.join(idle)} of {workload} make no difference: all requests are there from the beginning")

    fits = [fitted(requests, spec, slots, max_model_len, progress=False if quiet else None) for spec in specs]
    if json_to is not None:
        pool = {"capacity": slots, "max_model_len": max_model_len}
        write_json(json_to, {"trace": asdict(Source.of(requests)), **pool, "fits": [asdict(one) for one in fits]})
    if json_to != "-":
        print_fits(requests, specs, fits, max_model_len, of)


def advise(
    trace: TraceArgument,
    within: Annotated[
        str, typer.Option(metavar="SHARE", help="How much worse than the best block size may be: 1% or 0.01.")
    ] = "1%",
    capacity: Capacity = None,
    memory: Memory = None,
    model: Model = None,
    gpu: Gpu = None,
    max_model_len: MaxModelLen = None,
    max_batch: MaxBatch = None,
    max_batch_tokens: MaxBatchTokens = None,
    too_long: TooLong = "reject",
    preemption: Preemption = "recompute",
    swap_slots: SwapSlots = None,
    cost: Cost = None,
    window: Window = None,
    json_to: Json = None,
    format: Format = None,
    columns: Columns = None,
    tokenizer: Tokenizer = None,
    rate: Rate = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Compare the block sizes of a paged pool: from the lengths of a trace, and with a pool from replays too."""
    from simulator.advice import BLOCK_SIZES, OF_A_POOL, OF_LENGTHS
    from simulator.advice import advise as advised
    from simulator.answers_report import print_advice
    from simulator.target import parse_share

    parse_share("--within", within)
    settings = server_settings(
        *(max_model_len, max_batch, max_batch_tokens, too_long, preemption, swap_slots),
        *(step_cost(cost, model, gpu), window),
    )
    slots = None if capacity is None and memory is None else pool_slots(capacity, memory, model)
    if slots is None:
        replay: dict[str, object] = {
            "--max-batch": max_batch,
            "--max-batch-tokens": max_batch_tokens,
            "--swap-slots": swap_slots,
        }
        replay |= {"--cost": cost, "--model": model, "--window": window}
        if idle := [option for option, value in replay.items() if value is not None]:
            raise InputError(f"{idle[0]} is for a replay, which needs a pool: give --capacity, or --memory and --model")
    check_outputs({"--json": json_file(json_to)}, [find_file(trace), model])
    requests = read_trace(trace, strict, quiet, format, rate, tokenizer, columns=columns)

    with progress(0 if slots is None else len(BLOCK_SIZES), "advise", "run", quiet) as bar:
        advice = advised(requests, capacity=slots, within=within, on_run=bar.update, **_fields(settings))
    if json_to is not None:
        figures = [*OF_LENGTHS, *([] if slots is None else OF_A_POOL)]
        sizes = advice.table[figures].reset_index().to_dict("records")
        content = {"capacity": slots, "best": advice.best, "by": advice.share, "within": advice.within}
        write_json(json_to, {**_head(requests, settings), **content, "block_sizes": sizes})
    if json_to != "-":
        print_advice(requests, advice, slots)


COMMANDS: dict[str, Callable[..., None]] = {
    "How large a pool must be.": size,
    "How many requests fit at once.": fit,
    "Which block size.": advise,
}
"""The commands, by what they answer."""


def _head(trace: Trace, settings: Settings) -> dict[str, Any]:
    """What an answer is about, as ``kvfrag run --json`` has it."""
    return {"trace": asdict(Source.of(trace)), "settings": settings.to_dict()}


def _fields(settings: Settings) -> dict[str, Any]:
    return dict(vars(settings))
