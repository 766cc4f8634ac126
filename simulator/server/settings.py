"""The server that is simulated: how it batches, what an iteration costs, what part of the run is measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypedDict

from allocators.base import InputError, in_short, one_of, whole
from simulator.server.cost import StepCost

TOO_LONG = ("reject", "truncate")
PREEMPTION = ("recompute", "swap")
FCFS = "fcfs"
NEWER: dict[str, Any] = {"scheduler": FCFS}
"""Settings that earlier versions did not have, and what they then were; the files of a run leave these out."""

MOST_SLOTS = 10**9
"""The largest pool: more than any machine has, and little enough for the ledger's 64-bit numbers."""

MOST_SECONDS = 10**10
"""The latest time a window or a layout may be asked for: beyond the last arrival that a trace can have."""


class SettingsFields(TypedDict, total=False):
    """The fields of :class:`Settings`, as keywords."""

    cost: StepCost | str | None
    max_model_len: int | None
    max_batch: int | None
    max_batch_tokens: int | None
    too_long: str
    preemption: str
    swap_slots: int
    scheduler: str | Callable[..., int]
    window_s: tuple[float | str, float | str] | None


@dataclass(frozen=True)
class Settings:
    """Everything a run depends on besides its trace and its allocator. Raises InputError for what is not allowed."""

    cost: StepCost = field(default_factory=StepCost)
    """What an iteration costs."""
    max_model_len: int | None = None
    """Longest prompt + output, in tokens; None: no limit."""
    max_batch: int | None = None
    """Most requests running; None: no limit."""
    max_batch_tokens: int | None = None
    """Most new tokens in one iteration; None: no limit."""
    too_long: str = "reject"
    """What becomes of a request beyond max_model_len: ``reject``, or ``truncate`` its output."""
    preemption: str = "recompute"
    """How a preempted request comes back: ``recompute`` its token states, or ``swap`` them to the host and back."""
    swap_slots: int = 0
    """Room on the host for swapped token states, in slots; when it is full, preemption recomputes."""
    scheduler: str | Callable[..., int] = FCFS
    """Who grows, is preempted and is admitted: a name of ``engine.schedulers.SCHEDULERS``; or one of a user's own, a
    function or its path, ``package.module:function``."""
    window_s: tuple[float | str, float | str] | None = None
    """START and END in seconds (kept as floats): the run stops after the iteration that reaches END, shares are those
    in between."""

    def __post_init__(self) -> None:
        if not isinstance(self.cost, StepCost):
            raise InputError(f"cost(={in_short(self.cost)}) must be a StepCost, such as StepCost(base='25ms')")
        for name in ("max_model_len", "max_batch", "max_batch_tokens"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, whole(name, value))
        object.__setattr__(self, "swap_slots", whole("swap_slots", self.swap_slots, at_least=0))
        one_of("too_long", self.too_long, TOO_LONG)
        one_of("preemption", self.preemption, PREEMPTION)
        if self.scheduler != FCFS:
            from simulator.engine.schedulers.named import check_name

            check_name(self.scheduler)
        if self.too_long == "truncate" and self.max_model_len is None:
            raise InputError("max_model_len(=None) must be given with too_long=truncate")
        if self.window_s is not None:
            object.__setattr__(self, "window_s", _window(self.window_s))

    @property
    def window_ps(self) -> tuple[int, int] | None:
        """The window in whole picoseconds, halves to even."""
        return None if self.window_s is None else (to_ps(self.window_s[0]), to_ps(self.window_s[1]))

    def check_scheduler(self, importable: bool = False) -> None:
        """Raise InputError unless the scheduler is there, and other processes find it if it must be ``importable``."""
        if self.scheduler != FCFS:
            from simulator.engine.schedulers.named import check_importable, scheduler_of

            scheduler_of(self.scheduler)  # the module of a user's own is imported
            if importable:
                check_importable(self.scheduler)

    @property
    def scheduler_name(self) -> str:
        """What it is called, in text."""
        if isinstance(self.scheduler, str):
            return self.scheduler
        from simulator.engine.schedulers.named import name_of

        return name_of(self.scheduler)

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON holds them; the cost as text with units, and what it stands for."""
        return {
            "cost": self.cost.to_text(),
            "cost_of": self.cost.of,
            "max_model_len": self.max_model_len,
            "max_batch": self.max_batch,
            "max_batch_tokens": self.max_batch_tokens,
            "too_long": self.too_long,
            "preemption": self.preemption,
            "swap_slots": self.swap_slots,
            "scheduler": self.scheduler_name,
            "window_s": None if self.window_s is None else list(self.window_s),
        }

    def to_saved(self) -> dict[str, Any]:
        """The same without a scheduler that is the default: as versions wrote it, and named runs, that had no other."""
        return {name: value for name, value in self.to_dict().items() if NEWER.get(name, ...) != value}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Settings":
        """The settings that :meth:`to_dict` or :meth:`to_saved` wrote.

        Earlier versions did not write what the cost stands for.
        """
        window = values["window_s"]
        cost = StepCost.parse(values["cost"]).with_of(str(values.get("cost_of", "not written down")))
        rest = {name: value for name, value in values.items() if name not in ("cost", "cost_of", "window_s")}
        return cls(cost=cost, window_s=None if window is None else tuple(window), **rest)


def to_ps(time_s: float | str) -> int:
    """Seconds, read as they are printed, in whole picoseconds, halves to even."""
    return round(Decimal(str(time_s)) * 10**12)


def _window(edges_s: Sequence[float | str]) -> tuple[float, float]:
    """START and END as floats, or an InputError."""
    try:
        start, end = map(float, edges_s)
        if 0 <= start < end <= MOST_SECONDS and to_ps(start) < to_ps(end):
            return start, end
    except (ValueError, TypeError):
        pass
    if isinstance(edges_s, tuple | list):
        given = " ".join(map(str, edges_s))
    else:
        given = edges_s if isinstance(edges_s, str) else in_short(edges_s)
    raise InputError(f"window(={given}) must be START END, in seconds, with 0 <= START < END <= {MOST_SECONDS:g}")
