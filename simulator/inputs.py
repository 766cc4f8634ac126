"""What the public functions take for a trace and for an allocator: the object, or its name as one types it."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from allocators import Allocator, InputError
from allocators.base import in_short, whole
from allocators.spec import parse_spec
from simulator.traces.trace import Trace, open_trace

AnyTrace = str | os.PathLike[str] | Trace
"""A trace, or what a command line takes for one: a file, a public trace's name, a workload's text."""

AnyAllocator = str | Allocator
"""An allocator, or its spec in the command line's mini-language."""


PAGED = "paged"
"""The allocator that a block size alone stands for."""


def check_trace(trace: object) -> None:
    """Raise InputError for what is no trace and no name of one."""
    if not isinstance(trace, str | os.PathLike | Trace):
        raise InputError(
            f"trace(={in_short(trace)}) must be a Trace, such as Trace.read(path), or the name of a file or a workload"
            + ("; Trace.from_frame makes one of a DataFrame" if hasattr(trace, "columns") else "")
        )


def trace_of(trace: AnyTrace) -> Trace:
    """The trace itself, read or drawn if it is named. Raises InputError for what is none."""
    check_trace(trace)
    return trace if isinstance(trace, Trace) else open_trace(os.fspath(trace))


def check_allocator_or_spec(allocator: object) -> None:
    """Raise InputError for what is no allocator and no spec; a class is none either."""
    if isinstance(allocator, type) or not isinstance(allocator, str | Allocator):
        raise InputError(
            f"allocator(={in_short(allocator)}) must be an allocator, such as Paged(15_728), or its spec, such as "
            "'paged:block_size=16'"
        )


def spec_of(allocator: AnyAllocator) -> str:
    """The spec, of which pools of any size can be made; an allocator's own if one is given."""
    check_allocator_or_spec(allocator)
    return allocator if isinstance(allocator, str) else allocator.spec


def with_own_limit(allocator: AnyAllocator, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, with the allocator's ``max_model_len`` where it has one and none is given."""
    own = getattr(allocator, "max_model_len", None)
    return {**settings, **({"max_model_len": own} if settings.get("max_model_len") is None else {})}


def check_own_limit(allocator: AnyAllocator, limit: int | None) -> None:
    """Raise InputError for an allocator whose ``max_model_len`` is another one than the server's."""
    own = getattr(allocator, "max_model_len", None)
    if own not in (None, limit):
        raise InputError(f"max_model_len(={limit}) must be the allocator's, which is {own}")


def held_by(allocator: AnyAllocator) -> int | None:
    """The slots of the pool that an allocator has already; None for a spec."""
    return None if isinstance(allocator, str) else int(allocator.capacity)


def with_own_block_size(allocator: AnyAllocator, block_size: int | None) -> AnyAllocator:
    """The allocator, the spec of a paged one with this block size. Raises InputError for an allocator that is made."""
    if block_size is None:
        return allocator
    check_allocator_or_spec(allocator)
    if not isinstance(allocator, str):
        raise InputError(
            f"block_size(={in_short(block_size)}) goes with an allocator's spec, such as 'paged'; "
            f"the allocator given is {allocator.spec}"
        )
    return with_block_size([allocator], block_size)[0]


def with_block_size(specs: Sequence[str], block_size: int, name: str = "block_size", option: str = "") -> list[str]:
    """The specs, those of ``paged`` with this block size. Raises InputError for another one, and for none of paged.

    ``name``, ``option``: how the block size, and before a spec an allocator, is written where it was given.
    """
    block_size = whole(name, block_size)
    made = []
    for spec in specs:
        kind, options = parse_spec(spec)
        own = options.get("block_size")
        if kind == PAGED and own is None:
            options = {"block_size": str(block_size), **options}
            spec = f"{PAGED}:{','.join(f'{key}={value}' for key, value in options.items())}"
        elif kind == PAGED and own != str(block_size):
            raise InputError(f"{name}(={block_size}) and {option}{spec} say two block sizes; give one of them")
        made.append(spec)
    if not any(parse_spec(spec)[0] == PAGED for spec in specs):
        raise InputError(f"{name}(={block_size}) makes no difference: none of {option}{', '.join(specs)} is paged")
    return made
