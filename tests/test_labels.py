"""Labels of any kind: drawn as they are written, in lines that fit, at whole slots, and in silence."""

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from allocators import Contiguous, Paged
from lesson_runs import buddies, busy, figure6
from looks import assert_labels_are_inside_and_apart, words_of
from simulator import Run, Trace, plots, simulate
from simulator.plots.style import in_seconds, wrapped

PICTURES: dict[str, Callable[[Run], Axes]] = {
    "bars": lambda run: plots.waste_bars([run, buddies()]),
    "over time": lambda run: plots.waste_over_time(run),
    "waits": lambda run: plots.waits([run, buddies()]),
    "map": lambda run: plots.memory_map(run),
    "map at": lambda run: plots.memory_map(run, at=1.0),
    "table": lambda run: plots.block_table(run, 0, 1.0),
    "holes": lambda run: plots.holes(run),
    "on axes": lambda run: plots.waste_bars([run], ax=Figure(figsize=(5, 4), layout="constrained").subplots()),
}
LABELS = ("price $5 and $6", "$\\foo$ $x_1$", "\u6f22\u5b57\U0001f388 $_$", "a" * 300, "word " * 60)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("name", PICTURES)
def test_any_label_is_drawn_as_it_is_written(name: str, label: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ax = PICTURES[name](replace(figure6(), label=label))
        plots.drawn(ax, "png")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tests themselves draw the letters that the font lacks
        assert_labels_are_inside_and_apart(*ax.figure.axes)
    shown = [text for text in ax.figure.findobj(Text) if text.get_visible()]
    written = [text for text in shown if label[:4] in text.get_text()]
    assert written and not any(text.get_parse_math() for text in written)
    # No layout collapsed: no panel is lower than a fifth of an inch.
    assert min(panel.bbox.height for panel in ax.figure.axes) > 0.2 * ax.figure.dpi


@pytest.mark.parametrize("name", PICTURES)
def test_no_name_breaks_a_picture_of_markup(name: str) -> None:
    ax = PICTURES[name](replace(figure6(), label="</g>--><b>\x1b[31m\u202e\0&"))
    text = plots.drawn(ax, "svg").decode()
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert "<b>" not in text and not {"\x1b", "\u202e", "\0"} & set(text)


def test_names_in_a_table_are_drawn_as_they_are_written() -> None:
    table = pd.DataFrame({"$a$": ["$x$", "$y$"] * 2, "b $c$": [1, 1, 2, 2], "used": 0.5})
    for ax in (
        plots.sweep_lines(table, "b $c$", "used", by="$a$"),
        plots.sweep_lines(table, "$a$", "b $c$", by=None),
        plots.sweep_heat(table, "b $c$", "$a$", "used"),
    ):
        texts = [text for text in ax.figure.findobj(Text) if "$" in text.get_text()]
        assert texts and not any(text.get_parse_math() for text in texts)
        assert_labels_are_inside_and_apart(ax)


def test_every_curve_has_a_look_of_its_own() -> None:
    table = pd.DataFrame({"allocator": [f"allocator {i // 2}" for i in range(40)], "x": [1, 2] * 20, "used": 0.5})
    ax = plots.sweep_lines(table, "x", "used")
    assert len({(line.get_color(), line.get_linestyle()) for line in ax.lines}) == len(ax.lines) == 20
    assert ax.get_title(loc="left") == "" and "allocator 19" in words_of(ax)  # in one line, as it fits
    assert_labels_are_inside_and_apart(ax)
    more = pd.concat([table, table.assign(allocator="another")])
    assert plots.sweep_lines(more, "x", "used").get_title(loc="left") == "21 curves: their looks repeat after 20"


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=200), st.integers(1, 60), st.integers(1, 8))
def test_lines_are_short_and_few(label: str, chars: int, most: int) -> None:
    lines = wrapped(label, chars, most).split("\n")
    assert len(lines) <= most and all(len(line) <= chars for line in lines)
    if not lines[-1].endswith("\u2026"):
        assert "".join("".join(lines).split()) == "".join(label.split())


def test_no_line_ends_in_a_number() -> None:
    assert wrapped("paged:watermark=0.01, 14,000 slots", 18) == "paged:\nwatermark=0.01,\n14,000 slots"


@pytest.mark.parametrize("slots", [1, 2, 3, 5])
def test_a_tiny_pool_has_whole_slots_at_its_ticks(slots: int) -> None:
    run = simulate(Trace.from_columns([0, 0], [1, 1], [1, 1]), Paged(slots, 1), decisions=True)
    for ax in (plots.waste_over_time(run), plots.memory_map(run), *plots.holes(run).figure.axes):
        if ax.get_ylabel() not in ("index", "requests"):
            ax.figure.canvas.figure.draw_without_rendering()
            ticks = [tick.get_text() for tick in ax.get_yticklabels()]
            assert len(set(ticks)) == len(ticks), (ax.get_ylabel(), ticks)


def test_a_table_of_a_huge_pool_stays_in_its_cells() -> None:
    trace = Trace.from_columns([0, 0], [9 * 10**7] * 2, [10, 10])
    run = simulate(trace, Contiguous(10**9, max_model_len=10**8), max_model_len=10**8, decisions=True)
    ax = plots.block_table(run, 1, 10.0)
    ax.figure.canvas.figure.draw_without_rendering()
    (filled,) = (text for text in ax.texts if text.get_text() == "90,000,000\nof 100,000,000")
    cells = [patch.get_window_extent() for patch in ax.patches if patch.get_label() == "entry"]
    box = filled.get_window_extent()
    assert any(cell.x0 <= box.x0 and box.x1 <= cell.x1 for cell in cells)
    assert words_of(ax).count("100,000,000") == 2
    assert_labels_are_inside_and_apart(ax)


def test_the_line_is_what_the_head_of_the_queue_takes() -> None:
    sizes = plots.holes(busy("oracle"), 10.0).figure.axes[-1]
    (line,) = (line for line in sizes.lines if line.get_label() == "needed")
    (told,) = (text.get_text() for text in sizes.texts if "asks" in text.get_text())
    taken = int(np.asarray(line.get_ydata())[0])
    assert taken & (taken - 1) == 0  # a block of 16 x 2^k, whatever was asked
    assert told.endswith(f"and takes {taken:,}")
    paged = plots.holes(busy("paged"), 10.0).figure.axes[-1]
    assert not paged.lines  # no hole must reach anything


def test_a_short_time_keeps_its_digits() -> None:
    assert [in_seconds(time) for time in (0, 43, 12345.678, 0.5, 0.0123, 1e-5, 1e-12)] == [
        "0.00 s",
        "43.00 s",
        "12,345.68 s",
        "0.500 s",
        "0.0123 s",
        "0.0000100 s",
        "0.000000000001 s",
    ]


@settings(max_examples=30)
@given(st.floats(1e-9, 1e9))
def test_a_time_is_told_to_half_a_percent(time: float) -> None:
    assert float(in_seconds(time).removesuffix(" s").replace(",", "")) == pytest.approx(time, rel=0.006)


def test_a_wrong_backend_is_told_in_one_line(tmp_path: Path) -> None:
    command = "run sharegpt:rate=1,duration=1 -a paged --capacity 4096 --plot picture.png"
    environment = {"MPLBACKEND": "bogus", "PYTHONPATH": str(Path(plots.__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-m", "simulator", *command.split()],
        cwd=tmp_path,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    told = "MPLBACKEND(='bogus') must be a backend of matplotlib, or not be set: no picture here needs one"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"kvfrag: {told}\n")
    assert not list(tmp_path.iterdir())
