"""Code that is named by a dotted path, a user's own or an extra's: found, or one line that says why not."""

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from allocators.base import InputError
from allocators.failures import one_line, told


def own(path: str, unknown: str, what: str) -> Callable[..., Any]:
    """What a user calls ``package.module.name``: a class or a function, which ``what`` says.

    Naming it runs the code of its module. Raises InputError, in one line: ``unknown``, when it is no dotted path, and
    why, when there is no such module or name; which module it needs and lacks; what it ends the process with. Any other
    error in it is its own, and goes through.
    """
    module_name, _, name = path.rpartition(".")
    if not module_name or path.startswith("."):
        raise InputError(unknown)
    try:
        module = importlib.import_module(module_name)
    except (Exception, KeyboardInterrupt) as error:
        if not isinstance(error, ImportError):
            raise
        if _is_missing(module_name, error):
            raise InputError(one_line(f"{unknown} ({module_name} cannot be imported: {error})")) from None
        raise InputError(one_line(f"{module_name} cannot be imported: {told(error)}")) from None
    except BaseException as error:  # SystemExit would end us without a word
        raise InputError(f"{module_name} cannot be imported: {told(error)}") from None
    found: Callable[..., Any] | None = getattr(module, name, None)
    if found is None or not callable(found):
        raise InputError(one_line(f"{unknown} ({module_name} has no {what} {name})"))
    return found


def optional(name: str, needed: str) -> ModuleType:
    """A module of an extra. Raises InputError: ``needed`` when it is absent, or what it says when it is broken."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        if _is_missing(name, error):
            raise InputError(needed) from None
        raise InputError(f"{name} is installed, but cannot be imported: {told(error)}") from None


def _is_missing(name: str, error: BaseException) -> bool:
    """Whether the module itself, or a package that it is in, is not there; and not something that it imports."""
    return isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
