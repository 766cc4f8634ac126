"""Commands that installed packages add to ``kvfrag``: the entry points of the group ``kvfrag.commands``."""

from importlib.metadata import EntryPoint, entry_points

import typer

from allocators.failures import told

GROUP = "kvfrag.commands"
_ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


class BrokenCommandError(Exception):
    """A command that is installed and cannot be imported."""


def add_commands(app: typer.Typer) -> None:
    """Add those that the application does not have yet.

    One that cannot be imported takes nothing from the others: it is in the list of commands, and raises
    BrokenCommandError, which says why, when it is called.
    """
    there = {group.name for group in app.registered_groups} | {command.name for command in app.registered_commands}
    for command in entry_points(group=GROUP):
        if command.name in there:
            continue
        try:
            app.add_typer(command.load(), name=command.name)
        except Exception as error:
            _add_broken(app, command, told(error))


def _add_broken(app: typer.Typer, command: EntryPoint, reason: str) -> None:
    @app.command(name=command.name, short_help="Installed, but broken.", context_settings=_ANYTHING)
    def broken() -> None:
        raise BrokenCommandError(f"the command {command.name} ({command.value}) cannot be imported: {reason}")
