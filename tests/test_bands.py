"""Intervals of means: Student's t by other ways than the code's, and how often they hold what they should."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.sweeps.bands import differences, half_width, means, t_quantile, varied

# Student's own table, as it stands in every textbook.
PUBLISHED = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 29: 2.045, 30: 2.042, 120: 1.980}


@pytest.mark.parametrize(("freedom", "t"), PUBLISHED.items())
def test_quantiles_are_the_published_ones(freedom: int, t: float) -> None:
    assert t_quantile(freedom) == pytest.approx(t, abs=5e-4)


@given(st.integers(1, 60))
def test_95_percent_of_the_density_lies_within(freedom: int) -> None:
    """The density integrated by Simpson's rule, in place of the closed sum."""
    t = t_quantile(freedom)
    x = np.linspace(-t, t, 20_001)
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    density = scale * (1 + x**2 / freedom) ** (-(freedom + 1) / 2)
    weights = np.where(np.arange(len(x)) % 2, 4, 2)
    weights[[0, -1]] = 1
    assert float((density * weights).sum() * (x[1] - x[0]) / 3) == pytest.approx(0.95, abs=1e-9)


def test_many_seeds_come_near_the_normal_distribution() -> None:
    assert t_quantile(100_000) == pytest.approx(1.95996, abs=1e-4)


def test_intervals_of_three_hold_the_true_mean_95_times_in_100() -> None:
    generator = np.random.default_rng(0)
    samples = generator.normal(5.0, 2.0, (20_000, 3))
    inside = np.mean([abs(sample.mean() - 5.0) <= half_width(sample) for sample in samples])
    assert inside == pytest.approx(0.95, abs=0.006)  # four standard deviations of the count


def test_fewer_than_two_values_have_no_interval() -> None:
    assert math.isnan(half_width([])) and math.isnan(half_width([1.0])) and math.isnan(half_width([1.0, math.nan]))
    assert half_width([1.0, math.nan, 3.0]) == half_width([1.0, 3.0]) == pytest.approx(12.706, abs=1e-3)
    assert half_width([2.0, 2.0]) == 0


def table() -> pd.DataFrame:
    rows = [
        {
            "allocator": name,
            "block_size": size,
            "capacity": capacity,
            "seed": seed,
            "used": capacity / 1000 + own + 10 * seed + 0.001 * (seed == 2) * (size == 16),
        }
        for name, size, own in (("buddy", math.nan, 0.0), ("paged", 1, 5.0), ("paged", 16, 5.0))
        for capacity in (1000, 2000)
        for seed in (0, 1, 2)
    ]
    return pd.DataFrame(rows)


def test_settings_are_what_agrees_but_for_the_seed() -> None:
    assert varied(table()) == ["allocator", "block_size", "capacity"]
    # An option that comes and goes with the allocator says nothing more.
    assert varied(table().query("block_size != 16")) == ["allocator", "capacity"]
    found = means(table(), ["used"])
    assert found["used"].tolist() == pytest.approx([11, 12, 16, 17, 16, 17], abs=1e-3)
    assert found["± used"].tolist() == pytest.approx([t_quantile(2) * 10 / math.sqrt(3)] * 6, rel=1e-3)
    alone = table().query("allocator == 'buddy' and capacity == 1000")
    assert varied(alone) == [] and means(alone, ["used"])["used"].tolist() == [11]


def test_neighbours_are_compared_seed_by_seed_in_every_direction() -> None:
    found = {tuple(one.first.values()) + tuple(one.second.values()): one for one in differences(table(), "used")}
    assert len(found) == 4 + 3  # two steps between three allocators for each pool, and one between pools for each
    step = found["paged", 1.0, 1000, "paged", 16.0, 1000]
    assert step.mean == pytest.approx(0.001 / 3) and not step.is_clear
    larger = found["paged", 1.0, 1000, "paged", 1.0, 2000]
    # The seeds differ by 10 and more; what the pools differ by is the same for each.
    assert larger.mean == pytest.approx(1) and larger.half == pytest.approx(0, abs=1e-9) and larger.is_clear


def test_seeds_that_only_one_has_are_left_out() -> None:
    rows = table().query("allocator == 'paged' and capacity == 1000")
    rows.loc[rows["seed"] == 1, "used"] = np.where(rows.loc[rows["seed"] == 1, "block_size"] == 1, math.nan, 1e6)
    (one,) = differences(rows, "used")
    assert one.mean == pytest.approx(0.0005)
    assert not list(differences(rows.query("seed < 2"), "used"))
