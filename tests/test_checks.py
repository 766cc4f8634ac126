"""What a picture is asked for and cannot be is told in one line, and no error of Python's comes out."""

from collections.abc import Callable
from math import inf, nan
from typing import Any

import numpy as np
import pandas as pd
import pytest

from allocators import InputError, Paged
from lesson_runs import buddies, figure6
from simulator import Run, Trace, plots, simulate
from simulator.plots.checks import covered_instant, instant, several

ANY: Any = None


def columns() -> pd.DataFrame:
    frame = pd.DataFrame(
        {"allocator": ["a", "b"] * 4, "block_size": [1, 2, 4, 8] * 2, "used": np.linspace(0.2, 0.9, 8)}
    )
    return frame.assign(name=list("abcdefgh"), endless=inf)


def nobody() -> pd.DataFrame:
    return pd.DataFrame({"allocator": [None, None], "x": 1, "used": 0.5})


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "bars text": (lambda: plots.waste_bars("abc"), "runs must hold runs"),  # type: ignore[arg-type]
    "bars number": (lambda: plots.waste_bars(5), "runs must hold runs"),  # type: ignore[arg-type]
    "over time": (lambda: plots.waste_over_time([figure6()]), r"run\(=a list\) must be a Run"),  # type: ignore[arg-type]
    "bytes text": (lambda: plots.waste_over_time(figure6(), bytes_per_slot="819200"), r"bytes_per_slot\(='819200'\)"),  # type: ignore[arg-type]
    "bytes 0": (lambda: plots.memory_map(figure6(), 1, bytes_per_slot=0), r"bytes_per_slot\(=0\) must be a whole"),
    "bytes -5": (lambda: plots.memory_map(figure6(), bytes_per_slot=-5), r"bytes_per_slot\(=-5\) must be a whole"),
    "map of none": (lambda: plots.memory_map(ANY), r"run\(=None\) must be a Run"),
    "map at text": (lambda: plots.memory_map(figure6(), at="1"), r"at\(='1'\) must be a number of seconds"),  # type: ignore[arg-type]
    "map at inf": (lambda: plots.memory_map(figure6(), at=inf), r"at\(=inf\) must be a number of seconds"),
    "cells 0": (lambda: plots.memory_map(figure6(), cells=(0, 0)), r"cells\[0\]\(=0\) must be a whole number >= 1"),
    "cells one": (lambda: plots.memory_map(figure6(), cells=5), r"cells\(=5\) must be two whole numbers"),  # type: ignore[arg-type]
    "table of text": (lambda: plots.block_table(figure6(), "0", 1.0), r"request\(='0'\) must be a whole number"),  # type: ignore[arg-type]
    "table at none": (lambda: plots.block_table(figure6(), 0, ANY), r"at\(=None\) must be a number of seconds"),
    "holes at -1": (lambda: plots.holes(figure6(), at=-1), r"at\(=-1\) must be a number of seconds >= 0"),
    "holes at nan": (lambda: plots.holes(figure6(), at=nan), r"at\(=nan\) must be a number of seconds >= 0"),
    "holes at 99": (lambda: plots.holes(figure6(), at=99), r"at\(=99\) must be in the time .*, 0 to 5 s"),
    "film of none": (lambda: plots.animate(ANY), r"run\(=None\) must be a Run"),
    "kind": (lambda: plots.drawn(plots.waste_bars(figure6()), "jpg"), r"\(='jpg'\) must be one of png, svg, pdf"),
    "page of a list": (lambda: figure6().to_html("z.html", [figure6()]), "shows runs, .* and not a list"),  # type: ignore[arg-type]
    "page as png": (lambda: figure6().to_html("z.png"), r"page's file\(='.png'\) must be one of .html, .htm"),
    "curves of text": (lambda: plots.sweep_lines(columns(), "block_size", "name"), "'name' must hold numbers"),
    "curves twice": (lambda: plots.sweep_lines(columns(), "used", "used"), "'used' is named twice"),
    "curves endless": (lambda: plots.sweep_lines(columns(), "block_size", "endless"), "must hold finite numbers"),
    "x endless": (lambda: plots.sweep_lines(columns(), "endless", "used"), "must hold finite numbers"),
    "curves of a list": (lambda: plots.sweep_lines([1], "a", "b"), r"table\(=list\) must be a DataFrame"),  # type: ignore[arg-type]
    "curves of nobody": (
        lambda: plots.sweep_lines(nobody(), "x", "used"),
        "no row with allocator, x and used",
    ),
    "heat twice": (lambda: plots.sweep_heat(columns(), "used", "used", "block_size"), "'used' is named twice"),
    "heat value": (lambda: plots.sweep_heat(columns(), "block_size", "allocator", "block_size"), "is named twice"),
    "heat of text": (lambda: plots.sweep_heat(columns(), "block_size", "allocator", "name"), "must hold numbers"),
    "heat endless": (lambda: plots.sweep_heat(columns(), "block_size", "allocator", "endless"), "finite numbers"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_is_told_in_one_line(name: str) -> None:
    call, told = WRONG[name]
    with pytest.raises(InputError, match=told) as error:
        call()
    assert "\n" not in str(error.value)


def test_one_run_is_a_list_of_one() -> None:
    run = figure6()
    assert several(run, "summary") == [run] == several([run], "summary")
    assert [text.get_text() for text in plots.waste_bars(run).get_xticklabels()] == [
        text.get_text() for text in plots.waste_bars([run]).get_xticklabels()
    ]
    assert plots.waits(run).containers


def test_a_time_may_be_any_number() -> None:
    assert instant(np.float32(1)) == instant(True + 0) == 1.0
    assert covered_instant(5, 5, 5) == 5.0
    for wrong in (True, "5", None, 1j, -1e-300, 1e11):
        with pytest.raises(InputError, match="must be a number of seconds"):
            instant(wrong)


def _page(run: Run) -> None:
    run.to_html("z.html")


def without_time() -> dict[str, Run]:
    trace = Trace.from_columns([0], [50], [1])
    return {
        "never_fits": simulate(trace, Paged(34, 4), decisions=True),
        "too_long": simulate(trace, Paged(64, 4), max_model_len=20, decisions=True),
        "its window": simulate(trace, Paged(64, 4), window_s=(1000, 2000), decisions=True),
    }


@pytest.mark.parametrize("why", without_time())
def test_a_run_without_time_says_why(why: str) -> None:
    run = without_time()[why]
    draws: list[Callable[[Run], object]] = [plots.waste_over_time, plots.memory_map, plots.holes, plots.animate]
    for draw in [*draws, _page]:
        with pytest.raises(InputError, match=f"covers no time; .* needs some: .*{why}"):
            draw(run)


def test_a_run_without_a_timeline_is_told() -> None:
    trace = Trace.from_columns([0], [7], [4])
    run = simulate(trace, Paged(34, 4), timeline_bins=0, decisions=True)
    draws: list[Callable[[Run], object]] = [plots.waste_over_time, plots.holes]
    for draw in [*draws, _page]:
        with pytest.raises(InputError, match="kept no timeline"):
            draw(run)
    assert plots.memory_map(run).images and plots.holes(buddies()).lines
