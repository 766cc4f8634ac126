"""Views: no slot is dropped, and colours that stay apart in grey."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators.base import InputError
from simulator.results.ledger import CATEGORIES
from simulator.results.views import COLORS, VIEWS, lightness, view_colors, view_shares

SHARE = dict(zip(CATEGORIES, (1, 2, 4, 8, 16, 32, 64), strict=True))


@pytest.mark.parametrize("view", VIEWS)
def test_every_category_is_in_a_view_once(view: str) -> None:
    told = [category for categories in VIEWS[view].values() for category in categories]
    assert told == list(CATEGORIES)


def test_the_views_add_up_what_the_contract_says() -> None:
    assert view_shares(SHARE, "ledger") == SHARE
    assert view_shares(SHARE, "textbook") == {
        "used": 1,
        "reservation": 2,
        "internal": 4 + 8,
        "external": 16,
        "free": 32 + 64,
    }
    assert view_shares(SHARE, "paper") == {
        "token states": 1,
        "reservation": 2,
        "internal": 4,
        "external & others": 8 + 16 + 32 + 64,
    }


@given(st.lists(st.integers(0, 10**6), min_size=7, max_size=7), st.sampled_from(list(VIEWS)))
def test_a_view_keeps_the_sum(shares: list[int], view: str) -> None:
    assert sum(view_shares(dict(zip(CATEGORIES, shares, strict=True)), view).values()) == sum(shares)


def test_an_unknown_view_is_told() -> None:
    for ask in (lambda: view_shares(SHARE, "orca"), lambda: view_colors("orca")):
        with pytest.raises(InputError, match=r"view\(='orca'\) must be one of ledger, textbook, paper"):
            ask()


def test_lightness_of_known_greys() -> None:
    assert lightness("#000000") == 0
    assert lightness("#ffffff") == pytest.approx(100)
    assert lightness("#777777") == pytest.approx(50.03, abs=0.01)
    assert lightness("#030303") == pytest.approx(0.8225, abs=0.001)


@pytest.mark.parametrize("view", VIEWS)
def test_neighbours_in_a_stack_differ_in_grey_print(view: str) -> None:
    colors = view_colors(view)
    assert list(colors) == list(VIEWS[view])
    assert all(abs(lightness(a) - lightness(b)) >= 20 for a, b in pairwise(colors.values()))
    assert all(abs(lightness(a) - lightness(b)) >= 8 for a, b in combinations(colors.values(), 2))


def test_a_name_has_one_colour_in_every_view() -> None:
    for view in VIEWS:
        assert all(COLORS.get(name, color) == color for name, color in view_colors(view).items())
