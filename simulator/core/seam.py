"""Where the loop meets what can be exchanged: questions that are answered by the type of a state.

A state is a NamedTuple of arrays and records, which numba takes as it is. ``free_slots(pool)`` calls the function that
was registered for the type of ``pool``: in compiled code when that is compiled, and in plain Python under
``NUMBA_DISABLE_JIT=1``.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

_ANSWERS: dict[tuple[Callable[..., Any], type], Callable[..., Any]] = {}


def question(stub: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose body depends on the type of its first argument; ``answers`` gives it one for a type."""

    def ask(state: Any, *arguments: Any) -> Any:
        return _ANSWERS[ask, type(state)](state, *arguments)

    ask.__name__, ask.__doc__ = stub.__name__, stub.__doc__

    @overload(ask, strict=False, jit_options={"_nrt": False})
    def choose(state: Any, *arguments: Any) -> Callable[..., Any] | None:
        return _ANSWERS.get((ask, getattr(state, "instance_class", object)))

    return ask


def answers(stub: Callable[..., Any], state: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the answer to a question for states of a type."""

    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        _ANSWERS[stub, state] = function
        return function

    return keep


def record(**fields: int) -> Any:
    """A mutable record of 64-bit integers, by name: ``clock.now += 1`` in compiled code and in Python."""
    made = np.zeros(1, np.dtype([(name, np.int64) for name in fields])).view(np.recarray)[0]
    for name, value in fields.items():
        setattr(made, name, value)
    return made
