"""Many runs: a figure against a setting with a band over seeds, and the same as a map over two settings."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from pandas.api.types import is_numeric_dtype

from allocators.base import InputError
from simulator.plots.style import (
    FONT_PT,
    INK,
    LETTER_EM,
    head,
    own_axes,
    points_per_unit,
    settled,
    spread,
    wrapped_apart,
)
from simulator.results.ledger import CATEGORIES
from simulator.results.views import VIEWS, lightness
from simulator.sweeps.bands import half_width, varied

_INKS = ("#0a305e", "#cf5f12", "#2b8cbe", "#8c1230", "#7a7a7a")
_DASHES, _MARKERS = ("-", "--", "-.", ":"), "osD^v"
LINES = tuple(
    (ink, _MARKERS[(nth + turn) % len(_MARKERS)], _DASHES[(nth + turn) % len(_DASHES)])
    for turn in range(len(_DASHES))
    for nth, ink in enumerate(_INKS)
)
"""Colour, marker and dashes of curves, told apart in grey print and by the colour-blind: a colour comes back with
other dashes. A picture with more curves than these says that they repeat."""

_SHARES = {*CATEGORIES, *(name for view in VIEWS.values() for name in view)}
_MAP_COLORS = "cividis"


def sweep_lines(table: pd.DataFrame, x: str, y: str, by: str | None = "allocator", ax: Axes | None = None) -> Axes:
    """``y`` against ``x``: a curve for each value of ``by``, the mean of its rows, with its 95 % interval as a band.

    ``table`` has a row a run (:func:`simulator.sweep`); rows that agree in ``by``, ``x`` and ``seed`` are averaged, and
    the interval is that of the mean over the seeds (Student's t, see :mod:`simulator.sweeps.bands`); which settings the
    mean is over is written above. Shares are drawn in percent. Numbers that span a factor of 16 or more get a
    logarithmic x axis. Raises InputError for a column that is not there, or has nothing to draw.
    """
    groups = _groups(table, x, y, by)
    ax = settled(ax or own_axes(8.0, 4.4))
    scale = 100.0 if y in _SHARES else 1.0
    ends = []
    numeric = is_numeric_dtype(table[x])
    order = {value: place for place, value in enumerate(table[x].dropna().unique())}
    for nth, (name, rows) in enumerate(groups.items()):
        color, marker, dashes = LINES[nth % len(LINES)]
        if "seed" in rows:  # rows of one seed are one witness, however many settings they are of
            rows = rows.groupby([x, "seed"], sort=False, dropna=False, as_index=False)[[y]].mean()
        figures = rows.groupby(x, sort=numeric)[y].agg(["mean", half_width]) * scale
        places = (
            figures.index.to_numpy(float) if numeric else np.array([order[value] for value in figures.index], float)
        )
        low, high = (figures["mean"] + sign * figures["half_width"] for sign in (-1, 1))
        if (high > low).any():
            ax.fill_between(places, low, high, color=color, alpha=0.18, linewidth=0, label=f"{name} 95 %")
        ax.plot(
            places,
            figures["mean"],
            color=color,
            marker=marker,
            markersize=4.5,
            linestyle=dashes,
            linewidth=1.6,
            label=name,
        )
        ends.append((float(figures["mean"].iloc[-1]), name, color))
    _scale_x(ax, table[x], order, numeric)
    ax.set_ylabel(f"{y} (% of the pool)" if scale == 100 else y, color=INK, parse_math=False)
    ax.set_xlabel(x, color=INK, parse_math=False)
    if scale == 100:
        ax.set_ylim(0, 100)
    repeat = f"{len(groups)} curves: their looks repeat after {len(LINES)}" if len(groups) > len(LINES) else ""
    mean = _averaged(table.dropna(subset=[x, y]), [x, *([by] if by else [])])
    head(ax, "band: 95 % interval of the mean over seeds" if ax.collections else "", mean, repeat)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=FONT_PT, color=INK, labelcolor=INK)
    _name_curves(ax, sorted(ends))
    return ax


def sweep_heat(table: pd.DataFrame, x: str, y: str, value: str, ax: Axes | None = None) -> Axes:
    """``value`` over two settings: a cell for each pair, the mean of its rows written in it, brighter for more.

    Pairs without a row stay white. Which settings the mean is over is written above. Shares are in percent. Raises
    InputError for a column that is not there, or named twice, or has nothing to draw.
    """
    _check(table, x, y, value)
    _check_numbers(table, value)
    scale = 100.0 if value in _SHARES else 1.0
    cells = table.pivot_table(index=y, columns=x, values=value, aggfunc="mean") * scale
    if cells.empty:
        raise InputError(f"table has no row with {x}, {y} and {value}")
    ax = settled(ax or own_axes(1.8 + 0.75 * cells.shape[1], 1.2 + 0.42 * cells.shape[0]))
    figures = cells.to_numpy(float)
    colors = colormaps[_MAP_COLORS]
    low, high = np.nanmin(figures), np.nanmax(figures)
    ax.imshow(figures, cmap=colors, aspect="auto", origin="lower", vmin=low, vmax=high)
    x_pt, _ = points_per_unit(ax)
    font = min(FONT_PT, 0.9 * x_pt / (5 * LETTER_EM))
    for row, column in np.argwhere(~np.isnan(figures)).tolist():
        amount = figures[row, column]
        part = 0.5 if high == low else (amount - low) / (high - low)
        ink = "white" if lightness(to_hex(colors(part))) < 55 else INK
        ax.text(
            column,
            row,
            f"{amount:.1f}" if abs(amount) < 1000 else f"{amount:,.0f}",
            ha="center",
            va="center",
            fontsize=font,
            color=ink,
        )
    ax.set_xticks(range(cells.shape[1]), [_written(name) for name in cells.columns], parse_math=False)
    ax.set_yticks(range(cells.shape[0]), [_written(name) for name in cells.index], parse_math=False)
    ax.tick_params(length=0, labelsize=FONT_PT, labelcolor=INK)
    ax.spines[:].set_visible(False)
    ax.set_xlabel(x, color=INK, parse_math=False)
    ax.set_ylabel(y, color=INK, parse_math=False)
    mean = _averaged(table.dropna(subset=[x, y, value]), [x, y])
    head(ax, f"{value}{' (% of the pool)' if scale == 100 else ''}", mean)
    return ax


def _check(table: pd.DataFrame, *columns: str) -> None:
    if not isinstance(table, pd.DataFrame):
        raise InputError(f"table(={type(table).__name__}) must be a DataFrame, as sweep() makes it")
    for name in columns:
        if name not in table.columns:
            raise InputError(f"column {name!r} is not in the table; it has {', '.join(map(str, table.columns))}")
        if columns.count(name) > 1:
            raise InputError(f"column {name!r} is named twice; a picture needs {len(columns)} different columns")


def _check_numbers(table: pd.DataFrame, name: str) -> None:
    if not is_numeric_dtype(table[name]):
        raise InputError(f"column {name!r} must hold numbers; its first is {next(iter(table[name].dropna()), None)!r}")
    if np.isinf(table[name].to_numpy(float)).any():
        raise InputError(f"column {name!r} must hold finite numbers; it has an infinite one")


def _groups(table: pd.DataFrame, x: str, y: str, by: str | None) -> dict[str, pd.DataFrame]:
    _check(table, x, y)
    _check_numbers(table, y)
    if is_numeric_dtype(table[x]):
        _check_numbers(table, x)
    rows = table.dropna(subset=[x, y])
    if rows.empty:
        raise InputError(f"table has no row with both {x} and {y}")
    if by is None:
        return {y: rows}
    _check(table, by)
    prefix = f"{by} " if is_numeric_dtype(rows[by]) else ""
    groups = {f"{prefix}{name}": group for name, group in rows.groupby(by, sort=False)}
    if not groups:
        raise InputError(f"table has no row with {by}, {x} and {y}")
    return groups


def _averaged(rows: pd.DataFrame, places: list[str]) -> str:
    """A note of the settings, seeds aside, that vary among the rows of one place: what is drawn is a mean over them."""
    if not {"allocator", "seed"} <= set(rows.columns):
        return ""  # no sweep's table
    names = [name for _, part in rows.groupby(places, sort=False, dropna=False) for name in varied(part)]
    return f"mean over {', '.join(dict.fromkeys(names))}" if names else ""


def _scale_x(ax: Axes, values: pd.Series, order: dict[object, int], numeric: bool) -> None:
    if not numeric:
        ax.set_xticks(list(order.values()), wrapped_apart([str(name) for name in order], 18), parse_math=False)
        return
    numbers = np.unique(values.dropna().to_numpy(float))
    if numbers[0] > 0 and numbers[-1] / numbers[0] >= 16:
        ax.set_xscale("log", base=2)
        ax.xaxis.set_minor_locator(NullLocator())
    if len(numbers) <= 10:
        ax.xaxis.set_major_locator(FixedLocator(numbers.tolist()))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _written(value)))


def _written(value: object) -> str:
    return f"{value:,g}" if isinstance(value, int | float | np.number) else str(value)


def _name_curves(ax: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Each curve's name behind its end, in its colour."""
    settled(ax)
    scale = 72 / ax.figure.dpi
    width = ax.bbox.width * scale
    most = min(0.6 * width, 10 + LETTER_EM * FONT_PT * max(len(name) for _, name, _ in ends))
    names = wrapped_apart([name for _, name, _ in ends], round((most - 10) / (LETTER_EM * FONT_PT)), 3)
    needed = min(most, 10 + LETTER_EM * FONT_PT * max(len(line) for name in names for line in name.split("\n")))
    left, right = (float(edge) for edge in ax.transData.transform([(edge, 0) for edge in ax.get_xlim()])[:, 0])
    # Room is made in pixels, so that a logarithmic axis gets as much as a linear one.
    behind = left + (right - left) * width / (width - needed)
    limit = float(ax.transData.inverted().transform((behind, 0))[0])
    ax.spines["bottom"].set_bounds(*ax.get_xlim())
    column = ax.get_xlim()[1]
    ax.set_xlim(ax.get_xlim()[0], limit)
    settled(ax)
    low, high = (float(ax.transData.transform((column, y))[1]) for y in ax.get_ylim())
    wanted = [float(ax.transData.transform((column, y))[1]) for y, _, _ in ends]
    lines = max(name.count("\n") + 1 for name in names)
    font = min(FONT_PT, (high - low) * scale / (1.3 * lines * len(names)))
    half = 0.65 * font * lines / scale
    x = float(ax.transData.transform((column, 0))[0]) + 3 / scale
    look: dict[str, Any] = {"va": "center", "fontsize": font, "weight": "bold", "parse_math": False, "linespacing": 1.1}
    places = spread(wanted, 2 * half, low + half, high - half)
    for y, name, (_, _, color) in zip(places, names, ends, strict=True):
        place = ax.transData.inverted().transform((x, y))
        ax.text(float(place[0]), float(place[1]), name, color=color, **look)
