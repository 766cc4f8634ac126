"""``advise``: which block size for a paged pool, from what the requests of a trace write.

A large block leaves more of itself empty after the last token; a small one makes more blocks to manage and longer
block tables. What is lost depends on lengths alone: a request of P prompt and G output tokens has P, P + 1, ...,
P + G - 1 token states in its G iterations, and holds whole blocks. So the sums over all iterations of all requests are
closed forms, exact for any pool in which nobody is preempted. With a pool the trace is replayed too, and says what the
blocks make of queue and preemptions; a pool that is hardly ever full tells nothing of blocks, and lengths decide.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Unpack

import numpy as np
import pandas as pd

from allocators import InputError, Paged
from simulator.answers.blocks import comparable, entering, of_lengths
from simulator.answers.target import parse_share
from simulator.inputs import AnyTrace, check_trace
from simulator.messages.showing import Facts, Shown
from simulator.replay import simulate
from simulator.results.record import Source
from simulator.results.run_notes import merged
from simulator.server.hardware import Server, server_of
from simulator.server.keywords import ServerFields
from simulator.server.settings import Settings
from simulator.sweeps.bands import averaged, half_width
from simulator.sweeps.grid import Several
from simulator.sweeps.sources import drawn_traces, listed_seeds
from simulator.traces.trace import Trace

BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)

USUAL = 16
"""The block size that servers have unless told otherwise: vLLM's default."""

FULL = 0.5
"""Of the time, in how much memory must be refused, with every block size, for the replays to decide."""


@dataclass(frozen=True, eq=False, repr=False)
class Advice(Shown):
    """Block sizes side by side, and the one that is recommended."""

    table: pd.DataFrame
    """A row per block size (the index), see :func:`advise`; of several traces their means, ``table_most`` the most."""
    bands: pd.DataFrame
    """Half the 95 % intervals of these means; NaN for one trace."""
    below: pd.DataFrame
    """How far the share of each block size is below that of the best one, trace by trace: ``mean``, and ``half`` its
    95 % interval (NaN for one trace)."""
    best: int
    """The block size that is recommended, by :attr:`rule`."""
    share: str
    """The column that decides: ``written``, or with a pool that is full ``used``."""
    within: float
    requests: int
    """How many were counted: those within max_model_len, of all traces."""
    traces: Mapping[int | None, Trace]
    """Those that were compared, by seed; one that was not drawn is for None."""
    left_out: Mapping[int, str]
    """Block sizes that could not be compared, and why."""
    warnings: tuple[str, ...] = ()
    """What is worth a word about it, a sentence each."""

    @property
    def top(self) -> int:
        """The block size with the largest share, of those that turn the fewest requests away."""
        return int(self.below.index.to_numpy()[np.nanargmin(self.below["mean"])])

    @property
    def rule(self) -> str:
        """How :attr:`best` is chosen, in a sentence."""
        points = f"{100 * self.within:g} point{'' if self.within == 0.01 else 's'}"
        rule = f"take the largest block size that is at most {points} below the best"
        if len(self.traces) == 1:
            return rule
        unclear = f"up to the usual {USUAL}, also one that is not clearly further below it"
        return f"{rule} on average; {unclear} (95 % interval, seed by seed)"

    @property
    def reason(self) -> str:
        """Why lengths decide although there is a pool; "" where they do not, or there is none."""
        if "saturated" not in self.table or self.share == "used":
            return ""
        most = self.table["saturated"].max()
        if most == 0:
            return "The pool is never full: memory was never refused, so lengths decide."
        refused = f"memory was refused in {100 * self.table['saturated'].min():.1f} to {100 * most:.1f} % of the time"
        return f"The pool is not full for long: {refused}, and below {100 * FULL:g} % lengths decide."

    def to_dict(self) -> dict[str, Any]:
        """The advice as JSON holds it; what has no interval, or was not recommended for what it rejects, is null."""
        sizes = self.table.reset_index().to_dict("records")
        for row in sizes:
            mean, half = self.below.loc[row["block_size"]]
            row |= {"below_best": _or_none(mean), "below_best_half": _or_none(half)}
            row["half"] = {name: _or_none(value) for name, value in self.bands.loc[row["block_size"]].items()}
        return {
            "best": self.best,
            "by": self.share,
            "within": self.within,
            "rule": self.rule,
            "reason": self.reason or None,
            "traces": [{"seed": seed, **asdict(Source.of(trace))} for seed, trace in self.traces.items()],
            "left_out": [{"block_size": size, "why": why} for size, why in self.left_out.items()],
            "block_sizes": sizes,
        }

    def told(self) -> tuple[str, Facts]:
        """The advice in a few lines."""
        shares = self.table[self.share]
        facts = {
            "requests": f"{self.requests:,} of {next(iter(self.traces.values())).name}",
            "seeds": listed_seeds(self.traces),
            self.share: ", ".join(f"{size}: {100 * share:.2f} %" for size, share in shares.items()),
            "rule": self.rule,
            "decided by": self.reason,
            "left out": ", ".join(f"{size}: {why}" for size, why in self.left_out.items()),
        }
        return f"Advice: blocks of {self.best}", {name: value for name, value in facts.items() if value}


def advise(
    trace: AnyTrace,
    block_sizes: Sequence[int] = BLOCK_SIZES,
    *,
    capacity: int | None = None,
    within: float | str = 0.01,
    seeds: Several | None = None,
    on_run: Callable[[], object] = lambda: None,
    **settings: Unpack[ServerFields],
) -> Advice:
    """Compare block sizes on a trace, and find the largest that costs next to nothing: at most ``within`` of the best.

    ``trace``: a Trace, or what a command line names: a file, a workload. A workload is drawn with several ``seeds``, N
    from its own on (5 unless told otherwise), or those listed; the table then has means, and a block size up to the
    usual 16 is also taken where it is not clearly more than ``within`` below the best, see :attr:`Advice.rule`.

    From lengths, in the mean over all iterations of all requests, as a look at a running server shows them:
    ``written``, the fraction of the held slots that is token states; ``lost_slots``, those of a request's last block
    that are not; ``table_mean``, the entries of a block table. ``table_most``: of the longest request.
    ``blocks_taken``: handed out to a request in its life, in the mean over requests.

    With a pool (``capacity`` slots, ``memory`` of a ``model``, or what a ``gpu`` has left beside it), from a replay
    with ``settings``, those of :func:`~simulator.replay.simulate`:
    ``pool_blocks``, blocks to manage; ``used``, the fraction of the pool that is token states, and ``saturated``, the
    fraction of the time in which the next request was refused memory; ``mean_batch``, ``preemptions``, ``rejected``,
    ``duration_s``. ``used`` decides if memory was refused in half of the time or more with every block size, and
    ``written`` if not. Block sizes that can hold no request are left out; those that turn more requests away than
    others are not recommended. ``on_run`` is called whenever a run ends. Raises InputError for what is not allowed.
    """
    check_trace(trace)
    allowed = float(parse_share("within", within))
    server = server_of({"capacity": capacity, **settings}, "optional")
    return compare(drawn_traces(trace, seeds), block_sizes, server, allowed, on_run)


def compare(
    traces: Mapping[int | None, Trace],
    block_sizes: Sequence[int],
    server: Server,
    within: float,
    on_run: Callable[[], object],
) -> Advice:
    """The advice for traces that are drawn already, see :func:`advise`."""
    limits, capacity = server.settings, server.slots
    lengths = {seed: entering(trace, limits) for seed, trace in traces.items()}
    sizes, left_out = comparable(block_sizes, capacity, lengths, traces)
    tables, told = [], list[tuple[str, Sequence[str]]]()
    for seed, trace in traces.items():
        rows = [of_lengths(*lengths[seed], size) for size in sizes]
        if capacity is not None:
            for size, row in zip(sizes, rows, strict=True):
                figures, warnings = _replayed(trace, Paged(capacity, size), limits)
                row |= figures
                told.append((f"blocks of {size}{'' if seed is None else f', seed {seed}'}", warnings))
                on_run()
        tables.append(pd.DataFrame(rows, index=pd.Index(sizes, name="block_size")))
    table, bands = averaged(tables)
    table["table_most"] = np.max([table["table_most"] for table in tables], axis=0)
    share = "used" if capacity is not None and (table["saturated"] >= FULL).all() else "written"
    below = _below(tables, share)
    return Advice(
        *(table, bands, below, _best(below, within), share, within),
        requests=sum(len(prompts) for prompts, _ in lengths.values()),
        traces=traces,
        left_out=left_out,
        warnings=(*server.warnings, *merged(told)),
    )


def _below(tables: Sequence[pd.DataFrame], share: str) -> pd.DataFrame:
    """How far each block size's share is below the best one's; of those that turn more requests away, NaN."""
    shares = np.stack([table[share].to_numpy(float) for table in tables], axis=1)
    if "rejected" in tables[0]:
        rejected = np.sum([table["rejected"].to_numpy() for table in tables], axis=0)
        shares[rejected > rejected.min()] = np.nan
    below = shares[np.nanargmax(shares.mean(axis=1))] - shares
    halves = [half_width(row) for row in below]
    return pd.DataFrame({"mean": below.mean(axis=1), "half": halves}, index=tables[0].index)


def _best(below: pd.DataFrame, within: float) -> int:
    """The block size to take, see :attr:`Advice.rule`."""
    sizes, mean, half = below.index.to_numpy(), below["mean"].to_numpy(), below["half"].to_numpy()
    usual = (sizes <= USUAL) & (mean - half <= within)
    return int(sizes[(mean <= within) | usual].max())


def _or_none(number: float) -> float | None:
    return None if math.isnan(number) else float(number)


def _replayed(trace: Trace, allocator: Paged, limits: Settings) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The columns of the table that a replay gives, and what is to be said of the run."""
    run = simulate(trace, allocator, timeline_bins=0, progress=False, **vars(limits))
    figures = run.summary()
    if figures["share"] is None:
        raise InputError(f"{allocator.spec}: nothing ran, or it was over before the window began")
    columns = {
        "pool_blocks": allocator.blocks,
        "used": figures["share"]["used"],
        "saturated": figures["saturated_s"] / figures["duration_s"],
        "mean_batch": figures["mean_batch"],
        "preemptions": figures["preemptions"],
        "rejected": sum(figures["rejected"].values()),
        "duration_s": figures["duration_s"],
    }
    return columns, run.warnings
