"""Public names of a package that are imported when they are first used, so that importing the package is quick."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of a package: name -> the module that has it, or is it."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(homes[name])
        if homes[name] == f"{package}.{name}":
            return module
        value = getattr(module, name)
        vars(import_module(package))[name] = value
        return value

    return find, lambda: sorted(homes)
