"""Options that several commands share: each group is a dataclass, written once, and a section of its own in ``--help``.

A command takes a group as one parameter, ``pool: PoolOptions``; :func:`with_groups` spells its fields out as options.
A new option of all these commands is one field with its help.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, Field, dataclass, fields
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast, get_args, get_type_hints

from typer.core import TyperCommand

from allocators.base import InputError

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

OUTPUT = "Output"
"""The section of the options that say what is printed and written."""

_WIDEST = 30  # of the names in --help; a longer one has its help on the next line


@dataclass(frozen=True)
class OptionGroup:
    """Options that belong together; each field is ``Annotated[type, typer.Option(...)]``."""

    section: ClassVar[str] = "Options"
    """Its title in ``--help``."""


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of its option groups as options of its own, in their place."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, OptionGroup)}
    parameters: list[Parameter] = []
    for own in signature(command).parameters.values():
        if own.name in groups:
            parameters += _options(groups[own.name])
        else:
            parameters.append(own.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[own.name]))

    @wraps(command)
    def spelled_out(**given: Any) -> None:
        made = {name: _made(group, given) for name, group in groups.items()}
        command(**given, **made)

    shown = cast(Any, spelled_out)
    shown.__signature__ = signature(command).replace(parameters=parameters)
    shown.__annotations__ = {one.name: one.annotation for one in parameters}
    return spelled_out


def _made(group: type[OptionGroup], given: dict[str, Any]) -> OptionGroup:
    """The group of what was given; what is the group's is taken out of ``given``."""
    return group(**{field.name: given.pop(field.name) for field in fields(group)})


def _options(group: type[OptionGroup]) -> list[Parameter]:
    """A parameter for each field, in the group's section."""
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=_default(field), annotation=_in(group, hints[field.name]))
        for field in fields(group)
    ]


def _default(field: "Field[Any]") -> Any:
    return Parameter.empty if field.default is MISSING else field.default


def _in(group: type[OptionGroup], hint: Any) -> Any:
    """The type of an option with its help, in the group's section."""
    kind, info = get_args(hint)
    info = copy(info)
    info.rich_help_panel = group.section
    return Annotated[kind, info]


class SectionedCommand(TyperCommand):
    """A command whose ``--help`` has a section for each group of options, in plain text."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """Parse as usual; an option given under two of its names is an InputError, repeated under one the last wins."""
        for parameter in self.get_params(ctx):
            if parameter.multiple if hasattr(parameter, "multiple") else True:
                continue
            used = [name for name in parameter.opts if any(_names(arg, name) for arg in _options_of(args))]
            if len(used) > 1:
                raise InputError(f"{used[1]} and {used[0]} are two names of one setting; give one of them")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write the arguments and, section by section, the options; those without a section come last."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        last: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            section = getattr(parameter, "rich_help_panel", None)
            if parameter.param_type_name == "argument":
                section = "Arguments"
            (last if section is None else sections.setdefault(section, [])).append(record)
        sections["Options" if len(sections) == 1 else "Other options"] = last
        width = min(_WIDEST, max((len(name) for records in sections.values() for name, _ in records), default=0))
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(width), text) for name, text in records], col_max=_WIDEST)


def _options_of(args: list[str]) -> list[str]:
    """The arguments that can be options: those before ``--``."""
    return args[: args.index("--")] if "--" in args else args


def _names(arg: str, name: str) -> bool:
    """Whether an argument gives the option of that name: ``--name``, ``--name=VALUE``, ``-n``, ``-nVALUE``."""
    if name.startswith("--"):
        return arg == name or arg.startswith(f"{name}=")
    return arg.startswith(name) and not arg.startswith("--")
