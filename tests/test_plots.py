"""Plots: what is drawn is what the runs say, every label has its place, and nothing global changes."""

import subprocess
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from allocators.base import InputError
from lesson_runs import busy
from looks import assert_labels_are_inside_and_apart
from simulator import plots
from simulator.plots import spread, waste_bars, waste_over_time
from simulator.plots.style import in_bytes
from simulator.results.ledger import CATEGORIES
from simulator.results.views import COLORS, VIEWS, view_shares

LONG = "buddy:reserve=max,min_block=16,max_block=2048,split=smallest"


@dataclass
class FakeRun:
    name: str
    share: dict[str, float] | None = None
    timeline: pd.DataFrame = field(default_factory=pd.DataFrame)
    capacity: int = 1000

    def summary(self) -> dict[str, Any]:
        return {"share": self.share}


def run_of(name: str, *percent: float) -> FakeRun:
    return FakeRun(name, dict(zip(CATEGORIES, np.array(percent) / 100, strict=True)))


MAX = run_of(LONG, 20.1, 13.5, 57.5, 0, 0, 8.8, 0.1)
PAGED = run_of("paged:block_size=16,watermark=0.01", 96, 2, 0, 0.5, 0, 1.1, 0.4)
PAPER = {LONG: {"token states": 20.4, "reservation": 13.3, "internal": 57.3, "external & others": 8.9}}


def timeline(bins: int, start_s: float = 0.0) -> pd.DataFrame:
    """Bins of half a second; category i holds (i + 1) / 28 of 1000 slots, the last bins are idle."""
    edges = start_s + 0.5 * np.arange(bins + 1)
    slots = np.tile(np.arange(1, 8) / 28 * 1000, (bins, 1))
    slots[bins * 3 // 4 + 1 :] = [0, 0, 0, 0, 0, 0, 1000]
    counts = {
        "running": np.arange(bins),
        "waiting": np.arange(bins)[::-1] * 100,
        "preemptions": np.arange(bins) % 3,
        "largest_free": np.full(bins, 10.0),
        "refused_although_free": np.arange(bins) % 2 / 2,
    }
    categories = dict(zip(CATEGORIES, slots.T, strict=True))
    return pd.DataFrame({"start_s": edges[:-1], "end_s": edges[1:]} | categories | counts, dtype=float)


def containers_of(ax: Axes) -> list[BarContainer]:
    return [container for container in ax.containers if isinstance(container, BarContainer)]


def bars_of(ax: Axes) -> dict[float, list[tuple[str, float, float]]]:
    """x of a bar -> its segments as (name, bottom, height)."""
    bars: dict[float, list[tuple[str, float, float]]] = {}
    for container in containers_of(ax):
        (patch,) = container.patches
        middle = round(patch.get_x() + patch.get_width() / 2, 6)
        bars.setdefault(middle, []).append((str(container.get_label()), patch.get_y(), patch.get_height()))
    return bars


@pytest.mark.parametrize("view", VIEWS)
def test_bars_are_the_shares_stacked(view: str) -> None:
    ax = waste_bars([MAX, PAGED], view)
    for (x, segments), run in zip(bars_of(ax).items(), (MAX, PAGED), strict=True):
        assert run.share is not None
        shares = view_shares(run.share, view)
        assert x in (0, 1)
        assert [name for name, _, _ in segments] == list(shares)
        assert [height for _, _, height in segments] == pytest.approx([100 * share for share in shares.values()])
        tops = [bottom + height for _, bottom, height in segments]
        assert [bottom for _, bottom, _ in segments] == pytest.approx([0, *tops[:-1]])
        assert tops[-1] == pytest.approx(100)
    assert_labels_are_inside_and_apart(ax)


def test_numbers_names_and_categories_are_written() -> None:
    ax = waste_bars([MAX, PAGED])
    written = [text.get_text() for text in ax.texts]
    numbers = ["20.1", "13.5", "57.5", "8.8", "0.1", "96.0", "2.0", "0.5", "1.1", "0.4"]
    shown = [name for name in CATEGORIES if name != "external"]
    assert sorted(filter(None, written)) == sorted(numbers + shown)
    ticks = [tick.get_text().replace("\n", "") for tick in ax.get_xticklabels()]
    assert ticks == [MAX.name, PAGED.name]
    assert ax.get_ylabel() == "share of the KV-cache pool (%)"


def test_names_of_categories_stand_in_the_order_of_the_stack() -> None:
    ax = waste_bars([MAX, PAGED])
    heights = {text.get_text(): text.get_position()[1] for text in ax.texts}
    shown = [heights[name] for name in CATEGORIES if name in heights]
    assert all(low < high for low, high in pairwise(shown))


def test_a_category_has_its_colour() -> None:
    ax = waste_bars([MAX])
    drawn = {str(bar.get_label()): to_hex(bar.patches[0].get_facecolor()) for bar in containers_of(ax)}
    assert drawn == COLORS
    swatches = [to_hex(line.get_markerfacecolor()) for line in ax.lines]
    assert swatches == [COLORS[name] for name in CATEGORIES if name not in ("rounding", "external")]


def test_a_reference_stands_beside_its_run() -> None:
    ax = waste_bars(
        [MAX, PAGED], "paper", reference={**PAPER, "elsewhere": {"token states": 50}}, reference_name="paper"
    )
    bars = bars_of(ax)
    assert list(bars) == [-0.2, 0.2, 1.25, 2.5]
    assert [height for _, _, height in bars[0.2]] == pytest.approx([20.4, 13.3, 57.3, 8.9])
    assert [height for _, _, height in bars[2.5]] == [50, 0, 0, 0]
    hatched = [container.patches[0].get_hatch() for container in containers_of(ax)]
    assert [bool(hatch) for hatch in hatched] == [False] * 4 + [True] * 4 + [False] * 4 + [True] * 4
    assert [text.get_text() for text in ax.texts].count("paper") == 2
    assert [tick.get_text() for tick in ax.get_xticklabels()][-1] == "elsewhere"
    assert_labels_are_inside_and_apart(ax)


def test_references_alone_can_be_drawn() -> None:
    assert list(bars_of(waste_bars([], "paper", reference=PAPER))) == [0]


def test_a_run_in_which_nothing_ran() -> None:
    ax = waste_bars([PAGED, FakeRun("nothing")])
    assert "nothing ran" in [text.get_text() for text in ax.texts]
    assert_labels_are_inside_and_apart(ax)
    assert "nothing ran" in [text.get_text() for text in waste_bars([FakeRun("nothing")]).texts]


def test_what_cannot_be_drawn_is_told() -> None:
    with pytest.raises(InputError, match=r"runs\(=\[\]\) must hold at least one run"):
        waste_bars([])
    with pytest.raises(InputError, match=r"view\(='orca'\) must be one of ledger, textbook, paper"):
        waste_bars([MAX], "orca")
    with pytest.raises(InputError, match=r"name in reference 'p'\(='used'\) must be one of token states, "):
        waste_bars([MAX], "paper", reference={"p": {"used": 1}})
    for empty in (timeline(0), timeline(1).assign(end_s=0.0)):
        with pytest.raises(InputError, match="run 'r' covers no time"):
            waste_over_time(FakeRun("r", timeline=empty))


@settings(max_examples=8, deadline=None)
@given(st.lists(st.lists(st.integers(0, 40), min_size=7, max_size=7), min_size=1, max_size=4))
def test_no_label_collides_whatever_the_shares(weights: list[list[int]]) -> None:
    # Squares make for many small segments beside few large ones.
    squares = [np.square(row) + np.eye(7)[i] for i, row in enumerate(weights)]
    runs = [run_of(LONG, *(100 * row / row.sum())) for row in squares]
    assert_labels_are_inside_and_apart(waste_bars(runs))


@pytest.mark.parametrize("size", [(9.0, 6.0), (3.0, 2.5)])
def test_axes_handed_in_are_drawn_on(size: tuple[float, float]) -> None:
    figure = Figure(figsize=size, layout="constrained")
    above, below = figure.subplots(2)
    assert waste_bars([MAX, PAGED], ax=above) is above
    assert waste_over_time(FakeRun("paged", timeline=timeline(8)), ax=below) is below
    # Where there is room, the timeline shares its place out to two panels more.
    assert len(figure.axes) == (4 if size[1] > 3 else 2) and len(above.containers) == 14 and len(below.collections) == 7


def test_numbers_too_small_to_read_are_left_out() -> None:
    ax = waste_bars([MAX, PAGED], ax=Figure(figsize=(1.5, 1.5)).subplots())
    assert not [text for text in ax.texts if text.get_text().replace(".", "").isdigit()]


@pytest.mark.parametrize(("bins", "start_s"), [(1, 0.0), (40, 0.0), (1000, 300.0)])
def test_the_timeline_is_stacked_to_the_pool(bins: int, start_s: float) -> None:
    frame = timeline(bins, start_s)
    ax = waste_over_time(FakeRun(LONG, timeline=frame))
    tops = np.cumsum(frame[list(CATEGORIES)].to_numpy(), axis=1)
    for i, (name, area) in enumerate(zip(CATEGORIES, ax.collections, strict=True)):
        assert area.get_label() == name
        (path,) = area.get_paths()
        x, y = np.asarray(path.vertices, dtype=float).T
        assert (x.min(), x.max()) == (frame["start_s"].iloc[0], frame["end_s"].iloc[-1])
        assert y.max() == pytest.approx(tops[:, i].max())
        assert (x == frame["start_s"].iloc[-1]).any()
    assert ax.get_ylim() == (0, 1000)
    _, requests, events = panels = ax.figure.axes
    assert events.get_xlabel() == "time (s)" and ax.get_ylabel() == "token slots (pool: 1,000)"
    assert [text.get_text() for text in ax.texts] == list(CATEGORIES)
    assert all(start_s <= tick <= frame["end_s"].iloc[-1] for tick in ax.get_xticks())
    for line in requests.lines:
        values = frame[str(line.get_label())].to_list()
        assert np.asarray(line.get_ydata()).tolist() == [*values, values[-1]]
    assert {text.get_text() for text in requests.texts} == {"running", "waiting"}
    assert_labels_are_inside_and_apart(*panels)


def test_events_are_drawn_where_they_are() -> None:
    frame = timeline(6)
    frame["refused_although_free"] = parts = [0.0, 0.5, 1, 0, 0, 0.01]
    ax = waste_over_time(FakeRun("r", timeline=frame))
    events = ax.figure.axes[2]
    assert [text.get_text() for text in events.texts] == ["6 preempted", "0.755 s refused though\nenough was free"]
    bars, strip = containers_of(events)
    assert [bar.get_height() for bar in bars.patches] == pytest.approx([0, 0.5, 1, 0, 0.5, 1])
    # A bar is as high as its share of the span: a hundredth of a bin is not drawn like all of it.
    whole = max(bar.get_height() for bar in strip.patches)
    assert [bar.get_height() / whole for bar in strip.patches] == pytest.approx(parts)
    assert [bar.get_x() for bar in strip.patches] == [0, 0.5, 1, 1.5, 2, 2.5]

    calm = frame.assign(refused_although_free=0.0, preemptions=0.0)
    events = waste_over_time(FakeRun("r", timeline=calm)).figure.axes[2]
    assert [text.get_text() for text in events.texts] == ["0 preempted", "never refused if\nenough was free"]
    assert not events.containers


def test_as_much_of_the_strip_is_red_as_of_the_time() -> None:
    run = busy("oracle")
    events = waste_over_time(run).figure.axes[2]
    (strip,) = (bars for bars in containers_of(events) if bars.get_label() == "refused_although_free")
    area = sum(bar.get_width() * bar.get_height() for bar in strip.patches)
    summary = run.summary()
    refused_s = summary["refused_although_free_s"]
    assert area / 0.94 == pytest.approx(refused_s, rel=1e-6) and 0 < refused_s < summary["duration_s"]
    # Any external waste in a bin used to make all of the bin red.
    assert (run.timeline["end_s"] - run.timeline["start_s"])[run.timeline["external"] > 0].sum() > 1.001 * refused_s
    assert f"{refused_s:.2f} s refused though\nenough was free" in [text.get_text() for text in events.texts]


def test_bytes_stand_beside_slots_where_they_are_known() -> None:
    ax = waste_over_time(FakeRun("r", timeline=timeline(4)), bytes_per_slot=2**20)
    assert ax.get_ylabel() == "token slots (pool: 1,000 = 1000.0 MiB)"
    ax.figure.canvas.figure.draw_without_rendering()
    assert "400\n400.0 MiB" in [tick.get_text() for tick in ax.get_yticklabels()]
    assert [in_bytes(size) for size in (5, 1024, 3 * 2**30, 2**41)] == ["5 B", "1.0 KiB", "3.0 GiB", "2.0 TiB"]


def test_axes_on_no_grid_share_their_own_rectangle() -> None:
    figure = Figure(figsize=(8, 6))
    ax = waste_over_time(FakeRun("r", timeline=timeline(4)), ax=figure.add_axes((0.1, 0.1, 0.8, 0.8)))
    boxes = [panel.get_position() for panel in figure.axes]
    assert figure.axes[0] is ax and len(boxes) == 3
    assert all(above.y0 > below.y1 for above, below in pairwise(boxes))
    assert boxes[0].y1 <= 0.9 + 1e-9 and boxes[-1].y0 >= 0.1 - 1e-9


@given(st.lists(st.floats(0, 100), max_size=12), st.floats(0.1, 30))
def test_spread_keeps_order_gap_and_bounds(wanted: list[float], gap: float) -> None:
    wanted.sort()
    placed = spread(wanted, gap, 0, 100)
    share = min(gap, 100 / max(1, len(wanted) - 1))
    assert len(placed) == len(wanted)
    assert all(-1e-9 <= place <= 100 + 1e-9 for place in placed)
    assert all(high - low >= share - 1e-9 for low, high in pairwise(placed))


def test_spread_leaves_alone_what_is_apart() -> None:
    assert spread([1, 50, 99], 10, 0, 100) == [1, 50, 99]
    assert spread([50, 50, 51], 10, 0, 100) == [50, 60, 70]
    assert spread([99, 99, 99], 10, 0, 100) == [80, 90, 100]


def test_nothing_global_is_touched() -> None:
    # In a process of its own: other tests may have imported pyplot here.
    script = """
import sys, types
import matplotlib
before = list(dict.items(matplotlib.rcParams))  # a plain look at "backend" would already choose one
from simulator.plots import waste_bars
share = dict(zip("used reservation overprovision rounding external residual idle".split(), [1 / 7] * 7))
waste_bars([types.SimpleNamespace(name="r", summary=lambda: {"share": share})])
assert "matplotlib.pyplot" not in sys.modules
assert list(dict.items(matplotlib.rcParams)) == before
"""
    root = Path(plots.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
