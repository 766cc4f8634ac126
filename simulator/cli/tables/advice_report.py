"""What ``kvfrag advise`` prints: block sizes side by side, which one to take, and why."""

from collections.abc import Callable, Sequence
from math import isnan
from typing import Any

import pandas as pd
from rich.table import Table

from simulator.answers.advice import Advice
from simulator.cli.tables.answers_report import compared, hundredths
from simulator.cli.tables.printing import console, print_head, print_meanings, print_table, say, table
from simulator.cli.tables.report import REFUSED
from simulator.messages.words import counted, printable
from simulator.server.hardware import Server
from simulator.sweeps.sources import listed_seeds

_BELOW = "below best"


def print_advice(advice: Advice, server: Server, explain: bool = False) -> None:
    """Block sizes side by side, and which one to take."""
    out, seeds, capacity = console(), listed_seeds(advice.traces), server.slots
    about = [f"{printable(next(iter(advice.traces.values())).name)}: {counted(advice.requests, 'request')}"]
    if len(advice.traces) > 1:
        about.append(f" of seeds {seeds}, in the mean ± its 95 % interval")
    about.append("" if capacity is None else f"; a pool of {capacity:,} token slots")
    say(out, "".join(about), indent="")
    for why in dict.fromkeys(advice.left_out.values()):
        sizes = [size for size, reason in advice.left_out.items() if reason == why]
        say(out, f"{counted(len(sizes), 'block size')} left out, {_listed(sizes)}: {why}.")
    print_head(out, [] if capacity is None else server.lines())
    meanings = {
        "lost": "slots of a running request's last block that are not written, or not yet",
        "written (%)": "of the slots held: written keys and values",
        "table": "entries of a running request's block table",
        "blocks per request": "handed out to a request in its life",
    }
    print_table(out, _costs(advice))
    if capacity is not None:
        print_table(out, _replays(advice))
        meanings |= {"used (%)": "of the pool: written keys and values", "refused (%)": REFUSED}
        meanings["running"] = "requests at once: the mean over iterations"
    meanings[_BELOW] = f"how far below the best block size, in points of {advice.share} (%)"
    if len(advice.traces) > 1:
        meanings["±"] = f"95 % interval of the mean of {len(advice.traces)} seeds (Student's t)"
    say(out, f"* {_advice(advice)}")
    say(out, f"Rule: {advice.rule}.")
    out.print()
    print_meanings(out, meanings, explain)


def _costs(advice: Advice) -> Table:
    def cells(block_size: int, row: "pd.Series[Any]") -> list[str]:
        return [
            f"{row['lost_slots']:,.2f}",
            _share(advice, block_size, "written"),
            f"{row['table_mean']:,.1f}",
            f"{row['table_most']:,.0f}",
            f"{row['blocks_taken']:,.1f}",
        ]

    columns = ["lost (slots)", "written (%)", "table", "longest table", "blocks per request"]
    title = "What a block size costs: in the mean over iterations and requests"
    return _by_block_size(title, columns, cells, advice, "written")


def _replays(advice: Advice) -> Table:
    decimals = 0 if len(advice.traces) == 1 else 1

    def cells(block_size: int, row: "pd.Series[Any]") -> list[str]:
        return [
            f"{row['pool_blocks']:,.0f}",
            _share(advice, block_size, "used"),
            f"{100 * row['saturated']:.1f}",
            f"{row['mean_batch']:.1f}",
            f"{row['preemptions']:,.{decimals}f}",
            f"{row['rejected']:,.{decimals}f}",
            f"{row['duration_s']:,.1f}",
        ]

    columns = ["blocks", "used (%)", "refused (%)", "running", "preempted", "rejected", "time (s)"]
    return _by_block_size("What it makes of the pool", columns, cells, advice, "used")


def _by_block_size(
    title: str, columns: Sequence[str], cells: "Callable[[int, pd.Series[Any]], list[str]]", advice: Advice, share: str
) -> Table:
    """A table with a row per block size; where its ``share`` decides, it says too how far each is below the best."""
    decides = share == advice.share
    place = list(columns).index(f"{share} (%)") + 1
    shown = table(title, "block size", *columns[:place], *([_BELOW] if decides else []), *columns[place:])
    for block_size in advice.table.index.tolist():
        mean, half = _below(advice, block_size)
        below = ["-" if isnan(mean) else _banded(mean, half)] if decides else []
        mark = " *" if block_size == advice.best else ""
        own = cells(block_size, advice.table.loc[block_size])
        shown.add_row(f"{block_size}{mark}", *own[:place], *below, *own[place:])
    return shown


def _share(advice: Advice, block_size: int, column: str) -> str:
    """A share in percent, with its band where there is one."""
    mean, half = (100 * float(frame[column].loc[block_size]) for frame in (advice.table, advice.bands))
    return _banded(mean, half)


def _below(advice: Advice, block_size: int) -> tuple[float, float]:
    """How far a block size is below the best, in points, and half its interval."""
    return 100 * float(advice.below["mean"].loc[block_size]), 100 * float(advice.below["half"].loc[block_size])


def _banded(mean: float, half: float) -> str:
    return f"{mean:.2f}" if isnan(half) else f"{mean:.2f} ± {half:.2f}"


def _advice(advice: Advice) -> str:
    """The block size to take, and why no larger and no smaller one."""
    best, top = advice.best, advice.top
    of = "the slots held are written" if advice.share == "written" else "the pool is written keys and values"
    text = f"Blocks of {best}: {_share(advice, best, advice.share)} % of {of}"
    if top != best:
        text += f", {_points(advice, best)} below blocks of {top}, the best"
    compared_with = advice.below["mean"].dropna()
    if larger := [size for size in compared_with.index if size > best]:
        text += f". Blocks of {larger[0]} are {_points(advice, larger[0])} below the best"
    smallest, tables = min(advice.table.index), advice.table["table_mean"]
    if smallest < best and tables[smallest] > tables[best]:
        longer = compared(tables[smallest] / tables[best], "times as long", "longer")
        text += f". Tables are {longer} with blocks of {smallest}"
    unfair = [size for size in advice.table.index if size not in compared_with.index]
    turned = f"Not recommended, since they turn away requests that others serve: blocks of {_listed(unfair)}."
    return " ".join([f"{text}.", *([turned] if unfair else []), advice.reason]).strip()


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))


def _points(advice: Advice, block_size: int) -> str:
    """How far a block size is below the best, in points."""
    mean, half = _below(advice, block_size)
    return f"{hundredths(mean) if isnan(half) else _banded(mean, half)} points"
