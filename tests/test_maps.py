"""The memory map: its cells are the layout, slot by slot, at an instant and over time."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from allocators import Contiguous, InputError, Paged
from lesson_runs import buddies, busy, figure6, reserved
from looks import assert_labels_are_inside_and_apart, words_of
from simulator import Run, StepCost, Trace, plots, simulate
from simulator.engine.layout import Layout
from simulator.plots.instant import InstantMap
from simulator.plots.mapkey import layout_at
from simulator.plots.style import INK, settled
from simulator.results.cells import (
    HOLE,
    KINDS,
    NEVER_USED,
    RESERVED,
    ROUNDING,
    TAIL,
    WRITTEN,
    cells_of,
    cells_over_time,
    middles,
)
from simulator.results.history import History
from simulator.results.hues import HUES, LIGHTNESS, colors_of, key_color, palette
from simulator.results.views import lightness


def slot_by_slot(layout: Layout, capacity: int, tail: int) -> list[tuple[int, int]]:
    """(kind, request) of every slot, told the plain way."""
    pool = [(TAIL if slot >= capacity - tail else HOLE, -1) for slot in range(capacity)]
    for held in layout.allocations:
        place = 0
        for extent in held.extents:
            for slot in range(extent.start, extent.end):
                kind = ROUNDING
                if place < held.written_tokens:
                    kind = WRITTEN
                elif place < held.final_tokens:
                    kind = RESERVED
                elif place < held.final_tokens + held.overprovision_slots:
                    kind = NEVER_USED
                pool[slot] = kind, held.request
                place += 1
    return pool


def pixels_of(ax: Axes) -> np.ndarray:
    return np.asarray(ax.images[0].get_array(), float)


def hexed(color: np.ndarray) -> str:
    return "#" + "".join(f"{round(255 * level):02x}" for level in color)


RUNS = [figure6, buddies, reserved, busy]


@pytest.mark.parametrize("make", RUNS)
@pytest.mark.parametrize("part", [0.0, 0.3, 0.6])
def test_cells_at_an_instant_are_the_layout(make: object, part: float) -> None:
    run: Run = make()  # type: ignore[operator]
    history = History(run)
    time_s = part * history.end_s
    layout = history.layout(time_s)
    pool = slot_by_slot(layout, run.capacity, history.tail_slots)
    slots, size = middles(run.capacity, 4096)
    assert size == 1 and slots.tolist() == list(range(run.capacity))
    cells = cells_of(layout, slots, run.capacity, history.tail_slots)
    assert list(zip(cells.kind.tolist(), cells.request.tolist(), strict=True)) == pool

    drawn = pixels_of(plots.memory_map(run, time_s)).reshape(-1, 4)
    expected = colors_of(cells.kind, cells.request)
    assert np.allclose(drawn[: run.capacity, :3], expected)
    assert (drawn[: run.capacity, 3] == 1).all() and (drawn[run.capacity :, 3] == 0).all()


@pytest.mark.parametrize("make", [figure6, buddies, reserved, lambda: busy("oracle")])
def test_columns_over_time_are_layouts(make: object) -> None:
    run: Run = make()  # type: ignore[operator]
    history = History(run)
    ax = plots.memory_map(run, cells=(run.capacity, 40))
    image = pixels_of(ax)
    assert image.shape == (run.capacity, 40, 3)
    left, right, low, high = ax.images[0].get_extent()
    assert (left, low, high) == (0, 0, run.capacity) and right == pytest.approx(history.end_s)
    for column in range(0, 40, 7):
        layout = history.layout((column + 0.5) / 40 * history.end_s)
        pool = slot_by_slot(layout, run.capacity, history.tail_slots)
        kind, request = (np.array(part) for part in zip(*pool, strict=True))
        assert np.allclose(image[:, column], colors_of(kind, request))
    assert_labels_are_inside_and_apart(ax)


def test_cells_of_several_slots_say_what_their_middle_holds() -> None:
    history = History(busy())
    times = np.linspace(0, history.end_s, 11)[:-1]
    every = cells_over_time(history, np.arange(3000), times)
    slots, size = middles(3000, 400, multiple=16)
    assert size == 8 and len(slots) == 375
    some = cells_over_time(history, slots, times)
    assert (some.kind == every.kind[slots]).all() and (some.offset == every.offset[slots]).all()


@pytest.mark.parametrize(
    ("capacity", "most", "multiple", "size"), [(100, 100, 1, 1), (100, 50, 16, 2), (1000, 10, 16, 112), (100, 30, 6, 6)]
)
def test_a_cell_never_cuts_a_block(capacity: int, most: int, multiple: int, size: int) -> None:
    slots, found = middles(capacity, most, multiple)
    assert found == size and len(slots) <= most and slots.max() < capacity
    assert found % multiple == 0 or multiple % found == 0


def test_the_key_has_the_exact_shares() -> None:
    ax = plots.memory_map(buddies(), 1.0)
    # A has 21 of 32 written after two iterations, B 11 of 16, C 6 of 7 (in a block of 8).
    assert [text.get_text() for text in ax.texts if "%" in text.get_text()] == [
        "free 56.2 %",
        "rounding 0.8 %",
        "reserved 13.3 %",
        "written 29.7 %",
    ]
    assert "tail 5.9 %" in words_of(plots.memory_map(figure6(), 0.0))
    assert ax.get_title(loc="left").endswith("at 1.00 s, iteration 1: 3 requests")
    assert {"0", "1", "2"} <= set(words_of(ax))  # the requests' numbers
    assert_labels_are_inside_and_apart(ax)


@pytest.mark.parametrize(
    "name",
    [
        "paged",
        "buddy:reserve=oracle,min_block=16,max_block=2048,split=smallest",
        "a run of many words " + 9 * "more ",
    ],
)
def test_the_title_has_its_place_at_any_instant(name: str) -> None:
    run = replace(busy("oracle"), label=name)
    shown = InstantMap(run)
    layout = History(run).layout(10.0)
    lines = set()
    for time_s, iteration in ((0, 0), (93, 3283), (86_400, 4_000_000), (10**5, None)):
        shown.show(layout._replace(time_ps=time_s * 10**12, iteration=iteration))
        settled(shown.ax)
        shown.ax.figure.canvas.figure.set_layout_engine("none")  # a film has the layout of its first frame
        lines.add(shown.ax.get_title(loc="left").count("\n"))
        assert_labels_are_inside_and_apart(shown.ax)
    assert len(lines) == 1


def test_a_number_on_two_shades_has_a_halo() -> None:
    def number_of(prompt: int) -> Text:
        run = simulate(Trace.from_columns([0], [prompt], [100 - prompt]), Contiguous(100, "oracle"), decisions=True)
        (number,) = [text for text in plots.memory_map(run, 0.0).texts if text.get_text() == "0"]
        return number

    for prompt, ink in ((1, INK), (90, "white")):  # it stands on reserved slots, on written ones
        assert not number_of(prompt).get_path_effects() and number_of(prompt).get_color() == ink
    middle = number_of(90).get_position()[0]  # in the first row
    assert number_of(int(middle)).get_path_effects() and number_of(int(middle)).get_color() == INK


def test_a_map_of_nothing() -> None:
    ax = plots.memory_map(figure6(), 99.0)
    assert ax.get_title(loc="left").endswith("at 99.00 s: nothing runs")
    assert "free 94.1 %" in words_of(ax)


def test_rows_are_told_by_their_address_and_bytes() -> None:
    ax = plots.memory_map(buddies(), 1.0, bytes_per_slot=2**20)
    assert ax.get_ylabel() == "address (pool: 128 = 128.0 MiB)"
    ax.figure.canvas.figure.draw_without_rendering()
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["0", "32", "64", "96"]
    assert [tick.get_text() for tick in ax.get_xticklabels()][:2] == ["+0", "+4"]
    over = plots.memory_map(buddies(), bytes_per_slot=2**20)
    assert over.get_ylabel() == "address, slots (pool: 128 = 128.0 MiB)"


def test_a_kept_map_is_drawn_without_a_decision_log() -> None:
    trace = Trace.from_columns([0, 0], [7, 6], [4, 5])
    run = simulate(trace, Paged(34, 4), cost=StepCost("1s", "0", "0"), layout_times_s=[2.0])
    kept, logged = (pixels_of(plots.memory_map(one, 2.0)) for one in (run, figure6()))
    assert (kept == logged).all()
    assert layout_at(run, 2.0) is run.layouts[0]
    with pytest.raises(InputError, match=r"kept no memory map at 3 s \(kept: 2\); make it with simulate\("):
        plots.memory_map(run, 3.0)
    with pytest.raises(InputError, match=r"has no decision log; make it with simulate\(\.\.\., decisions=True\)"):
        plots.memory_map(run)
    for wrong in (-1.0, float("nan")):
        with pytest.raises(InputError, match=r"at\(=.*\) must be a number of seconds >= 0"):
            plots.memory_map(run, wrong)


def test_a_run_that_covers_no_time_has_no_map_over_time() -> None:
    run = simulate(Trace.from_columns([0], [50], [1]), Paged(34, 4), decisions=True)
    with pytest.raises(InputError, match="covers no time"):
        plots.memory_map(run)


@pytest.mark.parametrize("spec", ["paged", "oracle", "max"])
def test_maps_of_a_busy_pool_have_their_labels_inside(spec: str) -> None:
    run = busy(spec)
    assert_labels_are_inside_and_apart(plots.memory_map(run, 10.0))
    ax = plots.memory_map(run)
    assert any(text.get_text().isdigit() for text in ax.texts) == (spec != "paged")
    figure = Figure(figsize=(10, 8), layout="constrained")
    above, below = figure.subplots(2)
    assert plots.memory_map(run, 5.0, ax=above) is above
    assert plots.memory_map(run, ax=below) is below
    assert figure.axes == [above, below]


def test_a_window_is_all_that_is_drawn() -> None:
    trace = Trace.from_columns([0, 0], [7, 6], [40, 50])
    run = simulate(trace, Paged(200, 4), cost=StepCost("1s", "0", "0"), window_s=(5, 12), decisions=True)
    left, right, _, _ = plots.memory_map(run).images[0].get_extent()
    assert (left, right) == (5, 12)


def test_lightness_says_what_a_slot_holds_and_hue_who_has_it() -> None:
    colors = palette()
    for kind, level in LIGHTNESS.items():
        found = [lightness(hexed(colors[kind, hue])) for hue in range(HUES)]
        assert max(abs(one - level) for one in found) < 1.5
        assert len({hexed(colors[kind, hue]) for hue in range(HUES)}) == HUES
        assert lightness(hexed(np.array(key_color(kind)))) == pytest.approx(level, abs=1)
    levels = [LIGHTNESS[kind] for kind in (WRITTEN, RESERVED, NEVER_USED, ROUNDING)]
    assert all(light - dark >= 8 for dark, light in pairwise([*levels, 100]))
    assert key_color(HOLE) == (1, 1, 1) and len(KINDS) == 6


def test_a_film_shows_the_maps(tmp_path: Path) -> None:
    film = plots.animate(figure6(), frames=5, frames_per_s=2)
    assert film.times_s.tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]
    assert repr(film) == "<Film of paged:block_size=4,watermark=0, 5 frames>"
    film.save(tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as gif:
        assert gif.n_frames == 5 and gif.info["duration"] == 500  # type: ignore[attr-defined]
        gif.seek(2)
        found = {pixel for _, pixel in gif.convert("RGB").getcolors(10**6)}  # type: ignore[union-attr]
    # A GIF has 256 colours, so they are near what is meant.
    for kind, request in ((WRITTEN, 0), (RESERVED, 0), (WRITTEN, 1), (ROUNDING, 0)):
        meant = 255 * palette()[kind, request]
        assert min(float(np.abs(np.array(one) - meant).max()) for one in found) < 12


def test_a_film_for_a_page_is_whole_offline_and_always_the_same(tmp_path: Path) -> None:
    film = plots.animate(figure6(), frames=3)
    page = film.to_html()
    assert page.count("data:image/png;base64,") == 3
    assert "http" not in page.replace("http://www.w3.org", "") and "fa-play" not in page
    assert page == plots.animate(figure6(), frames=3)._repr_html_()
    film.save(tmp_path / "film.html")
    assert (tmp_path / "film.html").read_text("utf-8").endswith(page)


def test_what_a_film_cannot_be_is_told(tmp_path: Path) -> None:
    film = plots.animate(figure6(), frames=2)
    with pytest.raises(InputError, match=r"film's file\(='.mp4'\) must be one of .html, .gif"):
        film.save("film.mp4")
    with pytest.raises(InputError, match="there is no folder"):
        film.save(tmp_path / "none" / "film.gif")
    with pytest.raises(InputError, match=r"frames\(=0\) must be a whole number >= 1"):
        plots.animate(figure6(), frames=0)
