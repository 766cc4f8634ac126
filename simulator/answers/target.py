"""When a pool is good enough: a target, and what a run says of it."""

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction

import numpy as np

from allocators import InputError
from allocators.base import in_short
from simulator.results.run import Run
from simulator.server.cost import format_time_ps, parse_time_ps
from simulator.server.settings import MOST_SECONDS, to_ps


@dataclass(frozen=True)
class Target:
    """What is good enough; None: no matter. Make one with :meth:`of`."""

    max_refused: Fraction | None
    """Of the time, in how much at most the next request may wait for memory."""
    max_wait_p99_ps: int | None
    """How long at most 99 % of the requests may wait from arrival to (first) admission."""

    @classmethod
    def of(
        cls,
        max_refused: float | str | None,
        max_wait_p99: str | None,
        names: tuple[str, str] = ("max_refused", "max_wait_p99"),
    ) -> "Target":
        """The target of ``"1%"`` or 0.01, and of ``"2s"``. Raises InputError for what is neither, and for none.

        ``names``: what the two are called where they are given.
        """
        share, wait = names
        if max_refused is None and max_wait_p99 is None:
            raise InputError(f"what is good enough? {share}, such as 1%, or {wait}, such as 2s, or both")
        return cls(
            None if max_refused is None else parse_share(share, max_refused),
            None if max_wait_p99 is None else parse_time_ps(wait, max_wait_p99, MOST_SECONDS * 10**12),
        )

    def to_dict(self) -> dict[str, float | None]:
        """The target as JSON holds it."""
        share, wait_ps = self.max_refused, self.max_wait_p99_ps
        return {
            "max_refused": None if share is None else float(share),
            "max_wait_p99_s": None if wait_ps is None else wait_ps / 10**12,
        }

    def __str__(self) -> str:
        parts = []
        if self.max_refused is not None:
            parts.append(f"refused in at most {100 * float(self.max_refused):g} % of the time")
        if self.max_wait_p99_ps is not None:
            parts.append(f"99 % of the requests wait at most {format_time_ps(self.max_wait_p99_ps)}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Trial:
    """How a pool of ``capacity`` slots did. One that some request can never fit fails."""

    capacity: int
    meets: bool
    refused: float
    """Fraction of the time."""
    wait_p99_s: float | None
    """The least wait in seconds, to a nanosecond, that 99 % of the requests do not exceed; None: nobody came."""
    mean_batch: float | None
    """Requests running, over iterations; None: there were none."""
    peak_batch: int


def judged(run: Run, target: Target) -> Trial:
    """Whether a run meets the target. Raises InputError when it covers no time."""
    if not run.duration_ps:
        if run.settings.window_s is None:
            raise InputError(f"cost(={run.settings.cost}): the run takes no time, and there is nothing to measure")
        raise InputError(f"window(={' '.join(map(str, run.settings.window_s))}): the run was over before it")
    refused = Fraction(run.integrals["saturated_ps"], run.duration_ps)
    wait_ps = _wait_p99_ps(run)
    most_refused, most_ps = target.max_refused, target.max_wait_p99_ps
    meets = not run.counts["never_fits"]
    meets &= most_refused is None or refused <= most_refused
    meets &= most_ps is None or wait_ps is None or wait_ps <= most_ps
    figures = run.summary()
    wait_s = None if wait_ps is None else wait_ps / 10**12
    return Trial(run.capacity, meets, float(refused), wait_s, figures["mean_batch"], figures["peak_batch"])


def _wait_p99_ps(run: Run) -> int | None:
    """The 99th percentile (nearest rank) of the waits of those who arrived in the time covered and were served."""
    requests, window_s = run.requests, run.settings.window_s
    start_s = 0.0 if window_s is None else float(window_s[0])
    end_s = start_s + run.duration_ps / 10**12
    served = ~requests["status"].isin(["too_long", "never_fits", "not_arrived"])
    requests = requests[served & (requests["arrival_s"] >= start_s)]
    waits_s = (requests["admitted_s"].fillna(end_s) - requests["arrival_s"]).to_numpy()
    if not len(waits_s):
        return None
    rank = -(-99 * len(waits_s) // 100)
    # Times of days are floats good to some picoseconds: as nanoseconds they are exact.
    return to_ps(round(float(np.partition(waits_s, rank - 1)[rank - 1]), 9))


def parse_share(name: str, value: float | str) -> Fraction:
    """``"1%"``, ``"0.01"`` or 0.01 exactly as written. Raises InputError unless it is from 0 to below 1."""
    text = str(value).strip()
    try:
        number = Decimal(text.removesuffix("%"))
        if number.is_finite() and abs(number.adjusted()) < 30:
            share = Fraction(number) / (100 if text.endswith("%") else 1)
            if 0 <= share < 1:
                return share
    except InvalidOperation:
        pass
    raise InputError(f"{name}(={in_short(value)}) must be a share from 0 to below 1, such as 1% or 0.01")
