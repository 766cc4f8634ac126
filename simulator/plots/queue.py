"""Why requests waited: how long, and what for."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from allocators.base import InputError
from simulator.messages.showing import labels
from simulator.plots.bars import Bar, bars_width_in, draw_bar, name_segments, name_ticks
from simulator.plots.checks import several
from simulator.plots.style import (
    FONT_PT,
    INK,
    LEAST_PERCENT,
    LEAST_PT,
    LETTER_EM,
    make_room,
    own_axes,
    points_per_unit,
    settled,
    stacked_below,
)
from simulator.results.views import WAIT_COLORS
from simulator.results.waits import WAITS

_COLORS = {WAITS[cause][0]: color for cause, color in WAIT_COLORS.items()}
_BEHIND = WAITS["behind"][0]
_OWN_COLORS = {name: color for name, color in _COLORS.items() if name != _BEHIND}
_LEAST_HEIGHT_PT = 240.0  # for two panels
_HEADROOM = 1.16  # times the tallest bar: for the number above it
_PERCENT_TOP = 109.0  # the same


class Waited(Protocol):
    """What the picture needs of a :class:`simulator.Run`; any object with these names can be drawn."""

    @property
    def name(self) -> str: ...
    def waits_s(self) -> dict[str, float]: ...


def waits(runs: Waited | Iterable[Waited], ax: Axes | None = None) -> Axes:
    """Why requests waited, a bar a run: above the mean seconds a request, stacked by cause (``Run.waits_s()``).

    On a busy server nearly all of it is waiting ``behind`` another request. Below, the bars are drawn once more without
    that, to 100 %: what the head of the queue waited for, and whoever had to come back. Both panels take the place of
    ``ax``, and the upper alone does where that is low; its Axes are returned. Numbers that would be too small to read
    are left out. Raises InputError when there is no run.
    """
    found = several(runs, "waits_s")
    above = [
        Bar(label, x, x, 0.58, _seconds(run)) for x, (label, run) in enumerate(zip(labels(found), found, strict=True))
    ]
    if not above:
        raise InputError("runs(=[]) must hold at least one run")
    below = [Bar(bar.label, bar.tick, bar.x, bar.width, _percent(_own(bar))) for bar in above]
    ax = settled(ax or own_axes(bars_width_in(above), 6.4))
    low = ax.bbox.height * 72 / ax.figure.dpi < _LEAST_HEIGHT_PT
    panels = [ax] if low else [ax, *stacked_below(ax, (1, 1.3))]

    ax.set_ylim(0, _HEADROOM * max(sum(bar.heights.values()) for bar in above) or 1)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:,g}"))
    ax.set_ylabel("mean wait\nof a request (s)", color=INK)
    for panel in panels[1:]:
        panel.set_ylim(0, _PERCENT_TOP)
        panel.set_yticks(range(0, 101, 20))
        panel.set_ylabel(f"the same without\n{_BEHIND!r} (%)", color=INK)
        panel.spines["left"].set_bounds(0, 100)
    shown = [name for name in _COLORS if any(_percent(bar.heights).get(name, 0) >= LEAST_PERCENT for bar in above)]
    own = [name for name in _OWN_COLORS if any(bar.heights.get(name, 0) >= LEAST_PERCENT for bar in below)]
    column = above[-1].edge(1) + 0.36
    for panel in panels:
        make_room(panel, above[0].edge(-1) - 0.36, column, [*shown, *own])
        panel.spines["bottom"].set_bounds(panel.get_xlim()[0], above[-1].edge(1))
        panel.tick_params(axis="x", length=0, labelbottom=panel is panels[-1])
    name_ticks(panels[-1], {bar.tick: bar.label for bar in above})

    for bar in above:
        _draw_stack(ax, bar)
    # Each cause is named once.
    name_segments(ax, column, above, _COLORS, [n for n in shown if low or n == _BEHIND], top=ax.get_ylim()[1])
    for panel in panels[1:]:
        for bar, whole in zip(below, above, strict=True):
            draw_bar(panel, bar, _OWN_COLORS)
            _write_above(panel, bar.x, 100, f"of {_in_seconds(_own(whole))}" if bar.heights else "")
        name_segments(panel, column, below, _OWN_COLORS, own, top=100)
    return ax


def _seconds(run: Waited) -> dict[str, float]:
    """Cause -> mean seconds a request, of the causes that there were."""
    return {WAITS[cause][0]: seconds for cause, seconds in run.waits_s().items() if seconds}


def _own(bar: Bar) -> dict[str, float]:
    """All but waiting behind another request."""
    return {name: seconds for name, seconds in bar.heights.items() if name != _BEHIND}


def _percent(parts: Mapping[str, float]) -> dict[str, float]:
    return {name: 100 * part / sum(parts.values()) for name, part in parts.items()}


def _in_seconds(parts: Mapping[str, float]) -> str:
    """Their sum with three digits, and its unit."""
    seconds = sum(parts.values())
    return f"{seconds:,.0f} s" if seconds >= 99.95 else f"{seconds:.3g} s"


def _draw_stack(ax: Axes, bar: Bar) -> None:
    """A bar in seconds, its whole above it."""
    bottom = 0.0
    for name, color in _COLORS.items():
        height = bar.heights.get(name, 0.0)
        ax.bar(bar.x, height, bar.width, bottom, label=name, color=color, edgecolor="white", linewidth=0.5)
        bottom += height
    _write_above(ax, bar.x, bottom, _in_seconds(bar.heights) if bar.heights else "nobody\nwaited")


def _write_above(ax: Axes, x: float, y: float, text: str) -> None:
    """A line or two on top of a bar, as large as its neighbours leave room for."""
    longest = max(map(len, text.split("\n")))
    font = min(FONT_PT, 0.96 * points_per_unit(ax)[0] / (max(1, longest) * LETTER_EM))
    if font >= LEAST_PT:
        look: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": font, "color": INK}
        ax.annotate(text, (x, y), (0, 2), textcoords="offset points", **look)
