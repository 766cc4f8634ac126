"""The options that say what server is simulated, and what is made of them: shared by the commands that simulate."""

from typing import Annotated

import typer

from allocators import Allocator, InputError, make_allocator
from simulator.cost import StepCost, parse_bytes
from simulator.options import whole_number
from simulator.server.cache import slots_for
from simulator.server.models import load_model
from simulator.settings import MOST_SLOTS, Settings

Allocators = Annotated[
    list[str],
    typer.Option(
        "-a",
        "--allocator",
        metavar="SPEC",
        help="Such as paged or paged:block_size=16, or your own: package.module.Class:arg=1, whose code is run. "
        "Repeat to compare.",
    ),
]
Capacity = Annotated[int | None, whole_number("SLOTS", "Size of the pool in token slots.")]
Memory = Annotated[str | None, typer.Option(metavar="SIZE", help="Or its size in bytes, such as 12GiB, with --model.")]
Model = Annotated[str | None, typer.Option(metavar="NAME|config.json", help="Gives the bytes of a slot.")]
Gpu = Annotated[str | None, typer.Option(metavar="NAME", help="With --model: a cost from the GPU's peak rates.")]
MaxModelLen = Annotated[int | None, whole_number("N", "Longest prompt + output, in tokens.")]
MaxBatch = Annotated[int | None, whole_number("N", "Most requests running at once.")]
MaxBatchTokens = Annotated[int | None, whole_number("N", "Most new tokens in one iteration.")]
TooLong = Annotated[str, typer.Option(metavar="reject|truncate", help="What becomes of longer requests.")]
Preemption = Annotated[str, typer.Option(metavar="recompute|swap", help="How a preempted request comes back.")]
SwapSlots = Annotated[int | None, whole_number("N", "Room on the host, in slots, for swap.")]
Cost = Annotated[
    str | None,
    typer.Option(
        metavar="KEY=TIME,...",
        help=f"What an iteration costs. Default: {str(StepCost()).replace(',', ', ')}",
    ),
]
Window = Annotated[
    tuple[str, str] | None,
    typer.Option(metavar="START END", help="Measure from START to END, in seconds, and stop."),
]


def server_settings(
    max_model_len: int | None,
    max_batch: int | None,
    max_batch_tokens: int | None,
    too_long: str,
    preemption: str,
    swap_slots: int | None,
    cost: StepCost,
    window: tuple[str, str] | None,
) -> Settings:
    """The settings that options name. Raises InputError for what is not allowed or does not go together."""
    if preemption == "swap" and swap_slots is None:
        raise InputError("--preemption swap needs --swap-slots: the room on the host, in slots")
    if preemption != "swap" and swap_slots is not None:
        raise InputError("--swap-slots needs --preemption swap")
    return Settings(
        cost=cost,
        max_model_len=max_model_len,
        max_batch=max_batch,
        max_batch_tokens=max_batch_tokens,
        too_long=too_long,
        preemption=preemption,
        swap_slots=swap_slots or 0,
        window_s=window,
    )


def pool_slots(capacity: int | None, memory: str | None, model: str | None) -> int:
    """Slots, from the two ways to say how large the pool is."""
    if capacity is not None and memory is not None:
        raise InputError("--capacity and --memory both say how large the pool is; give one of them")
    if capacity is not None:
        name, slots = f"--capacity(={capacity})", capacity
    elif memory is None:
        raise InputError("how large is the pool? --capacity SLOTS, or --memory SIZE with --model NAME")
    elif model is None:
        raise InputError("--memory needs --model NAME|config.json, which gives the bytes of a slot")
    else:
        name, slots = f"--memory(={memory})", slots_for(parse_bytes(memory, "--memory"), load_model(model))
    if not 1 <= slots <= MOST_SLOTS:
        raise InputError(f"{name} must be 1 to {MOST_SLOTS:,} token slots")
    return slots


def step_cost(cost: str | None, model: str | None, gpu: str | None) -> StepCost:
    """The cost of an iteration, from the two ways to say it."""
    if gpu is None:
        return StepCost.parse(cost) if cost is not None else StepCost()
    if cost is not None or model is None:
        raise InputError("--gpu needs --model, and stands in place of --cost")
    return StepCost.from_hardware(model, gpu)


def allocator_of(spec: str, slots: int, max_model_len: int | None) -> Allocator:
    """The allocator of a spec. What a user's own constructor says of a value is told like what ours say."""
    try:
        return make_allocator(spec, slots, max_model_len)
    except ValueError as error:
        raise InputError(f"-a {spec}: {error}") from error
