"""The options that say what server is simulated, and what is made of them: shared by the commands that simulate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import typer

from allocators import Allocator, InputError, make_allocator
from simulator.cli.option_groups import OptionGroup
from simulator.cli.options import number, whole_number
from simulator.inputs import PAGED, with_block_size
from simulator.server.combinations import Pool
from simulator.server.cost import StepCost
from simulator.server.hardware import Server, server_of
from simulator.server.pool import DEFAULT_UTILIZATION, KV_CACHE_DTYPES
from simulator.server.settings import FCFS

MAX_BATCH, MAX_BATCH_TOKENS = ("--max-batch", "--max-num-seqs"), ("--max-batch-tokens", "--max-num-batched-tokens")
"""The names of two options, ours and vLLM's."""

MemoryOption = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Or its size in bytes, such as 12GiB, with --model.")
]


def allocator_option(examples: str) -> Any:
    """The option that names allocators, with examples of what it takes."""
    own = "or your own: package.module.Class:arg=1, whose code is run. Repeat to compare."
    return typer.Option("-a", "--allocator", metavar="SPEC", help=f"Such as {examples}, {own}")


@dataclass(frozen=True)
class AllocatorOptions(OptionGroup):
    """Which allocators."""

    section: ClassVar[str] = "Allocators"
    allocator: Annotated[list[str] | None, allocator_option("paged or paged:block_size=16")] = None
    block_size: Annotated[
        int | None, whole_number("N", "Of each paged allocator that names none; without -a: paged:block_size=N.")
    ] = None

    def specs(
        self, default: Sequence[str] = (), expanded: Callable[[str], list[str]] = lambda text: [text]
    ) -> list[str]:
        """The specs, the block size in them; ``default``: in place of none, ``expanded``: what a text stands for.

        Raises InputError when there are none, or two block sizes.
        """
        given = [spec for text in self.allocator or [] for spec in expanded(text)]
        if self.block_size is not None:
            return with_block_size(given or [PAGED], self.block_size, "--block-size", "-a ")
        if not given and not default:
            raise InputError(
                "which allocator? -a SPEC (--allocator), such as -a paged:block_size=16, or --block-size N"
            )
        return given or list(default)


@dataclass(frozen=True)
class PoolOptions(OptionGroup):
    """How large the pool is, when nothing else says it."""

    section: ClassVar[str] = "Pool"
    capacity: Annotated[int | None, whole_number("SLOTS", "Size of the pool in token slots.")] = None
    memory: MemoryOption = None


@dataclass(frozen=True)
class HardwareOptions(OptionGroup):
    """The model and what it runs on."""

    section: ClassVar[str] = "Pool"
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|config.json", help="The model: a preset (kvfrag models lists them), or a config.json."
        ),
    ] = None
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What the model runs on: gives the cost of an iteration, and the pool if neither --capacity nor "
            "--memory does.",
        ),
    ] = None
    gpu_memory_utilization: Annotated[
        float | None,
        number("U", f"Of each GPU's memory, how much the server may take.  [default: {DEFAULT_UTILIZATION}]"),
    ] = None
    tensor_parallel_size: Annotated[int | None, whole_number("N", "GPUs that share the model.  [default: 1]")] = None
    kv_cache_dtype: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(KV_CACHE_DTYPES[:4]),
            help="Type of the keys and values; auto: the model's.  [default: auto]",
        ),
    ] = None
    activation_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Of each GPU, what is neither weights nor pool, such as 4GiB.  [default: reckoned, and printed]",
        ),
    ] = None


@dataclass(frozen=True)
class BatchOptions(OptionGroup):
    """How much is served at once."""

    section: ClassVar[str] = "Server"
    max_model_len: Annotated[int | None, whole_number("N", "Longest prompt + output, in tokens.")] = None
    max_batch: Annotated[int | None, whole_number("N", "Most requests running at once.", *MAX_BATCH)] = None
    max_batch_tokens: Annotated[
        int | None, whole_number("N", "Most new tokens in one iteration.", *MAX_BATCH_TOKENS)
    ] = None


@dataclass(frozen=True)
class ServerOptions(OptionGroup):
    """How requests are served, and what it costs."""

    section: ClassVar[str] = "Server"
    too_long: Annotated[str, typer.Option(metavar="reject|truncate", help="What becomes of longer requests.")] = (
        "reject"
    )
    preemption: Annotated[str, typer.Option(metavar="recompute|swap", help="How a preempted request comes back.")] = (
        "recompute"
    )
    swap_slots: Annotated[int | None, whole_number("N", "Room on the host, in slots, for swap.")] = None
    scheduler: Annotated[
        str,
        typer.Option(
            metavar="fcfs|package.module:function",
            help="Who is admitted when: first come, first served, or your own, whose code is run.",
        ),
    ] = FCFS
    cost: Annotated[
        str | None,
        typer.Option(
            metavar="KEY=TIME,...",
            help="What an iteration costs.  [default: that of --model on --gpu (H100 if none is named); without a "
            f"model {str(StepCost()).replace(',', ', ')}]",
        ),
    ] = None
    window: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="START END", help="Measure from START to END, in seconds, and stop."),
    ] = None

    def fields(self) -> dict[str, Any]:
        """These as the keywords of a server. Raises InputError for what does not go together."""
        if self.preemption == "swap" and self.swap_slots is None:
            raise InputError("--preemption swap needs --swap-slots: the room on the host, in slots")
        if self.preemption != "swap" and self.swap_slots is not None:
            raise InputError("--swap-slots needs --preemption swap")
        return {
            "too_long": self.too_long,
            "preemption": self.preemption,
            "swap_slots": self.swap_slots or 0,
            "scheduler": self.scheduler,
            "cost": self.cost,
            "window_s": self.window,
        }


def server_from(*groups: OptionGroup, pool: Pool = "needed", timed: bool = True) -> Server:
    """The server that options name. Raises InputError for what is not allowed or does not go together."""
    given: dict[str, Any] = {}
    for group in groups:
        given |= group.fields() if isinstance(group, ServerOptions) else vars(group)
    return server_of(given, pool, timed=timed, spelled=as_option)


def as_option(name: str) -> str:
    """A keyword as it is written on the command line."""
    return f"--{name.removesuffix('_s').replace('_', '-')}"


def allocator_of(spec: str, slots: int, max_model_len: int | None) -> Allocator:
    """The allocator of a spec. What a user's own constructor says of a value is told like what ours say."""
    try:
        return make_allocator(spec, slots, max_model_len)
    except ValueError as error:
        raise InputError(f"-a {spec}: {error}") from error
