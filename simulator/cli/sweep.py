"""``kvfrag sweep``: many runs side by side, a table, a results file, a curve."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from allocators.base import InputError, one_of
from simulator.cli.grid_options import GridAllocatorOptions, GridBatchOptions, GridPoolOptions, GridTraceOptions
from simulator.cli.option_groups import OUTPUT, with_groups
from simulator.cli.options import (
    Explain,
    Quiet,
    StoppedError,
    check_picture,
    draw,
    note,
    note_all,
    read_trace,
    whole_number,
)
from simulator.cli.server_options import (
    HardwareOptions,
    ServerOptions,
    as_option,
)
from simulator.cli.tables.sweep_report import curves, print_sweep
from simulator.files.writing import check_outputs
from simulator.messages.progress import is_watched
from simulator.messages.words import counted
from simulator.sweeps.cluster import dask_executor
from simulator.sweeps.executors import LostError
from simulator.sweeps.grid import expand, positives, seeds_of, wholes
from simulator.sweeps.jobs import figure_types
from simulator.sweeps.journal import Journal, journal_at
from simulator.sweeps.plan import Plan, planned
from simulator.sweeps.sweeping import carry_out_all
from simulator.traces.public.catalogue import find_file
from simulator.traces.trace import Trace

_MACHINES = "Machines"


@with_groups
def sweep(
    trace: Annotated[
        str,
        typer.Argument(metavar="TRACE", help="A trace file, a public trace, or a workload: sharegpt:duration=900."),
    ],
    allocators: GridAllocatorOptions,
    pool: GridPoolOptions,
    hardware: HardwareOptions,
    batch: GridBatchOptions,
    server: ServerOptions,
    reading: GridTraceOptions,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Keep results as they come: .csv or .parquet. The same command, or one with a larger grid, goes on.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the curves: .png, .svg or .pdf.", rich_help_panel=OUTPUT),
    ] = None,
    x: Annotated[
        str | None,
        typer.Option(
            "--x",
            metavar="COLUMN",
            help="Across; default: the first setting that varies.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    y: Annotated[
        str,
        typer.Option("--y", metavar="COLUMN", help="Upwards: a figure of the results file.", rich_help_panel=OUTPUT),
    ] = "used",
    explain: Explain = False,
    quiet: Quiet = False,
    workers: Annotated[
        int | None, whole_number("N", "Processes on this machine; default: one per core.", section=_MACHINES)
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Run on a Dask cluster: tcp://host:8786, its scheduler's.",
            rich_help_panel=_MACHINES,
        ),
    ] = None,
) -> None:
    """Replay a trace against every allocator with every setting, on all cores or a cluster; a row a run."""
    if plot is not None:
        check_picture(plot)
        one_of("--y", y, list(figure_types()))
    elif x is not None:
        raise InputError("--x needs --plot FILE: it says what is drawn")
    if dask is not None and workers is not None:
        raise InputError("--workers is for this machine, and --dask for a cluster; give one of them")
    check_outputs({"-o": output, "--plot": plot}, [find_file(trace), hardware.model])
    settings: dict[str, Any] = {**vars(hardware), **server.fields(), "memory": pool.memory}
    settings |= {
        name: [None] if given is None else wholes(as_option(name), given) for name, given in vars(batch).items()
    }
    capacities = None if pool.capacity is None else wholes("--capacity", pool.capacity)
    rates = None if reading.rate is None else positives("--rate", reading.rate)
    numbers = None if reading.seeds is None else seeds_of("--seeds", reading.seeds)
    specs = allocators.specs(expanded=expand)
    say = partial(note, quiet)
    notes = iter([quiet])  # a file that is read for each rate and seed is noted once

    def read(text: str, rate: float | None = None, seed: int = 0) -> Trace:
        silent = quiet if rate is None else next(notes, True)
        return read_trace(text, reading.strict, silent, reading.format, rate, reading.tokenizer, seed, reading.columns)

    try:
        with ExitStack() as stack:
            journal = None if output is None else stack.enter_context(journal_at(output, "-o"))
            # That nobody works is said to those who asked for quiet too: they would wait for ever.
            executor = None if dask is None else stack.enter_context(dask_executor(dask, partial(note, False)))
            plan = stack.enter_context(
                planned(
                    *(trace, specs),
                    capacity=capacities,
                    rate=rates,
                    seeds=numbers,
                    read=read,
                    spelled=as_option,
                    **settings,
                )
            )
            across = _across(plan, x) if plot is not None else ""
            if journal is not None:
                journal.check(plan.keys)
            _tell_of(plan, journal, say)
            shown = not quiet and is_watched()
            table = carry_out_all(plan, journal, executor, workers, shown, say)
    except KeyboardInterrupt:
        raise StoppedError(_kept(output)) from None
    except LostError as error:
        note(False, f"kvfrag: {error}; {_kept(output)}")
        raise typer.Exit(1) from None
    if output is not None:
        say(f"wrote {output}: {counted(len(plan.jobs), 'run')}")
    if plot is not None:
        _draw(table, plan.typed, across, y, plot, quiet)
    print_sweep(table, plan.typed, everything=output is None, head=plan.lines, explain=explain)
    note_all(quiet, table.attrs["warnings"])
    failed = int(table["error"].notna().sum())
    if failed:
        them = "it" if failed == 1 else "them"
        note(
            False, f"kvfrag: {failed:,} of {counted(len(plan.jobs), 'run')} failed; the same command tries {them} again"
        )
        raise typer.Exit(1)


def _tell_of(plan: Plan, journal: Journal | None, say: Callable[[str], None]) -> None:
    """What is in the grid twice, and what an earlier command has done."""
    if plan.repeated:
        say(f"in the grid more than once, and carried out once: {counted(plan.repeated, 'run')}")
    if journal is not None and journal.finished:
        were = "was" if len(journal.finished) == 1 else "were"
        of_all = counted(len(plan.jobs), "run")
        say(f"{len(journal.finished):,} of {of_all} {were} done already, in {journal.where}")


def _across(plan: Plan, x: str | None) -> str:
    """The column of the x axis, or an InputError."""
    if x is not None:
        one_of("--x", x, plan.settings)
        with_values = [name for name in plan.settings if any(cells.get(name) is not None for cells in plan.cells)]
        if x not in with_values:
            raise InputError(f"--x(={x!r}): no run has a value there; those that have: {', '.join(with_values)}")
        return x
    names = plan.varied()
    numbers = [name for name in names if not any(isinstance(cells.get(name), str) for cells in plan.cells)]
    if not names:
        raise InputError("--plot needs a setting with two values or more, such as -a paged:block_size={1,16}")
    return [*numbers, *names][0]


def _draw(table: pd.DataFrame, specs: Sequence[str], x: str, y: str, path: Path, quiet: bool) -> None:
    drawn, left_out = curves(table, specs, x, y)
    if left_out:
        note(quiet, f"not drawn, for want of {x} or {y}: {', '.join(left_out)}")
    if drawn.empty:
        note(quiet, f"{path} is not drawn: no run has both {x} and {y}")
        return
    from simulator.plots import sweep_lines

    draw(sweep_lines(drawn, x, y, by="curve"), path, quiet)


def _kept(output: Path | None) -> str:
    if output is None:
        return "nothing is kept without -o FILE"
    journal = Journal(output, "-o")
    kept = len(journal.finished)  # on the disk, that is: a result may be there and not told yet
    if not kept:
        return "no run was done yet"
    return f"{kept:,} run{'s are' if kept > 1 else ' is'} kept in {journal.where}, and the same command goes on"
