"""``kvfrag run``: replay one trace against one or more allocators."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from allocators import Allocator, InputError
from simulator.cli.option_groups import OUTPUT, with_groups
from simulator.cli.options import (
    PAGE,
    Explain,
    Json,
    Quiet,
    TraceArgument,
    TraceOptions,
    check_picture,
    draw,
    json_file,
    note,
    note_all,
)
from simulator.cli.server_options import (
    AllocatorOptions,
    BatchOptions,
    HardwareOptions,
    PoolOptions,
    ServerOptions,
    allocator_of,
    server_from,
)
from simulator.cli.tables.report import as_json, print_runs, write_json
from simulator.files.writing import check_outputs
from simulator.results.run import Run
from simulator.results.run_notes import all_warnings
from simulator.results.storage.folder import check_folder
from simulator.results.views import VIEWS
from simulator.traces.trace import Trace

MAPS = 12
"""Memory maps of a run that keeps its decisions, unless told otherwise."""


@with_groups
def run(
    trace: TraceArgument,
    allocators: AllocatorOptions,
    pool: PoolOptions,
    hardware: HardwareOptions,
    batch: BatchOptions,
    server: ServerOptions,
    reading: TraceOptions,
    view: Annotated[
        str,
        typer.Option(metavar="textbook|paper|ledger", help="Which categories the table has.", rich_help_panel=OUTPUT),
    ] = "textbook",
    json_to: Json = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Save the run (several: a folder each in it).", rich_help_panel=OUTPUT),
    ] = None,
    decisions: Annotated[
        bool,
        typer.Option(
            "--decisions",
            help=f"With --save: every decision too, and {MAPS} memory maps, for kvfrag gpu check.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw the waste bars: .png, .svg, .pdf; .html: a page to scrub through.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    explain: Explain = False,
    quiet: Quiet = False,
) -> None:
    """Replay one trace against one or more allocators, and say where the memory was."""
    # Everything that can be wrong is found out before the first run.
    if view not in VIEWS:
        raise InputError(f"--view(={view!r}) must be one of {', '.join(VIEWS)}")
    specs = allocators.specs()
    chosen = server_from(pool, hardware, batch, server)
    assert chosen.slots is not None
    makes = [partial(allocator_of, spec, chosen.slots, batch.max_model_len) for spec in specs]
    folders = _folders(save, [make().spec for make in makes])
    if decisions and save is None:
        raise InputError("--decisions needs --save FOLDER, where they are kept")
    if plot is not None:
        check_picture(plot, PAGE)
    page = plot is not None and plot.suffix.lower() == PAGE
    if page:
        from simulator.page.html import check_plotly

        check_plotly()
    check_outputs({"--json": json_file(json_to), "--plot": plot}, [trace, hardware.model])
    requests = reading.read(trace, quiet)

    shown = not quiet and sys.stderr.isatty()
    options: dict[str, Any] = vars(chosen.settings) | {"decisions": decisions or page, "progress": shown}
    replay = recorded if decisions else _replayed
    runs = []
    for make, spec in zip(makes, specs, strict=True):
        one = replay(requests, make, **options)
        runs.append(replace(one, label=spec, warnings=(*chosen.warnings, *one.warnings)))
    for folder, one in zip(folders, runs, strict=False):
        one.save(folder)
        note(quiet, f"saved {one.name} in {folder}")
    if plot is not None and page:
        runs[0].to_html(plot, *runs[1:])
        note(quiet, f"wrote {plot}: open it in a browser")
    elif plot is not None:
        from simulator.plots import waste_bars

        draw(waste_bars(runs, view), plot, quiet)
    if json_to is not None:
        write_json(json_to, as_json(runs, chosen.pool))
    if json_to != "-":
        print_runs(runs, view, chosen.lines(), explain)
    note_all(quiet, all_warnings(runs))


def recorded(trace: Trace, make: Callable[[], Allocator], maps: int = MAPS, **options: Any) -> Run:
    """A run that keeps its decisions, and so many memory maps at equal distances. ``options``: those of ``simulate``.

    It is made twice, first for its length: a run is cheap, and always the same.
    """
    first = _replayed(trace, make, **options | {"decisions": False, "timeline_bins": 0})
    start_s = 0.0 if first.settings.window_s is None else float(first.settings.window_s[0])
    times_s = [start_s + first.duration_ps / 10**12 * (number + 0.5) / maps for number in range(maps)]
    return _replayed(trace, make, **options | {"decisions": True, "layout_times_s": times_s})


def _replayed(trace: Trace, make: Callable[[], Allocator], **options: Any) -> Run:
    from simulator.replay import simulate

    return simulate(trace, make(), **options)


def _folders(save: Path | None, specs: Sequence[str]) -> list[Path]:
    """Where each run is saved: the folder itself for one, a folder each in it for several."""
    if save is None:
        return []
    if len(specs) == 1:
        check_folder(save)
        return [save]
    folders = [save / f"{number}-{spec.partition(':')[0]}" for number, spec in enumerate(specs, start=1)]
    others = set(save.iterdir()) - set(folders) if save.is_dir() else set()
    if others:
        raise InputError(f"{save} must be new, empty, or hold the same runs to replace; it holds {min(others).name}")
    for folder in folders:
        check_folder(folder)
    return folders
