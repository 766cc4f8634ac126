"""A trace before it is run: when requests arrive, and how long they are."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.plots.style import FONT_PT, INK, own_axes, settled
from simulator.traces.trace import Trace

_ARRIVALS, _LENGTHS = "#4477aa", ("#cc6677", "#4477aa")


def trace_overview(trace: Trace) -> Axes:
    """A small picture of a trace: how many requests arrive when, and how long they are. The axes of the arrivals."""
    left, right = Figure(figsize=(9.0, 3.2), layout="constrained").subplots(1, 2)
    arrivals_over_time(trace, left)
    length_distributions(trace, right)
    return settled(left)


def arrivals_over_time(trace: Trace, ax: Axes | None = None, bins: int = 120) -> Axes:
    """Requests a second, in equal time bins, no more than requests; all at once, they are shown as one of a second."""
    ax = ax or own_axes(5.0, 3.2)
    span_s, bins = (trace.duration_s, min(bins, len(trace))) if trace.duration_s else (1.0, 1)
    counts, edges = np.histogram(trace.arrival_ns / 1e9, bins, (0, span_s))
    ax.stairs(counts / (span_s / bins), edges, fill=True, color=_ARRIVALS)
    ax.set(xlabel="time (s)", ylabel="requests a second", xlim=(0, span_s), ylim=(0, None))
    return _plain(ax)


def length_distributions(trace: Trace, ax: Axes | None = None) -> Axes:
    """The share of requests with at most so many tokens, of prompts and of outputs."""
    ax = ax or own_axes(4.0, 3.2)
    share = np.linspace(0, 100, 401)
    for name, tokens, color in zip(
        ("prompt", "output"), (trace.prompt_tokens, trace.output_tokens), _LENGTHS[::-1], strict=True
    ):
        ax.step(np.percentile(tokens, share, method="inverted_cdf"), share, where="post", color=color, label=name)
    ax.set(xscale="log", xlabel="tokens", ylabel="requests with at most so many (%)", ylim=(0, 100))
    ax.legend(frameon=False, fontsize=FONT_PT)
    return _plain(ax)


def _plain(ax: Axes) -> Axes:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=FONT_PT, color=INK, labelcolor=INK)
    return ax
