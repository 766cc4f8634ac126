"""``kvfrag``: the command line. It reads options, says what is wrong with them before anything runs, and prints."""

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from allocators import ALLOCATORS, Allocator, InputError
from allocators.base import one_of, whole
from simulator.cli.answers import COMMANDS
from simulator.cli.models import models
from simulator.cli.option_groups import OUTPUT, SectionedCommand, with_groups
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
    progress,
    whole_number,
)
from simulator.cli.printing import console, print_table, say, table
from simulator.cli.report import as_json, print_runs, write_json
from simulator.cli.server_options import (
    AllocatorOptions,
    BatchOptions,
    HardwareOptions,
    PoolOptions,
    ServerOptions,
    allocator_of,
    server_from,
)
from simulator.cli.sweep import sweep
from simulator.cli.trace import trace_app
from simulator.files import check_outputs
from simulator.results.run import Run
from simulator.results.run_notes import all_warnings
from simulator.results.storage.folder import check_folder
from simulator.results.views import VIEWS
from simulator.server.hardware import cost_line
from simulator.traces.trace import Trace

MAPS = 12
"""Memory maps of a run that keeps its decisions, unless told otherwise."""


def _allocators() -> str:
    """The allocators with the defaults of their options, as one types them."""
    lines = []
    for name, constructor in ALLOCATORS.items():
        own = [p for p in list(inspect.signature(constructor).parameters.values())[1:] if p.name != "max_model_len"]
        lines.append(f"{name}:" + ",".join(f"{p.name}={'none' if p.default is None else p.default}" for p in own))
    return "\b\nAllocators, with the defaults of their options:\n  " + "\n  ".join(lines)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"kvfrag {version('kvfrag')}")
        raise typer.Exit


app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(trace_app, name="trace")
app.command(short_help="Models and GPUs known by name.", cls=SectionedCommand)(models)
app.command(
    name="sweep",
    short_help="Many runs side by side, on all cores or a cluster.",
    epilog=_allocators(),
    cls=SectionedCommand,
)(sweep)


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """See where the memory of an LLM server goes: replay request traces against KV-cache allocators."""


@app.command(short_help="Replay a trace against allocators.", epilog=_allocators(), cls=SectionedCommand)
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


@app.command(short_help="Reproduce the PagedAttention paper's Figure 2.", cls=SectionedCommand)
def figure2(
    seeds: Annotated[int, whole_number("N", "How many random workloads.")] = 5,
    plot: Annotated[Path, typer.Option(metavar="FILE", help="Where to draw it: .png, .svg or .pdf.")] = Path(
        "figure2.png"
    ),
    quiet: Quiet = False,
) -> None:
    """The PagedAttention paper's Figure 2 beside this simulator: a table and a picture."""
    from simulator.examples.figure2 import ALLOCATORS, PAPER, figure2
    from simulator.plots import waste_bars

    whole("--seeds", seeds)
    check_picture(plot)
    check_outputs({"--plot": plot})
    with progress(seeds * len(ALLOCATORS), "figure2", "run", quiet) as bar:
        bars = figure2(range(seeds), bar.update)
    shown = table("Figure 2 of the PagedAttention paper (SOSP 2023): % of the KV cache", "", *VIEWS["paper"])
    for one in bars:
        percents, paper = one.percents(), PAPER[one.name]
        shown.add_row(one.name, *(f"{mean:.1f}" for mean in percents.mean()))
        shown.add_row("  paper", *(f"{paper[part]:.1f}" if part in paper else "-" for part in VIEWS["paper"]))
        if seeds > 1:
            shown.add_row("  ±", *(f"{deviation:.1f}" for deviation in percents.std(ddof=1)), style="dim")
    out = console()
    print_table(out, shown)
    say(out, "OPT-13B on one A100-40GB, ShareGPT lengths, 4 requests/s, from 300 s to 900 s")
    say(out, cost_line(bars[0].runs[0].settings.cost))
    if seeds > 1:
        say(out, f"mean of {seeds} seeds, the paper's number, standard deviation between the seeds")
    draw(waste_bars(bars, "paper", reference=PAPER, reference_name="paper"), plot, quiet)


@app.command(short_help="A worked example, step by step.")
def lesson(
    name: Annotated[str, typer.Argument(metavar="buddy|figure3|figure6|waste", help="Which one.")],
) -> None:
    """A worked example, step by step: buddy blocks, the PagedAttention paper's Figures 3 and 6, the wastes compared."""
    from simulator.examples.lessons import LESSONS, tell

    one_of("lesson", name, list(LESSONS))
    out = console()
    for paragraph in tell(name):
        out.print(paragraph, end="\n\n", soft_wrap=True)


for short_help, command in COMMANDS.items():
    app.command(short_help=short_help, cls=SectionedCommand)(command)


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
