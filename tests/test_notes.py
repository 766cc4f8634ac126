"""What a file's arrivals tell: where they start, how finely they were written down, and whether they can be right."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.traces.notes import (
    DATE,
    EPOCH,
    MILLISECONDS,
    MONOTONIC,
    NANOSECONDS,
    SECONDS,
    arrival_notes,
    origin,
    plain_decimal,
    resolution_ns,
)
from simulator.traces.trace import Trace

HEAD = "arrival_s,prompt_tokens,output_tokens\n"


def poisson(rate: float, rows: int = 500) -> NDArray[np.int64]:
    gaps = np.random.default_rng(0).exponential(1e9 / rate, rows)
    return np.cumsum(gaps).astype(np.int64)


def report_of(folder: Path, text: str) -> tuple[str, int, tuple[str, ...]]:
    (folder / "trace").write_text(text)
    report = Trace.read(folder / "trace").report
    assert report is not None
    return report.origin, report.resolution_ns, report.notes


def test_origin_and_resolution(tmp_path: Path) -> None:
    azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    azure += "2023-11-16 18:17:04.0319600{0},1,1\n2023-11-16 18:17:03.97996{0},1,1\n"
    assert report_of(tmp_path, azure.format("")) == ("2023-11-16 18:17:03.979960000 (no UTC offset)", 10_000, ())
    assert report_of(tmp_path, azure.format("+01:00")) == ("2023-11-16 17:17:03.979960000Z", 10_000, ())
    assert report_of(tmp_path, HEAD + "5270414,1,1\n5270415.25,1,1\n") == ("5270414 s", 10_000_000, ())
    mooncake = '{"timestamp": 27000, "input_length": 1, "output_length": 1}\n'
    assert report_of(tmp_path, mooncake) == ("27000 ms", 10**9, ())


def test_numbers_and_powers() -> None:
    assert plain_decimal(1_500_000_000, SECONDS) == "1.5"
    assert plain_decimal(10**18, SECONDS) == "1000000000"
    assert plain_decimal(0, MILLISECONDS) == "0"
    assert origin(0, DATE, False) == "1970-01-01 00:00:00.000000000 (no UTC offset)"
    for times, expected in (([0], 10**9), ([10**10, 5 * 10**8], 10**8), ([1], 1), ([10] * 2000 + [1], 1)):
        assert resolution_ns(np.array(times)) == expected


def test_quantised_arrivals_are_told() -> None:
    steps = poisson(4) // (3 * 10**9) * (3 * 10**9)
    stamps = np.unique(steps).size
    assert list(arrival_notes(steps, MILLISECONDS)) == [
        f"arrivals are quantised: 500 requests share {stamps} times, mostly 3 s apart; "
        "bursts within a step are the clock's"
    ]
    for rate, told in ((4.0, True), (0.7, True), (0.1, False)):
        whole_seconds = poisson(rate) // 10**9 * 10**9
        assert any("quantised" in note for note in arrival_notes(whole_seconds, SECONDS)) == told
    assert list(arrival_notes(poisson(4), SECONDS)) == []


@pytest.mark.parametrize(("rate", "told"), [(5.5, False), (900.0, False), (5500.0, True), (0.0055, True)])
def test_an_implausible_rate_is_told(rate: float, told: bool) -> None:
    notes = [note for note in arrival_notes(poisson(rate), SECONDS) if "implausible" in note]
    assert len(notes) == told
    if told:
        assert notes[0].endswith(
            "requests/s is implausible (outside 0.01 to 1,000): are the times in the file really s?"
        )


def test_all_at_once_and_too_few_rows_to_tell() -> None:
    assert list(arrival_notes(np.zeros(10, np.int64), SECONDS)) == ["all 10 requests arrive at once"]
    assert list(arrival_notes(np.zeros(9, np.int64), SECONDS)) == []


def test_rows_that_are_odd_are_told(tmp_path: Path) -> None:
    row = '{{"timestamp": {}, "input_length": {}, "output_length": 1, "hash_ids": {}}}\n'
    text = row.format(0, 513, [1, 2]) + row.format(9, 512, [1, 2]) + row.format(11, 0, [])
    assert report_of(tmp_path, text)[2] == ("rows whose block hashes are not one for each 512 prompt tokens: 1",)
    blis = "arrival_time_us,input_tokens,output_tokens,status\n0,1,1,ok\n1,1,1,timeout\n2,1,0,error\n3,1,1,\n"
    assert report_of(tmp_path, blis)[2] == ("rows with a status other than ok, kept: 1",)
    turns = '{"timestamp": 1, "session_id": 7, "input_tokens": 1, "output_tokens": 1}\n'
    turns += '{"delay": 1, "session_id": 7, "input_tokens": 1, "output_tokens": 1}\n'
    told = "turns with a delay in place of a time, placed that long after the arrival of the last: 1"
    assert report_of(tmp_path, turns)[2] == (told,)


@pytest.mark.parametrize(
    ("unit", "aware", "clock", "expected"),
    [
        (DATE, False, "", "1970-01-01 00:00:01.500000000 (no UTC offset)"),
        (DATE, True, "", "1970-01-01 00:00:01.500000000Z"),
        (SECONDS, False, "", "1.5 s"),
        (SECONDS, False, EPOCH, "1970-01-01 00:00:01.500000000Z"),
        (NANOSECONDS, False, EPOCH, "1970-01-01 00:00:01.500000000Z"),
        (SECONDS, False, MONOTONIC, "1.5 s of a clock that began anywhere (monotonic: no date)"),
    ],
)
def test_the_first_arrival_is_told_by_its_clock(unit: int, aware: bool, clock: str, expected: str) -> None:
    assert origin(1_500_000_000, unit, aware, clock) == expected
