"""Draws every kind of picture into a folder, with a page that says how to read each: ``make gallery``.

python docs/make_gallery.py [FOLDER]
"""

import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from simulator import Run, StepCost, Trace, plots, sweep
from simulator.examples.figure2 import PAPER, figure2
from simulator.examples.lessons import buddy_run, figure6_run, waste_runs
from simulator.files.writing import write_whole

FOLDER = Path(__file__).parent / "gallery"
BYTES_PER_SLOT = 819_200  # OPT-13B, fp16


def reserved() -> Run:
    return waste_runs()[0]


def buddies() -> Run:
    return waste_runs()[1]


def paged() -> Run:
    return waste_runs()[2]


def block_sizes() -> pd.DataFrame:
    """Block sizes x largest batches x seeds, a row a run."""
    return sweep(
        "sharegpt:rate=4,duration=40,max_total=2047",
        "paged:block_size={1,4,16,64,256}",
        capacity=8_000,
        seeds=3,
        max_batch=[8, 16, 32],
        max_model_len=2048,
        cost=StepCost("25ms", "100us", "200us"),
    )


PICTURES: dict[str, tuple[Callable[[], Axes], str]] = {
    "waste_bars": (
        lambda: plots.waste_bars(waste_runs(), "textbook"),
        "A bar a run: of all memory, over all time, how much was what. Only the lowest part did work.",
    ),
    "figure2": (
        lambda: plots.waste_bars(figure2([0]), "paper", reference=PAPER, reference_name="paper"),
        "The PagedAttention paper's Figure 2, simulated, with the numbers that were measured there paler beside it.",
    ),
    "waste_over_time": (
        lambda: plots.waste_over_time(buddies(), bytes_per_slot=BYTES_PER_SLOT),
        "The same parts over time, and what the requests saw: as much of the lowest strip is red as of the time one "
        "was refused although enough was free.",
    ),
    "waste_over_time_paged": (
        lambda: plots.waste_over_time(paged(), bytes_per_slot=BYTES_PER_SLOT),
        "Paging on the same requests: nothing red, nearly everything in use, and the price: preemptions.",
    ),
    "waits": (
        lambda: plots.waits(waste_runs()),
        "Why requests waited. Above, how long: on a busy server nearly all of it behind another request. Below, the "
        "rest to 100 %: red is memory in pieces, grey too little of it, violet the way back of who had lost its own.",
    ),
    "map_contiguous": (
        lambda: plots.memory_map(reserved()),
        "Address over time, a hue a request: dark is written, pale is reserved and never used. A reservation for the "
        "longest answer is mostly pale.",
    ),
    "map_buddy": (
        lambda: plots.memory_map(buddies()),
        "The same for a buddy allocator that knows how long each answer will be: white holes between its blocks.",
    ),
    "map_paged": (
        lambda: plots.memory_map(paged()),
        "The same for paging: blocks of all requests interleaved, and no hole is too small for the next block.",
    ),
    "map_instant": (
        lambda: plots.memory_map(buddies(), 43.0),
        "The pool at one instant, row by row like a disk map; numbers are requests.",
    ),
    "map_instant_paged": (
        lambda: plots.memory_map(paged(), 43.0),
        "The same instant with paging: a request's blocks are wherever there was room.",
    ),
    "block_table": (
        lambda: plots.block_table(figure6_run(), 0, 2.0),
        "The paper's Figure 6: logical blocks on the left, where each is on the right, and the table in between says "
        "how full it is; the words of an operating system in brackets. The last block is not full: one slot more will "
        "be written, and two never.",
    ),
    "block_table_long": (
        lambda: plots.block_table(paged(), 16, 30.0),
        "A longer request: its first and last blocks; only the last one is not full.",
    ),
    "holes": (
        lambda: plots.holes(buddies()),
        "Left: the gap between all that is free and the largest run that could be handed out is lost. Right: the "
        "holes at the dashed line, the largest first, in the parts that a buddy allocator hands out; for the next "
        "request one part would have to reach the red line.",
    ),
    "holes_lesson": (
        lambda: plots.holes(buddy_run(), 1.5),
        "The lesson's example: 72 slots are free, in parts of at most 32, and request 3 wants 64.",
    ),
    "trace_overview": (
        lambda: plots.trace_overview(Trace.workload("sharegpt", rate=4.0, duration_s=900, seed=0)),
        "Before anything runs: how many requests arrive when, and the share of them with at most so many tokens.",
    ),
    "sweep_lines": (
        lambda: plots.sweep_lines(block_sizes(), x="block_size", y="used", by="max_batch"),
        "A curve a setting, the mean over seeds, its band the 95 % interval of that mean: small blocks waste least.",
    ),
    "sweep_heat": (
        lambda: plots.sweep_heat(block_sizes(), x="block_size", y="max_batch", value="used"),
        "The same over two settings, brighter for more.",
    ),
}
"""Name of the file -> what draws it, and how to read it."""


def main(folder: Path = FOLDER) -> None:
    lines = ["# Gallery", "", "Made by `make gallery` with [`make_gallery.py`](../make_gallery.py).", ""]
    for name, (draw, reading) in PICTURES.items():
        write_whole(folder / f"{name}.png", plots.drawn(draw(), "png"))
        lines += [f"## {name.replace('_', ' ')}", "", reading, "", f"![{name}]({name}.png)", ""]
    film = plots.animate(buddies(), frames=40, frames_per_s=8)
    film.save(folder / "film.gif")
    lines += [
        "## film",
        "",
        "The map at one instant after the other: `plots.animate(run)`.",
        "",
        "![film](film.gif)",
        "",
    ]
    write_whole(folder / "README.md", "\n".join(lines).encode())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
