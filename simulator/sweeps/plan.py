"""The plan of a sweep: every list becomes values, every combination of them a run with a key and the cells of its row.

All that is wrong with a sweep is found out here, before anything runs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

import pandas as pd

from allocators import ALLOCATORS, make_allocator, parse_spec
from allocators.base import InputError
from simulator.files.locks import scratch_folder
from simulator.inputs import AnyAllocator, AnyTrace, check_trace, spec_of, with_block_size
from simulator.results.views import VIEWS
from simulator.server.hardware import Server, server_of
from simulator.server.keywords import HardwareFields, known_settings
from simulator.server.settings import MOST_SLOTS, Settings
from simulator.sweeps.bands import varied
from simulator.sweeps.grid import Several, check_runs, expand, positives, seeds_of, several, wholes
from simulator.sweeps.jobs import Job, Outcome, figure_types
from simulator.sweeps.journal import ERROR, RUN
from simulator.sweeps.sources import TraceReader, trace_sources
from simulator.traces.text.stdin import file_name
from simulator.traces.trace import Trace, open_trace

Cells = dict[str, Any]

_SERVER = tuple(field.name for field in fields(Settings) if field.name != "window_s")
SHARED = ("capacity", *_SERVER, "window_start_s", "window_end_s", "trace", "rate", "seed")
"""The cells that every run has, after the allocator's and before the figures."""

COST_OF = "cost_of"
"""What the cost stands for: a cell that every run has after the figures, since it varies as the cost does."""

_WHOLE = ("max_model_len", "max_batch", "max_batch_tokens", "swap_slots")
_ROOMY_SLOTS = 1 << 20  # an allocator that cannot be made with so much room is not short of room


@dataclass(frozen=True)
class Plan:
    """The runs of a sweep, and the cells of their rows before the figures, both in the order of the grid."""

    jobs: list[Job]
    cells: list[Cells]
    typed: list[str]
    """The allocator of each run as it was typed, lists in braces expanded."""
    repeated: int
    """Runs that the grid has more than once, and that are left out."""
    lines: list[str]
    """What a header says of the servers, see :meth:`~simulator.server.hardware.Server.lines`; each once."""
    warnings: list[str]
    """What was assumed, each once."""

    @property
    def keys(self) -> list[str]:
        """What each run is known by."""
        return [job.key for job in self.jobs]

    @property
    def settings(self) -> list[str]:
        """The columns before the figures: the allocator, the options that any of them has, and what all have."""
        options = {name: None for cells in self.cells for name in cells if name not in (*SHARED, COST_OF)}
        return [*options, *SHARED]

    def varied(self) -> list[str]:
        """The columns in which settings differ, see :func:`simulator.sweeps.bands.varied`."""
        return varied(pd.DataFrame(self.cells, columns=self.settings))

    def table(self, outcomes: Mapping[str, Outcome]) -> pd.DataFrame:
        """The table: a row a run, with the figures or the error of its outcome."""
        types = figure_types()
        rows = []
        for job, cells in zip(self.jobs, self.cells, strict=True):
            outcome = outcomes[job.key]
            rows.append({**cells, **(outcome.figures or {}), ERROR: outcome.error, RUN: job.key})
        columns = [*self.settings, *types, COST_OF, ERROR, RUN]
        table = pd.DataFrame(rows, columns=columns, dtype=object)
        return table.apply(lambda values: _typed(values, types.get(values.name)))


@contextmanager
def planned(
    trace: AnyTrace,
    allocators: AnyAllocator | Sequence[AnyAllocator],
    *,
    capacity: Several | None = None,
    block_size: int | None = None,
    rate: Several | None = None,
    seeds: Several | None = None,
    read: TraceReader = open_trace,
    spelled: Callable[[str], str] = str,
    **settings: Any,
) -> Iterator[Plan]:
    """The plan of a sweep; its scratch files are gone at the end. Arguments and errors are those of ``sweep``.

    ``spelled``: how a keyword is written where it was given.
    """
    check_trace(trace)
    specs = _specs(allocators)
    if block_size is not None:
        specs = with_block_size(specs, block_size)
    capacities = [None] if capacity is None else wholes("capacity", capacity)
    known = known_settings(settings)
    hardware = {name: known.pop(name) for name in HardwareFields.__annotations__ if name in known}
    choices = _choices(known)
    rates = [] if rate is None else positives("rate", rate)
    numbers = [] if seeds is None else seeds_of("seeds", seeds)
    count = check_runs([specs, capacities, *choices, rates or [None], numbers or [None]])
    servers = [
        server_of({"capacity": slots, **hardware, **dict(zip(known, chosen, strict=True))}, spelled=spelled)
        for slots, chosen in product(capacities, product(*choices))
    ]
    for server in servers:
        server.settings.check_scheduler(importable=True)
    made = [_allocator(spec, servers) for spec in specs]

    with scratch_folder() as folder:
        sources = list(trace_sources(trace, rates, numbers, folder, read))
        name = trace.name if isinstance(trace, Trace) else file_name(trace)
        found: dict[str, tuple[Job, Cells, str]] = {}
        allocators_of = zip(specs, made, strict=True)
        for (typed, (spec, options)), server, source in product(allocators_of, servers, sources):
            slots, limits = _slots(server), server.settings
            job = Job(source, spec, slots, limits)
            start_s, end_s = limits.window_s or (None, None)
            shared = {name: value for name, value in limits.to_dict().items() if name in (*_SERVER, COST_OF)}
            shared |= {"capacity": slots, "window_start_s": start_s, "window_end_s": end_s}
            drawn = {"trace": name, "rate": source.rate, "seed": source.seed}
            found.setdefault(job.key, (job, {**options, **shared, **drawn}, typed))
        jobs, cells, texts = (list(column) for column in zip(*found.values(), strict=True))
        lines = dict.fromkeys(line for server in servers for line in server.lines())
        warnings = dict.fromkeys(text for server in servers for text in server.warnings)
        yield Plan(jobs, cells, texts, count - len(jobs), list(lines), list(warnings))


def _slots(server: Server) -> int:
    assert server.slots is not None  # a sweep needs a pool
    return server.slots


def _specs(allocators: AnyAllocator | Sequence[AnyAllocator]) -> list[str]:
    """The specs, lists in braces expanded."""
    texts = several("allocators", allocators)
    if not texts:
        raise InputError("allocators: an empty grid has no runs; name one, such as paged:block_size={1,16}")
    return [spec for text in texts for spec in expand(spec_of(text))]


def _choices(given: Mapping[str, Any]) -> list[list[Any]]:
    """The values of each setting."""
    choices: list[list[Any]] = []
    for name, value in given.items():
        if name == "window_s":
            choices.append([value])
        elif name in _WHOLE and isinstance(value, str):
            choices.append([*wholes(name, value, at_least=0)])
        else:
            choices.append(several(name, value))
        if not choices[-1]:
            raise InputError(f"{name} has no value: an empty grid has no runs")
    return choices


def _allocator(spec: str, servers: Sequence[Server]) -> tuple[str, Cells]:
    """A spec as it is run, and its cells. Raises InputError for one that no pool, however large, can have.

    One that wants a larger pool than some, or breaks in a way of its own, will tell so in the rows of its runs.
    """
    name, options = parse_spec(spec)
    capacities = dict.fromkeys(map(_slots, servers))
    roomy = min(max(_ROOMY_SLOTS, 16 * max(capacities)), MOST_SLOTS)
    lengths = {server.settings.max_model_len: None for server in servers}
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
    reserved = {*SHARED, *figure_types(), *VIEWS["textbook"], COST_OF, ERROR, RUN, "allocator"}
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
