"""The picture of why requests waited: what is drawn is what ``Run.waits_s`` says, on busy servers and idle ones."""

import subprocess
import sys
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from allocators import Contiguous, InputError, Paged
from lesson_runs import SECOND, busy
from looks import assert_labels_are_inside_and_apart, words_of
from simulator import Run, Trace, plots, simulate
from simulator.results.views import COLORS, WAIT_COLORS, lightness
from simulator.results.waits import CAUSES, WAITS

OWN = [cause for cause in WAIT_COLORS if cause != "behind"]


@dataclass
class FakeRun:
    name: str
    waited: dict[str, float]

    def waits_s(self) -> dict[str, float]:
        return dict.fromkeys(CAUSES, 0.0) | self.waited


NOBODY = FakeRun("nobody", {})
LIGHT = FakeRun("light", {"iteration": 0.0119})
BUSY = FakeRun("buddy:reserve=oracle,min_block=16,max_block=2048,split=smallest", {"external": 0.5, "behind": 12_345})


def heights(ax: Axes) -> list[dict[str, float]]:
    """For each bar, from left to right, its segments by cause; each stands on the one below."""
    causes = {name: cause for cause, (name, _) in WAITS.items()}
    bars: dict[float, dict[str, float]] = {}
    for container in ax.containers:
        assert isinstance(container, BarContainer)
        (patch,) = container.patches
        cause = causes[str(container.get_label())]
        bar = bars.setdefault(patch.get_x(), {})
        assert patch.get_y() == pytest.approx(sum(bar.values()))
        assert to_hex(patch.get_facecolor()) == WAIT_COLORS[cause]
        bar[cause] = patch.get_height()
    return [bars[x] for x in sorted(bars)]


def panels(ax: Axes) -> tuple[Axes, Axes]:
    above, below = ax.figure.axes
    assert above is ax
    return above, below


def assert_it_shows(ax: Axes, waited: list[dict[str, float]]) -> None:
    """The seconds by cause above, the shares of all but ``behind`` below, and no label on another."""
    above, below = panels(ax)
    assert [set(bar) for bar in heights(above)] == [set(CAUSES)] * len(waited)
    for bar, share, seconds in zip(heights(above), heights(below), waited, strict=True):
        assert bar == pytest.approx(seconds)
        assert list(share) == OWN
        own_s = sum(seconds[cause] for cause in OWN)
        if own_s:
            assert share == pytest.approx({cause: 100 * seconds[cause] / own_s for cause in OWN})
            assert sum(share.values()) == pytest.approx(100)
        else:
            assert not any(share.values())
    assert below.get_ylim()[1] > 100 and above.get_ylim()[1] > max(sum(seconds.values()) for seconds in waited)
    assert_labels_are_inside_and_apart(above, below)


def shown_runs() -> dict[str, list[Run]]:
    """A busy server under three allocators, with preemptions; a light one; one that a cap on the batch holds back."""
    trace = Trace.from_columns([0, 10**10], [4, 4], [3, 1])
    many = Trace.from_columns([0, 0, 0], [4, 4, 4], [3, 1, 1])
    return {
        "busy": [busy("max"), busy("oracle"), busy("paged")],
        "light": [simulate(trace, Paged(100, 1), cost=SECOND)],
        "cap": [simulate(many, Paged(100, 1), cost=SECOND, max_batch=1)],
        "pool": [simulate(many, Contiguous(10, "oracle"), cost=SECOND)],
    }


def test_bars_are_what_the_runs_say() -> None:
    runs = shown_runs()
    for several in runs.values():
        assert_it_shows(plots.waits(several), [run.waits_s() for run in several])
    words = words_of(*panels(plots.waits(runs["busy"])))
    assert {"behind", "external", "too little free", "preempted"} <= set(words)
    assert [tick.get_text().replace("\n", "") for tick in panels(plots.waits(runs["busy"]))[1].get_xticklabels()] == [
        run.name for run in runs["busy"]
    ]


def test_numbers_are_written_with_their_units() -> None:
    # Worked out by hand: the second waits 3 s for the cap; the third 3 s behind it, and 1 s for the cap.
    ax = plots.waits(shown_runs()["cap"])
    above, below = panels(ax)
    assert [text.get_text() for text in above.texts] == ["2.33 s", "behind"]
    assert [text.get_text() for text in below.texts] == ["100.0", "of 1.33 s", "max batch"]
    assert above.get_ylabel() == "mean wait\nof a request (s)"
    assert below.get_ylabel() == "the same without\n'behind' (%)"
    words = words_of(*panels(plots.waits([BUSY, LIGHT])))
    assert {"12,346 s", "of 0.5 s", "0.0119 s", "of 0.0119 s"} <= set(words)


def test_runs_without_waiting_say_so() -> None:
    trace = Trace.from_columns([0, 10**10], [4, 4], [3, 1])
    idle = simulate(trace, Paged(100, 1), cost=SECOND)
    for runs in ([idle], [NOBODY, NOBODY, NOBODY], [BUSY, NOBODY]):
        ax = plots.waits(runs)
        assert_it_shows(ax, [run.waits_s() for run in runs])
        quiet = sum(not any(run.waits_s().values()) for run in runs)
        assert words_of(ax).count("nobody\nwaited") == quiet > 0
    assert not [text for text in plots.waits([NOBODY]).figure.axes[1].texts if text.get_text()]


def test_no_run_is_told() -> None:
    with pytest.raises(InputError, match=r"^runs\(=\[\]\) must hold at least one run$"):
        plots.waits([])


parts_s = st.floats(0.01, 300) | st.just(0.0)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.fixed_dictionaries(dict.fromkeys(CAUSES, parts_s)), min_size=1, max_size=4))
def test_any_waits_are_drawn_and_no_label_collides(waited: list[dict[str, float]]) -> None:
    assert_it_shows(plots.waits([FakeRun(BUSY.name, parts) for parts in waited]), waited)


def test_axes_handed_in_are_drawn_on_alone_where_they_are_low() -> None:
    figure = Figure(figsize=(9.0, 9.0), layout="constrained")
    first, second = figure.subplots(2)
    assert plots.waits([BUSY, LIGHT], ax=first) is first
    assert len(figure.axes) == 3 and not second.containers
    small = Figure(figsize=(4.0, 2.5)).subplots()
    assert plots.waits([FakeRun("r", {"external": 1, "behind": 2})], ax=small) is small
    assert small.figure.axes == [small]
    assert {"external", "behind", "3 s"} <= {text.get_text() for text in small.texts}
    assert len({to_hex(line.get_markerfacecolor()) for line in small.lines}) == 2


@pytest.mark.parametrize("size", [(3.0, 3.0), (4.0, 3.2), (12.0, 3.6), (12.0, 4.0), (5.0, 5.0), (12.0, 9.0)])
def test_labels_stay_inside_figures_of_any_size(size: tuple[float, float]) -> None:
    ax = plots.waits([BUSY, LIGHT, NOBODY], ax=Figure(figsize=size, layout="constrained").subplots())
    assert_labels_are_inside_and_apart(*ax.figure.axes)


def test_causes_stay_apart_in_grey_print_and_memory_has_its_colours() -> None:
    assert set(WAIT_COLORS) == set(WAITS) == set(CAUSES)
    assert (WAIT_COLORS["external"], WAIT_COLORS["too_little_free"]) == (COLORS["external"], COLORS["residual"])
    for one, other in combinations(WAIT_COLORS.values(), 2):
        assert abs(lightness(one) - lightness(other)) >= 8, (one, other)


def test_nothing_global_is_touched() -> None:
    # In a process of its own: other tests may have imported pyplot here.
    script = """
import sys, types
import matplotlib
before = list(dict.items(matplotlib.rcParams))  # a plain look at "backend" would already choose one
from simulator.plots import waits
from simulator.results.waits import CAUSES
waits([types.SimpleNamespace(name="r", waits_s=lambda: dict.fromkeys(CAUSES, 1.0))])
assert "matplotlib.pyplot" not in sys.modules
assert list(dict.items(matplotlib.rcParams)) == before
"""
    root = Path(plots.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
