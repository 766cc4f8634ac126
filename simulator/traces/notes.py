"""What the arrivals of a file tell about its clock: where it starts, how finely it ticks, whether it can be right."""

from collections.abc import Iterator
from decimal import Decimal

import numpy as np

from simulator.traces.text.fields import IntArray

DATE, SECONDS, MILLISECONDS, MICROSECONDS, NANOSECONDS = -1, 9, 6, 3, 0
"""The unit of a format's time: decimal places from it down to nanoseconds, or a date."""

UNITS = {DATE: "dates", SECONDS: "s", MILLISECONDS: "ms", MICROSECONDS: "us", NANOSECONDS: "ns"}

LEAST_RATE, MOST_RATE = 0.01, 1000.0
"""Requests a second beyond which the unit of time is more likely wrong than the service that small or large."""

_ROWS_AT_ONCE = 1 << 16
_FEW = 10  # rows that say nothing of a clock or a rate


EPOCH, MONOTONIC = "epoch", "monotonic"
"""What a format's clock counts from, if it is known: the beginning of 1970 in UTC, or anywhere."""


def origin(first_ns: int, unit: int, aware: bool, clock: str = "") -> str:
    """The first arrival as its file has it: a date, or a number with its unit; of a known clock, what that is."""
    if unit == DATE or clock == EPOCH:
        aware |= clock == EPOCH
        return f"{np.datetime64(first_ns, 'ns')}".replace("T", " ") + ("Z" if aware else " (no UTC offset)")
    anywhere = " of a clock that began anywhere (monotonic: no date)" if clock == MONOTONIC else ""
    return f"{plain_decimal(first_ns, unit)} {UNITS[unit]}{anywhere}"


def plain_decimal(value: int, places: int) -> str:
    """A whole number / 10^places, written without an exponent and without needless zeros."""
    text = format(Decimal(value).scaleb(-places), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def resolution_ns(time_ns: IntArray) -> int:
    """The coarsest of 1 s, 0.1 s, ... 1 ns of which every time is a multiple: how finely they were written down."""
    power = 9
    for first in range(0, len(time_ns), _ROWS_AT_ONCE):
        while power and (time_ns[first : first + _ROWS_AT_ONCE] % 10**power).any():
            power -= 1
    return int(10**power)


def spoken(nanoseconds: int) -> str:
    """A power of ten of nanoseconds in the unit one would say it in: ``100 ns``, ``10 ms``."""
    power, unit = next(
        (power, unit) for power, unit in ((9, "s"), (6, "ms"), (3, "us"), (0, "ns")) if nanoseconds >= 10**power
    )
    return f"{nanoseconds // 10**power} {unit}"


def arrival_notes(time_ns: IntArray, unit: int) -> Iterator[str]:
    """What is odd about arrivals (sorted): quantised ones, all at once, a rate that no service has."""
    rows, span_ns = len(time_ns), int(time_ns[-1] - time_ns[0])
    if rows < _FEW:
        return
    if not span_ns:
        yield f"all {rows:,} requests arrive at once"
        return
    new = time_ns[1:] != time_ns[:-1]
    stamps = 1 + int(new.sum())
    # As few different stamps as this are seen when the clock ticks no finer than half the mean gap.
    if stamps < 0.8 * rows:
        step_s = float(np.median(np.diff(time_ns[np.flatnonzero(np.append(True, new))]))) / 1e9
        yield (
            f"arrivals are quantised: {rows:,} requests share {stamps:,} times, mostly {step_s:.3g} s apart; "
            "bursts within a step are the clock's"
        )
    rate = rows / (span_ns / 1e9)
    if not LEAST_RATE <= rate <= MOST_RATE:
        yield (
            f"{rate:,.3g} requests/s is implausible (outside {LEAST_RATE:g} to {MOST_RATE:,.0f}): "
            f"are the times in the file really {UNITS[unit]}?"
        )
