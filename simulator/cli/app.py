"""``kvfrag``: its commands, each imported when it is called, so that ``--help`` is there at once."""

import inspect
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand
from typer.main import get_command

from simulator.cli.option_groups import SectionedCommand

if TYPE_CHECKING:
    from typer._click import Context


def _allocators() -> str:
    """The allocators with the defaults of their options, as one types them."""
    from allocators import ALLOCATORS

    lines = []
    for name, constructor in ALLOCATORS.items():
        own = [p for p in list(inspect.signature(constructor).parameters.values())[1:] if p.name != "max_model_len"]
        lines.append(f"{name}:" + ",".join(f"{p.name}={'none' if p.default is None else p.default}" for p in own))
    return "\b\nAllocators, with the defaults of their options:\n  " + "\n  ".join(lines)


class Command(NamedTuple):
    """Where a command is, and what is told of it before it is imported."""

    home: str
    """``module:name`` of a function, or of a Typer with commands of its own."""
    help: str
    epilog: Callable[[], str] | None = None
    shown_by: type[TyperCommand] = SectionedCommand


COMMANDS = {
    "models": Command("simulator.cli.models:models", "Models and GPUs known by name."),
    "sweep": Command("simulator.cli.sweep:sweep", "Many runs side by side, on all cores or a cluster.", _allocators),
    "run": Command("simulator.cli.run:run", "Replay a trace against allocators.", _allocators),
    "figure2": Command("simulator.cli.examples:figure2", "Reproduce the PagedAttention paper's Figure 2."),
    "lesson": Command("simulator.cli.examples:lesson", "A worked example, step by step.", shown_by=TyperCommand),
    "size": Command("simulator.cli.answers:size", "How large a pool must be."),
    "fit": Command("simulator.cli.answers:fit", "How many requests fit at once."),
    "advise": Command("simulator.cli.answers:advise", "Which block size."),
    "trace": Command(
        "simulator.cli.trace:trace_app", "Look at request traces, convert and make them, fetch public ones."
    ),
}
"""The commands in the order of ``kvfrag --help``. A new one is a module of ``simulator.cli`` and a line here."""


class _Deferred(TyperCommand):
    """Stands for a command of COMMANDS in the list, and gives way to it when it is called."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> "Context":
        """The context of the command itself, which is imported now."""
        made: Context = _imported(self.name or "").make_context(info_name, args, parent, **extra)
        return made


def _imported(name: str) -> Any:
    command = COMMANDS[name]
    module, _, attribute = command.home.partition(":")
    found = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        found.info.help = command.help
        return get_command(found)
    alone = typer.Typer(**_STYLE)
    epilog = None if command.epilog is None else command.epilog()
    alone.command(name, short_help=command.help, epilog=epilog, cls=command.shown_by)(found)
    return get_command(alone)


_STYLE: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}

app = typer.Typer(**_STYLE)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"kvfrag {version('kvfrag')}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """See where the memory of an LLM server goes: replay request traces against KV-cache allocators."""


def _nothing() -> None:
    """Never called: see :class:`_Deferred`."""


for _name, _command in COMMANDS.items():
    app.command(_name, short_help=_command.help, cls=_Deferred)(_nothing)
