"""The options of ``kvfrag sweep`` that take several values where those of other commands take one."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import typer

from simulator.cli.option_groups import OptionGroup
from simulator.cli.options import (
    Columns,
    Format,
    Strict,
    Tokenizer,
    TraceOptions,
)
from simulator.cli.server_options import (
    MAX_BATCH,
    MAX_BATCH_TOKENS,
    AllocatorOptions,
    BatchOptions,
    MemoryOption,
    PoolOptions,
    allocator_option,
)

_SEVERAL = "One number, or several: 1,2,4 or START:STOP:STEP."


def _several(metavar: str, help: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=f"{help} {_SEVERAL}")


@dataclass(frozen=True)
class GridAllocatorOptions(AllocatorOptions):
    """Which allocators, several in braces."""

    allocator: Annotated[
        list[str] | None,
        allocator_option("paged:block_size=16, several in braces, quoted: 'paged:block_size={1,16}'"),
    ] = None


@dataclass(frozen=True)
class GridPoolOptions(OptionGroup):
    """How large the pools are."""

    section: ClassVar[str] = PoolOptions.section
    capacity: Annotated[str | None, _several("SLOTS", "Size of the pool in token slots.")] = None
    memory: MemoryOption = None


@dataclass(frozen=True)
class GridBatchOptions(OptionGroup):
    """How much is served at once."""

    section: ClassVar[str] = BatchOptions.section
    max_model_len: Annotated[str | None, _several("N", "Longest prompt + output, in tokens.")] = None
    max_batch: Annotated[str | None, _several("N", "Most requests running at once.", *MAX_BATCH)] = None
    max_batch_tokens: Annotated[str | None, _several("N", "Most new tokens in one iteration.", *MAX_BATCH_TOKENS)] = (
        None
    )


@dataclass(frozen=True)
class GridTraceOptions(OptionGroup):
    """How the trace is read, and what is drawn."""

    section: ClassVar[str] = TraceOptions.section
    rate: Annotated[
        str | None, _several("R", "Requests per second; a trace with arrivals of its own is stretched to it.")
    ] = None
    seeds: Annotated[
        str | None, typer.Option(metavar="N", help="N seeds from 0 on, or which: 3,7. For what is drawn.")
    ] = None
    format: Format = None
    strict: Strict = False
    columns: Columns = None
    tokenizer: Tokenizer = None
