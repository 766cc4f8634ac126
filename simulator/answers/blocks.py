"""What lengths alone tell of a block size: closed forms over all iterations of all requests; and whom a pool holds."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from allocators import InputError, Paged
from allocators.base import whole
from simulator.server.settings import Settings
from simulator.traces.text.fields import MAX_TOKENS, IntArray
from simulator.traces.trace import Trace


def entering(trace: Trace, limits: Settings) -> tuple[IntArray, IntArray]:
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


def holds_any(pool: Paged, prompts: IntArray, outputs: IntArray) -> bool:
    """Whether a pool can hold any of these requests alone."""
    return any(
        pool.fits_empty(prompt, output) for prompt, output in zip(prompts.tolist(), outputs.tolist(), strict=True)
    )


def of_lengths(prompts: IntArray, outputs: IntArray, size: int) -> dict[str, Any]:
    """What lengths tell of one block size, the columns of :attr:`simulator.answers.advice.Advice.table`."""
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


def comparable(
    given: Sequence[int],
    capacity: int | None,
    lengths: Mapping[int | None, tuple[IntArray, IntArray]],
    traces: Mapping[int | None, Trace],
) -> tuple[list[int], dict[int, str]]:
    """The block sizes that can be compared, ascending; and those that cannot, with the reason."""
    sizes = sorted({whole("block size", size) for size in given})
    if sizes and sizes[-1] > MAX_TOKENS:
        raise InputError(f"block size(={sizes[-1]}) must be <= {MAX_TOKENS:,}")
    left_out: dict[int, str] = {}
    if capacity is not None:
        whole("capacity", capacity)
        left_out = {size: "larger than the pool" for size in sizes if size > capacity}
    if len(left_out) == len(sizes):
        raise InputError(f"block_sizes(={list(given)}) must have one that the pool can hold")
    if capacity is not None:
        for size in sizes:
            if size not in left_out and not all(holds_any(Paged(capacity, size), *own) for own in lengths.values()):
                left_out[size] = "no request fits in the pool, not even alone"
    if len(left_out) == len(sizes):
        name = next(iter(traces.values())).name
        raise InputError(f"no request of {name} fits in {capacity:,} slots, not even alone, with any block size")
    return [size for size in sizes if size not in left_out], dict(sorted(left_out.items()))
