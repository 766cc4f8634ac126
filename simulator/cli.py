"""``kvfrag``: the command line. It reads options, says what is wrong with them before anything runs, and prints."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from tqdm import tqdm

from allocators import Allocator, InputError, make_allocator
from simulator.cost import StepCost, parse_bytes
from simulator.models import load_model, slots_for
from simulator.report import as_json, check_writable, console, legend, run_tables, table, write_json, write_whole
from simulator.run import Run, check_folder
from simulator.settings import Settings
from simulator.trace import Trace, describe, open_trace
from simulator.views import VIEWS

PICTURES = (".png", ".svg", ".pdf")

app = typer.Typer(
    help="See where the memory of an LLM server goes: replay request traces against KV-cache allocators.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
trace_app = typer.Typer(help="Look at request traces.")
app.add_typer(trace_app, name="trace")

TraceArgument = Annotated[
    str,
    typer.Argument(metavar="TRACE", help="A trace file, or a workload such as sharegpt:rate=4,duration=900,seed=0."),
]
Strict = Annotated[bool, typer.Option("--strict", help="A row that cannot be used is an error; else it is counted.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress and no notes on standard error.")]
Json = Annotated[
    str | None, typer.Option("--json", metavar="FILE|-", help="Write all figures as JSON; - for standard output.")
]


@app.command()
def run(
    trace: TraceArgument,
    allocator: Annotated[
        list[str],
        typer.Option(
            "-a", "--allocator", metavar="SPEC", help="contiguous, buddy or paged with options, or your own; repeat."
        ),
    ],
    capacity: Annotated[int | None, typer.Option(metavar="SLOTS", help="Size of the pool in token slots.")] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Or its size in bytes, such as 12GiB, with --model.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME|config.json", help="Gives the bytes of a slot.")] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --model: a cost from the GPU's peak rates.")
    ] = None,
    max_model_len: Annotated[int | None, typer.Option(metavar="N", help="Longest prompt + output, in tokens.")] = None,
    max_batch: Annotated[int | None, typer.Option(metavar="N", help="Most requests running at once.")] = None,
    max_batch_tokens: Annotated[int | None, typer.Option(metavar="N", help="Most new tokens in one iteration.")] = None,
    too_long: Annotated[
        str, typer.Option(metavar="reject|truncate", help="What becomes of longer requests.")
    ] = "reject",
    preemption: Annotated[
        str, typer.Option(metavar="recompute|swap", help="How a preempted request comes back.")
    ] = "recompute",
    swap_slots: Annotated[int | None, typer.Option(metavar="N", help="Room on the host, in slots, for swap.")] = None,
    cost: Annotated[
        str | None, typer.Option(metavar="KEY=TIME,...", help="What an iteration costs. Default: " + str(StepCost()))
    ] = None,
    window: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="START END", help="Measure from START to END, in seconds, and stop."),
    ] = None,
    view: Annotated[
        str, typer.Option(metavar="textbook|paper|ledger", help="Which categories the table has.")
    ] = "textbook",
    json_to: Json = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Save the run (several: a folder each in it).")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the waste bars: .png, .svg or .pdf.")] = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Replay one trace against one or more allocators, and say where the memory was."""
    # Everything that can be wrong is found out before the first run.
    if view not in VIEWS:
        raise InputError(f"--view(={view!r}) must be one of {', '.join(VIEWS)}")
    if preemption == "swap" and swap_slots is None:
        raise InputError("--preemption swap needs --swap-slots: the room on the host, in slots")
    if preemption != "swap" and swap_slots is not None:
        raise InputError("--swap-slots needs --preemption swap")
    slots = _capacity(capacity, memory, model)
    settings = Settings(
        cost=_cost(cost, model, gpu),
        max_model_len=max_model_len,
        max_batch=max_batch,
        max_batch_tokens=max_batch_tokens,
        too_long=too_long,
        preemption=preemption,
        swap_slots=swap_slots or 0,
        window_s=window,
    )
    allocators = [make_allocator(spec, slots, max_model_len) for spec in allocator]
    folders = _folders(save, [made.spec for made in allocators])
    if json_to not in (None, "-"):
        check_writable(Path(json_to))
    if plot is not None:
        _check_picture(plot)
    requests = _read(trace, strict, quiet)

    runs = [_replayed(requests, made, settings, spec, quiet) for made, spec in zip(allocators, allocator, strict=True)]
    for folder, one in zip(folders, runs, strict=False):
        one.save(folder)
        _note(quiet, f"saved {one.name} in {folder}")
    if plot is not None:
        from simulator.plots import waste_bars

        _draw(waste_bars(runs, view), plot, quiet)
    if json_to is not None:
        write_json(json_to, as_json(runs))
    if json_to != "-":
        _print_runs(runs, view)


@app.command()
def figure2(
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="How many random workloads.")] = 5,
    plot: Annotated[Path, typer.Option(metavar="FILE", help="Where to draw it: .png, .svg or .pdf.")] = Path(
        "figure2.png"
    ),
    quiet: Quiet = False,
) -> None:
    """The PagedAttention paper's Figure 2 beside this simulator: a table and a picture."""
    from simulator.figure2 import ALLOCATORS, PAPER, figure2
    from simulator.plots import waste_bars

    _check_picture(plot)
    with _progress(seeds * len(ALLOCATORS), "figure2", "run", quiet) as bar:
        bars = figure2(range(seeds), lambda run: bar.update())
    shown = table(f"PagedAttention (SOSP 2023), Figure 2: % of the KV cache, {seeds} seeds", "", *VIEWS["paper"])
    for one in bars:
        percents = one.percents()
        mean, spread = percents.mean(), percents.std(ddof=1).fillna(0.0)
        shown.add_row(one.name, *(f"{mean[part]:.1f} ± {spread[part]:.1f}" for part in VIEWS["paper"]))
        paper = PAPER[one.name]
        shown.add_row(
            "  paper",
            *(f"{paper[part]:.1f}     " if part in paper else "-     " for part in VIEWS["paper"]),
            style="dim",
        )
    console().print(shown)
    console().print(
        "  mean ± standard deviation between the seeds; OPT-13B, ShareGPT lengths, 4 requests/s, 300 to 900 s"
    )
    _draw(waste_bars(bars, "paper", reference=PAPER, reference_name="paper"), plot, quiet)


@trace_app.command()
def info(trace: TraceArgument, json_to: Json = None, strict: Strict = False, quiet: Quiet = False) -> None:
    """What a trace holds: rows read, kept and dropped, arrivals, prompt and output lengths."""
    if json_to not in (None, "-"):
        check_writable(Path(json_to))
    requests = _read(trace, strict, quiet)
    facts = describe(requests)
    if json_to is not None:
        report = {} if requests.report is None else {"read": vars(requests.report)}
        write_json(json_to, {"name": requests.name, "sha256": requests.sha256, **report, **facts})
    if json_to != "-":
        _print_trace(requests, facts)


def _capacity(capacity: int | None, memory: str | None, model: str | None) -> int:
    """Slots, from the two ways to say how large the pool is."""
    if capacity is not None and memory is not None:
        raise InputError("--capacity and --memory both say how large the pool is; give one of them")
    if capacity is not None:
        if capacity < 1:
            raise InputError(f"--capacity(={capacity}) must be a whole number >= 1")
        return capacity
    if memory is None:
        raise InputError("how large is the pool? --capacity SLOTS, or --memory SIZE with --model NAME")
    if model is None:
        raise InputError("--memory needs --model NAME|config.json, which gives the bytes of a slot")
    return slots_for(parse_bytes(memory, "--memory"), load_model(model))


def _cost(cost: str | None, model: str | None, gpu: str | None) -> StepCost:
    if gpu is None:
        return StepCost.parse(cost) if cost is not None else StepCost()
    if cost is not None or model is None:
        raise InputError("--gpu needs --model, and stands in place of --cost")
    return StepCost.from_hardware(model, gpu)


def _folders(save: Path | None, specs: Sequence[str]) -> list[Path]:
    """Where each run is saved: the folder itself for one, a folder each in it for several."""
    if save is None:
        return []
    folders = [save]
    if len(specs) > 1:
        if (save / "run.json").exists():
            raise InputError(f"{save} holds a saved run; several runs need a folder of their own")
        folders = [save / f"{number}-{spec.partition(':')[0]}" for number, spec in enumerate(specs, start=1)]
    for folder in folders:
        check_folder(folder)
    above = next(parent for parent in (save, *save.absolute().parents) if parent.is_dir())
    check_writable(above / "run.json")
    return folders


def _read(trace: str, strict: bool, quiet: bool) -> Trace:
    requests = open_trace(trace, strict)
    report = requests.report
    if report is not None and report.kept < report.rows:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in report.dropped.items())
        _note(quiet, f"{requests.name}: {report.rows - report.kept:,} of {report.rows:,} rows dropped: {reasons}")
    return requests


def _replayed(requests: Trace, allocator: Allocator, settings: Settings, label: str, quiet: bool) -> Run:
    from simulator.replay import simulate

    fields: dict[str, Any] = vars(settings)
    shown = not quiet and sys.stderr.isatty()
    return replace(simulate(requests, allocator, progress=shown, **fields), label=label)


def _print_runs(runs: Sequence[Run], view: str) -> None:
    out, source = console(), runs[0].trace
    out.print(f"{source.name}: {source.requests:,} requests, a pool of {runs[0].capacity:,} token slots\n")
    for shown in run_tables(runs, view):
        out.print(shown)
    out.print(legend(view))


def _print_trace(requests: Trace, facts: dict[str, Any]) -> None:
    out, report = console(), requests.report
    out.print(f"{requests.name}: {facts['rows']:,} requests over {facts['duration_s']:,.1f} s", soft_wrap=True)
    if report is not None:
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in report.dropped.items()) or "none"
        out.print(
            f"  format {report.format}: {report.rows:,} rows read, {report.kept:,} kept, dropped: {dropped}; "
            f"{report.out_of_order:,} out of order",
            soft_wrap=True,
        )
    rate, gap_cv = facts["rate_per_s"], facts["gap_cv"]
    if rate is not None:
        out.print(f"  {rate:.2f} requests/s, coefficient of variation of the gaps {gap_cv:.2f} (Poisson: 1)")
    shown = table("", "tokens", "mean", "p50", "p99", "max")
    for name in ("prompt_tokens", "output_tokens"):
        figures = facts[name]
        shown.add_row(name.removesuffix("_tokens"), *(f"{figures[key]:,.0f}" for key in ("mean", "p50", "p99", "max")))
    out.print(shown)


def _check_picture(path: Path) -> None:
    if path.suffix.lower() not in PICTURES:
        raise InputError(f"{path} must end in one of {', '.join(PICTURES)}")
    check_writable(path)


def _draw(axes: Any, path: Path, quiet: bool) -> None:
    # Without the date and a fixed salt, the same picture has the same bytes.
    metadata = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[path.suffix.lower()]
    write_whole(
        path,
        lambda file: axes.figure.savefig(
            file, format=path.suffix[1:].lower(), dpi=150, bbox_inches="tight", metadata=metadata
        ),
    )
    _note(quiet, f"drew {path}")


@contextmanager
def _progress(total: int, name: str, unit: str, quiet: bool) -> Iterator["tqdm[Any]"]:
    with tqdm(total=total, desc=name, unit=unit, delay=2.0, disable=quiet or not sys.stderr.isatty()) as bar:
        yield bar


def _note(quiet: bool, text: str) -> None:
    if not quiet:
        print(text, file=sys.stderr)
