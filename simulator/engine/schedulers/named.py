"""Schedulers as people name them: by a name of the project's, by a path, or by the function itself."""

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from allocators.base import InputError, in_short
from allocators.dotted import own
from simulator.engine.schedulers import SCHEDULERS, Scheduler, State

Named = str | Callable[..., Any]


def check_name(named: object) -> None:
    """Raise InputError for what names no scheduler; whether one of a user's own is there, its path does not say."""
    if callable(named):
        _check_function(named, name_of(named))
    elif not isinstance(named, str):
        raise InputError(f"scheduler(={in_short(named)}) must be a name, such as fcfs, or a function")
    elif named not in SCHEDULERS and not _is_path(named):
        raise InputError(_unknown(named))


def scheduler_of(named: Named) -> type[State] | Scheduler:
    """The project's, by the type of its state, or a user's own function, whose module is imported.

    Raises InputError for a name or a path that leads nowhere, and for what is not a function of one argument.
    """
    check_name(named)
    if not isinstance(named, str):
        return named
    if named in SCHEDULERS:
        return SCHEDULERS[named]
    function = own(named.replace(":", ".", 1), _unknown(named), "function")
    _check_function(function, named)
    return function


def name_of(named: Named) -> str:
    """What a scheduler is called: as it was named, or the path of the function."""
    if isinstance(named, str):
        return named
    unnamed = type(named).__qualname__
    return f"{getattr(named, '__module__', '')}:{getattr(named, '__qualname__', unnamed)}"


def check_importable(named: Named) -> None:
    """Raise InputError for a function that another process would not find by its name."""
    if not isinstance(named, str):
        name = name_of(named)
        wanted = (
            f"scheduler(={name}) must be a function of a module, package.module:function: other processes import it"
        )
        if own(name.replace(":", ".", 1), wanted, "function") is not named:
            raise InputError(wanted)


def _is_path(text: str) -> bool:
    return "." in text.replace(":", ".", 1)


def _unknown(text: str) -> str:
    near = get_close_matches(text, SCHEDULERS, 1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    names = ", ".join(sorted(SCHEDULERS))
    return (
        f"unknown scheduler {in_short(text)}{meant}; choose from {names}, or name your own as package.module:function"
    )


def _check_function(found: Callable[..., Any], name: str) -> None:
    try:
        if inspect.isclass(found) or inspect.iscoroutinefunction(found) or inspect.isgeneratorfunction(found):
            raise TypeError
        inspect.signature(found).bind(None)
    except (TypeError, ValueError):
        raise InputError(f"scheduler {name} must be a plain function of one argument, the state of a server") from None
