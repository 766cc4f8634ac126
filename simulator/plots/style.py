"""What the pictures share: sizes and inks, labels that keep apart, axes without pyplot, and pictures as files."""

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from math import floor, log10
from typing import Any, Protocol

import pandas as pd
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from allocators.base import one_of
from simulator.messages.words import printable

INK, THIN_INK, FRAME = "#222222", "#777777", "#b0b0b0"
FONT_PT, SMALL_PT, LEAST_PT = 9.0, 7.5, 5.0
LETTER_EM = 0.63  # width of a letter of matplotlib's own font, with some to spare
LINE_EM = 1.25
INDENT_PT = 13.0  # of a category's name, behind its colour
LEAST_PERCENT = 0.05  # what is less would be written 0.0
KINDS: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}
"""Of pictures as files: what is left out of each, so that it always has the same bytes."""


class Pictured(Protocol):
    """What a picture needs of a :class:`simulator.Run`; any object with these names can be drawn."""

    @property
    def name(self) -> str: ...
    @property
    def capacity(self) -> int: ...
    @property
    def timeline(self) -> pd.DataFrame: ...
    def summary(self) -> dict[str, Any]: ...


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions near the ``wanted`` ones (ascending) at least ``gap`` apart within ``low .. high``.

    Where they cannot all have their gap they share what there is equally.
    """
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    placed: list[float] = []
    for position in wanted:
        placed.append(max(position, placed[-1] + gap if placed else low))
    ceiling = high
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - gap
    return placed


def paler(color: str, part: float) -> tuple[float, float, float]:
    """A colour mixed with ``part`` of white."""
    red, green, blue = ((1 - part) * level + part for level in to_rgb(color))
    return red, green, blue


def make_room(ax: Axes, left: float, column: float, labels: Sequence[str]) -> None:
    """A frame of two lines, and x limits that leave room for ``labels`` behind ``column``."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=FONT_PT, color=INK, labelcolor=INK)
    width = ax.bbox.width * 72 / ax.figure.dpi
    longest = max(map(len, labels), default=0)
    needed = min(0.7 * width, INDENT_PT + LETTER_EM * FONT_PT * longest)
    ax.set_xlim(left, (column * width - left * needed) / (width - needed))


def points_per_unit(ax: Axes) -> tuple[float, float]:
    """Typographic points to one unit of x and of y."""
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    scale = 72 / ax.figure.dpi
    return ax.bbox.width * scale / (right - left), ax.bbox.height * scale / (high - low)


def parts(label: str) -> list[str]:
    """A label cut where a line may end: after a colon, a space, and a comma or a dot that no digit follows."""
    return re.split(r"(?<=[: ])|(?<=[,.])(?!\d)", label)


def wrapped(label: str, chars: int, most_lines: int = 6) -> str:
    """The label in lines of at most ``chars``; parts that are longer break behind '=', and else where a line is full.

    What does not fit in ``most_lines`` is left out, and ``…`` says so.
    """
    chars = max(chars, 1)
    lines = [""]
    for part in parts(printable(label)):
        pieces = [part] if len(part.rstrip()) <= chars else re.split(r"(?<==)", part)
        for piece in pieces:
            if lines[-1] and len(lines[-1] + piece.rstrip()) > chars:
                lines.append("")
            lines[-1] += piece
            while len(lines[-1].rstrip()) > chars:
                lines[-1:] = [lines[-1][:chars], lines[-1][chars:]]
    if len(lines) > most_lines:
        lines[most_lines - 1 :] = [lines[most_lines - 1].rstrip()[: chars - 1] + "…"]
    return "\n".join(line.strip() for line in lines)


def wrapped_apart(labels: Sequence[str], chars: int, most_lines: int = 6) -> list[str]:
    """Labels in lines, see :func:`wrapped`; numbered, where what is left out would make two of them look alike."""
    lines = [wrapped(label, chars, most_lines) for label in labels]
    if len(set(lines)) < len(set(labels)):
        lines = [wrapped(f"{number} {label}", chars, most_lines) for number, label in enumerate(labels, start=1)]
    return lines


def head(ax: Axes, *lines: str) -> None:
    """The title of a picture, as wide as it is: a run's name and what else is to be said, drawn as it is written."""
    chars = int(0.96 * ax.bbox.width * 72 / ax.figure.dpi / (LETTER_EM * FONT_PT))  # the layout may narrow it a little
    text = "\n".join(wrapped(line, chars, 3) for line in lines if line)
    ax.set_title(text, loc="left", fontsize=FONT_PT, color=INK, parse_math=False)


def in_seconds(seconds: float) -> str:
    """A time with two decimals, of less than a second with three digits: ``43.00 s``, ``0.0123 s``."""
    decimals = 2 if seconds >= 1 or not seconds else min(12, 2 - floor(log10(seconds)))
    return f"{seconds:,.{decimals}f} s"


def own_axes(width_in: float, height_in: float) -> Axes:
    """Axes of a new Figure that belongs to no window and no pyplot."""
    return Figure(figsize=(width_in, height_in), layout="constrained").subplots()


def settled(ax: Axes) -> Axes:
    """``ax``, once its figure's layout has given it the size that numbers and labels are fitted to."""
    with any_letters():
        ax.figure.canvas.figure.draw_without_rendering()
    return ax


@contextmanager
def any_letters() -> Iterator[None]:
    """Draw letters that the font lacks as boxes, and without a warning: a user may write labels in any script."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


def draw_labels(ax: Axes, x: float, wanted: Mapping[str, tuple[float, str]], top: float) -> list[Artist]:
    """Each category's name and colour in stack order, as near as can be to the height it is wanted at; returns them."""
    x_pt, y_pt = points_per_unit(ax)
    made: list[Artist] = []
    half = FONT_PT * 1.5 / abs(y_pt) / 2
    places = spread([y for y, _ in wanted.values()], 2 * half, half, top - half)
    for y, (name, (_, color)) in zip(places, wanted.items(), strict=True):
        swatch: dict[str, Any] = {"markerfacecolor": color, "markeredgecolor": THIN_INK, "markeredgewidth": 0.5}
        made += ax.plot(x + 5 / x_pt, y, "s", markersize=8, **swatch)
        made.append(ax.text(x + INDENT_PT / x_pt, y, name, va="center", fontsize=FONT_PT, color=INK))
    return made


def drawn(ax: Axes, kind: str) -> bytes:
    """The picture as a file, ``png``, ``svg`` or ``pdf``: without a date or random ids, so always the same bytes.

    Raises InputError for another kind.
    """
    metadata = KINDS[one_of("kind of picture", kind, list(KINDS))]
    file = BytesIO()
    with rc_context({"svg.hashsalt": "kvfrag"}), any_letters():
        ax.figure.canvas.figure.savefig(file, format=kind, dpi=150, bbox_inches="tight", metadata=metadata)
    return file.getvalue()


def slots_label(what: str, slots: int, bytes_per_slot: int | None) -> str:
    """An axis label: slots, and bytes where it is known how many a slot has."""
    size = "" if bytes_per_slot is None else f" = {in_bytes(slots * bytes_per_slot)}"
    return f"{what} (pool: {slots:,}{size})"


def slots_ticks(axis: Axis, bytes_per_slot: int | None) -> None:
    """Ticks at whole slots, with bytes under them where it is known how many a slot has."""

    def written(slots: float, _: int | None) -> str:
        if bytes_per_slot is None or not slots:
            return f"{slots:,.0f}"
        return f"{slots:,.0f}\n{in_bytes(slots * bytes_per_slot)}"

    axis.set_major_formatter(FuncFormatter(written))
    most = 9 if bytes_per_slot is None else 5  # then each takes two lines
    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10], integer=True))


def in_bytes(size: float) -> str:
    """A size in the largest unit of which it has one: ``12.0 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def stacked_below(ax: Axes, heights: Sequence[float]) -> list[Axes]:
    """New Axes one below the other under ``ax``, with its x axis; all share the place it had, by ``heights``."""
    place = ax.get_subplotspec()
    if place is None:  # not on a grid: share its rectangle out by hand
        return _cut_by_hand(ax, heights)
    grid = place.subgridspec(len(heights), 1, height_ratios=heights, hspace=0.06)
    ax.set_subplotspec(grid[0])
    return [ax.figure.add_subplot(grid[row], sharex=ax) for row in range(1, len(heights))]


def _cut_by_hand(ax: Axes, heights: Sequence[float]) -> list[Axes]:
    whole = ax.get_position()
    unit = whole.height / sum(heights)
    top = whole.y1
    places = []
    for height in heights:
        top -= height * unit
        places.append((whole.x0, top + 0.08 * unit, whole.width, height * unit - 0.16 * unit))
    ax.set_position(places[0])
    return [ax.figure.add_axes(place, sharex=ax) for place in places[1:]]
