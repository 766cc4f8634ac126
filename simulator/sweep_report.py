"""What ``kvfrag sweep`` prints and draws of its table: a line a setting, means over seeds and how sure they are."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from simulator.bands import Difference, differences, means, varied
from simulator.report import MEANINGS, console, table
from simulator.schema import counted
from simulator.standard import printable
from simulator.views import VIEWS

_MOST_LINES = 40
_MOST_NOTES = 12
_MOST_ERRORS = 5
_PARTS = VIEWS["textbook"]
_REFUSED = "refused (%)"
_COLUMNS = (*_PARTS, _REFUSED)
_NARROWER = ((_COLUMNS, _COLUMNS), (_COLUMNS, ("used",)), (tuple(_PARTS), ("used",)), (("used",), ("used",)))
"""What a terminal may have room for: which columns, and which of them with their intervals."""


def print_sweep(results: pd.DataFrame, everything: bool) -> None:
    """A line a setting, what the seeds cannot tell apart, and what went wrong.

    ``everything``: all lines, however many; else the first ones, and how many more there are.
    """
    out = console()
    good = _in_percent(results)
    lines = means(good, list(_COLUMNS))
    lines.insert(0, "allocator", lines.pop("allocator") if "allocator" in lines else results["allocator"].iloc[0])
    seeds = results["seed"].nunique()
    out.print(
        f"{printable(results['trace'].iloc[0])}: {counted(len(results), 'run')}, {counted(len(lines), 'setting')}\n"
    )
    most = len(lines) if everything else _MOST_LINES
    for columns, banded in _NARROWER:
        shown = _table(lines.head(most), columns, banded)
        if Measurement.get(out, out.options.update(max_width=10_000), shown).maximum <= out.width:
            break
    out.print(shown)
    if len(lines) > most:
        out.print(f"  and {counted(len(lines) - most, 'setting')} more, in the results file\n")
    for part in _PARTS:
        out.print(f"  {part:<12} {MEANINGS[part]}")
    out.print(f"  {_REFUSED:<12} of the time: the next request waited for memory")
    if seeds > 1:
        out.print(f"  {'±':<12} 95 % interval of the mean of {seeds} seeds (Student's t)")
        _print_unclear(out, [one for one in differences(good, "used") if not one.is_clear])
    _print_errors(out, results)


def _table(lines: pd.DataFrame, columns: Sequence[str], banded: Sequence[str]) -> Table:
    """Means, and for those of ``banded`` the interval too."""
    settings = [str(name) for name in lines][: list(lines).index(_COLUMNS[0])]
    shown = table("Where the memory was: % of the pool", settings[0], *settings[1:], *columns)
    for line in lines.to_dict("records"):
        halves = [line[f"± {name}"] if name in banded else math.nan for name in columns]
        means = (_with_band(line[name], half) for name, half in zip(columns, halves, strict=True))
        shown.add_row(*(_written(line[name]) for name in settings), *means)
    return shown


def curves(results: pd.DataFrame, x: str, y: str) -> tuple[pd.DataFrame, list[str]]:
    """The rows that can be drawn, with what else varies among them as ``curve``; and which allocators have none."""
    rows = results.dropna(subset=[x, y])
    left_out = [name for name in results["allocator"].unique() if name not in set(rows["allocator"])]
    names = [name for name in varied(rows) if name not in (x, "allocator")]
    several = rows["allocator"].nunique() > 1 and x != "allocator"

    def label(row: "pd.Series[Any]") -> str:
        own = _named({name: row[name] for name in [*(["allocator"] if several else []), *names]})
        return own or str(row["allocator"])

    return rows.assign(curve=rows.apply(label, axis=1) if len(rows) else ""), left_out


def _in_percent(results: pd.DataFrame) -> pd.DataFrame:
    """The settings and seeds, and in percent the parts of the pool and the time in which somebody was refused."""
    settings = results[list(results.columns[: list(results.columns).index("seed") + 1])]
    parts = {name: 100 * results[list(own)].sum(axis=1, skipna=False) for name, own in _PARTS.items()}
    refused = 100 * results["saturated_s"] / results["duration_s"].where(results["duration_s"] > 0)
    return settings.assign(**parts, **{_REFUSED: refused})


def _print_unclear(out: Console, unclear: Sequence[Difference]) -> None:
    if unclear:
        out.print("\nused differs by less than its band, seed by seed, in points:")
    for one in unclear[:_MOST_NOTES]:
        out.print(f"  {_named(one.first)} and {_named(one.second)}: {one.mean:+.2f} ± {one.half:.2f}")
    if len(unclear) > _MOST_NOTES:
        out.print(f"  and {len(unclear) - _MOST_NOTES:,} more")


def _print_errors(out: Console, results: pd.DataFrame) -> None:
    errors = results["error"].dropna().value_counts(sort=False)
    for text, count in errors.head(_MOST_ERRORS).items():
        out.print(f"\n{counted(count, 'run')} failed: {text}", soft_wrap=True)
    if len(errors) > _MOST_ERRORS:
        out.print(f"\nand {counted(len(errors) - _MOST_ERRORS, 'other error')}")


def _named(cells: Mapping[str, Any]) -> str:
    """A setting by the cells that vary."""
    own = [f"{name}={_written(cell)}" for name, cell in cells.items() if name != "allocator" and not pd.isna(cell)]
    return " ".join([*([cells["allocator"]] if "allocator" in cells else []), *own])


def _with_band(mean: float, half: float) -> str:
    if math.isnan(mean):
        return "-"
    return f"{mean:.1f}" if math.isnan(half) else f"{mean:.1f} ± {half:.1f}"


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "-" if pd.isna(value) else f"{value:,g}" if value % 1 else f"{value:,.0f}"
