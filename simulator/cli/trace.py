"""``kvfrag trace``: look at request traces, make them, and fetch public ones."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from allocators.base import InputError
from simulator.cli.download import fetch
from simulator.cli.options import (
    Columns,
    Format,
    Json,
    Quiet,
    Rate,
    Strict,
    Tokenizer,
    TraceArgument,
    check_picture,
    draw,
    json_file,
    note,
    number,
    progress,
    read_trace,
)
from simulator.cli.tables.report import print_trace, write_json
from simulator.files.writing import check_outputs, write_whole
from simulator.messages.words import counted, printable
from simulator.traces.public.catalogue import find_file
from simulator.traces.schema import NoArrivalsError
from simulator.traces.statistics import describe
from simulator.traces.trace import Trace
from simulator.traces.workload.profile import measure_profile
from simulator.traces.workload.workload import parse_workload
from simulator.traces.write import check_ending, write_trace

trace_app = typer.Typer(add_completion=False, rich_markup_mode=None)

Output = Annotated[
    Path, typer.Option("-o", "--output", metavar="FILE", help="The neutral format: .csv, .csv.gz or .parquet.")
]


@trace_app.command()
def info(
    trace: TraceArgument,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw arrivals and lengths: .png, .svg or .pdf.")
    ] = None,
    json_to: Json = None,
    format: Format = None,
    columns: Columns = None,
    tokenizer: Tokenizer = None,
    rate: Rate = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """What a trace holds: rows read, kept and dropped, arrivals, prompt and output lengths."""
    if plot is not None:
        check_picture(plot)
    check_outputs({"--json": json_file(json_to), "--plot": plot}, [find_file(trace)])
    silent = quiet or json_to != "-"  # the table tells what was dropped
    requests = read_trace(trace, strict, silent, format, rate, tokenizer, columns=columns)
    facts = describe(requests)
    if plot is not None:
        from simulator.plots import trace_overview

        draw(trace_overview(requests), plot, quiet)
    if json_to is not None:
        report = {} if requests.report is None else {"read": vars(requests.report)}
        write_json(json_to, {"name": requests.name, "sha256": requests.sha256, **report, **facts})
    if json_to != "-":
        print_trace(requests, facts)


@trace_app.command()
def convert(
    trace: TraceArgument,
    output: Output,
    format: Format = None,
    columns: Columns = None,
    tokenizer: Tokenizer = None,
    rate: Rate = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Write a trace of any format in the neutral one; sessions and block hashes are kept."""
    _check_output(output, trace)
    whole = read_trace(trace, strict, quiet, format, rate, tokenizer, columns=columns)
    _write(whole, output, quiet, _blocks(whole))


@trace_app.command("slice")
def cut(
    trace: TraceArgument,
    output: Output,
    time: Annotated[
        tuple[str, str] | None, typer.Option(metavar="START END", help="Seconds from the first arrival; END excluded.")
    ] = None,
    requests: Annotated[
        tuple[int, int] | None, typer.Option(metavar="FIRST END", help="Requests from 0 in order; END excluded.")
    ] = None,
    format: Format = None,
    columns: Columns = None,
    tokenizer: Tokenizer = None,
    rate: Rate = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Write a part of a trace, its first arrival at 0, and compare its rate with the whole."""
    if (time is None) == (requests is None):
        raise InputError("which part? --time START END in seconds, or --requests FIRST END")
    if requests is not None and not 0 <= requests[0] < requests[1]:
        raise InputError(f"--requests(={requests[0]} {requests[1]}) must be FIRST END with 0 <= FIRST < END")
    _check_output(output, trace)
    whole = read_trace(trace, strict, quiet, format, rate, tokenizer, columns=columns)
    part = whole[slice(*requests)] if requests is not None else whole.between(*time or ("", ""))
    _write(part, output, quiet, None if part.block_hashes is None else _blocks(whole))
    print(f"{_in_short(part)}, a part of {printable(whole.name)}: {_in_short(whole)}")


@trace_app.command()
def scale(
    trace: TraceArgument,
    output: Output,
    rate: Annotated[float | None, number("FACTOR", "So many times as many requests a second.")] = None,
    lengths: Annotated[float | None, number("FACTOR", "Prompts and outputs so many times as long.")] = None,
    format: Format = None,
    columns: Columns = None,
    tokenizer: Tokenizer = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Write a trace with its rate, its lengths, or both scaled by a factor."""
    if rate is None and lengths is None:
        raise InputError("scale what? --rate FACTOR, --lengths FACTOR, or both")
    _check_output(output, trace)
    whole = read_trace(trace, strict, quiet, format, tokenizer=tokenizer, columns=columns)
    scaled = whole.scaled(1.0 if rate is None else rate, 1.0 if lengths is None else lengths)
    if whole.block_hashes is not None and scaled.block_hashes is None:
        note(quiet, "block hashes are left out: prompts of other lengths have others")
    if lengths is not None and (raised := _raised_to_one(whole, lengths)):
        note(quiet, f"lengths below 1 token, raised to 1: {raised}")
    _write(scaled, output, quiet, None if scaled.block_hashes is None else _blocks(whole))
    print(f"{_in_short(scaled)}, scaled from {printable(whole.name)}: {_in_short(whole)}")
    if lengths is not None:
        print(f"mean lengths {_means(scaled)}, scaled from {_means(whole)}")


def _raised_to_one(whole: Trace, factor: float) -> str:
    """How many lengths a factor would bring to 0 tokens, in words; "" for none."""
    counts = {
        name: int((np.rint(tokens * factor) < 1).sum())
        for name, tokens in (("prompts", whole.prompt_tokens), ("outputs", whole.output_tokens))
    }
    of = f"of {len(whole):,}"
    return ", ".join(f"{count:,} {of} {name}" for name, count in counts.items() if count)


def _means(trace: Trace) -> str:
    return f"{trace.prompt_tokens.mean():,.1f} (prompt) and {trace.output_tokens.mean():,.1f} (output) tokens"


@trace_app.command()
def generate(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="LENGTHS:rate=4,...",
            help="LENGTHS: a profile's name or file, or a trace file, whose requests are drawn from. Options: rate, "
            "duration or requests, seed, max_total; cv=2 for gamma gaps, on=5,off=20 for phases of exponential length, "
            "so many seconds in the mean (the rate too holds in the mean, over both); else Poisson.",
        ),
    ],
    output: Output,
    quiet: Quiet = False,
) -> None:
    """Write a synthetic trace."""
    _check_output(output, workload)
    _write(Trace.of_workload(parse_workload(workload)), output, quiet)


@trace_app.command()
def profile(
    trace: TraceArgument,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE.json", help="The profile, a JSON file.")],
    format: Format = None,
    columns: Columns = None,
    tokenizer: Tokenizer = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Write a length profile, to share a workload without its trace: FILE.json:rate=4 then draws from it."""
    check_outputs({"--output": output}, [find_file(trace)])
    timed, requests = _maybe_timed(trace, strict, quiet, format, tokenizer, columns)
    facts = describe(requests)
    rate, cv = (facts["rate_per_s"], facts["gap_cv"]) if timed else (None, None)
    about = f"lengths of {requests.name}, {counted(len(requests), 'request')}"
    made = measure_profile(output.stem, requests.prompt_tokens, requests.output_tokens, rate, cv, about)
    write_whole(output, (json.dumps(made, separators=(",", ":")) + "\n").encode())
    note(quiet, f"wrote {output}: {about}")


def _maybe_timed(
    trace: str, strict: bool, quiet: bool, format: str | None, tokenizer: str | None, columns: str | None
) -> tuple[bool, Trace]:
    """Whether a trace has arrivals of its own, and the trace."""
    try:
        return True, read_trace(trace, strict, quiet, format, tokenizer=tokenizer, columns=columns)
    except NoArrivalsError:
        return False, read_trace(trace, strict, True, format, 1.0, tokenizer, columns=columns)


trace_app.command("download")(fetch)


def _check_output(output: Path, trace: str) -> None:
    """Raise InputError unless a trace can be written there."""
    check_ending(output, "--output")
    check_outputs({"--output": output}, [find_file(trace)])


def _write(trace: Trace, output: Path, quiet: bool, blocks: int | None = None) -> None:
    """Write a trace. ``blocks``: the tokens of a prefix block that its file told, where hashes are written."""
    with progress(len(trace), "writing", "request", quiet) as bar:
        write_trace(trace, output, bar.update)
    note(quiet, f"wrote {output}: {_in_short(trace)}")
    if blocks is not None:
        note(
            quiet,
            f"block hashes are kept, but not that a block has {blocks} tokens: no column says so",
        )


def _blocks(trace: Trace) -> int | None:
    return None if trace.report is None else trace.report.block_tokens


def _in_short(trace: Trace) -> str:
    facts: Mapping[str, Any] = describe(trace)
    rate = "all at once" if facts["rate_per_s"] is None else f"{facts['rate_per_s']:.4g}/s"
    return f"{len(trace):,} request{'' if len(trace) == 1 else 's'} over {trace.duration_s:,.1f} s ({rate})"
