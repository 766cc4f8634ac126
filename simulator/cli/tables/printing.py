"""What people read on standard output: tables and paragraphs as wide as their terminal, and what columns mean.

A table that is too wide for a terminal is broken into tables one below the other. No number is folded or left out. A
file or a pipe is wide enough for any table, and has a paragraph in one line.
"""

import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from shutil import get_terminal_size
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from simulator.messages.words import printable

_PIPE_COLUMNS = 160
_ANY_COLUMNS = 10_000
_WORDS_COLUMNS = 30
"""What a column of words needs: its lines may end between any two of them."""

_INDENT = "  "


class _Console(Console):
    """One that a name cannot send control characters through."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text, keep="\n"), **options)


class _Table(Table):
    """One whose cells are a line each, whatever name is in them."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*(printable(cell) if isinstance(cell, str) else cell for cell in cells), **options)


EXPLAIN_HINT = "--explain says what the columns mean."


def console() -> Console:
    """Standard output, which shows names as they are; as wide as its terminal, and wide in a file or a pipe."""
    width = get_terminal_size().columns if sys.stdout.isatty() else _PIPE_COLUMNS
    # Without a height rich takes a terminal that calls itself dumb for 80 columns wide, whatever it is.
    return _Console(markup=False, emoji=False, highlight=False, width=width, height=100)


def table(title: str, first: str, *columns: str) -> Table:
    """A table whose first column is words and whose others are numbers."""
    made = _empty(title)
    made.add_column(first, overflow="fold")
    for column in columns:
        made.add_column(column, justify="right", overflow="fold")
    return made


def print_table(out: Console, shown: Table, keep: int = 1) -> None:
    """A table, in parts one below the other where it is too wide; the first ``keep`` columns are in each of them."""
    if shown.title:
        out.print(Text(str(shown.title), style="bold"))
    for part in _parts(out, shown, keep):
        out.print(part)


def print_tables(out: Console, names: Sequence[str], tables_of: Callable[[Sequence[str]], list[Table]]) -> None:
    """Tables with a row per name; where one is too wide, numbers stand for the names, which are listed first."""
    tables = tables_of(names)
    if any(columns_of(shown) > out.width for shown in tables):
        for number, name in enumerate(names, start=1):
            say(out, f"{number} {printable(name)}")
        out.print()
        tables = tables_of([f"{number} {_in_short(name)}" for number, name in enumerate(names, start=1)])
    for shown in tables:
        print_table(out, shown)


def columns_of(shown: Table) -> int:
    """How wide a table is, a column of words with as little as it needs."""
    probe = _with_columns(shown, shown.columns)
    probe.columns[1:] = [
        column if column.justify == "right" else replace(column, max_width=_WORDS_COLUMNS)
        for column in probe.columns[1:]
    ]
    endless = Console(width=_ANY_COLUMNS, height=1)
    return Measurement.get(endless, endless.options, probe).maximum


def say(out: Console, text: str, indent: str = _INDENT) -> None:
    """A paragraph: on a terminal its lines end between words; in a file or a pipe it is one line."""
    if sys.stdout.isatty():
        lines = textwrap.wrap(
            *(text, max(out.width, len(indent) + 1)),
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        text = "\n".join(lines)
    else:
        text = f"{indent}{text}"
    out.print(text, soft_wrap=True)


def print_head(out: Console, lines: Iterable[str]) -> None:
    """Lines on the server below the first line, and an empty one."""
    for line in lines:
        say(out, printable(line))
    out.print()


def print_meanings(out: Console, meanings: Mapping[str, str], explain: bool) -> None:
    """What columns mean, a line for each; or, unless that is asked for, how to ask for it."""
    if not explain:
        say(out, EXPLAIN_HINT)
        return
    indent = len(_INDENT) + max(map(len, meanings)) + 2
    if out.width - indent < _WORDS_COLUMNS:
        for word, meaning in meanings.items():
            say(out, f"{word}: {meaning}")
        return
    made = Table.grid(padding=(0, 2))
    made.add_column(no_wrap=True)
    for word, meaning in meanings.items():
        made.add_row(f"{_INDENT}{word}", meaning)
    out.print(made)


def _empty(title: str = "") -> Table:
    return _Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)


def _parts(out: Console, shown: Table, keep: int) -> list[Table]:
    """The table itself if it fits; else its columns shared out among tables that do, as far as that is possible."""
    if columns_of(shown) <= out.width:
        return [_with_columns(shown, shown.columns)]
    kept, parts = shown.columns[:keep], list[list[Column]]()
    for column in shown.columns[keep:]:
        if parts and columns_of(_with_columns(shown, [*kept, *parts[-1], column])) <= out.width:
            parts[-1].append(column)
        else:
            parts.append([column])
    return [_with_columns(shown, [*kept, *part]) for part in parts]


def _with_columns(shown: Table, columns: Sequence[Column]) -> Table:
    """A table of some of the columns of another, without its title."""
    made = _empty()
    for column in columns:
        made.add_column(column.header, justify=column.justify, overflow=column.overflow)
    cells = zip(*(list(column.cells) for column in columns), strict=True)
    for row, own in zip(shown.rows, cells, strict=True):
        made.add_row(*own, style=row.style)
    return made


def _in_short(name: str) -> str:
    """The name of an allocator without its options and, if it is one's own, without the way to it."""
    return re.split("[: ]", name)[0].rpartition(".")[2]
