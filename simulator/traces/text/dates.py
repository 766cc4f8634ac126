"""Dates read to whole nanoseconds, many at a time: ``2023-11-16 18:17:03.9799600``, ``2024-10-15T12:00:00.269Z``."""

import numpy as np

from simulator.traces.text.fields import (
    MAX_TIME_NS,
    MISSING,
    OK,
    OUT_OF_RANGE,
    UNREADABLE,
    Codes,
    Fields,
    Flags,
    IntArray,
    is_missing,
    read_times,
)

_SECONDS_END = 19  # of "YYYY-MM-DD hh:mm:ss"
_FRACTION_DIGITS = 9
_LONGEST = 64  # characters; a longer field is no date
_OFFSET_MARKS = np.frombuffer(b"Zz+-", np.uint8)


def read_dates(fields: Fields) -> tuple[IntArray, Codes, Flags]:
    """Nanoseconds since 1970, a problem code for each row, and whether its date knows its UTC offset.

    A date is ``YYYY-MM-DD hh:mm:ss`` with T or a blank in the middle; then a point and up to 9 fraction digits, or
    neither (more digits than nanoseconds have are no clock's); then ``Z``, ``+hh``, ``+hhmm``, ``+hh:mm`` or nothing. A
    date without an offset is read as if it were UTC: only differences matter. Dates before 1970 or after 2255 are out
    of range.
    """
    fields = fields.stripped()
    length = fields.end - fields.start
    day, day_fits = _days(fields)
    clock, clock_fits = _clock(fields)
    cut, digits_only = _fraction_end(fields)
    fraction = Fields(fields.data, fields.start + _SECONDS_END, fields.start + cut)
    nanoseconds, problem = read_times(fraction, 9)
    offset, aware, offset_fits = _offset(fields, cut)

    good = (length >= _SECONDS_END) & (length <= _LONGEST) & day_fits & clock_fits & digits_only & offset_fits
    good &= (cut == _SECONDS_END) | ((problem == OK) & (cut <= _SECONDS_END + 1 + _FRACTION_DIGITS))
    seconds = day * 86_400 + clock - offset
    in_range = (seconds >= 0) & (seconds < MAX_TIME_NS // 10**9)
    problem = np.where(good, np.where(in_range, OK, OUT_OF_RANGE), UNREADABLE).astype(np.uint8)
    for row in np.flatnonzero(problem == UNREADABLE).tolist():
        if length[row] < _SECONDS_END and is_missing(fields.text(row)):
            problem[row] = MISSING
    return np.where(problem == OK, seconds * 10**9 + nanoseconds, 0), problem, aware


NUMBER, NAIVE, AWARE = range(3)
"""Kinds of a time: a number, a date without a UTC offset, and one with it."""


def read_arrivals(fields: Fields, places: int, dates: bool) -> tuple[IntArray, Codes, Codes]:
    """Times in nanoseconds, a problem code for each row, and the kind of each time.

    ``places``: those of :func:`read_times`, or -1 where every time is a date; with ``dates`` it may be one, too.
    """
    if places < 0:
        time_ns, problem, aware = read_dates(fields)
        return time_ns, problem, np.where(aware, AWARE, NAIVE).astype(np.uint8)
    if not dates:
        time_ns, problem = read_times(fields, places)
        return time_ns, problem, np.full(len(fields), NUMBER, np.uint8)
    # What most rows are is read first, and only what cannot be read so is read the other way.
    time_ns, problem, kinds = read_arrivals(fields, -1 if _begins_with_a_date(fields) else places, False)
    rest = np.flatnonzero(problem == UNREADABLE)
    if rest.size:
        others = Fields(fields.data, fields.start[rest], fields.end[rest], fields.csv)
        again = read_arrivals(others, places if kinds[0] != NUMBER else -1, False)
        read = again[1] != UNREADABLE
        time_ns[rest[read]], problem[rest[read]], kinds[rest[read]] = (values[read] for values in again)
    return time_ns, problem, kinds


def _begins_with_a_date(fields: Fields) -> bool:
    """Whether the first field that is not empty looks like a date: ``2023-...``."""
    there = np.flatnonzero(fields.end > fields.start)
    return there.size > 0 and fields.text(int(there[0])).strip()[4:5] == "-"


def _number(fields: Fields, position: int | IntArray, digits: int = 2) -> tuple[IntArray, Flags]:
    """The number written in ``digits`` digits at ``position``, and whether they are digits."""
    value = np.zeros(len(fields), np.int64)
    fits = np.ones(len(fields), np.bool_)
    for step in range(digits):
        digit = fields.byte(position + step) - np.uint8(ord("0"))
        fits &= digit < 10
        value = value * 10 + digit
    return value, fits


def _days(fields: Fields) -> tuple[IntArray, Flags]:
    """Days from 1970 to the date at the front of each field, and whether there is such a date."""
    (year, fits), (month, two), (day, three) = _number(fields, 0, 4), _number(fields, 5), _number(fields, 8)
    fits &= two & three & (month >= 1) & (month <= 12) & (day >= 1)
    fits &= (fields.byte(4) == ord("-")) & (fields.byte(7) == ord("-"))
    months = (year - 1970) * 12 + month - 1
    first, next_first = (m.astype("M8[M]").astype("M8[D]").astype(np.int64) for m in (months, months + 1))
    return first + day - 1, fits & (first + day <= next_first)


def _clock(fields: Fields) -> tuple[IntArray, Flags]:
    """Seconds from midnight to the time of day behind the date, and whether there is such a time."""
    (hour, fits), (minute, two), (second, three) = (_number(fields, position) for position in (11, 14, 17))
    fits &= two & three & (hour < 24) & (minute < 60) & (second < 60)
    fits &= np.isin(fields.byte(10), np.frombuffer(b" Tt", np.uint8))
    fits &= (fields.byte(13) == ord(":")) & (fields.byte(16) == ord(":"))
    return (hour * 60 + minute) * 60 + second, fits


def _fraction_end(fields: Fields) -> tuple[IntArray, Flags]:
    """Where the fraction ends and the UTC offset begins, and whether the fraction is a point and digits, or nothing."""
    cut = np.maximum(fields.end - fields.start, _SECONDS_END)
    fits = np.ones(len(fields), np.bool_)
    for position in range(_SECONDS_END, min(int(cut.max(initial=0)), _LONGEST)):
        looking = fits & (position < cut)
        if not looking.any():
            break
        byte = fields.byte(position)
        offset = looking & np.isin(byte, _OFFSET_MARKS)
        cut[offset] = position
        expected = byte == ord(".") if position == _SECONDS_END else byte - np.uint8(ord("0")) < 10
        fits &= expected | ~looking | offset
    return cut, fits


def _offset(fields: Fields, cut: IntArray) -> tuple[IntArray, Flags, Flags]:
    """The UTC offset at ``cut`` in seconds, whether there is one, and whether what is there can be read."""
    left = fields.end - fields.start - cut
    aware = left > 0
    if not aware.any():
        return np.zeros(len(fields), np.int64), aware, np.ones(len(fields), np.bool_)
    mark = fields.byte(cut)
    zulu = (left == 1) & ((mark == ord("Z")) | (mark == ord("z")))
    (hour, hour_fits), (minute, minute_fits) = (
        _number(fields, cut + 1),
        _number(fields, cut + np.where(left == 6, 4, 3)),
    )
    minute_fits |= left == 3
    minute[left == 3] = 0
    fits = hour_fits & minute_fits & (hour < 24) & (minute < 60) & ((mark == ord("+")) | (mark == ord("-")))
    fits &= (left == 3) | (left == 5) | ((left == 6) & (fields.byte(cut + 3) == ord(":")))
    seconds = np.where(mark == ord("-"), -1, 1) * (hour * 60 + minute) * 60
    return np.where(aware & ~zulu, seconds, 0), aware, fits | zulu | ~aware
