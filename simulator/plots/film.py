"""The memory map as it evolves: a film, played in a page by matplotlib's own player, or a GIF."""

import hashlib
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.animation import AbstractMovieWriter, FuncAnimation, HTMLWriter, PillowWriter
from matplotlib.axes import Axes
from numpy.typing import NDArray

from allocators.base import one_of, whole
from simulator.files.writing import check_outputs, write_whole
from simulator.messages.progress import progress_bar
from simulator.plots.checks import one_run
from simulator.plots.instant import InstantMap
from simulator.plots.style import any_letters, settled
from simulator.results.history import History
from simulator.results.run import Run
from simulator.results.span import some_span_s

KINDS = (".html", ".gif")
_DPI = 100
_HEAD = '<!DOCTYPE html><meta charset="utf-8"><title>kvfrag</title>'
_LIMIT_MB = 64  # of a page; beyond its limit matplotlib drops frames

# The player's buttons are letters of a font that it would fetch from the network; these are in every font.
_LETTERS = {
    "minus": "−",
    "fast-backward": "⏮",
    "step-backward": "‹",
    "play fa-flip-horizontal": "◀",
    "pause": "⏸",
    "play": "▶",
    "step-forward": "›",
    "fast-forward": "⏭",
    "plus": "+",
}


class Film:
    """Memory maps of a run, a frame each; nothing is drawn before it is asked for. A notebook shows it in a player."""

    def __init__(self, run: Run, times_s: NDArray[np.float64], frames_per_s: int, ax: Axes | None) -> None:
        self.run, self.times_s, self.frames_per_s = run, times_s, frames_per_s
        self._history, self._ax = History(run), ax

    def to_html(self, progress: bool | None = None) -> str:
        """HTML with the player and all frames in it, for a page or a notebook: it needs no network, and is always
        the same. ``progress``: whether a bar is shown when it takes longer; None: in a terminal or a notebook."""
        writer = HTMLWriter(fps=self.frames_per_s, embed_frames=True, default_mode="loop", embed_limit=_LIMIT_MB)
        return _offline(self._written(".html", writer, progress).decode())

    def save(self, path: str | os.PathLike[str], progress: bool | None = None) -> None:
        """Write a file, ``.html`` or ``.gif``. Raises InputError for another ending, or when it cannot be written."""
        target = Path(path)
        one_of("the ending of a film's file", target.suffix.lower(), KINDS)
        check_outputs({"path": target})
        if target.suffix.lower() == ".html":
            content = (_HEAD + self.to_html(progress)).encode()
        else:
            content = self._written(".gif", PillowWriter(fps=self.frames_per_s), progress)
        write_whole(target, content)

    def __repr__(self) -> str:
        return f"<Film of {self.run.name}, {len(self.times_s)} frames>"

    def _repr_html_(self) -> str:
        return self.to_html()

    def _written(self, kind: str, writer: AbstractMovieWriter, progress: bool | None) -> bytes:
        """The file that a writer makes of the frames."""
        shown = InstantMap(self.run, self._ax)
        figure: Any = shown.ax.figure.canvas.figure
        # One layout for all frames: to find it again for each takes longer than to draw it, and would make them jump.
        shown.show(self._history.layout(float(self.times_s[0])))
        settled(shown.ax)
        figure.set_layout_engine("none")

        def draw(frame: int) -> list[Any]:
            shown.show(self._history.layout(float(self.times_s[frame])))
            return []

        film = FuncAnimation(figure, draw, frames=len(self.times_s), init_func=list)
        bar_name = f"film of {self.run.name}"
        with (
            rc_context({"animation.frame_format": "png"}),
            any_letters(),
            TemporaryDirectory(prefix="kvfrag-") as folder,
            progress_bar(len(self.times_s), bar_name, "frame", progress) as bar,
        ):
            path = Path(folder, f"film{kind}")
            film.save(path, writer=writer, dpi=_DPI, progress_callback=lambda *_: bar.update())
            return path.read_bytes()


def animate(run: Run, frames: int = 120, frames_per_s: int = 12, ax: Axes | None = None) -> Film:
    """The memory map as it evolves: ``animate(run).save("map.gif")``, or ``.html``, or shown in a notebook.

    ``frames`` instants, equally far apart over the time that the run covers. Raises InputError when it has no
    decision log or covers no time.
    """
    one_run(run)
    History(run)  # needs a decision log
    start, end = some_span_s(run, "a film")
    edges = np.linspace(start, end, whole("frames", frames) + 1)
    return Film(run, (edges[1:] + edges[:-1]) / 2, whole("frames_per_s", frames_per_s), ax)


def _offline(page: str) -> str:
    """The player without its font from the network, and with ids that follow from what is in it."""
    page = re.sub(r"<link[^>]*font-awesome[^>]*>", "", page)
    for name, letter in _LETTERS.items():
        page = page.replace(f'<i class="fa fa-{name}"></i>', letter)
    ids = set(re.findall(r"_anim_img([0-9a-f]{32})", page))
    for found in ids:
        page = page.replace(found, hashlib.sha256(page.replace(found, "").encode()).hexdigest()[:32])
    return page
