"""Draws the picture of docs/architecture.md: what becomes of a trace, and which rooms it passes.

python docs/make_architecture.py [FILE.svg]
"""

import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

from simulator.files.writing import write_whole

FILE = Path(__file__).parent / "architecture.svg"
WIDTH, HEIGHT = 960, 400
_HIGH = 54  # of a box
_LINE = "#555555"
_FONT = "font-family='Helvetica, Arial, sans-serif'"


class Box(NamedTuple):
    """A thing that data passes: its name, the room it is in, where it stands, and its colour."""

    name: str
    room: str
    x: int
    y: int
    width: int = 168
    fill: str = "#ffffff"

    @property
    def middle(self) -> int:
        return self.y + _HIGH // 2


_IN, _CORE, _OUT = "#dcebf7", "#fde8c8", "#e4f1df"
SOURCES = (
    Box("trace file, log", "traces/text, traces/logs", 16, 48, fill=_IN),
    Box("public trace", "traces/public", 16, 116, fill=_IN),
    Box("synthetic workload", "traces/workload", 16, 184, fill=_IN),
)
TRACE = Box("Trace", "traces", 224, 116, 120, _IN)
SETTINGS = Box("Settings: limits, cost", "server", 200, 270, fill=_CORE)
ALLOCATOR = Box("allocator", "allocators", 392, 270, 120, _CORE)
SCHEDULER = Box("scheduler", "engine/schedulers", 536, 270, 140, _CORE)
SIMULATE = Box("simulate: the compiled loop", "replay.py, engine", 384, 116, 208, _CORE)
RUN = Box("Run", "results", 632, 116, 96, _OUT)
USES = (
    Box("tables, JSON, files", "cli, results/storage", 776, 14, fill=_OUT),
    Box("pictures", "plots", 776, 82, fill=_OUT),
    Box("page in a browser", "page", 776, 150, fill=_OUT),
    Box("notebooks", "notebooks, examples", 776, 218, fill=_OUT),
    Box("check on a GPU", "gpu", 776, 286, fill=_OUT),
)
MANY = Box("many runs: sweep, size, fit, advise", "sweeps, answers", 384, 24, 344, _CORE)


def picture() -> str:
    """The picture as SVG."""
    boxes = (*SOURCES, TRACE, SETTINGS, ALLOCATOR, SCHEDULER, SIMULATE, RUN, *USES, MANY)
    lines = [*_arrows()]
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' role='img' "
        "aria-label='From a trace to what is told of a run'>"
    )
    tip = (
        "<defs><marker id='tip' viewBox='0 0 8 8' refX='8' refY='4' markerWidth='7' markerHeight='7' "
        f"orient='auto'><path d='M0 0 L8 4 L0 8 z' fill='{_LINE}'/></marker></defs>"
    )
    ground = f"<rect width='{WIDTH}' height='{HEIGHT}' fill='#ffffff'/>"
    foot = _text(16, HEIGHT - 20, "In small letters: the room of simulator/, or the package, that the code is in.", 13)
    return "\n".join([head, tip, ground, *lines, *map(_drawn, boxes), foot, "</svg>", ""])


def _arrows() -> Iterator[str]:
    for source in SOURCES:
        yield _arrow(source.x + source.width, source.middle, TRACE.x, TRACE.middle)
    yield _arrow(TRACE.x + TRACE.width, TRACE.middle, SIMULATE.x, SIMULATE.middle)
    for given, at in ((SETTINGS, 420), (ALLOCATOR, 470), (SCHEDULER, 540)):
        yield _arrow(given.x + given.width // 2, given.y, at, SIMULATE.y + _HIGH)
    yield _arrow(SIMULATE.x + SIMULATE.width, SIMULATE.middle, RUN.x, RUN.middle)
    for use in USES:
        yield _arrow(RUN.x + RUN.width, RUN.middle, use.x, use.middle)
    yield _arrow(488, MANY.y + _HIGH, 488, SIMULATE.y)
    yield _arrow(680, RUN.y, 680, MANY.y + _HIGH)


def _arrow(x: int, y: int, to_x: int, to_y: int) -> str:
    ends = f"x1='{x}' y1='{y}' x2='{to_x}' y2='{to_y}'"
    return f"<line {ends} stroke='{_LINE}' stroke-width='1.4' marker-end='url(#tip)'/>"


def _drawn(box: Box) -> str:
    middle, place = box.x + box.width // 2, f"x='{box.x}' y='{box.y}' width='{box.width}' height='{_HIGH}'"
    frame = f"<rect {place} rx='6' fill='{box.fill}' stroke='{_LINE}'/>"
    name = _text(middle, box.y + 23, box.name, 14, "middle", "#111111")
    return f"{frame}\n{name}\n{_text(middle, box.y + 42, box.room, 12, 'middle')}"


def _text(x: int, y: int, words: str, size: int, anchor: str = "start", fill: str = "#444444") -> str:
    style = f"{_FONT} font-size='{size}' text-anchor='{anchor}' fill='{fill}'"
    return f"<text x='{x}' y='{y}' {style}>{escape(words)}</text>"


if __name__ == "__main__":
    write_whole(Path(sys.argv[1]) if sys.argv[1:] else FILE, picture().encode())
