"""When requests arrive: random arrivals, all with the same mean rate, from smooth to bursty.

Each is a process that needs a rate in requests a second, and hands out arrivals in whole nanoseconds: so many
``requests``, or (None) all before ``seconds``. Chunks of random numbers are drawn whole, so a longer trace begins with
the shorter one. Raises InputError when arrivals lie too far apart for nanoseconds to be counted.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from numbers import Real

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from allocators.base import InputError, in_short
from simulator.traces.text.fields import MAX_TIME_NS, IntArray

Seconds = NDArray[np.float64]
CHUNK = 1 << 16


def poisson_arrivals(rate: float, requests: int | None, seconds: float, generator: Generator) -> IntArray:
    """A Poisson process: gaps are exponential, their standard deviation / mean is 1."""
    gaps = (generator.standard_exponential(CHUNK) / rate for _ in count())
    return _collected(_times(gaps), rate, requests, seconds)


def gamma_arrivals(rate: float, cv: float, requests: int | None, seconds: float, generator: Generator) -> IntArray:
    """Gaps of a gamma distribution with the standard deviation / mean ``cv``: below 1 smoother, above burstier.

    Fitted to real traces by BurstGPT (Wang et al., KDD 2025) and, as here, drawn independently of each other.
    """
    gaps = (generator.standard_gamma(cv**-2, CHUNK) * (cv**2 / rate) for _ in count())
    return _collected(_times(gaps), rate, requests, seconds)


def onoff_arrivals(
    rate: float, on_s: float, off_s: float, requests: int | None, seconds: float, generator: Generator
) -> IntArray:
    """An interrupted Poisson process: arrivals only in phases that last ``on_s`` seconds, ``off_s`` apart.

    Both are means of exponential lengths; it begins with a phase. Over all time the rate is ``rate``. The gaps have the
    squared standard deviation / mean 1 + 2 r on off^2 / (on + off)^2 with r = rate (on + off) / on (Kuczura, 1973).
    """
    inside, phases = generator.spawn(2)
    busy = rate * (on_s + off_s) / on_s
    gaps = (inside.standard_exponential(CHUNK) / busy for _ in count())
    return _collected(_stretched(_times(gaps), on_s, off_s, phases), rate, requests, seconds)


def onoff_cv(rate: float, on_s: float, off_s: float) -> float:
    """Standard deviation / mean of the gaps of :func:`onoff_arrivals`."""
    busy = rate * (on_s + off_s) / on_s
    return math.sqrt(1 + 2 * busy * on_s * off_s**2 / (on_s + off_s) ** 2)


def positive(name: str, value: object) -> None:
    """Raise InputError unless the value is a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise InputError(f"{name}(={in_short(value)}) must be a finite number > 0")


def _times(gaps: Iterator[Seconds]) -> Iterator[Seconds]:
    now = 0.0
    for some in gaps:
        times = now + np.cumsum(some)
        now = float(times[-1])
        yield times


def _stretched(busy_times: Iterator[Seconds], on_s: float, off_s: float, generator: Generator) -> Iterator[Seconds]:
    """Times on a clock that runs in phases only, put on one that runs on between them."""
    ends, pauses = np.zeros(0), np.zeros(1)  # of phases on the busy clock; all pauses before each phase
    for times in busy_times:
        while not ends.size or ends[-1] <= times[-1]:
            lasting = np.cumsum(generator.standard_exponential(CHUNK)) * on_s
            pausing = np.cumsum(generator.standard_exponential(CHUNK)) * off_s
            ends = np.append(ends, lasting + (ends[-1] if ends.size else 0.0))
            pauses = np.append(pauses, pausing + pauses[-1])
        yield times + pauses[np.searchsorted(ends, times, side="right")]


def _collected(chunks: Iterator[Seconds], rate: float, requests: int | None, seconds: float) -> IntArray:
    parts: list[IntArray] = []
    found = 0
    for times in chunks:
        last = float(times[-1])
        times = times[times < seconds] if requests is None else times[: requests - found]
        found += len(times)
        if found and times[-1:].max(initial=0) >= MAX_TIME_NS / 1e9:
            raise InputError(f"rate(={rate:g}) must be higher: arrivals go beyond {MAX_TIME_NS / 1e9:g} s")
        parts.append(np.rint(times * 1e9).astype(np.int64))
        if last >= seconds if requests is None else found >= requests:
            break
    return np.concatenate(parts)


Arrivals = Callable[[int | None, float, Generator], IntArray]


def arrivals_of(rate: float, cv: float | None, on_s: float | None, off_s: float | None) -> Arrivals:
    """The process of a workload's options: gamma with ``cv``, on/off with ``on_s`` and ``off_s``, else Poisson."""
    if cv is not None:
        return partial(gamma_arrivals, rate, cv)
    if on_s is not None and off_s is not None:
        return partial(onoff_arrivals, rate, on_s, off_s)
    return partial(poisson_arrivals, rate)
