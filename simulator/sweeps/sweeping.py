"""``sweep``: a grid of runs in, one table out, a row a run; what an earlier sweep has done is not done again."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd

from allocators.base import InputError, in_short, whole
from simulator.files.writing import check_outputs
from simulator.inputs import AnyAllocator, AnyTrace
from simulator.messages.progress import progress_bar
from simulator.results.run_notes import table_warnings
from simulator.sweeps import executors
from simulator.sweeps.cluster import cluster_of
from simulator.sweeps.grid import Several
from simulator.sweeps.jobs import Job, Outcome
from simulator.sweeps.journal import Journal, journal_at
from simulator.sweeps.plan import Plan, planned


def sweep(
    trace: AnyTrace,
    allocators: AnyAllocator | Sequence[AnyAllocator],
    *,
    capacity: Several | None = None,
    block_size: int | None = None,
    rate: Several | None = None,
    seeds: Several | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> pd.DataFrame:
    """Replay traces against every allocator with every setting: a table with a row a run, in the order of the grid.

    ``trace``: a Trace, or what a command line names: a file, a workload. ``allocators``: specs, with lists in braces,
    ``paged:block_size={1,8,16}``; an allocator stands for its spec, its own capacity says nothing here.
    ``block_size``: of each ``paged`` spec that names none. ``capacity``: slots; or ``memory`` of a ``model``,
    or what a ``gpu`` has left beside it, as for :func:`~simulator.replay.simulate`. ``rate``: requests per second; a
    trace with arrivals of its own is stretched to it. ``seeds``: N from 0 on, or which; for what is drawn.
    ``settings``: those of :class:`~simulator.server.hardware.ServerFields`. A number may be several, see
    :mod:`simulator.sweeps.grid`; any of :class:`~simulator.server.settings.Settings` but the window may be a list.

    ``executor``: any of ``concurrent.futures``; None: so many ``workers`` of this machine (None: all its cores).
    ``out``: a file, .csv or .parquet, to which results are kept as they come; called again, it goes on with those it
    has. ``progress``: whether a bar is shown; None: in a terminal or a notebook.

    Columns: ``allocator`` and each option of any (NaN for one without it), ``capacity``, the settings, ``trace``,
    ``rate``, ``seed``; the figures of ``Run.summary()``, shares under their own names, those of the saturated time
    ending in ``_saturated``; ``cost_of``, what the cost stands for; ``error``, what went wrong with a run that failed;
    ``run``, what it is known by. ``table.attrs["warnings"]``: what is worth a word, a list of sentences.

    Raises InputError, before anything runs, for what is wrong with the grid, the trace or the file, and LostError when
    the executor gives up; what was done by then is in the file.
    """
    path = None if out is None else Path(out)
    check_outputs({"out": path}, [os.fspath(trace)] if isinstance(trace, str | os.PathLike) else [])
    with ExitStack() as stack:
        journal = None if path is None else stack.enter_context(journal_at(path))
        plan = stack.enter_context(
            planned(trace, allocators, capacity=capacity, block_size=block_size, rate=rate, seeds=seeds, **settings)
        )
        return carry_out_all(plan, journal, executor, workers, progress)


def carry_out_all(
    plan: Plan,
    journal: Journal | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    say: Callable[[str], object] = str,
) -> pd.DataFrame:
    """Carry out the runs of a plan that the journal does not have; the table of all. ``say`` hears of odd things."""
    count = executors.cores() if workers is None else whole("workers", workers)
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise InputError(f"executor(={in_short(executor)}) must be an Executor of concurrent.futures")
    outcomes: dict[str, Outcome] = {}
    if journal is not None:
        journal.check(plan.keys)
        outcomes = {key: Outcome(figures) for key, figures in journal.finished.items()}
    # One trace after the other, so that a process has it from the run before.
    todo = sorted((job for job in plan.jobs if job.key not in outcomes), key=lambda job: job.source.identity)
    failed = 0
    with progress_bar(len(todo), "sweep", "run", progress) as bar:

        def done(job: Job, outcome: Outcome) -> None:
            nonlocal failed
            failed += outcome.figures is None
            outcomes[job.key] = outcome
            if journal is not None:
                journal.add(job.key, outcome)
            bar.set_postfix(failed=failed, refresh=False)
            bar.update()

        try:
            if executor is None:
                executors.run_here(todo, count, done, say)
            else:
                cluster = cluster_of(executor, say)
                check = None if cluster is None else cluster.check
                executors.run_elsewhere(todo, cluster or executor, done, check)
        finally:
            if journal is not None:
                journal.close()
    table = plan.table(outcomes)
    if journal is not None:
        journal.finish(table)
    table.attrs["warnings"] = [*plan.warnings, *table_warnings(table)]
    return table
