"""The tables of a run: its time bins, and its requests."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.results.exact import Ints, added, seconds_of
from simulator.results.ledger import CATEGORIES
from simulator.results.record import REQUEST_TYPES, WAITED
from simulator.traces.trace import Trace


def timeline_table(
    edges_ps: Sequence[int],
    parts: Mapping[str, list[int]],
    waiting: Iterable[tuple[Ints, Ints]],
    returning: list[int],
    preemptions: NDArray[np.int64],
) -> pd.DataFrame:
    """``Run.timeline``: means over each bin between two edges, the part of it in which the head of the queue was
    refused although enough was free, and how many preemptions began in it.

    ``parts``: integrals over each bin; ``waiting``: from when to when each request waited first, some at once;
    ``returning``: the integral of those that waited to come back.
    """
    lengths = [high - low for low, high in pairwise(edges_ps)]
    whole = {**{category: parts[category] for category in CATEGORIES}, "running": parts["running"]}
    first = _overlaps(waiting, edges_ps) if lengths else []
    whole |= {"waiting": [one + more for one, more in zip(first, returning, strict=False)]}
    whole |= {"largest_free": parts["largest"], "refused_although_free": parts["external_ps"]}
    seconds = seconds_of(edges_ps)
    means = {
        name: np.array([value / length_ps for value, length_ps in zip(values, lengths, strict=False)])
        for name, values in whole.items()
    }
    means["preemptions"] = preemptions[: len(lengths)].astype(np.float64)
    return pd.DataFrame({"start_s": seconds[:-1], "end_s": seconds[1:], **means})


def requests_table(
    trace: Trace,
    outputs: NDArray[np.int64],
    status: NDArray[np.int8],
    admitted_ps: Ints,
    finished_ps: Ints,
    preemptions: NDArray[np.int64],
    waits_ps: Mapping[str, Ints],
) -> pd.DataFrame:
    """``Run.requests``. ``outputs`` after truncation; ``status``: places in ``run.STATUS``; times of -1: it never came
    to that; ``waits_ps`` by cause, in the order of ``waits.CAUSES``."""
    waits = dict(zip(WAITED, (added([*waits_ps.values()]), *waits_ps.values()), strict=True))
    return pd.DataFrame(
        {
            "arrival_s": seconds_of(_picoseconds(trace.arrival_ns)),
            "prompt_tokens": trace.prompt_tokens.astype(np.int64),
            "output_tokens": outputs,
            "admitted_s": _seconds(admitted_ps),
            "finished_s": _seconds(finished_ps),
            "preemptions": preemptions,
            "status": pd.Categorical.from_codes(status, dtype=REQUEST_TYPES["status"]),
            **{f"{wait}_s": seconds_of(values) for wait, values in waits.items()},
            **{f"{wait}_ps": values for wait, values in waits.items()},
        }
    )


def _picoseconds(times_ns: NDArray[np.int64]) -> Ints:
    return times_ns.astype(object if int(times_ns[-1]) >> 52 else np.int64) * 1000


def _seconds(times_ps: Ints) -> NDArray[np.float64]:
    """Seconds, NaN where the time is -1."""
    seconds = seconds_of(times_ps)
    seconds[(times_ps < 0).astype(bool)] = np.nan
    return seconds


def _overlaps(spans: Iterable[tuple[Ints, Ints]], edges_ps: Sequence[int]) -> list[int]:
    """For each bin, the time that the spans have in it, all together: exact, in picoseconds."""
    up_to = [0] * len(edges_ps)
    for begun_ps, ended_ps in spans:
        sums = zip(_passed(begun_ps, edges_ps), _passed(ended_ps, edges_ps), strict=True)
        up_to = [total + begun - ended for total, (begun, ended) in zip(up_to, sums, strict=True)]
    return [high - low for low, high in pairwise(up_to)]


def _passed(times_ps: Ints, edges_ps: Sequence[int]) -> list[int]:
    """The time from each of these instants to an edge, where it is later, all together; for every edge."""
    ordered = np.sort(times_ps)
    high, low = (
        np.concatenate([np.zeros(1, ordered.dtype), np.cumsum(part)]) for part in (ordered >> 31, ordered & 0x7FFFFFFF)
    )
    counts = np.searchsorted(ordered, np.array(edges_ps, ordered.dtype), "right").tolist()
    return [
        count * edge - (int(high[count]) << 31) - int(low[count]) for count, edge in zip(counts, edges_ps, strict=True)
    ]
