"""The command line's mini-language, ``name:key=value,key=value``, and the allocators by name."""

import inspect
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from allocators.base import Allocator, InputError
from allocators.buddy import Buddy
from allocators.contiguous import Contiguous
from allocators.dotted import own
from allocators.paged import Paged

ALLOCATORS: Mapping[str, Callable[..., Allocator]] = {"buddy": Buddy, "contiguous": Contiguous, "paged": Paged}
"""Every allocator of the project. A new one is a file and a line here."""


def parse_spec(text: str) -> tuple[str, dict[str, str]]:
    """Split ``name:key=value,key=value`` into the name and its options, in order.

    Raises InputError on an empty name or key, a missing ``=``, or a key given twice.
    """
    name, _, tail = text.partition(":")
    options: dict[str, str] = {}
    for part in tail.split(",") if tail.strip() else []:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value):
            raise InputError(f"{part.strip()!r} in {text!r} must read key=value, as in name:key=value,key=value")
        if key in options:
            raise InputError(f"{key!r} is given twice in {text!r}")
        options[key] = value
    if not name.strip():
        raise InputError(f"{text!r} must start with a name, as in name:key=value,key=value")
    return name.strip(), options


def make_allocator(spec: str, capacity: int, max_model_len: int | None = None) -> Allocator:
    """Build an allocator from its spec: ``paged:block_size=16``, or ``package.module.Class:arg=1`` of one's own.

    ``capacity`` is in slots; ``max_model_len`` is handed to those whose constructor takes it. Options are read
    by the constructor's type hints. Raises InputError for an unknown name, option or value.
    """
    name, options = parse_spec(spec)
    constructor = ALLOCATORS.get(name) or _load(name)
    try:
        parameters = list(inspect.signature(constructor).parameters.values())
        hints = get_type_hints(constructor.__init__ if inspect.isclass(constructor) else constructor)
    except (TypeError, ValueError, NameError) as error:
        raise InputError(f"{name} is not an allocator class: {error}") from None
    if not parameters:
        raise InputError(
            f"{name} is not an allocator class: it must take the capacity, in slots, as its first argument"
        )
    parameters = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    options_of_it = [p.name for p in parameters[1:] if p.name != "max_model_len"]
    arguments: dict[str, Any] = {}
    for key, value in options.items():
        if key not in options_of_it:
            raise InputError(
                f"unknown option {key!r} of {name}; choose from {', '.join(sorted(options_of_it)) or '(none)'}"
            )
        arguments[key] = _convert(f"{key} of {name}", value, hints.get(key, str))
    if any(p.name == "max_model_len" for p in parameters):
        arguments["max_model_len"] = max_model_len
    missing = [p.name for p in parameters[1:] if p.default is p.empty and p.name not in arguments]
    if missing:
        raise InputError(f"{name} needs {missing[0]}, as in {name}:{missing[0]}=...")
    made = constructor(capacity, **arguments)
    lacking = [one for one in vars(Allocator) if not one.startswith("_") and not hasattr(made, one)]
    if lacking:
        raise InputError(f"{name} is not an allocator: it lacks {', '.join(lacking)} (see allocators/base.py)")
    return made


def _load(path: str) -> Callable[..., Allocator]:
    """The user's own class, by its dotted path."""
    unknown = f"unknown allocator {path!r}; choose from {', '.join(sorted(ALLOCATORS))}"
    if "." not in path or path.startswith("."):
        raise InputError(f"{unknown}, or name your own as package.module.Class")
    return own(path, unknown, "class")


def _convert(name: str, text: str, hint: object) -> Any:
    """Read an option's text as its type hint says; a text that does not read is an InputError."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if type(None) in kinds and text == "none":
        return None
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    if bool in kinds:
        if text not in ("true", "false"):
            raise InputError(f"{name}(={text!r}) must be true or false")
        return text == "true"
    if str in kinds:
        return text
    for kind in (kind for kind in (int, float) if kind in kinds):
        try:
            return kind(text)
        except ValueError:
            continue
    if int not in kinds and float not in kinds:
        return text  # the constructor knows what to make of it
    raise InputError(f"{name}(={text!r}) must be a {'whole number' if kinds == (int,) else 'number'}")
