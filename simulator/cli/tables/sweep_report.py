"""What ``kvfrag sweep`` prints and draws of its table: a line a setting, means over seeds and how sure they are."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from simulator.cli.tables.printing import (
    columns_of,
    console,
    print_head,
    print_meanings,
    print_table,
    print_tables,
    say,
    table,
)
from simulator.cli.tables.report import MEANINGS, REFUSED
from simulator.messages.words import counted, printable
from simulator.results.views import VIEWS
from simulator.sweeps.bands import Difference, differences, means, varied

_MOST_LINES = 40
_MOST_NOTES = 12
_MOST_ERRORS = 5
_PARTS = VIEWS["textbook"]
_REFUSED = "refused (%)"
_COLUMNS = (*_PARTS, _REFUSED)


def print_sweep(
    results: pd.DataFrame, specs: Sequence[str], everything: bool, head: Sequence[str] = (), explain: bool = False
) -> None:
    """A line per setting, what the seeds cannot tell apart, and what went wrong.

    ``specs``: the allocator of each row as it was typed. ``everything``: all lines, however many; else the first ones,
    and how many more there are. ``head``: lines on the servers. ``explain``: say what the columns mean.
    """
    out = console()
    good = _in_percent(results.assign(allocator=specs))
    lines = means(good, list(_COLUMNS))
    lines.insert(0, "allocator", lines.pop("allocator") if "allocator" in lines else good["allocator"].iloc[0])
    seeds = results["seed"].nunique()
    about = f"{counted(len(results), 'run')}, {counted(len(lines), 'setting')}"
    say(out, f"{printable(results['trace'].iloc[0])}: {about}", indent="")
    print_head(out, head)
    most = len(lines) if everything else _MOST_LINES
    band = f"; ± 95 % interval of the mean of {seeds} seeds" if seeds > 1 else ""
    _print_lines(out, f"Where the memory was: % of the pool{band}", lines.head(most), _options(results))
    if len(lines) > most:
        say(out, f"and {counted(len(lines) - most, 'setting')} more, in the results file")
        out.print()
    meanings = {part: MEANINGS[part] for part in _PARTS} | {_REFUSED: REFUSED}
    if seeds > 1:
        meanings["±"] = f"95 % interval of the mean of {seeds} seeds (Student's t)"
    print_meanings(out, meanings, explain)
    if seeds > 1:
        _print_unclear(out, [one for one in differences(good, "used") if not one.is_clear], _options(results))
    _print_errors(out, results)


def _print_lines(out: Console, title: str, lines: pd.DataFrame, options: Sequence[str]) -> None:
    """The table. Where its settings would take half of the terminal, numbers stand for them, and they come first."""
    settings = [str(name) for name in lines][: list(lines).index(_COLUMNS[0])]
    names = [_named(cells, options) for cells in lines[settings].to_dict("records")]
    shorter = lines.assign(allocator=_without(lines["allocator"], settings))
    if not shorter.duplicated(settings).any():
        lines = shorter
    if 2 * columns_of(_table(title, lines, settings, ())) <= out.width:
        print_table(out, _table(title, lines, settings, _COLUMNS), keep=len(settings))
    else:
        print_tables(out, names, lambda short: [_table(title, lines.assign(setting=short), ["setting"], _COLUMNS)])


def _table(title: str, lines: pd.DataFrame, settings: Sequence[str], columns: Sequence[str]) -> Table:
    """Settings, and the means of columns with their intervals."""
    shown = table(title, settings[0], *settings[1:], *columns)
    for line in lines.to_dict("records"):
        figures = (_with_band(line[name], line[f"± {name}"]) for name in columns)
        shown.add_row(*(_written(line[name]) for name in settings), *figures)
    return shown


def curves(results: pd.DataFrame, specs: Sequence[str], x: str, y: str) -> tuple[pd.DataFrame, list[str]]:
    """The rows that can be drawn, with what else varies among them as ``curve``; and which allocators have none.

    ``specs``: the allocator of each row as it was typed. In a curve's name it is without ``x``.
    """
    labelled = results.assign(allocator=_without(specs, [x]))
    rows = labelled.dropna(subset=[x, y])
    left_out = [name for name in labelled["allocator"].unique() if name not in set(rows["allocator"])]
    names = [name for name in varied(rows) if name not in (x, "allocator")]
    options = _options(results)
    several = rows["allocator"].nunique() > 1 and x != "allocator"

    def label(row: "pd.Series[Any]") -> str:
        own = _named({name: row[name] for name in [*(["allocator"] if several else []), *names]}, options)
        return own or str(row["allocator"])

    return rows.assign(curve=rows.apply(label, axis=1) if len(rows) else ""), left_out


def _options(results: pd.DataFrame) -> list[str]:
    """The columns that are options of allocators."""
    before = list(results.columns)[: list(results.columns).index("capacity")]
    return [name for name in before if name != "allocator"]


def _without(specs: Iterable[str], columns: Sequence[str]) -> list[str]:
    """Allocators as they were typed, but for the options that have a column or an axis of their own."""
    hidden = {name.removeprefix("allocator_") for name in columns}
    shorter = []
    for spec in specs:
        name, _, options = spec.partition(":")
        kept = [option for option in options.split(",") if option.partition("=")[0].strip() not in {*hidden, ""}]
        shorter.append(f"{name}:{','.join(kept)}" if kept else name)
    return shorter


def _in_percent(results: pd.DataFrame) -> pd.DataFrame:
    """The settings and seeds, and in percent the parts of the pool and the time in which somebody was refused."""
    settings = results[list(results.columns[: list(results.columns).index("seed") + 1])]
    parts = {name: 100 * results[list(own)].sum(axis=1, skipna=False) for name, own in _PARTS.items()}
    refused = 100 * results["saturated_s"] / results["duration_s"].where(results["duration_s"] > 0)
    return settings.assign(**parts, **{_REFUSED: refused})


def _print_unclear(out: Console, unclear: Sequence[Difference], options: Sequence[str]) -> None:
    if unclear:
        out.print()
        say(out, "used differs by less than its band, seed by seed, in points:", indent="")
    for one in unclear[:_MOST_NOTES]:
        say(out, f"{_named(one.first, options)} and {_named(one.second, options)}: {one.mean:+.2f} ± {one.half:.2f}")
    if len(unclear) > _MOST_NOTES:
        say(out, f"and {len(unclear) - _MOST_NOTES:,} more")


def _print_errors(out: Console, results: pd.DataFrame) -> None:
    errors = results["error"].dropna().value_counts(sort=False)
    for text, count in errors.head(_MOST_ERRORS).items():
        out.print()
        say(out, f"{counted(count, 'run')} failed: {text}", indent="")
    if len(errors) > _MOST_ERRORS:
        out.print()
        say(out, f"and {counted(len(errors) - _MOST_ERRORS, 'other error')}", indent="")


def _named(cells: Mapping[Any, Any], options: Sequence[str]) -> str:
    """A setting by the cells that vary; the options of an allocator are in what was typed."""
    others = {name: cell for name, cell in cells.items() if name not in ("allocator", *options) and not pd.isna(cell)}
    own = [f"{name}={_written(cell)}" for name, cell in others.items()]
    return " ".join([*([cells["allocator"]] if "allocator" in cells else []), *own])


def _with_band(mean: float, half: float) -> str:
    if math.isnan(mean):
        return "-"
    return f"{mean:.1f}" if math.isnan(half) else f"{mean:.1f} ± {half:.1f}"


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "-" if pd.isna(value) else f"{value:,g}" if value % 1 else f"{value:,.0f}"
