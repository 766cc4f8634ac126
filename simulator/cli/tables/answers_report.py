"""What ``kvfrag size`` and ``fit`` print: a short table, and below it why."""

from collections.abc import Sequence

from rich.table import Table

from simulator.answers.fitting import Fit
from simulator.answers.sizing import Size
from simulator.answers.target import Target, Trial
from simulator.cli.tables.printing import console, print_head, print_meanings, print_tables, say, table
from simulator.cli.tables.report import MEANINGS, REFUSED
from simulator.messages.words import counted, printable
from simulator.results.views import VIEWS, view_shares
from simulator.server.hardware import Server
from simulator.traces.trace import Trace

_GIB = 1 << 30
_TIMES = 1.5
"""From this factor on a number is so many times another one; below, so many percent more."""


def print_sizes(
    trace: Trace, names: Sequence[str], sizes: Sequence[Size], server: Server, explain: bool = False
) -> None:
    """The smallest pools, by the names their allocators were given."""
    out = console()
    say(out, f"{printable(trace.name)}: {counted(len(trace), 'request')}; {sizes[0].target}", indent="")
    print_head(out, server.lines())
    print_tables(out, names, lambda short: [_sizes(short, sizes, server.bytes_per_slot)])
    for name, size in zip(names, sizes, strict=True):
        say(out, f"{name}: {_why(size)}")
    least, most = (pick(zip(sizes, names, strict=True), key=lambda one: one[0].capacity) for pick in (min, max))
    if most[0].capacity > least[0].capacity:
        more = compared(most[0].capacity / least[0].capacity, "times the pool of", "more slots than")
        out.print()
        say(out, f"{most[1]} needs {more} {least[1]}.")
    out.print()
    meanings = {
        "refused (%)": REFUSED,
        "p99 wait (s)": "99 % of the requests are admitted within that time",
        "running": "requests at once: the mean over iterations (the most)",
        "least": "a smaller pool cannot hold the largest request, even alone",
    }
    print_meanings(out, meanings, explain)


def compared(ratio: float, times: str, more: str) -> str:
    """How much larger one number is than another, ``ratio`` > 1: ``5.8 times ...``, or where it is less, ``4.1 % ...``.

    ``times`` and ``more``: how the one and the other go on.
    """
    if ratio >= _TIMES:
        return f"{ratio:,.1f} {times}"
    return f"{_small(100 * (ratio - 1))} % {more}"


def _small(percent: float) -> str:
    """A number > 0 with one decimal, or two where it is less than 1; never as 0."""
    if percent >= 0.95:
        return f"{percent:.1f}"
    return hundredths(percent)


def hundredths(number: float) -> str:
    """A number > 0 with two decimals; never as 0."""
    return f"{number:.2f}" if number >= 0.005 else "less than 0.01"


def _sizes(names: Sequence[str], sizes: Sequence[Size], bytes_per_slot: int | None) -> Table:
    columns = ["pool (slots)", "refused (%)", "p99 wait (s)", "running", "least (slots)"]
    columns[1:1] = [] if bytes_per_slot is None else ["pool (GiB)"]
    shown = table("The smallest pool that will do", "allocator", *columns)
    for name, size in zip(names, sizes, strict=True):
        answer = size.answer
        cells = [
            f"{size.capacity:,}",
            _percent(answer.refused),
            _seconds(answer.wait_p99_s),
            "-" if answer.mean_batch is None else f"{answer.mean_batch:.1f} ({answer.peak_batch:,})",
            f"{size.least:,}",
        ]
        cells[1:1] = [] if bytes_per_slot is None else [f"{size.capacity * bytes_per_slot / _GIB:.2f}"]
        shown.add_row(name, *cells)
    return shown


def _why(size: Size) -> str:
    """What speaks for the answer: the next smaller pool, and whether all that were tried agree."""
    if size.below is None:
        text = "no smaller pool can hold the largest request."
    else:
        text = f"with {size.below.capacity:,} slots, the next smaller pool, {_missed(size.below, size.target)}."
    if len(size.trials) == 1:
        return f"{text} No other pool was tried."
    tried = f"of the {len(size.trials)} pools tried"
    if not size.fails_above:
        return f"{text} More is better: {tried}, all larger ones meet the target and all smaller ones fail."
    count, most = len(size.fails_above), size.fails_above[-1]
    fail = f"{count} larger ones fail, the largest" if count > 1 else "a larger one fails,"
    safe = f"from {size.safe:,} on all meet the target"
    return f"{text} More is not always better: {tried}, {fail} of {most:,} slots; {safe}."


def _missed(trial: Trial, target: Target) -> str:
    """In which way a pool fails."""
    if target.max_refused is not None and trial.refused > target.max_refused:
        return f"the next request is refused in {_percent(trial.refused)} % of the time"
    return f"99 % wait up to {_seconds(trial.wait_p99_s)} s"


def print_fits(
    trace: Trace, names: Sequence[str], fits: Sequence[Fit], limit: int, server: Server, explain: bool = False
) -> None:
    """How many requests fit at once, and where the pool is then."""
    out, capacity = console(), fits[0].capacity
    about = f"{counted(len(trace), 'request')}; a pool of {capacity:,} token slots"
    say(out, f"{printable(trace.name)}: {about}", indent="")
    print_head(out, server.pool_lines())
    print_tables(out, names, lambda short: _fits(short, fits, limit))
    few, many = (pick(zip(fits, names, strict=True), key=lambda one: one[0].mean) for pick in (min, max))
    if many[0].mean > few[0].mean:
        more = compared(many[0].mean / few[0].mean, "times as many as", "more than")
        say(out, f"{many[1]} fits {more} {few[1]}: {_what_they_hold(few[0], many[0])}.")
        out.print()
    never = max(fit.never_fits for fit in fits)
    if never:
        say(out, f"Up to {never:,} of the requests fit in no pool of this size, and are left out.")
        out.print()
    meanings = {
        "5 to 95 %": "in 5 % of the time fewer, in 5 % more",
        f"all of {limit:,}": "how many of the longest requests, each about to end",
        "holds": "of a request, in the mean; and how many of these slots it has written so far",
        "preempted": "times per request, in the mean, that it lost its memory and had to come back",
        **{part: MEANINGS[part] for part in VIEWS["textbook"]},
    }
    print_meanings(out, meanings, explain)


def _fits(names: Sequence[str], fits: Sequence[Fit], limit: int) -> list[Table]:
    columns = ["on average", "5 to 95 %", f"all of {limit:,}", "holds (slots)", "of them written", "preempted"]
    shown = table("How many requests fit at once", "allocator", *columns)
    pool = table("Where the pool is then: %", "allocator", *VIEWS["textbook"])
    for name, fit in zip(names, fits, strict=True):
        shown.add_row(
            name,
            f"{fit.mean:,.1f}",
            f"{fit.low:,.0f} - {fit.high:,.0f}",
            f"{fit.all_longest:,}",
            f"{fit.held_slots:,.1f}",
            f"{fit.written_slots:,.1f}",
            f"{fit.preemptions:.2f}",
        )
        pool.add_row(name, *(f"{100 * part:.1f}" for part in view_shares(fit.share, "textbook").values()))
    return [shown, pool]


def _what_they_hold(few: Fit, many: Fit) -> str:
    held = f"a request holds {few.held_slots:,.0f} slots there for {few.written_slots:,.0f} that it has written"
    return f"{held}, and {many.held_slots:,.0f} here for {many.written_slots:,.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.3f}"


def _seconds(time_s: float | None) -> str:
    return "-" if time_s is None else f"{time_s:,.3f}"
