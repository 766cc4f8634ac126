"""Pictures of a run: ``(run, ax=None) -> Axes``. This package is the only one that imports matplotlib.

No pyplot, no rcParams, no backend: a picture without ``ax`` is drawn on a Figure of its own
(``ax.figure.savefig(...)``), so nothing global changes and no display is needed. One file a family of pictures;
``style`` is what they share.
"""

import os

from allocators.base import InputError

try:
    import matplotlib  # noqa: F401
except ValueError:
    if "MPLBACKEND" not in os.environ:
        raise
    wrong = f"MPLBACKEND(={os.environ['MPLBACKEND']!r}) must be a backend of matplotlib"
    raise InputError(f"{wrong}, or not be set: no picture here needs one") from None

from simulator.plots.bars import waste_bars
from simulator.plots.film import animate
from simulator.plots.holes import holes
from simulator.plots.memory import memory_map
from simulator.plots.queue import waits
from simulator.plots.style import drawn, spread
from simulator.plots.sweeps import sweep_heat, sweep_lines
from simulator.plots.tables import block_table
from simulator.plots.timeline import waste_over_time
from simulator.plots.traces import arrivals_over_time, length_distributions, trace_overview

__all__ = [
    "animate",
    "arrivals_over_time",
    "block_table",
    "drawn",
    "holes",
    "length_distributions",
    "memory_map",
    "spread",
    "sweep_heat",
    "sweep_lines",
    "trace_overview",
    "waits",
    "waste_bars",
    "waste_over_time",
]
