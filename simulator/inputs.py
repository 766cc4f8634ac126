"""What the public functions take for a trace and for an allocator: the object, or its name as one types it."""

import os
from collections.abc import Mapping
from typing import Any

from allocators import Allocator, InputError
from allocators.base import in_short
from simulator.trace import Trace, open_trace

AnyTrace = str | os.PathLike[str] | Trace
"""A trace, or what a command line takes for one: a file, a public trace's name, a workload's text."""

AnyAllocator = str | Allocator
"""An allocator, or its spec in the command line's mini-language."""


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
