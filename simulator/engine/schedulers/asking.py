"""The loop and whom it asks: a scheduler of the project, or one of a user's own, compiled or as it is."""

from collections.abc import Callable
from types import FunctionType
from typing import Any

from numba.core.errors import NumbaError

from allocators.base import InputError
from simulator.engine.callback import Callbacks, CalledError
from simulator.engine.schedulers import State
from simulator.engine.schedulers.faults import FAULTS
from simulator.engine.schedulers.named import Named, name_of, scheduler_of
from simulator.engine.schedulers.own import Plain, compiled_scheduler, plain_policy, reason


class Asking:
    """``state``: of the server that is scheduled. ``loop``: ``loop.advance``, which takes whom it asks first."""

    def __init__(self, named: Named, state: State, loop: Callable[..., int]) -> None:
        scheduler = scheduler_of(named)
        self.notes: tuple[str, ...] = ()
        """What is worth a word about how it ran."""
        self._name, self._state, self._loop, self._advance = name_of(named), state, loop, loop
        self._own = None if isinstance(scheduler, type) else scheduler
        self._policy: Any = None
        self._callbacks = Callbacks()
        if isinstance(scheduler, type):
            self._policy = scheduler(*state)
        elif isinstance(scheduler, FunctionType):
            self._ask_compiled(scheduler)
        else:
            self._ask_in_python("it is no plain function")

    def advance(self, *rest: Any) -> int:
        """What the loop returns."""
        try:
            return self._advance(self._policy, *rest)
        except NumbaError as error:
            if self._own is None or isinstance(self._policy, Plain):
                raise
            self._ask_in_python(f"numba says: {reason(error)}")
            return self.advance(*rest)
        except CalledError:
            if self._callbacks.error is None:
                raise  # of the allocator
            raise self._callbacks.error from None

    def _ask_compiled(self, function: FunctionType) -> None:
        try:
            kind, self._advance = compiled_scheduler(function, self._loop)
            self._policy = kind(*self._state)
        except InputError as error:
            self._ask_in_python(str(error))

    def _ask_in_python(self, why: str) -> None:
        assert self._own is not None
        self.notes = (f"scheduler {self._name} runs as plain Python, many times as slow: {why}",)
        self._advance, self._policy = self._loop, plain_policy(self._own, self._state, self._callbacks)

    def broken_promise(self) -> RuntimeError | None:
        """What the scheduler broke, if it was the scheduler that broke something."""
        clock = self._state.clock
        if int(clock.broken) not in FAULTS:
            return None
        what = f"{FAULTS[int(clock.broken)](self._state)} (iteration {clock.iteration})"
        return RuntimeError(f"scheduler {self._name} broke a promise: {what}; simulator.check_scheduler tells more")
