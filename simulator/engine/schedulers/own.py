"""A scheduler of a user's own: compiled into the loop if numba understands it, else called from there as it is.

Either way it works on the server itself, with the rules in ``steps.py``, and what it decides is checked each time.
"""

import hashlib
import math
import re
import sys
import types
from collections.abc import Callable, Iterator
from dis import get_instructions
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba.core.errors import NumbaError

from allocators.base import InputError
from allocators.seam import ANSWERS, answer
from simulator.engine.callback import FAILED, Callback, Callbacks, CalledError
from simulator.engine.compiled import compiled, register
from simulator.engine.schedulers import Scheduler, State
from simulator.engine.schedulers.faults import checked
from simulator.engine.schedulers.named import name_of
from simulator.engine.schedulers.seam import schedule

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = ("During:", "raised from", 'File "')
_OURS = ("allocators.", "simulator.")
_SOUND = (math, np)
"""Modules that a function may name: what is in them does not change."""
_COMPILED: dict[str, tuple[type[State], Callable[..., Any]]] = {}
_ANSWER = """
def schedule_own(state):
    preemptions = state.queue.now.preemptions
    why = decide(state)
    return checked(state, why, state.queue.now.preemptions - preemptions)
"""


def compiled_scheduler(function: Scheduler, loop: Callable[..., Any]) -> tuple[type[State], Callable[..., Any]]:
    """The type of its state, and the loop that asks it, which is compiled when it is first called.

    Machine code has in it what the function was made of, and is kept under a digest of that. Raises InputError, which
    says why, for a function that names what may change unseen.
    """
    digest = _digest(function)
    if digest not in _COMPILED:
        # The machine code names the type: it must have the same name in the next process.
        name = f"Own_{digest}"
        state = types.new_class(name, (State,), exec_body=lambda names: names.update(__module__=__name__, __slots__=()))
        globals()[name] = state
        functions = list(_functions(function))
        for own in functions:
            register(own)
        names: dict[str, Any] = {"__name__": __name__, "decide": function, "checked": checked}
        exec(_ANSWER, names)
        ANSWERS[schedule, state] = names["schedule_own"]
        # What is loaded from disk asks for the modules again.
        found = all(own.__module__ in sys.modules for own in functions)
        _COMPILED[digest] = state, compiled(getattr(loop, "py_func", loop), f"own-{digest}" if found else None)
    return _COMPILED[digest]


def _functions(function: Callable[..., Any]) -> Iterator[types.FunctionType]:
    """The function and those that it calls, as far as they are a user's own."""
    seen: list[Any] = []
    ahead: list[Any] = [function]
    while ahead:
        one = ahead.pop()
        if isinstance(one, types.FunctionType) and one not in seen and not one.__module__.startswith(_OURS):
            seen.append(one)
            yield one
            ahead += [value for _, value in _named_in(one)]


def _named_in(function: types.FunctionType) -> list[tuple[str, Any]]:
    """What the code of a function names, and what that is."""
    code, cells = function.__code__, function.__closure__ or ()
    # Not ``co_names``, in which the names of attributes are too.
    loaded = dict.fromkeys(step.argval for step in get_instructions(code) if step.opname == "LOAD_GLOBAL")
    free = [(name, cell.cell_contents) for name, cell in zip(code.co_freevars, cells, strict=True)]
    return free + [(name, function.__globals__[name]) for name in loaded if name in function.__globals__]


def _digest(function: Callable[..., Any]) -> str:
    """Of the code of a function, and of all that it names. Raises InputError for what is neither code nor a number."""
    digest = hashlib.sha256()
    for own in _functions(function):
        code = own.__code__
        if any(isinstance(one, types.CodeType) for one in code.co_consts):
            raise InputError(f"{own.__name__} has a function in it")
        parts: list[Any] = [own.__module__, own.__qualname__, own.__defaults__, own.__kwdefaults__]
        parts += [code.co_code, code.co_consts, code.co_names, code.co_varnames]
        for name, value in _named_in(own):
            if any(value is one for one in _SOUND) or isinstance(value, types.FunctionType):
                parts.append((name, value.__name__))
            elif isinstance(value, bool | int | float | str | None):
                parts.append((name, value))
            else:
                raise InputError(f"{own.__name__} names {name}, a {type(value).__name__}, which may change unseen")
        digest.update(repr(parts).encode())
    return digest.hexdigest()[:16]


def reason(error: NumbaError) -> str:
    """What numba does not understand, out of all that it says."""
    lines = [line.strip() for line in _ESCAPES.sub("", str(error)).splitlines() if line.strip()]
    end = next((number for number, line in enumerate(lines) if line.startswith(_FRAME)), len(lines))
    where = next((line.rstrip(":") for line in lines[end:] if line.startswith('File "')), "")
    return f"{lines[max(end - 1, 0)]} ({Path(where[6:].partition(chr(34))[0]).name}{where[6:].partition(chr(34))[2]})"


class Plain(NamedTuple):
    """Calls a function as it is."""

    decide: Callback


def plain_policy(function: Scheduler, state: State, callbacks: Callbacks) -> Plain:
    """What asks the function about this server."""

    def decide() -> int:
        preemptions = state.queue.now.preemptions
        why = function(state)
        if isinstance(why, bool) or not hasattr(why, "__index__"):
            reasons = "NOBODY, EXTERNAL, RESIDUAL, BATCH, TOKENS or PREEMPTED of simulator.engine.schedulers"
            raise RuntimeError(f"scheduler {name_of(function)} returned {why!r}, and not one of {reasons}")
        return checked(state, int(why.__index__()), state.queue.now.preemptions - preemptions)

    return Plain(callbacks.of(decide, 0))


@answer(schedule, Plain)
def _schedule(policy: Plain) -> int:
    why = policy.decide()
    if why == FAILED:
        raise CalledError
    return why
