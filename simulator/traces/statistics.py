"""The statistics of a trace: how many requests, how fast they come, and how long they are."""

import math
from typing import Any

import numpy as np

from simulator.traces.requests import RequestTable
from simulator.traces.text.fields import IntArray

_GAPS_AT_ONCE = 1 << 20


def describe(trace: RequestTable) -> dict[str, Any]:
    """The statistics of a trace: rows, duration_s, rate_per_s, ...; mean, p50, p99 and max of its tokens.

    ``duration_s``: from the first arrival to the last. ``rate_per_s``: rows / duration_s. ``gap_cv``: standard
    deviation / mean of the rows - 1 gaps between arrivals, of these gaps themselves (divided by their number, not one
    less), None for fewer than two. Both are None where all arrive at once. ``sessions``: how many different ones;
    ``rows_with_blocks``: how many rows have block hashes; None where the trace has none. p50 and p99: on the straight
    line between neighbours in rank.
    """
    spread = bool(trace.arrival_ns[-1])
    return {
        "rows": len(trace),
        "duration_s": trace.duration_s,
        "rate_per_s": len(trace) / trace.duration_s if spread else None,
        "gap_cv": _gap_cv(trace.arrival_ns) if spread and len(trace) > 2 else None,
        "sessions": None if trace.session is None else len(set(trace.session.tolist()) - {""}),
        "rows_with_blocks": None if trace.block_hashes is None else sum(map(bool, trace.block_hashes.tolist())),
        "prompt_tokens": _distribution(trace.prompt_tokens),
        "output_tokens": _distribution(trace.output_tokens),
    }


def _gap_cv(arrival_ns: IntArray) -> float:
    """Standard deviation / mean of the gaps, a chunk of them at a time."""
    gaps = len(arrival_ns) - 1
    mean = int(arrival_ns[-1]) / gaps
    chunks = (arrival_ns[first : first + _GAPS_AT_ONCE + 1] for first in range(0, gaps, _GAPS_AT_ONCE))
    return math.sqrt(sum(float(((np.diff(chunk) - mean) ** 2).sum()) for chunk in chunks) / gaps) / mean


def _distribution(tokens: IntArray) -> dict[str, float]:
    p50, p99 = np.percentile(tokens, [50, 99]).tolist()
    return {"mean": float(tokens.mean()), "p50": p50, "p99": p99, "max": int(tokens.max())}
