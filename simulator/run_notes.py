"""What is worth a word about runs: what their figures leave out, and what makes them hard to compare."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pandas as pd

from allocators import Allocator
from simulator.run import Run
from simulator.schema import counted
from simulator.settings import Settings

_REASONS = {
    "too_long": "longer than max_model_len",
    "never_fits": "more than the empty pool can hold",
}


def run_warnings(
    prompts: Sequence[int], status: Sequence[str], allocator: Allocator, settings: Settings, duration_ps: int
) -> list[str]:
    """What is to be said of one run that covers so much time, a sentence each.

    ``prompts``: tokens, one per request; ``status``: why each request was rejected, or "".
    """
    told = []
    if settings.window_s is not None and not duration_ps:
        told.append("the run was over before the window began; nothing was measured")
    if any(status):
        told.append(_rejected(status))
    limit, budget = settings.max_model_len, settings.max_batch_tokens
    if limit is not None and limit > 1 and not allocator.fits_empty(1, limit - 1):
        told.append(
            f"the pool is too small for max_model_len: a request of {limit:,} tokens does not fit in "
            f"{int(allocator.capacity):,} slots, even alone"
        )
    if budget is not None:
        over = sum(prompt > budget for prompt, reason in zip(prompts, status, strict=True) if not reason)
        if over:
            told.append(f"{_over_budget(over)}; a budget above the longest prompt avoids that")
    return told


def _rejected(status: Sequence[str]) -> str:
    counts = {reason: sum(one == reason for one in status) for reason in _REASONS}
    reasons = ", ".join(f"{count:,} {_REASONS[reason]}" for reason, count in counts.items() if count)
    of_all = f"{sum(counts.values()):,} of {counted(len(status), 'request')}"
    return f"{of_all} rejected, and left out of all figures: {reasons}"


def _over_budget(count: int) -> str:
    prompts = "1 prompt is" if count == 1 else f"{count:,} prompts are"
    return (
        f"{prompts} longer than max_batch_tokens: such a request is admitted only when no other runs, and all that "
        "arrive after it wait until then"
    )


def comparison_warnings(runs: Sequence[Run]) -> list[str]:
    """What is to be said of several runs beside each other: those that rejected different requests."""
    rejected = [_rejected_rows(run) for run in runs]
    if all(one == other for one, other in combinations(rejected, 2)):
        return []
    counts = ", ".join(f"{run.name} {len(rows):,}" for run, rows in zip(runs, rejected, strict=True))
    return [f"not all served the same requests; rejected were: {counts}. Their figures are of different work"]


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
    """What is to be said of the runs of a sweep, a row each, those that failed left out."""
    done = results[results["error"].isna()]
    reasons = [f"rejected_{reason}" for reason in _REASONS]
    rejected = done[reasons].astype("int64")
    of = f"of {counted(len(done), 'run')}"
    told = []
    if most := int(rejected.sum(axis=1).max()) if len(done) else 0:
        runs = int((rejected.sum(axis=1) > 0).sum())
        columns = " and ".join(reasons)
        told.append(
            f"{runs:,} {of} rejected requests, up to {most:,}, and leave them out of all figures; see {columns}"
        )
        if done.groupby(["rate", "seed"], dropna=False)[reasons].nunique().gt(1).any(axis=None):
            told.append(
                "not all runs served the same requests; the figures of those that did not are of different work"
            )
    small = int((done["capacity"] < done["max_model_len"].astype("float64") - 1).sum())
    if small:
        told.append(f"in {small:,} {of} the pool is smaller than max_model_len")
    if most := int(done["prompts_over_budget"].max()) if len(done) else 0:
        runs = int((done["prompts_over_budget"] > 0).sum())
        told.append(f"in {runs:,} {of} up to {_over_budget(most)}; see prompts_over_budget")
    return told
