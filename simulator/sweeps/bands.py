"""How sure a mean over seeds is: 95 % intervals of Student's t, and differences that are within theirs.

A sweep's table has a row a run; rows that agree in all settings differ in their seed. Their mean m of n seeds has the
interval m ± t s / √n, with s their standard deviation and t the 97.5 % quantile of Student's t with n - 1 degrees of
freedom. Two settings are compared **seed by seed**: the same seed gives both the same requests, so what the seeds do to
both alike drops out, and the interval is that of the mean difference.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

_BISECTIONS = 60


@lru_cache(maxsize=256)
def t_quantile(freedom: int) -> float:
    """The t that Student's t with ``freedom`` >= 1 degrees of freedom stays within, either side of 0, with 95 %."""
    low, high = 1.9, 12.8  # the normal distribution's 1.96 and one degree of freedom's 12.71 lie between
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < 0.95 else (low, middle)
    return (low + high) / 2


def _within(t: float, freedom: int) -> float:
    """P(|T| <= t): a finite sum (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    odd = freedom % 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for k in range(1, (freedom - odd) // 2 + 1):
        total += term
        term *= math.cos(angle) ** 2 * (2 * k - 1 + odd) / (2 * k + odd)
    total *= math.sin(angle)
    return (angle + total) * 2 / math.pi if odd else total


def half_width(values: ArrayLike) -> float:
    """Half the 95 % interval of the mean of these values, in their unit; NaN for fewer than two."""
    column = np.asarray(values, float)
    column = column[~np.isnan(column)]
    if len(column) < 2:
        return math.nan
    return t_quantile(len(column) - 1) * float(column.std(ddof=1)) / math.sqrt(len(column))


class Difference(NamedTuple):
    """How a figure differs between two settings of a sweep, in the figure's unit."""

    first: dict[str, Any]
    """The cells in which runs of the sweep differ, of one setting."""
    second: dict[str, Any]
    """The same of the other."""
    mean: float
    """Second minus first, the mean over the seeds that both have."""
    half: float
    """Half its 95 % interval."""

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return abs(self.mean) > self.half


def varied(table: pd.DataFrame) -> list[str]:
    """The columns before ``seed`` in which the rows of a sweep's table differ.

    An option that one allocator has and another has not is none of them, unless it has several values.
    """
    names = list(table.columns)[: list(table.columns).index("seed")]
    within = table.groupby("allocator", sort=False)
    return [name for name in names if table[name].nunique() > 1 or (within[name].nunique(dropna=False) > 1).any()]


def means(table: pd.DataFrame, figures: Sequence[str]) -> pd.DataFrame:
    """A row a setting, in the table's order: what varies, figures' means over seeds, half the intervals in ``± ...``"""
    names = varied(table)
    rows = []
    for part in _parts(table, names):
        row = _cells(part, names) | {name: part[name].mean() for name in figures}
        rows.append(row | {f"± {name}": half_width(part[name]) for name in figures})
    return pd.DataFrame(rows)


def averaged(tables: Sequence[pd.DataFrame]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The means of tables with the same rows and columns, and half their 95 % intervals; of one table, it and NaN."""
    of_all = np.stack([table.to_numpy(float) for table in tables])
    bands = np.apply_along_axis(half_width, 0, of_all)
    shape: dict[str, Any] = {"index": tables[0].index, "columns": tables[0].columns}
    if len(tables) == 1:
        return tables[0], pd.DataFrame(bands, **shape)
    means = pd.DataFrame(of_all.mean(axis=0), **shape)
    return means, pd.DataFrame(bands, **shape)


def differences(table: pd.DataFrame, figure: str) -> Iterator[Difference]:
    """Each setting beside the next in every direction of the grid, seed by seed; two seeds that both have are needed.

    The directions: from allocator to allocator, options included, and along each column from ``capacity`` on.
    """
    names, columns = varied(table), list(table.columns)
    own = [name for name in names if columns.index(name) < columns.index("capacity")]
    for direction in ([own] if own else []) + [[name] for name in names if name not in own]:
        for line in _parts(table, [name for name in names if name not in direction]):
            for one, other in pairwise(_parts(line, direction)):
                between = (other.set_index("seed")[figure] - one.set_index("seed")[figure]).dropna()
                if len(between) >= 2:
                    yield Difference(
                        _cells(one, names), _cells(other, names), float(between.mean()), half_width(between)
                    )


def _parts(table: pd.DataFrame, names: list[str]) -> Iterator[pd.DataFrame]:
    """The rows that agree in these columns, part by part, in the table's order."""
    return (rows for _, rows in table.groupby(names, sort=False, dropna=False)) if names else iter([table])


def _cells(rows: pd.DataFrame, names: Sequence[str]) -> dict[str, Any]:
    return {name: rows[name].iloc[0] for name in names}
