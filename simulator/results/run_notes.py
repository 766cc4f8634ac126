"""What is worth a word about runs: what their figures leave out, and what makes them hard to compare."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pandas as pd

from allocators import Allocator
from simulator.messages.words import counted
from simulator.results.run import Run

_REASONS = {
    "too_long": "longer than max_model_len",
    "never_fits": "more than the empty pool can hold",
}
_OTHER_WORK = "their figures are of different work"


def run_warnings(run: Run, allocator: Allocator) -> list[str]:
    """What is to be said of one run, a sentence each."""
    told = []
    limit = run.settings.max_model_len
    if run.settings.window_s is not None and not run.duration_ps:
        told.append("the run was over before the window began; nothing was measured")
    counts = {reason: run.counts[reason] for reason in _REASONS}
    if any(counts.values()):
        reasons = ", ".join(f"{count:,} {_REASONS[reason]}" for reason, count in counts.items() if count)
        of_all = f"{sum(counts.values()):,} of {counted(run.trace.requests, 'request')}"
        told.append(f"{of_all} rejected, and in no other figure: {reasons}")
    if limit is not None and limit > 1 and not allocator.fits_empty(1, limit - 1):
        told.append(
            f"the pool is too small for max_model_len: a request of {limit:,} tokens does not fit in "
            f"{run.capacity:,} slots, even alone"
        )
    if over := run.prompts_over_budget():
        told.append(f"{_over_budget(over)}; a budget above the longest prompt avoids that")
    return told


def _over_budget(count: int) -> str:
    prompts = "1 prompt is" if count == 1 else f"{count:,} prompts are"
    return (
        f"{prompts} longer than max_batch_tokens: such a request is admitted only when no other runs, and all that "
        "arrive after it wait until then"
    )


def comparison_warnings(runs: Sequence[Run]) -> list[str]:
    """What is to be said of several runs beside each other: those that rejected different requests."""
    rejected = [_rejected_rows(run) for run in runs]
    if all(one == other for one, other in pairwise(rejected)):
        return []
    counts = ", ".join(f"{run.name} {len(rows):,}" for run, rows in zip(runs, rejected, strict=True))
    return [f"not all rejected the same requests, and {_OTHER_WORK}; rejected were: {counts}"]


def _rejected_rows(run: Run) -> set[Any]:
    status = run.requests["status"]
    return set(run.requests.index[status.isin(list(_REASONS))].tolist())


def all_warnings(runs: Sequence[Run]) -> list[str]:
    """All that is to be said of several runs of one trace, each once: what is true of all of them without a name."""
    return [*merged([(run.name, run.warnings) for run in runs]), *comparison_warnings(runs)]


def merged(named: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """What is said of several things, by their names, each once: what is said of all of them without a name."""
    shared = [text for text in (named[0][1] if named else ()) if all(text in texts for _, texts in named)]
    own = [f"{name}: {text}" for name, texts in named for text in texts if text not in shared]
    return list(dict.fromkeys([*shared, *own]))


def table_warnings(results: pd.DataFrame) -> list[str]:
    """What is to be said of the runs of a sweep, a row each; of those that failed nothing."""
    done = results[results["error"].isna()]
    reasons = [f"rejected_{reason}" for reason in _REASONS]
    rejected, over = done[reasons].astype("int64").sum(axis=1), done["prompts_over_budget"]
    small = done["capacity"] < done["max_model_len"].astype("float64") - 1
    of = f"of {counted(len(done), 'run')}"
    told = []
    if rejected.any():
        seen = f"see {' and '.join(reasons)}"
        told.append(f"{(rejected > 0).sum():,} {of} rejected requests, up to {rejected.max():,}; {seen}")
        if (done.groupby(["rate", "seed"], dropna=False)[reasons].nunique() > 1).any(axis=None):
            told.append(f"not all runs rejected the same requests, and {_OTHER_WORK}")
    if small.any():
        told.append(f"in {small.sum():,} {of} the pool is smaller than max_model_len")
    if over.any():
        told.append(f"in {(over > 0).sum():,} {of} up to {_over_budget(int(over.max()))}; see prompts_over_budget")
    return told
