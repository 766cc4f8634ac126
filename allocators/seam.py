"""How a rule is written once and used twice: called from Python as it stands, and compiled into the simulator's loop.

A pool is a NamedTuple of arrays, numbers and records. What can be asked of it is a :func:`question`, such as
``free_slots(pool)``; each type of pool has an :func:`answer` to it. A :func:`rule` is a function that answers are made
of. Here all of them are plain Python; the simulator's engine compiles those that are registered, with numba, which this
package does not import.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])

QUESTIONS: list[Callable[..., Any]] = []
ANSWERS: dict[tuple[Callable[..., Any], type], Callable[..., Any]] = {}
RULES: list[Callable[..., Any]] = []


def question(form: Callable[..., Any]) -> Callable[..., Any]:
    """A function that does what the answer for the type of its first argument does."""

    def ask(state: Any, *arguments: Any) -> Any:
        return ANSWERS[ask, type(state)](state, *arguments)

    ask.__name__, ask.__doc__ = form.__name__, form.__doc__
    QUESTIONS.append(ask)
    return ask


def answer(asked: Callable[..., Any], state: type) -> Callable[[Function], Function]:
    """Register a function as the answer to a question for one type of state."""

    def keep(function: Function) -> Function:
        ANSWERS[asked, state] = function
        return function

    return keep


def rule(function: Function) -> Function:
    """Register a function that compiled code may call."""
    RULES.append(function)
    return function


def record(**fields: int) -> Any:
    """A mutable record of 64-bit integers, by name: ``pool.now.free_blocks -= 1``, compiled or not."""
    made = np.zeros(1, np.dtype([(name, np.int64) for name in fields])).view(np.recarray)[0]
    for name, value in fields.items():
        setattr(made, name, value)
    return made
