"""Which keywords of a server go together: what one of them needs, and where it makes no difference."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from allocators.base import InputError
from simulator.server.cost import StepCost
from simulator.server.models import Model
from simulator.server.settings import FCFS

Pool = Literal["needed", "optional", "sought"]
"""Whether a pool must be given, may be given, or is what is asked for."""

OF_AN_ESTIMATE = ("gpu_memory_utilization", "activation_memory")
"""What is used only where the pool follows from a model and a GPU."""

_OF_A_MODEL = ("memory", "gpu", "tensor_parallel_size", "kv_cache_dtype", *OF_AN_ESTIMATE)
_OF_A_REPLAY = ("cost", "max_batch", "max_batch_tokens", "preemption", "swap_slots", "scheduler", "window_s", "model")

Spelled = Callable[[str], str]
"""How a keyword is written where it was given: as it is, or as an option of the command line."""


def check_needs(known: Mapping[str, Any], pool: Pool, held: int | None, spelled: Spelled) -> None:
    """Raise InputError for keywords that do not go together, need another one, or make no difference.

    ``held``: the slots of an allocator that exists already.
    """
    has = {name for name, value in known.items() if value is not None}
    sized = [name for name in ("capacity", "memory") if name in has]
    _check_one_size(sized, pool, held, spelled)
    if "model" not in has:
        for name in (name for name in _OF_A_MODEL if name in has):
            why = "which gives the bytes of a slot" if name == "memory" else "and makes no difference without"
            raise InputError(f"{spelled(name)} needs {spelled('model')} NAME|config.json, {why}")
    for name in (name for name in OF_AN_ESTIMATE if name in has):
        follows = f"{spelled(name)} is for a pool that follows from {spelled('model')} and {spelled('gpu')}"
        if held is not None or sized:
            said = spelled(sized[0]) if sized else "the allocator"
            raise InputError(f"{follows}; here {said} says how large it is, and it makes no difference")
        if "gpu" not in has:
            raise InputError(f"{follows}; name the GPU with {spelled('gpu')}")
    if pool == "needed" and held is None and not sized and not {"model", "gpu"} <= has:
        capacity, memory, model, gpu = map(spelled, ("capacity", "memory", "model", "gpu"))
        raise InputError(
            f"how large is the pool? {capacity} SLOTS, {memory} SIZE with {model} NAME, or {model} NAME with {gpu} NAME"
        )


def _check_one_size(sized: Sequence[str], pool: Pool, held: int | None, spelled: Spelled) -> None:
    """Raise InputError unless at most one thing says how large the pool is, and none where that is sought."""
    if pool == "sought" and sized:
        raise InputError(f"{spelled(sized[0])} is not asked for: how large the pool must be is what is found out")
    if held is not None and sized:
        raise InputError(
            f"{spelled(sized[0])} goes with an allocator's spec, such as 'paged:block_size=16'; "
            f"the allocator given has {held:,} slots"
        )
    if len(sized) == 2:
        both = f"{spelled('capacity')} and {spelled('memory')}"
        raise InputError(f"{both} both say how large the pool is; give one of them")


def check_replay(known: Mapping[str, Any], spelled: Spelled) -> None:
    """Raise InputError for what only a replay uses, when there is no pool to replay in."""
    unused = {None, "recompute", 0, FCFS}
    for name in _OF_A_REPLAY:
        value = known.get(name)
        if isinstance(value, StepCost | Model | tuple) or value not in unused:
            capacity, memory, model, gpu = map(spelled, ("capacity", "memory", "model", "gpu"))
            raise InputError(
                f"{spelled(name)} is for a replay, which needs a pool: "
                f"give {capacity}, {memory} and {model}, or {model} and {gpu}"
            )
