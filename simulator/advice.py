"""``advise``: which block size for a paged pool, from what the requests of a trace write.

A large block leaves more of itself empty behind the last token; a small one makes more blocks to manage and longer
block tables. What is lost depends on lengths alone: a request of P prompt and G output tokens has P, P + 1, ...,
P + G - 1 token states in its G iterations, and holds whole blocks. So the sums over all iterations of all requests are
closed forms, exact for any pool in which nobody is preempted. With a pool the trace is replayed too, and says what the
blocks make of queue and preemptions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Unpack

import pandas as pd

from allocators import InputError, Paged
from allocators.base import whole
from simulator.fields import MAX_TOKENS, IntArray
from simulator.inputs import AnyTrace, trace_of
from simulator.replay import simulate
from simulator.run_notes import merged
from simulator.server.hardware import ServerFields, server_of
from simulator.settings import Settings
from simulator.target import parse_share
from simulator.trace import Trace

BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)

OF_LENGTHS = ("written", "lost_slots", "table_mean", "table_most", "blocks_taken")
"""What lengths alone tell of a block size, columns of :attr:`Advice.table`."""

OF_A_POOL = ("pool_blocks", "used", "saturated", "mean_batch", "preemptions", "rejected", "duration_s")
"""What a replay tells besides, when there is a pool."""


@dataclass(frozen=True, eq=False)
class Advice:
    """Block sizes side by side, and the one that is recommended."""

    table: pd.DataFrame
    """A row a block size (the index), see :func:`advise`."""
    best: int
    """The largest block size whose share is within ``within`` of the best one's."""
    share: str
    """The column that decides: ``written``, or with a pool ``used``."""
    within: float
    requests: int
    """How many were counted: those within max_model_len."""
    warnings: tuple[str, ...] = ()
    """What is worth a word about it, a sentence each."""


def advise(
    trace: AnyTrace,
    block_sizes: Sequence[int] = BLOCK_SIZES,
    *,
    capacity: int | None = None,
    within: float | str = 0.01,
    on_run: Callable[[], object] = lambda: None,
    **settings: Unpack[ServerFields],
) -> Advice:
    """Compare block sizes on a trace, and find the largest that costs next to nothing: at most ``within`` of the best.

    From lengths, in the mean over all iterations of all requests, as a look at a running server shows them:
    ``written``, the fraction of the held slots that is token states; ``lost_slots``, those of a request's last block
    that are not; ``table_mean``, the entries of a block table. ``table_most``: of the longest request.
    ``blocks_taken``: handed out to a request in its life, in the mean over requests.

    With a pool (``capacity`` slots, ``memory`` of a ``model``, or what a ``gpu`` has left beside it), from a replay
    with ``settings``, those of :func:`~simulator.replay.simulate`:
    ``pool_blocks``, blocks to manage; ``used``, the fraction of the pool that is token states, and ``saturated``, the
    fraction of the time in which the next request was refused memory; ``mean_batch``, ``preemptions``, ``rejected``,
    ``duration_s``. Block sizes beyond the pool are left out. ``on_run`` is called whenever a run ends.
    Raises InputError for what is not allowed.
    """
    trace, allowed = trace_of(trace), parse_share("within", within)
    server = server_of({"capacity": capacity, **settings}, "optional")
    limits, capacity = server.settings, server.slots
    sizes = sorted({whole("block size", size) for size in block_sizes})
    if sizes and sizes[-1] > MAX_TOKENS:
        raise InputError(f"block size(={sizes[-1]}) must be <= {MAX_TOKENS:,}")
    if capacity is not None:
        sizes = [size for size in sizes if size <= capacity]
    if not sizes:
        raise InputError(f"block_sizes(={list(block_sizes)}) must have one that the pool can hold")
    prompts, outputs = _within(trace, limits)
    rows = [_of_lengths(prompts, outputs, size) for size in sizes]
    told: list[tuple[str, Sequence[str]]] = []
    if capacity is not None:
        for size, row in zip(sizes, rows, strict=True):
            figures, warnings = _replayed(trace, Paged(capacity, size), limits)
            row |= figures
            told.append((f"blocks of {size}", warnings))
            on_run()
    share = "written" if capacity is None else "used"
    table = pd.DataFrame(rows, index=pd.Index(sizes, name="block_size"))
    enough = table[share].max() - float(allowed)
    return Advice(
        table,
        int(table.index[table[share] >= enough].max()),
        share,
        float(allowed),
        len(prompts),
        (*server.warnings, *merged(told)),
    )


def _within(trace: Trace, limits: Settings) -> tuple[IntArray, IntArray]:
    """Prompts and outputs of the requests that max_model_len lets in, outputs cut where it is so set."""
    prompts, outputs, limit = trace.prompt_tokens, trace.output_tokens, limits.max_model_len
    if limit is None:
        return prompts, outputs
    if limits.too_long == "truncate":
        outputs = outputs.clip(max=limit - prompts)
        enter = outputs >= 1
    else:
        enter = prompts + outputs <= limit
    if not enter.any():
        raise InputError(f"no request of {trace.name} is within max_model_len(={limit})")
    return prompts[enter], outputs[enter]


def _of_lengths(prompts: IntArray, outputs: IntArray, size: int) -> dict[str, Any]:
    """The columns OF_LENGTHS of one block size."""
    finals = prompts + outputs - 1
    # Token states of a request over its life: the mean of the first and the last, times how many there are.
    doubled = (prompts + finals) * outputs
    written = _total(doubled) // 2
    lost = _total(_lost_up_to(finals, size) - _lost_up_to(prompts - 1, size))
    iterations = _total(outputs)
    entries = -(-finals // size)
    return {
        "written": float(Fraction(written, written + lost)),
        "lost_slots": float(Fraction(lost, iterations)),
        "table_mean": float(Fraction(written + lost, size * iterations)),
        "table_most": int(entries.max()),
        "blocks_taken": float(entries.mean()),
    }


def _lost_up_to(tokens: IntArray, size: int) -> IntArray:
    """Slots lost in the last block by requests of 1, 2, ..., ``tokens`` token states, all together."""
    full, rest = tokens // size, tokens % size
    lost: IntArray = full * (size * (size - 1) // 2) + rest * size - rest * (rest + 1) // 2
    return lost


def _total(numbers: IntArray) -> int:
    """The exact sum of 64-bit numbers, which may need more than 64 bits: the high and low halves on their own."""
    return (int((numbers >> 32).sum()) << 32) + int((numbers & 0xFFFFFFFF).sum())


def _replayed(trace: Trace, allocator: Paged, settings: Settings) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The columns OF_A_POOL, and what is to be said of the run."""
    run = simulate(trace, allocator, timeline_bins=0, progress=False, **vars(settings))
    figures = run.summary()
    if sum(figures["rejected"].values()) == len(trace):
        raise InputError(
            f"{allocator.spec}: no request of {trace.name} fits in {allocator.capacity:,} slots, not even alone"
        )
    if figures["share"] is None:
        raise InputError(f"{allocator.spec}: nothing ran, or it was over before the window began")
    columns = {
        "pool_blocks": allocator.blocks,
        "used": figures["share"]["used"],
        "saturated": figures["saturated_s"] / figures["duration_s"],
        "mean_batch": figures["mean_batch"],
        "preemptions": figures["preemptions"],
        "rejected": sum(figures["rejected"].values()),
        "duration_s": figures["duration_s"],
    }
    return columns, run.warnings
