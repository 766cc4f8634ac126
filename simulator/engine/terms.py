"""What a server must be told before it starts, whoever writes it down: the engine knows no settings, models or GPUs."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from simulator.engine.schedulers import Scheduler


class Costs(Protocol):
    """What an iteration costs, in whole picoseconds."""

    @property
    def base(self) -> int: ...
    @property
    def prefill_token(self) -> int: ...
    @property
    def sequence(self) -> int: ...
    @property
    def kv_token(self) -> int: ...
    @property
    def swapped_token(self) -> int: ...


class Terms(Protocol):
    """How it batches and preempts; None: no limit."""

    @property
    def cost(self) -> Costs: ...
    @property
    def max_batch(self) -> int | None: ...
    @property
    def max_batch_tokens(self) -> int | None: ...
    @property
    def preemption(self) -> str: ...
    @property
    def swap_slots(self) -> int: ...
    @property
    def scheduler(self) -> "str | Scheduler": ...
