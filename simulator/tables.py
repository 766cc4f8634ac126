"""The tables of a run: its time bins, and its requests."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np
import pandas as pd

from simulator.exact import Ints, added, seconds_of
from simulator.ledger import CATEGORIES
from simulator.run import REQUEST_TYPES, WAITED
from simulator.served import Served
from simulator.trace import Trace


def timeline_table(
    edges_ps: Sequence[int],
    parts: Mapping[str, list[int]],
    arrivals_ps: Sequence[int],
    starts_ps: Sequence[int],
    served: Served,
) -> pd.DataFrame:
    """``Run.timeline``: means over each bin between two edges, the part of it in which the head of the queue was
    refused although enough was free, and how many preemptions began in it.

    ``parts``: integrals over each bin; ``starts_ps``: when each request had waited for the first time.
    """
    lengths = [high - low for low, high in pairwise(edges_ps)]
    whole = {**{category: parts[category] for category in CATEGORIES}, "running": parts["running"]}
    again = [(since_ps, until_ps) for _, since_ps, until_ps in served.requeued_ps]
    waits = [*zip(arrivals_ps, starts_ps, strict=True), *again] if lengths else []
    whole |= {"waiting": _overlaps(waits, edges_ps), "largest_free": parts["largest"]}
    whole["refused_although_free"] = parts["external_ps"]
    seconds = seconds_of(edges_ps)
    means = {
        name: np.array([value / length_ps for value, length_ps in zip(values, lengths, strict=False)])
        for name, values in whole.items()
    }
    begun = sorted(since_ps for since_ps, _ in again)
    before = [bisect_left(begun, edge_ps) for edge_ps in edges_ps]
    if lengths:
        before[-1] = len(begun)  # those at the very end too: iterations of no time may end a run
    means["preemptions"] = np.diff(before).astype(np.float64)
    return pd.DataFrame({"start_s": seconds[:-1], "end_s": seconds[1:], **means})


def requests_table(
    trace: Trace, outputs: list[int], status: list[str], served: Served, waits_ps: Mapping[str, Ints]
) -> pd.DataFrame:
    """``Run.requests``; ``outputs`` after truncation, ``waits_ps`` by cause, in the order of ``waits.CAUSES``."""
    codes = {name: code for code, name in enumerate(REQUEST_TYPES["status"].categories)}
    preemptions = np.zeros(len(status), np.int64)
    preemptions[list(served.preemptions)] = list(served.preemptions.values())
    waits = dict(zip(WAITED, (added([*waits_ps.values()]), *waits_ps.values()), strict=True))
    return pd.DataFrame(
        {
            "arrival_s": seconds_of([time_ns * 1000 for time_ns in trace.arrival_ns.tolist()]),
            "prompt_tokens": trace.prompt_tokens.astype(np.int64),
            "output_tokens": np.array(outputs),
            "admitted_s": seconds_of(served.admitted_ps),
            "finished_s": seconds_of(served.finished_ps),
            "preemptions": preemptions,
            "status": pd.Categorical.from_codes([codes[one] for one in status], dtype=REQUEST_TYPES["status"]),
            **{f"{wait}_s": seconds_of(values) for wait, values in waits.items()},
            **{f"{wait}_ps": values for wait, values in waits.items()},
        }
    )


def _overlaps(spans_ps: Sequence[tuple[int, int]], edges_ps: Sequence[int]) -> list[int]:
    """For each bin, the time that the spans have in it, all together: exact, in picoseconds."""

    def passed(times: list[int]) -> list[int]:
        """Time from each of these instants to an edge, summed, for every edge."""
        sums = [0, *accumulate(times)]
        counts = [bisect_right(times, edge) for edge in edges_ps]
        return [count * edge - sums[count] for count, edge in zip(counts, edges_ps, strict=True)]

    begun, ended = (passed(sorted(span[side] for span in spans_ps)) for side in (0, 1))
    up_to = [high - low for high, low in zip(begun, ended, strict=True)]
    return [high - low for low, high in pairwise(up_to)]
