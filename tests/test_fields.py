"""Numbers and dates read from text, held against Python's own decimal and datetime."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import ROUND_HALF_EVEN, Decimal, localcontext

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simulator.traces.text.dates import read_dates
from simulator.traces.text.fields import (
    MAX_TIME_NS,
    MAX_TOKENS,
    PROBLEMS,
    Fields,
    read_counts,
    read_hashes,
    read_times,
)


def times(texts: list[str], places: int = 9) -> list[int | str]:
    """Nanoseconds, or what is wrong."""
    values, problems = read_times(Fields.of(texts), places)
    return [PROBLEMS[p] if p else v for v, p in zip(values.tolist(), problems.tolist(), strict=True)]


def counts(texts: list[str]) -> list[int | str]:
    values, problems = read_counts(Fields.of(texts))
    return [PROBLEMS[p] if p else v for v, p in zip(values.tolist(), problems.tolist(), strict=True)]


def dates(texts: list[str]) -> list[int | str]:
    values, problems, _ = read_dates(Fields.of(texts))
    return [PROBLEMS[p] if p else v for v, p in zip(values.tolist(), problems.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("-0.0", 0),
        ("0.1", 100_000_000),
        (" 5\t", 5_000_000_000),
        ("1.", 1_000_000_000),
        (".5", 500_000_000),
        ("+2", 2_000_000_000),
        ("1e3", 1_000_000_000_000),
        ("1.5E-9", 2),  # 1.5 ns: halves to even
        ("0.0000000005", 0),
        ("0.0000000015", 2),
        ("0.0000000025", 2),
        ("0.00000000250000000000000000000001", 3),  # beyond what 19 digits can say
        ("0.30000000000000004", 300_000_000),
        ("1700000000.123456789", 1_700_000_000_123_456_789),
        ("9000000000", MAX_TIME_NS),
        ("1e-999999999", 0),
        ("0e999999999", 0),
        ("9000000000.000000001", "out of range"),
        ("99999999999999999999", "out of range"),
        ("1e999999999", "out of range"),
        ("1e25", "out of range"),
        ("-1e-12", "negative"),
        ("-3", "negative"),
        ("", "missing or not finite"),
        ("NaN", "missing or not finite"),
        ("-Infinity", "missing or not finite"),
        ("<NA>", "missing or not finite"),
        ("1_000", "unreadable"),
        ("1,5", "unreadable"),
        (".", "unreadable"),
        ("1.2.3", "unreadable"),
        ("0x10", "unreadable"),
        ("٣", "unreadable"),
        ("2023-11-16 18:17:03", "unreadable"),
        ("True", "unreadable"),
    ],
)
def test_seconds(text: str, expected: int | str) -> None:
    assert times([text]) == [expected]


def test_the_unit_is_a_matter_of_places() -> None:
    assert times(["27000", "0.5"], places=6) == [27_000_000_000, 500_000]
    assert times(["1.0005"], places=3) == [1000]
    assert times(["1.5", "2.5"], places=0) == [2, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("446", 446),
        ("446.0", 446),
        ("4.46e2", 446),
        ("007", 7),
        ("1000000000", MAX_TOKENS),
        ("1000000001", "out of range"),
        ("1e400", "out of range"),
        ("446.5", "fractional"),
        ("0.5", "fractional"),
        ("1e-40", "fractional"),
        ("0", "below 1"),
        ("0.0", "below 1"),
        ("-4", "below 1"),
        ("-4.5", "below 1"),
        ("", "missing or not finite"),
        ("nan", "missing or not finite"),
        ("None", "missing or not finite"),
        ("ten", "unreadable"),
    ],
)
def test_counts(text: str, expected: int | str) -> None:
    assert counts([text]) == [expected]


@given(st.lists(st.from_regex(r"[0-9]{0,22}\.?[0-9]{0,22}(e-?[0-9]{1,2})?", fullmatch=True)))
@example(["9223372036854775807", "18446744073709551615", "18446744073709551616", "0.18446744073709551616"])
def test_seconds_are_what_decimal_says(texts: list[str]) -> None:
    for text, got in zip(texts, times(texts), strict=True):
        with localcontext(prec=200):
            try:
                exact = Decimal(text) * 10**9
            except ArithmeticError:
                assert got in ("unreadable", "missing or not finite")
                continue
            rounded = int(exact.to_integral_value(ROUND_HALF_EVEN))
        assert got == (rounded if rounded <= MAX_TIME_NS else "out of range")


@given(st.lists(st.integers(0, MAX_TIME_NS)))
def test_nanoseconds_written_as_seconds_come_back(values: list[int]) -> None:
    assert times([f"{v // 10**9}.{v % 10**9:09d}" for v in values]) == values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01 00:00:00", 0),
        ("2023-11-16 18:17:03.9799600", 1_700_158_623_979_960_000),
        ("2024-05-10 00:00:00.009930+00:00", 1_715_299_200_009_930_000),
        ("2024-05-10 00:00:01+00:00", 1_715_299_201_000_000_000),
        ("2024-10-15T12:00:00.269Z", 1_728_993_600_269_000_000),
        ("2024-02-29t01:00:00z", 1_709_168_400_000_000_000),
        ("2024-02-29 00:00:00+0530", 1_709_145_000_000_000_000),
        ("2024-02-29 00:00:00-05", 1_709_182_800_000_000_000),
        ("2024-02-29 00:00:00.000000001", 1_709_164_800_000_000_001),
        ("2024-02-29 00:00:00.999999999Z", 1_709_164_800_999_999_999),
        ("  2024-02-29 00:00:00 ", 1_709_164_800_000_000_000),
        ("1969-12-31 23:59:59", "out of range"),
        ("1970-01-01 00:00:00+01:00", "out of range"),
        ("9999-12-31 23:59:59", "out of range"),
        ("2023-02-29 00:00:00", "unreadable"),
        ("2024-13-01 00:00:00", "unreadable"),
        ("2024-00-01 00:00:00", "unreadable"),
        ("2024-01-01 24:00:00", "unreadable"),
        ("2024-01-01 23:59:60", "unreadable"),
        ("2024-01-01_00:00:00", "unreadable"),
        ("2024-01-01 00:00", "unreadable"),
        ("2024-01-01", "unreadable"),
        ("2024-01-01 00:00:00.", "unreadable"),
        ("2024-01-01 00:00:00.5e3", "unreadable"),
        ("2024-02-29 00:00:00.0000000005", "unreadable"),
        ("2024-02-29 00:00:00.0000000000Z", "unreadable"),
        ("2024-01-01 00:00:00,5", "unreadable"),
        ("2024-01-01 00:00:00 UTC", "unreadable"),
        ("2024-01-01 00:00:00+1", "unreadable"),
        ("2024-01-01 00:00:00+01.00", "unreadable"),
        ("2024-01-01 00:00:00+25:00", "unreadable"),
        ("2024-01-01 00:00:00Z1", "unreadable"),
        ("2024-01-01 00:00:00." + "0" * 60, "unreadable"),
        ("5", "unreadable"),
        ("", "missing or not finite"),
    ],
)
def test_dates(text: str, expected: int | str) -> None:
    assert dates([text]) == [expected]


MOMENTS = st.datetimes(datetime(1971, 1, 1), datetime(2254, 1, 1))
OFFSETS = st.none() | st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.lists(st.tuples(MOMENTS, OFFSETS, st.sampled_from("T "))))
def test_dates_are_what_datetime_says(moments: list[tuple[datetime, timezone | None, str]]) -> None:
    written = [moment.replace(tzinfo=zone) for moment, zone, _ in moments]
    texts = [moment.isoformat(sep) for moment, (_, _, sep) in zip(written, moments, strict=True)]
    values, problems, aware = read_dates(Fields.of(texts))
    assert not problems.any()
    assert aware.tolist() == [zone is not None for _, zone, _ in moments]
    for moment, value in zip(written, values.tolist(), strict=True):
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        assert value == since // timedelta(microseconds=1) * 1000


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=70)))
def test_any_text_is_a_value_or_a_problem(texts: list[str]) -> None:
    for got in times(texts) + counts(texts) + dates(texts):
        assert got in PROBLEMS[1:] or (isinstance(got, int) and 0 <= got <= MAX_TIME_NS)
    assert Fields.of(texts).texts() == texts


def test_block_hashes_keep_every_bit() -> None:
    texts = ["[0, 1, 18446744073709551615]", "3 4", "", "[]", "[-1]", "[1.0]", "[18446744073709551616]", "[[1]]"]
    rows, problems = read_hashes(Fields.of([*texts, "9" * 5000]))
    assert rows[:4] == [(0, 1, 2**64 - 1), (3, 4), (), ()]
    assert [PROBLEMS[p] for p in problems.tolist()] == ["ok"] * 4 + ["unreadable"] * 2 + [
        "out of range",
        "unreadable",
        "out of range",
    ]
