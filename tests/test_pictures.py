"""Block tables, holes and sweeps: what is drawn is what the run, the log and the table say."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from allocators import InputError, Paged
from lesson_runs import SECOND, buddies, busy, figure6, reserved
from looks import assert_labels_are_inside_and_apart, words_of
from simulator import Run, Trace, plots, simulate
from simulator.plots.mapkey import layout_at
from simulator.results.history import History
from simulator.results.views import COLORS


def boxes_of(ax: Axes, label: str) -> list[tuple[float, float, float]]:
    """x, y of the middle, and width of the boxes of this label, from left to right and from the top down."""
    found = [patch for patch in ax.patches if isinstance(patch, Rectangle) and patch.get_label() == label]
    places = [(box.get_x(), round(box.get_y() + box.get_height() / 2, 6), box.get_width()) for box in found]
    return sorted(places)


def line_of(ax: Axes, label: str) -> tuple[list[float], list[float]]:
    (line,) = (line for line in ax.lines if line.get_label() == label)
    x, y = (np.asarray(values, float).tolist() for values in (line.get_xdata(), line.get_ydata()))
    return x, y


# Block tables.


@pytest.mark.parametrize(
    ("at", "filled", "physical"),
    [
        (0.0, ["4 of 4", "3 of 4"], ["0", "1"]),
        (1.0, ["4 of 4", "4 of 4"], ["0", "1"]),
        (2.0, ["4 of 4", "4 of 4", "1 of 4"], ["0", "1", "4"]),
        (3.0, ["4 of 4", "4 of 4", "2 of 4"], ["0", "1", "4"]),
    ],
)
def test_the_block_table_is_the_papers_figure_6(at: float, filled: list[str], physical: list[str]) -> None:
    ax = plots.block_table(figure6(), 0, at)
    entries = [(text.get_position()[1], text.get_position()[0], text.get_text()) for text in ax.texts]
    table = [text for y, x, text in sorted(entries) if 5.6 < x < 8.4 and 0 <= y < len(filled)]
    assert table == [word for row in zip(physical, filled, strict=True) for word in row]

    arrows = [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    ends = [arrow._posA_posB[1] for arrow in arrows]  # type: ignore[attr-defined]
    assert [y for _, y in ends[::2]] == list(range(len(filled)))  # from each logical block to its row
    assert [y for _, y in ends[1::2]] == [float(block) for block in physical]  # and to its place in the pool
    # Written and reserved slots, in the logical block and again in the pool: a quarter of the width each.
    written = sum(int(word.split()[0]) for word in filled)
    assert sum(width for _, _, width in boxes_of(ax, "used")) == pytest.approx(2 * written)
    reserved_slots = sum(width for _, _, width in boxes_of(ax, "reservation"))
    assert reserved_slots == pytest.approx(2 * (min(10, 4 * len(filled)) - written))
    colors = {to_hex(patch.get_facecolor()) for patch in ax.patches if patch.get_label() == "used"}
    assert colors == {COLORS["used"]}
    assert_labels_are_inside_and_apart(ax)


def test_the_pool_beside_it_says_who_has_the_rest() -> None:
    ax = plots.block_table(figure6(), 1, 2.0)
    words = words_of(ax)
    assert words.count("request 0") == 3 and words.count("free") == 3
    assert {"logical blocks", "(OS: virtual pages)", "(OS: page table)", "(OS: frames)"} <= set(words)
    assert ax.get_title(loc="left") == "paged:block_size=4,watermark=0   request 1 at 2.00 s: 8 tokens written"


def test_an_extent_is_a_table_of_one() -> None:
    ax = plots.block_table(reserved(), 1, 1.0)
    words = words_of(ax)
    assert {"extent", "40", "6 of 40", "request 0"} <= set(words)
    assert sum(width for _, _, width in boxes_of(ax, "overprovision")) == pytest.approx(2 * 4 * 25 / 40)
    assert_labels_are_inside_and_apart(ax)


def test_long_tables_are_cut_short_and_say_so() -> None:
    run = busy()
    layout = layout_at(run, 10.0)
    longest = max(layout.allocations, key=lambda held: len(held.extents))
    ax = plots.block_table(run, longest.request, 10.0, ax=Figure(figsize=(9, 6)).subplots())
    blocks = [extent.start // 16 for extent in longest.extents]
    assert len(blocks) > 12 and f"... {len(blocks) - 11:,} more ..." in words_of(ax)
    shown = blocks[:6] + blocks[-5:]
    physical = {int(text.get_text()) for text in ax.texts if text.get_position()[0] == pytest.approx(10.2 - 0.12)}
    assert physical == set(shown)
    assert_labels_are_inside_and_apart(ax)


def test_a_request_that_holds_nothing_is_told() -> None:
    with pytest.raises(InputError, match=r"request\(=7\) holds no memory at 2 s; those that do: 0, 1"):
        plots.block_table(figure6(), 7, 2.0)
    with pytest.raises(InputError, match="those that do: none"):
        plots.block_table(figure6(), 0, 50.0)


# Holes.


def test_holes_of_the_lesson() -> None:
    ax = plots.holes(buddies(), 1.5)
    _, count, index, sizes = ax.figure.axes
    # 72 slots are free in two holes, 40-63 and 80-127: handed out as 8 + 16 and 16 + 32; D wants 64.
    bars = [bar for container in sizes.containers if isinstance(container, BarContainer) for bar in container.patches]
    assert [(bar.get_x() + 0.4, bar.get_y(), bar.get_height()) for bar in bars] == [
        (0, 0, 32),
        (0, 32, 16),
        (1, 0, 16),
        (1, 16, 8),
    ]
    assert sizes.get_title(loc="left") == "at 1.50 s: 72 slots free\nin 2 holes"
    assert line_of(sizes, "needed")[1] == [64, 64] and "request 3 asks 64" in words_of(sizes)
    assert sizes.get_xlabel().endswith("(handed out in parts: one part\nmust reach the line)")
    times, holes = line_of(count, "holes")
    assert holes[: len(times)] == [2, 2, 3, 2, 1, 2, 1, 1][: len(times)] or holes[0] == 2
    assert index.get_xlabel() == "time (s)"
    assert_labels_are_inside_and_apart(*ax.figure.axes)


@pytest.mark.parametrize("spec", ["paged", "oracle", "max"])
def test_lines_over_time_are_the_timeline(spec: str) -> None:
    run = busy(spec)
    ax = plots.holes(run)
    bins = run.timeline
    tail = History(run).tail_slots
    free = (bins[["external", "residual", "idle"]].sum(axis=1) - tail).to_list()
    assert tail == (8 if spec != "max" else 0)
    largest = bins["largest_free"].to_list()
    assert line_of(ax, "free")[1] == pytest.approx([*free, free[-1]], abs=1e-9)
    assert line_of(ax, "largest")[1] == [*largest, largest[-1]]
    index = line_of(ax.figure.axes[2], "index")[1]
    for got, some, run_slots in zip(index, free, largest, strict=False):
        assert np.isnan(got) if some < 1e-6 else got == pytest.approx(1 - run_slots / some, abs=1e-9)
    if spec == "paged":  # any free slot serves anyone, whatever tail there is
        assert np.nanmax(np.abs(index)) < 1e-9
    assert line_of(ax, "at")[0][0] > 0
    assert_labels_are_inside_and_apart(*ax.figure.axes)


def test_holes_with_nobody_waiting_and_axes_handed_in() -> None:
    figure = Figure(figsize=(12, 6), layout="constrained")
    left, right = figure.subplots(1, 2)
    assert plots.holes(figure6(), 1.0, ax=right) is right
    assert "nobody waits" in words_of(figure.axes[-1]) and left in figure.axes
    calm = plots.holes(figure6())  # nobody was ever refused: the instant with most holes
    assert_labels_are_inside_and_apart(*calm.figure.axes)
    with pytest.raises(InputError, match="must be on a grid of subplots"):
        plots.holes(figure6(), ax=figure.add_axes((0, 0, 1, 1)))
    nothing = simulate(Trace.from_columns([0], [50], [1]), Paged(34, 4), decisions=True)
    with pytest.raises(InputError, match="covers no time"):
        plots.holes(nothing)


# Sweeps.


def table() -> pd.DataFrame:
    rows = [
        {
            "allocator": name,
            "block_size": size,
            "max_batch": batch,
            "seed": seed,
            "used": u + 0.01 * seed,
            "time": 5.0,
        }
        for name, u in (("paged", 0.9), ("buddy", 0.4))
        for size in (1, 16, 256)
        for batch in (8, 32)
        for seed in (0, 1)
    ]
    return pd.DataFrame(rows)


def test_curves_are_means_and_bands_their_95_percent_intervals() -> None:
    ax = plots.sweep_lines(table(), x="block_size", y="used")
    assert line_of(ax, "paged")[0] == [1, 16, 256]
    assert line_of(ax, "paged")[1] == pytest.approx([90.5] * 3)
    assert line_of(ax, "buddy")[1] == pytest.approx([40.5] * 3)
    bands = {band.get_label(): band.get_paths()[0].get_extents() for band in ax.collections}
    half = 12.706 * 0.5  # Student's t of one degree of freedom; two values 1 apart have s / √2 = 0.5
    assert (bands["paged 95 %"].y0, bands["paged 95 %"].y1) == pytest.approx((90.5 - half, 90.5 + half), abs=1e-3)
    assert ax.get_title(loc="left") == "band: 95 % interval of the mean over seeds\nmean over max_batch"
    assert ax.get_xscale() == "log" and ax.get_ylabel() == "used (% of the pool)"
    names = {text.get_text(): text.get_color() for text in ax.texts}
    colors = {line.get_label(): line.get_color() for line in ax.lines}
    assert names == colors and list(names) == ["buddy", "paged"]
    looks = {(line.get_marker(), line.get_linestyle()) for line in ax.lines}
    assert len(looks) == 2  # told apart without colour
    assert_labels_are_inside_and_apart(ax)


def test_curves_by_something_else_or_by_nothing() -> None:
    rows = table()
    alone = plots.sweep_lines(rows, x="max_batch", y="time", by=None, ax=Figure(figsize=(6, 4)).subplots())
    assert line_of(alone, "time") == ([8, 32], [5, 5])
    assert alone.get_xscale() == "linear" and alone.get_ylabel() == "time" and not alone.collections
    assert alone.get_title(loc="left") == "mean over allocator, block_size"
    of_one = rows[(rows["allocator"] == "paged") & (rows["max_batch"] == 8)]
    assert plots.sweep_lines(of_one, x="block_size", y="time").get_title(loc="left") == ""
    words = plots.sweep_lines(rows, x="allocator", y="used", by="max_batch")
    assert [tick.get_text() for tick in words.get_xticklabels()] == ["paged", "buddy"]
    assert line_of(words, "max_batch 8")[1] == pytest.approx([90.5, 40.5])


def test_a_heat_map_has_a_cell_for_each_pair() -> None:
    rows = table()
    rows = rows[(rows["allocator"] == "paged") & ~((rows["block_size"] == 256) & (rows["max_batch"] == 8))]
    ax = plots.sweep_heat(rows, x="block_size", y="max_batch", value="used")
    cells = np.asarray(ax.images[0].get_array(), float)
    assert np.isnan(cells[0, 2]) and np.nansum(cells) == pytest.approx(5 * 90.5)
    assert [text.get_text() for text in ax.texts] == ["90.5"] * 5
    assert ax.get_title(loc="left") == "used (% of the pool)"
    assert_labels_are_inside_and_apart(ax)
    big = plots.sweep_heat(table().assign(time=lambda t: t["seed"] * 5000), x="block_size", y="seed", value="time")
    assert [text.get_text() for text in big.texts] == ["0.0"] * 3 + ["5,000"] * 3
    assert big.get_title(loc="left") == "time\nmean over allocator, max_batch"


def test_a_table_that_lacks_something_is_told() -> None:
    with pytest.raises(InputError, match="column 'size' is not in the table; it has allocator, block_size"):
        plots.sweep_lines(table(), x="size", y="used")
    with pytest.raises(InputError, match="column 'free' is not in the table"):
        plots.sweep_heat(table(), x="block_size", y="seed", value="free")
    empty = table().assign(used=np.nan)
    with pytest.raises(InputError, match="table has no row with both block_size and used"):
        plots.sweep_lines(empty, x="block_size", y="used")
    with pytest.raises(InputError, match="table has no row with block_size, seed and used"):
        plots.sweep_heat(empty, x="block_size", y="seed", value="used")


def test_every_picture_takes_axes_and_leaves_others_alone() -> None:
    run: Run = simulate(Trace.from_columns([0], [7], [4]), Paged(16, 4), cost=SECOND, decisions=True)
    figure = Figure(figsize=(12, 12), layout="constrained")
    grid = figure.subplots(3, 2).ravel().tolist()
    drawn = [
        plots.block_table(run, 0, 1.0, ax=grid[0]),
        plots.memory_map(run, 1.0, ax=grid[1]),
        plots.memory_map(run, ax=grid[2]),
        plots.sweep_lines(table(), x="block_size", y="used", ax=grid[3]),
        plots.sweep_heat(table(), x="block_size", y="seed", value="used", ax=grid[4]),
        plots.waste_bars([run], ax=grid[5]),
    ]
    assert drawn == grid and figure.axes == grid
