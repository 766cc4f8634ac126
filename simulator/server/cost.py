"""How long an iteration takes: four costs and a fifth for swapping, in whole picoseconds.

An iteration runs for ``base + prefill_token x p + sequence x b + kv_token x u``, and ``swapped_token``
for each token that comes or goes by swap. Integers make a run of any number of iterations an exact
arithmetic series: skipping ahead gives bit for bit what stepping token by token gives.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from fractions import Fraction

from allocators.base import InputError, in_short, whole
from simulator.server.cache import bytes_per_slot
from simulator.server.gpus import Gpu, load_gpu
from simulator.server.models import Model, load_model

# Exponents of three digits are plenty, and keep 1e999999999 from being written out in full.
_QUANTITY = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,3})?)\s*([a-zµ]*)", re.ASCII | re.IGNORECASE)
_BYTE_UNITS = {"b": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("kmgtp", start=1)
    for suffix, base in (("b", 1000), ("ib", 1024))
}
_MOST_BYTES = 2**60
_UNITS_PS = {"ps": 1, "ns": 10**3, "us": 10**6, "µs": 10**6, "ms": 10**9, "s": 10**12}

# A thousand seconds, and one for each token and sequence: beyond anything measured, and an iteration over a
# pool of a million slots (p + swapped, u and b at most a million each) stays below 2^62 ps, 53 days.
MOST_BASE_PS = 1000 * 10**12
MOST_ITEM_PS = 10**12


def _exact(text: str, units: Mapping[str, int]) -> Fraction | None:
    """A decimal and one of ``units`` as an exact multiple of the base unit; None for any other text."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[2] not in units:
        return None
    return Fraction(Decimal(match[1])) * units[match[2]]


def parse_bytes(text: str | int, name: str = "memory") -> int:
    """``"12GiB"`` as a number of bytes, its whole bytes (``"10.55GiB"`` is not whole); an int is taken as bytes.

    Units in any case: B, decimal KB MB GB TB PB, binary KiB MiB GiB TiB PiB. Raises InputError, naming
    ``name`` and the value, for anything but 1 to 2^60 bytes.
    """
    value = _exact(text.lower(), _BYTE_UNITS) if isinstance(text, str) else whole(name, text)
    if value is None or not 1 <= value <= _MOST_BYTES:
        raise InputError(
            f"{name}(={in_short(text)}) must be 1B to 1024PiB: "
            "a decimal and one of B, KB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB"
        )
    return int(value)


def format_time_ps(time_ps: int) -> str:
    """The time in the largest unit that keeps it whole: ``25ms``, ``1500ps``; 0 is ``0``."""
    if time_ps == 0:
        return "0"
    unit = next(unit for unit in ("s", "ms", "us", "ns", "ps") if time_ps % _UNITS_PS[unit] == 0)
    return f"{time_ps // _UNITS_PS[unit]}{unit}"


def parse_time_ps(name: str, value: str | int, at_most_ps: int = MOST_BASE_PS) -> int:
    """``"25ms"``, ``"1.5ns"``, ``"2e-3s"`` as picoseconds, exactly; an int is taken as picoseconds.

    Units: ps, ns, us, ms, s; only a 0 needs none. Raises InputError, naming ``name`` and the value, for
    anything that is not a whole number of picoseconds from 0 to ``at_most_ps``.
    """
    time_ps: Fraction | None = None
    if isinstance(value, str):
        time_ps = _exact(value, {**_UNITS_PS, "": 0})
        # A number without a unit came out as 0 times itself: right for a zero only.
        if time_ps == 0 and _exact(value, {"": 1}):
            time_ps = None
    elif hasattr(value, "__index__") and not isinstance(value, bool):
        time_ps = Fraction(value.__index__())
    if time_ps is None or time_ps.denominator != 1 or not 0 <= time_ps <= at_most_ps:
        raise InputError(
            f"{name}(={in_short(value)}) must be whole picoseconds from 0 to {format_time_ps(at_most_ps)}: "
            "0, or a decimal and one of ps, ns, us, ms, s, such as 25ms or 1.5ns"
        )
    return int(time_ps)


_DEFAULT_SERVER = "OPT-13B on one A100-40GB"
DEFAULT_OF = f"{_DEFAULT_SERVER}, the costs behind the PagedAttention paper's Figure 2 (the default)"
"""What the default costs stand for."""


@dataclass(frozen=True, init=False)
class StepCost:
    """The costs of an iteration; every field is an int of picoseconds.

    Each is given as text with a unit (``"25ms"``) or as an int of picoseconds: ``base`` up to 1000 s, the
    others up to 1 s. The defaults are those behind the PagedAttention paper's Figure 2 (OPT-13B on one
    A100-40GB). Raises InputError for a value that is not whole picoseconds in that range.
    """

    base: int
    """Once an iteration."""
    prefill_token: int
    """For each token prefilled in the iteration."""
    sequence: int
    """For each request running."""
    kv_token: int
    """For each token state held, this iteration's writes included."""
    swapped_token: int
    """For each token state that comes from or goes to the host."""

    def __init__(
        self,
        base: str | int = "25ms",
        prefill_token: str | int = "100us",
        sequence: str | int = "200us",
        kv_token: str | int = "0",
        swapped_token: str | int = "0",
    ) -> None:
        values = (base, prefill_token, sequence, kv_token, swapped_token)
        for field, value in zip(fields(self), values, strict=True):
            most = MOST_BASE_PS if field.name == "base" else MOST_ITEM_PS
            object.__setattr__(self, field.name, parse_time_ps(f"cost {field.name}", value, most))

    @property
    def of(self) -> str:
        """What the costs stand for: a model on a GPU, the default, or ``as given``. Equal costs may differ in it."""
        told: str | None = self.__dict__.get("_of")
        if told is not None:
            return told
        return DEFAULT_OF if self == StepCost() else "as given"

    def with_of(self, of: str) -> "StepCost":
        """The same costs, and what they stand for. It is lost where a cost is changed with ``dataclasses.replace``."""
        cost = replace(self)
        object.__setattr__(cost, "_of", of)
        return cost

    @classmethod
    def parse(cls, text: str) -> "StepCost":
        """The cost in ``"base=25ms,prefill_token=100us"``; what is left out keeps its default.

        Raises InputError for an unknown or repeated key, a missing '=' and any value that is no time.
        """
        allowed = [field.name for field in fields(cls)]
        given: dict[str, str | int] = {}
        for part in text.split(","):
            key, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals:
                form = f"KEY=TIME, such as base=25ms, with a key of {', '.join(allowed)}"
                raise InputError(f"cost {part.strip()!r} must be {form}")
            if key not in allowed:
                raise InputError(f"unknown cost {key!r}; choose from {', '.join(allowed)}")
            if key in given:
                raise InputError(f"cost {key!r} is given twice; once is allowed")
            given[key] = value
        cost, default = cls(**given), cls()
        kept = [name for name in allowed if name not in given and getattr(default, name)]
        left = ", ".join(f"{name}={format_time_ps(getattr(default, name))}" for name in kept)
        return cost.with_of(f"as given; {left} as for {_DEFAULT_SERVER}" if left else "as given")

    def to_text(self) -> str:
        """All five costs in the form :meth:`parse` reads, each in the largest unit that keeps it whole."""
        return ",".join(f"{field.name}={format_time_ps(getattr(self, field.name))}" for field in fields(self))

    def __str__(self) -> str:
        return self.to_text()

    def duration_ps(self, prefill_tokens: int, sequences: int, kv_tokens: int, swapped_tokens: int = 0) -> int:
        """Picoseconds of one iteration: p tokens prefilled, b requests running, u token states held."""
        return (
            self.base
            + self.prefill_token * prefill_tokens
            + self.sequence * sequences
            + self.kv_token * kv_tokens
            + self.swapped_token * swapped_tokens
        )

    @classmethod
    def from_hardware(
        cls,
        model: Model | str,
        gpu: Gpu | str,
        tensor_parallel_size: int = 1,
        kv_cache_dtype: str = "auto",
    ) -> "StepCost":
        """What a model costs on N GPUs at the vendor's peak rates::

            base                     = weight bytes / N / memory bandwidth        (every weight is read once)
            prefill_token = sequence = 2 x active parameters / N / dense FLOP/s   (a multiply and an add each)
            kv_token                 = bytes per slot / N / memory bandwidth      (attention reads the cache)
            swapped_token            = bytes per slot / N / host link bandwidth in one direction

        each rounded to the nearest picosecond, halves to even. Bytes per slot are those on all GPUs together: KV
        heads that are stored on several GPUs count on each. Rates are those of 16-bit tensor cores, for quantised
        weights too.

        **A lower bound for planning, with no overheads**: no launches, scheduling or sampling, no attention
        arithmetic, **no communication between the GPUs**, and peak rates that real kernels do not reach. In two
        respects it is not the least: reading and computing are added up, where a perfect overlap would cost the
        larger of the two; and where tokens choose experts, the weights of all experts are read in every iteration,
        which holds for batches of many tokens (operations count only the experts that a token meets). Whether the
        weights fit the memory is not asked. Raises InputError for an unknown name, a number of GPUs that the heads
        do not divide over, and a model whose parameters or weights are not known.
        """
        model = load_model(model) if isinstance(model, str) else model
        gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
        slot = bytes_per_slot(model, tensor_parallel_size, kv_cache_dtype)
        if model.active_parameters is None or model.weight_bytes is None:
            why = f" ({model.unknown})" if model.unknown else ""
            number = model.active_parameters is None
            what = f"the {'number of parameters' if number else 'bytes of the weights'} of model {model.name!r}"
            remedy = "give Model(..., parameters=N, weight_bytes=N), or the costs themselves"
            raise InputError(f"{what} {'is' if number else 'are'} not known{why}; {remedy}")

        def time_ps(amount: int, per_s: int) -> int:
            return round(Fraction(amount * 10**12, per_s * tensor_parallel_size))

        token = time_ps(2 * model.active_parameters, gpu.flops_per_s)
        where = f"one {gpu.name}" if tensor_parallel_size == 1 else f"{tensor_parallel_size} {gpu.name}"
        return cls(
            base=time_ps(model.weight_bytes, gpu.bandwidth_bytes_per_s),
            prefill_token=token,
            sequence=token,
            kv_token=time_ps(slot, gpu.bandwidth_bytes_per_s),
            swapped_token=time_ps(slot, gpu.host_link_bytes_per_s),
        ).with_of(f"{model.name} on {where}, from peak rates")
