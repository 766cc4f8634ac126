"""One run of a sweep: what it is known by, how it is carried out, and the figures that become its row."""

import hashlib
import json
import math
import multiprocessing
import os
import platform
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.metadata import version
from typing import Any, NamedTuple

from allocators import make_allocator
from allocators.base import InputError
from allocators.failures import told
from allocators.paged import Paged
from simulator.replay import simulate
from simulator.results.ledger import CATEGORIES
from simulator.server.settings import Settings
from simulator.sweeps.sources import TraceSource, UnseenError
from simulator.traces.trace import Trace

Figures = dict[str, Any]
"""Column -> int, float, or None for a share of no time."""

VERSION = version("kvfrag")


class Outcome(NamedTuple):
    """What came of a run: its figures, or what went wrong, in one line."""

    figures: Figures | None = None
    error: str | None = None
    worker: str = ""
    """Who carried it out: machine, process and thread."""


@dataclass(frozen=True)
class Job:
    """One run that is to be."""

    source: TraceSource
    spec: str
    """The allocator, in the command line's mini-language."""
    capacity: int
    settings: Settings
    version: str = VERSION
    """Of who asks; another one may have other figures."""

    @cached_property
    def key(self) -> str:
        """16 hex digits of a hash of the trace, the allocator, the settings and the version: the same for the same run.

        The code of a user's own allocator is not in it.
        """
        settings = {name: value for name, value in self.settings.to_saved().items() if name != "cost_of"}
        known = [self.version, self.source.identity, self.spec, self.capacity, settings]
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]

    def with_columns(self) -> "Job":
        """The same with its trace in it, see :class:`TraceSource`."""
        return replace(self, source=self.source.with_columns())


def carry_out(job: Job) -> Outcome:
    """Carry out a run, in whatever process this is. Raises UnseenError when that process does not see the trace."""
    return _outcome(job)._replace(worker=f"{platform.node()} {os.getpid()} {threading.get_ident()}")


def _outcome(job: Job) -> Outcome:
    if job.version != VERSION:
        return Outcome(error=f"a worker has kvfrag {VERSION}, and the sweep is of {job.version}")
    try:
        settings = job.settings
        allocator = make_allocator(job.spec, job.capacity, settings.max_model_len)
        run = simulate(job.source.trace(), allocator, timeline_bins=0, progress=False, **vars(settings))
        return Outcome(figures=figures_of(run.summary()))
    except UnseenError:
        raise
    except InputError as error:
        return Outcome(error=" ".join(str(error).split()))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and _hears_ctrl_c():
            raise
        return Outcome(error=told(error))


def _hears_ctrl_c() -> bool:
    """Whether a KeyboardInterrupt may be the user's: a worker or a thread hears of none but an allocator's own."""
    return multiprocessing.parent_process() is None and threading.current_thread() is threading.main_thread()


def figures_of(summary: Mapping[str, Any]) -> Figures:
    """The figures of a summary in one level.

    Shares have their own names, those of the saturated time end in ``_saturated``; what else has parts begins with its
    own name, ``rejected_too_long``. The allocator and the capacity are settings, and not among them; nor is what was
    said of the run.
    """
    figures: Figures = {}
    for name, value in summary.items():
        if name in ("allocator", "capacity", "warnings"):
            continue
        if name in ("share", "share_saturated"):
            ending = name.removeprefix("share")
            figures |= {f"{part}{ending}": None if value is None else value[part] for part in CATEGORIES}
        elif isinstance(value, Mapping):
            figures |= {f"{name}_{part}": one for part, one in value.items()}
        else:
            figures[name] = value
    return figures


@cache
def figure_types() -> Mapping[str, type]:
    """The names of all figures, in order, and whether each is an int or a float: those of the smallest run there is."""
    smallest = simulate(Trace.from_columns([0], [1], [1]), Paged(1, 1), timeline_bins=0, progress=False)
    figures = figures_of(smallest.summary())
    return {name: int if isinstance(value, int) else float for name, value in figures.items()}


def checked_figures(given: Mapping[str, Any]) -> Figures:
    """The figures of a run as they were before somebody wrote them down. Raises ValueError, naming what is none."""
    figures: Figures = {}
    for name, kind in figure_types().items():
        value = given.get(name)
        if kind is int:
            right, allowed = type(value) is int and value >= 0, "a whole number >= 0"
        elif value is None:
            right, allowed = _has_no_value(name, given), "a number"
        else:
            right, allowed = type(value) in (int, float) and math.isfinite(value), "a finite number"
        if not right:
            raise ValueError(f"{name}(={'' if value is None else value}) must be {allowed}")
        figures[name] = float(value) if kind is float and value is not None else value
    return figures


def _has_no_value(name: str, given: Mapping[str, Any]) -> bool:
    """Whether a mean is one of no time."""
    if name == "mean_batch":
        return True  # of no iterations, or of some that took no time
    of = "saturated_s" if name.endswith("_saturated") else "duration_s"
    return given.get(of) == 0 and (name in (*CATEGORIES, "mean_largest_free") or of == "saturated_s")
