"""What the memory maps share: where a map comes from, its key, its title, and the requests' numbers in it."""

from collections.abc import Mapping
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from allocators import make_allocator
from allocators.base import Allocator, InputError
from simulator.engine.layout import Layout
from simulator.plots.checks import instant, one_run
from simulator.plots.style import FONT_PT, INK, LETTER_EM, draw_labels, head, points_per_unit
from simulator.results.cells import HOLE, NEVER_USED, RESERVED, ROUNDING, TAIL, WRITTEN
from simulator.results.history import History
from simulator.results.hues import key_color
from simulator.results.run import Run

MOST_NAMES = 80
"""Of requests, in one picture."""

_WHEN_CHARS = len("   at 99,999.99 s, iteration 9,999,999: 9,999 requests")

KEY = {
    WRITTEN: "written",
    RESERVED: "reserved",
    NEVER_USED: "never used",
    ROUNDING: "rounding",
    HOLE: "free",
    TAIL: "tail",
}


def layout_at(run: Run, time_s: float) -> Layout:
    """The memory map of an instant: one that the run kept, else from its decision log. Raises InputError without."""
    one_run(run)
    time_s = instant(time_s)
    time_ps = round(time_s * 10**12)
    kept = next((layout for layout in run.layouts if layout.time_ps == time_ps), None)
    if kept is not None:
        return kept
    if run.decisions is None:
        times = ", ".join(f"{layout.time_s:g}" for layout in run.layouts[:8]) or "none"
        raise InputError(
            f"run {run.name!r} kept no memory map at {time_s:g} s (kept: {times}); make it with "
            "simulate(..., layout_times_s=[...]) or decisions=True"
        )
    return History(run).layout(time_s)


def allocator_of(run: Run) -> Allocator | None:
    """An empty allocator like the run's; None where it cannot be made again from its spec."""
    try:
        return make_allocator(run.allocator, run.capacity, run.settings.max_model_len)
    except (InputError, TypeError):
        return None


def key_of(layout: Layout, capacity: int, tail: int) -> dict[int, str]:
    """What is in the map, with its exact share of the pool, whatever the cells show."""
    slots = dict.fromkeys(KEY, 0)
    for held in layout.allocations:
        size = sum(extent.slots for extent in held.extents)
        written = min(held.written_tokens, size)
        final = min(held.final_tokens, size)
        slots[WRITTEN] += written
        slots[RESERVED] += final - written
        slots[NEVER_USED] += held.overprovision_slots
        slots[ROUNDING] += size - final - held.overprovision_slots
    slots[TAIL] = tail
    slots[HOLE] = capacity - sum(slots.values())
    return {kind: f"{KEY[kind]} {100 * count / capacity:.1f} %" for kind, count in slots.items() if count}


def title(ax: Axes, name: str, when: str = "") -> None:
    """The run's name above its map, and of which instant it is: in as many lines at any instant, for the films."""
    chars = int(ax.bbox.width * 72 / ax.figure.dpi / (LETTER_EM * FONT_PT))
    text = f"{name}   {when}".rstrip()
    head(ax, *([text] if len(name) + _WHEN_CHARS <= chars else [name, when]))


def draw_key(ax: Axes, x: float, labels: Mapping[int, str], top: float) -> list[Artist]:
    """What the shades mean, from written at the bottom to free at the top, as in a stack of the ledger."""
    low, high = sorted(ax.get_ylim())
    y_pt = abs(points_per_unit(ax)[1])
    gap = 1.5 * FONT_PT / y_pt
    down = ax.yaxis_inverted()
    middle = (low + high) / 2
    order = list(labels.items())[::-1] if down else list(labels.items())
    first = middle - gap * (len(order) - 1) / 2
    wanted = {text: (first + gap * place, _hex(key_color(kind))) for place, (kind, text) in enumerate(order)}
    return draw_labels(ax, x, wanted, top=top)


def _hex(color: tuple[float, float, float]) -> str:
    return "#" + "".join(f"{round(255 * level):02x}" for level in color)


def write(ax: Axes, place: tuple[float, float], text: str, font: float, kind: Any, halo: bool = False) -> None:
    """A request's number, readable on what its slots hold; with a halo, on any of that."""
    ink = "white" if kind == WRITTEN else INK
    around = [withStroke(linewidth=2.0, foreground="white", alpha=0.75)] if halo else []
    ax.text(*place, text, ha="center", va="center", fontsize=font, color=ink, clip_on=True, path_effects=around)
