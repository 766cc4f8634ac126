"""What ``kvfrag size``, ``fit`` and ``advise`` print: a short table, and below it why."""

from collections.abc import Sequence

from rich.table import Table

from simulator.advice import Advice
from simulator.fitting import Fit
from simulator.report import MEANINGS, console, legend, print_tables, table
from simulator.schema import counted
from simulator.server.models import Model
from simulator.sizing import Size
from simulator.standard import printable
from simulator.target import Target, Trial
from simulator.trace import Trace
from simulator.views import VIEWS, view_shares

_GIB = 1 << 30
_REFUSED = "of the time: the next request waited for memory"


def print_sizes(trace: Trace, names: Sequence[str], sizes: Sequence[Size], model: Model | None) -> None:
    """The smallest pools, by the names their allocators were given."""
    out = console()
    out.print(f"{printable(trace.name)}: {counted(len(trace), 'request')}; {sizes[0].target}\n", soft_wrap=True)
    print_tables(out, names, lambda short: [_sizes(short, sizes, model)])
    for name, size in zip(names, sizes, strict=True):
        out.print(f"  {name}: {_why(size)}", soft_wrap=True)
    least, most = (pick(zip(sizes, names, strict=True), key=lambda one: one[0].capacity) for pick in (min, max))
    if most[0].capacity > least[0].capacity:
        times = most[0].capacity / least[0].capacity
        out.print(f"\n  {most[1]} needs {times:.1f} times the pool of {least[1]}.", soft_wrap=True)
    out.print()
    out.print(
        legend(
            {
                "refused (%)": _REFUSED,
                "p99 wait (s)": "99 % of the requests are admitted within so long",
                "running": "requests at once: the mean over iterations (the most)",
                "least": "a smaller pool cannot hold the largest request, even alone",
            }
        )
    )


def _sizes(names: Sequence[str], sizes: Sequence[Size], model: Model | None) -> Table:
    columns = ["pool (slots)", "refused (%)", "p99 wait (s)", "running", "least (slots)"]
    columns[1:1] = [] if model is None else ["pool (GiB)"]
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
        cells[1:1] = [] if model is None else [f"{size.capacity * model.bytes_per_slot / _GIB:.2f}"]
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


def print_fits(trace: Trace, names: Sequence[str], fits: Sequence[Fit], limit: int, model: Model | None) -> None:
    """How many requests fit at once, and where the pool is then."""
    out, capacity = console(), fits[0].capacity
    memory = "" if model is None else f", {capacity * model.bytes_per_slot / _GIB:,.2f} GiB of {model.name}"
    out.print(
        f"{printable(trace.name)}: {counted(len(trace), 'request')}; a pool of {capacity:,} token slots{memory}\n"
    )
    print_tables(out, names, lambda short: _fits(short, fits, limit))
    few, many = (pick(zip(fits, names, strict=True), key=lambda one: one[0].mean) for pick in (min, max))
    if many[0].mean > few[0].mean:
        reason = _what_they_hold(few[0], many[0])
        out.print(f"  {many[1]} fits {many[0].mean / few[0].mean:.1f} times as many as {few[1]}: {reason}.\n")
    never = max(fit.never_fits for fit in fits)
    if never:
        out.print(f"  Up to {never:,} of the requests fit in no pool of this size, and are left out.\n")
    out.print(
        legend(
            {
                "5 to 95 %": "in 5 % of the time fewer, in 5 % more",
                f"all of {limit:,}": "how many of the longest requests, each about to end",
                "holds": "of a request, in the mean; and how many of these slots it has written so far",
                "preempted": "times a request, in the mean, that it lost its memory and had to come back",
                **{part: MEANINGS[part] for part in VIEWS["textbook"]},
            }
        )
    )


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


def print_advice(trace: Trace, advice: Advice, capacity: int | None) -> None:
    """Block sizes side by side, and which one to take."""
    out, rows = console(), advice.table
    pool = "" if capacity is None else f"; a pool of {capacity:,} token slots"
    out.print(f"{printable(trace.name)}: {counted(advice.requests, 'request')}{pool}\n")
    columns = ["lost (slots)", "written (%)", "table", "longest table", "blocks a request"]
    shown = table("What a block size costs: in the mean over iterations and requests", "block size", *columns)
    for block_size, row in rows.iterrows():
        shown.add_row(
            f"{block_size}{' *' if block_size == advice.best else ''}",
            f"{row['lost_slots']:,.2f}",
            f"{100 * row['written']:.2f}",
            f"{row['table_mean']:,.1f}",
            f"{row['table_most']:,.0f}",
            f"{row['blocks_taken']:,.1f}",
        )
    out.print(shown)
    meanings = {
        "lost": "slots of a running request's last block that are not written, or not yet",
        "written (%)": "of the slots held",
        "table": "entries of a running request's block table",
        "blocks a request": "handed out to a request in its life",
    }
    if capacity is not None:
        out.print(_replays(advice))
        meanings |= {"used (%)": "of the pool: written keys and values", "refused (%)": _REFUSED}
        meanings["running"] = "requests at once: the mean over iterations"
    out.print(f"  {_advice(advice)}\n", soft_wrap=True)
    out.print(legend(meanings))


def _replays(advice: Advice) -> Table:
    columns = ["blocks", "used (%)", "refused (%)", "running", "preempted", "rejected", "time (s)"]
    shown = table("What it makes of the pool", "block size", *columns)
    for block_size, row in advice.table.iterrows():
        shown.add_row(
            f"{block_size}{' *' if block_size == advice.best else ''}",
            f"{row['pool_blocks']:,.0f}",
            f"{100 * row['used']:.2f}",
            f"{100 * row['saturated']:.1f}",
            f"{row['mean_batch']:.1f}",
            f"{row['preemptions']:,.0f}",
            f"{row['rejected']:,.0f}",
            f"{row['duration_s']:,.1f}",
        )
    return shown


def _advice(advice: Advice) -> str:
    """The block size to take, and why no larger and no smaller one."""
    column, best = advice.table[advice.share], advice.best
    shares = dict(zip(column.index.tolist(), (100 * column).tolist(), strict=True))
    top, smallest, larger = max(shares, key=shares.__getitem__), min(shares), [size for size in shares if size > best]
    of = "the slots held are written" if advice.share == "written" else "the pool is written keys and values"
    text = f"* Blocks of {best}: {shares[best]:.2f} % of {of}"
    if top != best:
        text += f", {shares[top]:.2f} % with blocks of {top}"
    within = f"within {_points(100 * advice.within)} of the best"
    if larger:
        more = shares[best] - shares[larger[0]]
        text += f". It is the largest {within}; blocks of {larger[0]} lose {_points(round(more, 2))} more."
    else:
        text += f". Even these, the largest compared, are {within}."
    if smallest < best:
        tables = advice.table["table_mean"]
        text += f" Tables are {tables[smallest] / tables[best]:.1f} times as long with blocks of {smallest}."
    return text


def _points(percent: float) -> str:
    return f"{percent:g} point{'' if percent == 1 else 's'}"


def _percent(share: float) -> str:
    return f"{100 * share:.3f}"


def _seconds(time_s: float | None) -> str:
    return "-" if time_s is None else f"{time_s:,.3f}"
