"""A server as people name it: a model and a GPU, or bytes, or slots and a cost. In Python and on the command line.

The rules are written once, here. How large is the pool: ``capacity`` in slots, ``memory`` in bytes of a ``model``, or
what the ``gpu`` has left beside the model. What an iteration costs: ``cost``, or the model on the GPU at its peak
rates; a model without either is taken to run on an H100, and that is said. What makes no difference is an error.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from allocators.base import InputError, in_short, whole
from simulator.server.cache import bytes_per_slot, kv_cache_dtype_of, slots_for
from simulator.server.combinations import OF_AN_ESTIMATE, Pool, check_needs, check_replay
from simulator.server.cost import StepCost, parse_bytes
from simulator.server.gpus import Gpu, load_gpu
from simulator.server.keywords import known_settings
from simulator.server.models import Model, load_model
from simulator.server.pool import PoolEstimate, check_fits, estimate_pool
from simulator.server.settings import FCFS, MOST_SLOTS, Settings, SettingsFields

ASSUMED_GPU = "H100"
"""Whose peak rates a model's cost is taken from when neither a GPU nor a cost is named."""


_GIB = 1 << 30


@dataclass(frozen=True)
class Server:
    """What the options of a server come to."""

    settings: Settings
    slots: int | None
    """Of the pool; None when it is optional and not given, or sought."""
    pool: PoolEstimate | None
    """What the GPUs have left for the pool, and how it follows; None when no GPU says how large the pool is."""
    model: Model | None
    tensor_parallel_size: int
    kv_cache_dtype: str
    warnings: tuple[str, ...]
    """What was assumed, and what the model's figures leave aside; a sentence each."""

    @property
    def bytes_per_slot(self) -> int | None:
        """Bytes of a slot on all GPUs together; None when no model is named."""
        if self.model is None:
            return None
        return bytes_per_slot(self.model, self.tensor_parallel_size, self.kv_cache_dtype)

    def lines(self) -> list[str]:
        """What a table's header says of the server: how the pool follows, and what the cost stands for."""
        scheduler = self.settings.scheduler_name
        return [
            *self.pool_lines(),
            cost_line(self.settings.cost),
            *([] if scheduler == FCFS else [f"scheduler: {scheduler}"]),
        ]

    def pool_lines(self) -> list[str]:
        """How the pool follows, or its bytes where a model says how many a slot has."""
        if self.pool is not None:
            return self.pool.lines()
        if self.model is None or self.slots is None or self.bytes_per_slot is None:
            return []
        each = self.bytes_per_slot
        return [f"{self.slots * each / _GIB:,.2f} GiB of {self.model.name}, {each:,} bytes per slot"]

    def too_small_for(self, slots: int) -> list[str]:
        """A sentence, when a pool of ``slots`` is more than the GPUs have left; else none."""
        if self.pool is None or slots <= self.pool.slots:
            return []
        gpus = self.pool.tensor_parallel_size
        where = f"one {self.pool.gpu.name}" if gpus == 1 else f"{gpus} {self.pool.gpu.name}"
        return [
            f"a pool of {slots:,} slots does not fit: {where} with {self.pool.model.name} has room for "
            f"{self.pool.slots:,}"
        ]


def cost_line(cost: StepCost) -> str:
    """What the header of a table says of the cost of an iteration."""
    return f"cost of an iteration: {cost.of}"


def server_of(
    given: Mapping[str, Any],
    pool: Pool = "needed",
    *,
    held: int | None = None,
    timed: bool = True,
    spelled: Callable[[str], str] = str,
) -> Server:
    """The server that keywords name: :class:`ServerFields` and ``capacity``; what is None is not given.

    ``held``: the slots of an allocator that exists already. ``timed``: whether the cost of an iteration matters.
    ``spelled``: how a keyword is written where it was given, ``--max-batch`` on the command line. Raises InputError
    for what is unknown, not allowed, does not go together or makes no difference.
    """
    known = known_settings(given)
    model, gpu = _model(known.get("model")), _gpu(known.get("gpu"))
    check_needs(known, pool, held, spelled)
    ways = _ways(known, spelled)
    own = {name: value for name, value in known.items() if name in SettingsFields.__annotations__ and name != "cost"}
    limits = Settings(**own)
    limits.check_scheduler()
    estimate, slots, tight = None, held, list[str]()
    if known.get("capacity") is not None or known.get("memory") is not None:
        slots = _slots(known, model, ways, spelled)
    elif held is None and model is not None and gpu is not None:
        estimate = estimate_pool(model, gpu, **ways, **_estimating(known), max_num_seqs=limits.max_batch)
        slots = None if pool == "sought" else estimate.slots
    if estimate is None and slots is not None and model is not None and gpu is not None:
        check_fits(slots * bytes_per_slot(model, **ways), model, gpu, **ways)
        tight = _tight(slots, model, gpu, ways, limits.max_batch)
    if pool == "optional" and slots is None:
        check_replay(known, spelled)
    cost, assumed = _cost(known, model, gpu, slots, ways, spelled) if timed else (StepCost(), [])
    notes = [] if model is None else [f"{model.name}: {note}" for note in model.notes]
    notes += [*tight, *_beyond_positions(model, limits.max_model_len)]
    settings = Settings(cost=cost, **own)
    return Server(settings, slots, estimate, model, **ways, warnings=(*assumed, *notes))


def _tight(slots: int, model: Model, gpu: Gpu, ways: Mapping[str, Any], max_batch: int | None) -> list[str]:
    """A sentence, when a pool that was given fits the GPUs but leaves less than the allowance for activations."""
    if model.weight_bytes is None or model.vocab_size is None:
        return []
    gpus = ways["tensor_parallel_size"]
    where = f"one {gpu.name}" if gpus == 1 else f"{gpus} {gpu.name}"
    try:
        most = estimate_pool(model, gpu, **ways, gpu_memory_utilization=1.0, max_num_seqs=max_batch)
    except InputError:  # not even the weights and the allowance fit
        return [f"a pool of {slots:,} slots leaves nothing for activations beside {model.name} on {where}"]
    if slots <= most.slots:
        return []
    return [
        f"a pool of {slots:,} slots leaves less for activations than start-ups needed: {where} with {model.name} and "
        f"{most.activation_bytes / _GIB:,.2f} GiB for them has room for {most.slots:,} slots"
    ]


def _beyond_positions(model: Model | None, max_model_len: int | None) -> list[str]:
    """A sentence, when requests may be longer than the model has positions; else none."""
    positions = None if model is None else model.max_positions
    if model is None or positions is None or max_model_len is None or max_model_len <= positions:
        return []
    return [
        f"max_model_len is {max_model_len:,}, and {model.name} has {positions:,} positions: vLLM refuses that unless "
        "told otherwise"
    ]


def _model(given: Any) -> Model | None:
    if given is None or isinstance(given, Model):
        return given
    if isinstance(given, str | os.PathLike):
        return load_model(os.fspath(given))
    raise InputError(f"model(={in_short(given)}) must be a Model, the name of one, or the path of a config.json")


def _gpu(given: Any) -> Gpu | None:
    if given is None or isinstance(given, Gpu):
        return given
    if isinstance(given, str):
        return load_gpu(given)
    raise InputError(f"gpu(={in_short(given)}) must be a Gpu, or the name of one")


def _ways(known: Mapping[str, Any], spelled: Callable[[str], str]) -> dict[str, Any]:
    """How the cache is laid out: over how many GPUs, and in which type."""
    gpus, dtype = known.get("tensor_parallel_size"), known.get("kv_cache_dtype")
    return {
        "tensor_parallel_size": 1 if gpus is None else whole(spelled("tensor_parallel_size"), gpus),
        "kv_cache_dtype": "auto" if dtype is None else kv_cache_dtype_of(dtype),
    }


def _slots(
    known: Mapping[str, Any], model: Model | None, ways: Mapping[str, Any], spelled: Callable[[str], str]
) -> int:
    """The slots that ``capacity`` or ``memory`` says."""
    capacity, memory = known.get("capacity"), known.get("memory")
    if memory is None:
        name, slots = f"{spelled('capacity')}(={capacity})", whole(spelled("capacity"), capacity, at_least=-MOST_SLOTS)
    else:
        assert model is not None
        name = f"{spelled('memory')}(={memory})"
        slots = slots_for(parse_bytes(memory, spelled("memory")), model, **ways)
    if not 1 <= slots <= MOST_SLOTS:
        raise InputError(f"{name} must be 1 to {MOST_SLOTS:,} token slots")
    return slots


def _estimating(known: Mapping[str, Any]) -> dict[str, Any]:
    """What an estimate of the pool is told besides the hardware, if anything."""
    return {name: known[name] for name in OF_AN_ESTIMATE if known.get(name) is not None}


def _cost(
    known: Mapping[str, Any],
    model: Model | None,
    gpu: Gpu | None,
    slots: int | None,
    ways: Mapping[str, Any],
    spelled: Callable[[str], str],
) -> tuple[StepCost, list[str]]:
    """What an iteration costs, and what was assumed for it."""
    cost = known.get("cost")
    if isinstance(cost, str):
        return StepCost.parse(cost), []
    if cost is not None:
        return cost, []
    if model is None:
        return StepCost(), []
    if model.active_parameters is None or model.weight_bytes is None:
        why = f": {model.unknown}" if model.unknown else ""
        raise InputError(f"{spelled('cost')} must be given, since the parameters of {model.name} are not known{why}")
    if gpu is not None:
        return StepCost.from_hardware(model, gpu, **ways), []
    assumed = load_gpu(ASSUMED_GPU)
    other = f"{spelled('gpu')} or {spelled('cost')}"
    made = StepCost.from_hardware(model, assumed, **ways)
    made = made.with_of(f"{made.of} (assumed)")
    said = f"no GPU is named: the cost is that of {made.of}"
    try:
        check_fits((slots or 1) * bytes_per_slot(model, **ways), model, assumed, **ways)
    except InputError as error:
        said += f", although it does not fit there: {error}"
    return made, [f"{said}; {other} says another"]
