"""What the command line prints and writes: tables for people, JSON for programs, each file whole or not at all."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from simulator.cli.tables.printing import console, print_head, print_meanings, print_table, print_tables, say, table
from simulator.files.writing import write_whole
from simulator.messages.showing import labels
from simulator.messages.words import counted, printable
from simulator.results.run import Run
from simulator.results.run_notes import all_warnings
from simulator.results.views import VIEWS, view_shares
from simulator.results.waits import WAITS
from simulator.server.pool import PoolEstimate
from simulator.traces.notes import spoken
from simulator.traces.trace import Trace

MEANINGS = {
    "used": "written keys and values",
    "token states": "written keys and values",
    "reservation": "waste: held now, written later",
    "internal": "waste: held, never written",
    "overprovision": "waste: asked for, never written",
    "rounding": "waste: the allocator's rounding up, never written",
    "external": "waste: free, and enough for the refused request, but in pieces",
    "residual": "free, less than the refused request asked for",
    "idle": "free, and nobody was refused",
    "free": "free for any other reason",
    "external & others": "rounding, external, and whatever else is free",
}
"""One line for each column of a table."""

REFUSED = "of the time: the next request waited for memory"


def print_runs(runs: Sequence[Run], view: str, head: Sequence[str] = (), explain: bool = False) -> None:
    """The tables of :func:`run_tables`, and with ``explain`` what their columns mean; ``head``: lines on the server."""
    out, source = console(), runs[0].trace
    about = f"{_requests(source.requests)}, a pool of {runs[0].capacity:,} token slots"
    say(out, f"{printable(source.name)}: {about}", indent="")
    print_head(out, head)
    print_tables(out, labels(runs), lambda names: run_tables(runs, names, view))
    print_meanings(out, _meanings(view, _causes(runs)), explain)


def run_tables(runs: Sequence[Run], names: Sequence[str], view: str) -> list[Table]:
    """Where the memory was, over the whole time and while somebody was refused memory; and how the requests fared."""
    parts = list(VIEWS[view])
    window_s = runs[0].settings.window_s
    span = "over the whole time" if window_s is None else f"from {window_s[0]:g} s to {window_s[1]:g} s"
    whole = table(f"Where the memory was: % of the pool, {span}", "allocator", *parts)
    refused = table("The same, only while the next request was refused memory", "allocator", *parts)
    served = table(
        "How the requests fared",
        "allocator",
        *("time (s)", "refused (%)", "running", "finished", "preempted", "rejected"),
    )
    for name, run in zip(names, runs, strict=True):
        figures = run.summary()
        duration_s, mean_batch = figures["duration_s"], figures["mean_batch"]
        whole.add_row(name, *_percents(figures["share"], view))
        if figures["share_saturated"] is not None:
            refused.add_row(name, *_percents(figures["share_saturated"], view))
        served.add_row(
            name,
            f"{duration_s:,.1f}",
            f"{100 * figures['saturated_s'] / duration_s:.1f}" if duration_s else "-",
            "-" if mean_batch is None else f"{mean_batch:.1f} ({figures['peak_batch']:,})",
            *(f"{figures[key]:,}" for key in ("finished", "preemptions")),
            f"{sum(figures['rejected'].values()):,}",
        )
    return [whole, *([refused] if refused.row_count else []), served, *_waits_table(runs, names)]


def _causes(runs: Sequence[Run]) -> list[str]:
    """What any request of any run waited for."""
    waits = [run.waits_s() for run in runs]
    return [cause for cause in WAITS if any(wait[cause] for wait in waits)]


def _waits_table(runs: Sequence[Run], names: Sequence[str]) -> list[Table]:
    """Why the requests waited, if any did: the causes that there were."""
    causes, waits = _causes(runs), [run.waits_s() for run in runs]
    if not causes:
        return []
    span = "" if runs[0].settings.window_s is None else ", from 0 s to the stop"
    title = f"Why the requests waited: seconds, the mean over all{span}"
    made = table(title, "allocator", "wait", *(WAITS[cause][0] for cause in causes))
    for name, wait in zip(names, waits, strict=True):
        made.add_row(name, f"{sum(wait.values()):,.2f}", *(f"{wait[cause]:,.2f}" for cause in causes))
    return [made]


def _percents(share: dict[str, float] | None, view: str) -> list[str]:
    if share is None:
        return ["-"] * len(VIEWS[view])
    return [f"{100 * part:.1f}" for part in view_shares(share, view).values()]


def _meanings(view: str, causes: Sequence[str]) -> dict[str, str]:
    """What the columns of the tables mean."""
    meanings = {part: MEANINGS[part] for part in VIEWS[view]} | {
        "refused (%)": REFUSED,
        "running": "requests at once: the mean over iterations (the most)",
        "preempted": "times a running request lost its memory and had to come back",
        "rejected": "longer than max-model-len, or than the pool can ever hold",
    }
    return meanings | {f"wait: {name}": meaning for cause, (name, meaning) in WAITS.items() if cause in causes}


def print_trace(requests: Trace, facts: Mapping[str, Any]) -> None:
    """What :func:`simulator.traces.trace.describe` found, and how the rows of the file were read."""
    out, report = console(), requests.report
    say(out, f"{printable(requests.name)}: {_requests(facts['rows'])} over {facts['duration_s']:,.1f} s", indent="")
    if report is not None:
        say(out, f"format {report}")
        if report.origin:
            say(out, f"the first arrives at {report.origin}; times are whole {spoken(report.resolution_ns)}")
        for note in report.notes:
            say(out, f"note: {note}")
    if extras := _extras(requests, facts):
        say(out, extras)
    if facts["rate_per_s"] is not None:
        gap_cv = facts["gap_cv"]
        gaps = "" if gap_cv is None else f"; standard deviation / mean of the gaps {gap_cv:.2f} (Poisson: 1)"
        say(out, f"{_three_digits(facts['rate_per_s'])} requests/s{gaps}")
    shown = table("", "tokens", "mean", "p50", "p99", "max")
    for name in ("prompt_tokens", "output_tokens"):
        figures = facts[name]
        shown.add_row(name.removesuffix("_tokens"), *(f"{figures[key]:,.0f}" for key in ("mean", "p50", "p99", "max")))
    print_table(out, shown)


def _extras(requests: Trace, facts: Mapping[str, Any]) -> str:
    """The prefix blocks and sessions of a trace, in words: what allocators can share, and what belongs together."""
    parts = []
    if (rows := facts["rows_with_blocks"]) is not None:
        tokens = None if requests.report is None else requests.report.block_tokens
        size = "of unknown size" if tokens is None else f"of {tokens:,} tokens"
        parts.append(f"{counted(rows, 'row')} with prefix blocks {size} (a run ignores them)")
    if (sessions := facts["sessions"]) is not None:
        parts.append(f"{sessions:,} session{'' if sessions == 1 else 's'}")
    return "; ".join(parts)


def _three_digits(rate: float) -> str:
    """A rate with three significant digits, never as a power of ten where it is large."""
    return f"{rate:,.0f}" if rate >= 999.5 else f"{rate:#.3g}".rstrip(".")


def _requests(count: int) -> str:
    return f"{count:,} request{'' if count == 1 else 's'}"


def as_json(runs: Sequence[Run], pool: PoolEstimate | None = None) -> dict[str, Any]:
    """The runs of one trace with the same settings, as ``--json`` writes them: no clock and no path in it.

    ``pool``: the sum that gave their pool, if one did.
    """
    return {
        "trace": asdict(runs[0].trace),
        "settings": runs[0].settings.to_dict(),
        "pool": None if pool is None else pool.to_dict(),
        "warnings": all_warnings(runs),
        "runs": [run.summary() for run in runs],
    }


def write_json(target: str, content: Mapping[str, Any]) -> None:
    """Write JSON to a file, or to standard output for ``-``."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        write_whole(Path(target), text.encode())
