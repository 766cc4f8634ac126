"""The plan of a sweep: every list becomes values, every combination of them a run with a key and the cells of its row.

All that is wrong with a sweep is found out here, before anything runs.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

import pandas as pd

from allocators import ALLOCATORS, make_allocator, parse_spec
from allocators.base import InputError
from simulator.bands import varied
from simulator.grid import Several, check_runs, expand, positives, seeds_of, several, wholes
from simulator.jobs import Job, Outcome, figure_types
from simulator.journal import ERROR, RUN
from simulator.locks import scratch_folder
from simulator.settings import MOST_SLOTS, Settings
from simulator.sources import TraceReader, trace_sources
from simulator.stdin import file_name
from simulator.trace import Trace, open_trace
from simulator.views import VIEWS

AnyTrace = str | os.PathLike[str] | Trace
Cells = dict[str, Any]

_SERVER = tuple(field.name for field in fields(Settings) if field.name != "window_s")
SHARED = ("capacity", *_SERVER, "window_start_s", "window_end_s", "trace", "rate", "seed")
"""The cells that every run has, behind the allocator's and before the figures."""

_WHOLE = ("max_model_len", "max_batch", "max_batch_tokens", "swap_slots")
_ROOMY_SLOTS = 1 << 20  # an allocator that cannot be made with so much room is not short of room


@dataclass(frozen=True)
class Plan:
    """The runs of a sweep, and the cells of their rows before the figures, both in the order of the grid."""

    jobs: list[Job]
    cells: list[Cells]
    repeated: int
    """Runs that the grid has more than once, and that are left out."""

    @property
    def keys(self) -> list[str]:
        """What each run is known by."""
        return [job.key for job in self.jobs]

    @property
    def settings(self) -> list[str]:
        """The columns before the figures: the allocator, the options that any of them has, and what all have."""
        options = {name: None for cells in self.cells for name in cells if name not in SHARED}
        return [*options, *SHARED]

    def varied(self) -> list[str]:
        """The columns in which settings differ, see :func:`simulator.bands.varied`."""
        return varied(pd.DataFrame(self.cells, columns=self.settings))

    def table(self, outcomes: Mapping[str, Outcome]) -> pd.DataFrame:
        """The table: a row a run, with the figures or the error of its outcome."""
        types = figure_types()
        rows = []
        for job, cells in zip(self.jobs, self.cells, strict=True):
            outcome = outcomes[job.key]
            rows.append({**cells, **(outcome.figures or {}), ERROR: outcome.error, RUN: job.key})
        columns = [*self.settings, *types, ERROR, RUN]
        table = pd.DataFrame(rows, columns=columns, dtype=object)
        return table.apply(lambda values: _typed(values, types.get(values.name)))


@contextmanager
def planned(
    trace: AnyTrace,
    allocators: str | Sequence[str],
    *,
    capacity: Several,
    rate: Several | None = None,
    seeds: Several | None = None,
    read: TraceReader = open_trace,
    **settings: Any,
) -> Iterator[Plan]:
    """The plan of a sweep; its scratch files are gone at the end. Arguments and errors are those of ``sweep``."""
    if not isinstance(trace, str | os.PathLike | Trace):
        raise InputError(f"trace(={trace!r}) must be a Trace, or the name of a file or a workload")
    specs = _specs(allocators)
    capacities = wholes("capacity", capacity)
    choices = _choices(settings)
    rates = [] if rate is None else positives("rate", rate)
    numbers = [] if seeds is None else seeds_of("seeds", seeds)
    count = check_runs([specs, capacities, *choices, rates or [None], numbers or [None]])
    servers = [Settings(**dict(zip(settings, chosen, strict=True))) for chosen in product(*choices)]
    known = [_allocator(spec, capacities, servers) for spec in specs]

    with scratch_folder() as folder:
        sources = list(trace_sources(trace, rates, numbers, folder, read))
        name = trace.name if isinstance(trace, Trace) else file_name(trace)
        found: dict[str, tuple[Job, Cells]] = {}
        for (spec, options), slots, server, source in product(known, capacities, servers, sources):
            job = Job(source, spec, slots, server)
            start_s, end_s = server.window_s or (None, None)
            shared = {name: value for name, value in server.to_dict().items() if name in _SERVER}
            shared |= {"capacity": slots, "window_start_s": start_s, "window_end_s": end_s}
            drawn = {"trace": name, "rate": source.rate, "seed": source.seed}
            found.setdefault(job.key, (job, {**options, **shared, **drawn}))
        jobs, cells = zip(*found.values(), strict=True)
        yield Plan(list(jobs), list(cells), count - len(jobs))


def _specs(allocators: str | Sequence[str]) -> list[str]:
    """The specs, lists in braces expanded."""
    texts = several("allocators", allocators)
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"allocators: {text!r} must be a spec, such as 'paged:block_size={{1,16}}'")
    if not texts:
        raise InputError("allocators: an empty grid has no runs; name one, such as paged:block_size={1,16}")
    return [spec for text in texts for spec in expand(text)]


def _choices(given: Mapping[str, Any]) -> list[list[Any]]:
    """The values of each setting."""
    allowed = [field.name for field in fields(Settings)]
    choices: list[list[Any]] = []
    for name, value in given.items():
        if name not in allowed:
            raise InputError(f"unknown setting {name!r}; choose from {', '.join(allowed)}")
        if name == "window_s":
            choices.append([value])
        elif name in _WHOLE and isinstance(value, str):
            choices.append([*wholes(name, value, at_least=0)])
        else:
            choices.append(several(name, value))
        if not choices[-1]:
            raise InputError(f"{name} has no value: an empty grid has no runs")
    return choices


def _allocator(spec: str, capacities: Sequence[int], servers: Sequence[Settings]) -> tuple[str, Cells]:
    """A spec as it is run, and its cells. Raises InputError for one that no pool, however large, can have.

    One that wants a larger pool than some, or breaks in a way of its own, will tell so in the rows of its runs.
    """
    name, options = parse_spec(spec)
    roomy = min(max(_ROOMY_SLOTS, 16 * max(capacities)), MOST_SLOTS)
    lengths = {server.max_model_len: None for server in servers}
    error: BaseException | None = None
    for slots, length in product([*capacities, roomy], lengths):
        try:
            full = make_allocator(spec, slots, length).spec
            break
        except KeyboardInterrupt:
            raise
        except BaseException as raised:  # of a user's own constructor, SystemExit too
            error = raised
    else:
        if isinstance(error, ValueError):
            raise InputError(f"allocator {spec}: {error}") from error
        full = spec
    if name in ALLOCATORS:
        spec, options = full, parse_spec(full)[1]
    elif "=" in full:  # a user's own: what it says of itself may not be what its constructor takes
        options = parse_spec(full)[1] | options
    reserved = {*SHARED, *figure_types(), *VIEWS["textbook"], ERROR, RUN, "allocator"}
    cells = {f"allocator_{key}" if key in reserved else key: _read(text) for key, text in options.items()}
    return spec, {"allocator": name, **cells}


def _read(text: str) -> int | float | str | None:
    """An option's value: a number where it reads like one, None for ``none``."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None if text == "none" else text


def _typed(values: pd.Series, kind: type | None) -> pd.Series:
    """A column in the type of what is in it: whole numbers, numbers, or text; with gaps numbers are floats."""
    present = values.dropna()
    if values.name in (ERROR, RUN) or any(isinstance(value, str) for value in present):
        return values.where(values.isna(), values.map(str)).where(values.notna(), None)
    whole = kind is not float and len(present) == len(values) and all(isinstance(value, int) for value in present)
    return values.astype("int64" if whole else "float64")
