"""Traces: their columns, their identity, and the way to a DataFrame or a file and back."""

import hashlib
import os
import struct
import threading
from dataclasses import FrozenInstanceError
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators import InputError
from simulator.traces.statistics import describe
from simulator.traces.text.fields import MAX_TIME_NS, MAX_TOKENS
from simulator.traces.trace import Trace, open_trace


def small() -> Trace:
    return Trace.from_columns(
        [5_000_000_001, 7, 7], [1, 2, 3], [4, 5, 6], session=["a", None, "c"], block_hashes=[[2**64 - 1], (), [1, 2]]
    )


def test_columns_are_sorted_and_begin_at_zero() -> None:
    trace = small()
    assert len(trace) == 3
    assert trace.arrival_ns.tolist() == [0, 0, 4_999_999_994]
    assert trace.prompt_tokens.tolist() == [2, 3, 1]
    assert trace.output_tokens.tolist() == [5, 6, 4]
    assert trace.session is not None
    assert trace.block_hashes is not None
    assert trace.session.tolist() == ["", "c", "a"]
    assert trace.block_hashes.tolist() == [(), (1, 2), (2**64 - 1,)]
    assert {c.dtype for c in (trace.arrival_ns, trace.prompt_tokens, trace.output_tokens)} == {np.dtype(np.int64)}
    assert trace.duration_s == 4.999999994
    assert trace.report is None


def test_a_trace_does_not_change() -> None:
    arrivals = np.array([0, 1])
    trace = Trace.from_columns(arrivals, np.array([1, 2], np.uint8), [3, 4])
    arrivals[0] = 9
    assert trace.arrival_ns.tolist() == [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        trace.prompt_tokens[0] = 5
    with pytest.raises(FrozenInstanceError):
        trace.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([], [], []), r"arrival_ns of mine must be a column of at least one number; its shape is \(0,\)"),
        (([[1]], [1], [1]), r"arrival_ns of mine must be a column .* \(1, 1\)"),
        (([0.5], [1], [1]), r"arrival_ns of mine must hold whole numbers; it holds float64 \(first value .*0\.5"),
        (([0], ["x"], [1]), "prompt_tokens of mine must hold whole numbers"),
        (([0], [1], [2**70]), "output_tokens of mine must hold whole numbers"),
        (([0, -1], [1, 1], [1, 1]), r"arrival_ns of mine: row 2 \(=-1\) must be a whole number from 0 to 9,000"),
        (([0, 0], [1, 0], [1, 1]), r"prompt_tokens of mine: row 2 \(=0\) must be a whole number from 1 to 1,000"),
        (([0], [1], [MAX_TOKENS + 1]), r"output_tokens of mine: row 1 \(=1000000001\) must be"),
        (([2**63], [1], [1]), r"arrival_ns of mine: row 1 \(=9223372036854775808\) must be"),
        (([0, 1], [1], [1, 2]), r"the columns of mine must be of one length; there are \[1, 2\]"),
    ],
)
def test_bad_columns(columns: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Trace.from_columns(*columns, name="mine")


def test_bad_extras() -> None:
    with pytest.raises(InputError, match="of one length"):
        Trace.from_columns([0], [1], [1], session=["a", "b"])
    for hashes in ([-1], [2**64], ["a"], [0.5]):
        with pytest.raises(InputError, match=r"block_hashes of columns: row 2 \(=.*\) must hold whole numbers"):
            Trace.from_columns([0, 0], [1, 1], [1, 1], block_hashes=[[], hashes])  # type: ignore[list-item]


def test_sha256_is_that_of_the_three_columns() -> None:
    content = struct.pack("<9q", 0, 0, 4_999_999_994, 2, 3, 1, 5, 6, 4)
    assert small().sha256 == hashlib.sha256(content).hexdigest()
    assert Trace.from_columns([9, 9, 5_000_000_003], [2, 3, 1], [5, 6, 4], name="x").sha256 == small().sha256


def test_slices() -> None:
    trace = Trace.from_columns([0, 5, 9], [1, 2, 3], [4, 5, 6], session=["", "b", "c"], name="t")
    for rows in (slice(1, None), np.array([1, 2]), np.array([False, True, True])):
        part = trace[rows]
        assert (part.arrival_ns.tolist(), part.prompt_tokens.tolist(), part.name) == ([0, 4], [2, 3], "t")
        assert part.session is not None
        assert part.session.tolist() == ["b", "c"]
    with pytest.raises(InputError, match=r"no request of t is among the rows slice\(7, None, None\)"):
        trace[7:]
    with pytest.raises(TypeError, match="sliced by a slice or an array"):
        trace[0]  # type: ignore[index]


# DataFrames.


def test_to_frame() -> None:
    frame = small().to_frame()
    assert list(frame.columns) == ["arrival_s", "prompt_tokens", "output_tokens", "session", "block_hashes"]
    assert frame["arrival_s"].tolist() == [0.0, 0.0, 4.999999994]
    assert frame["block_hashes"].tolist() == [[], [1, 2], [2**64 - 1]]
    plain = Trace.from_columns([0], [1], [1]).to_frame()
    assert [str(kind) for kind in plain.dtypes] == ["float64", "int64", "int64"]


def test_from_frame() -> None:
    frame = pd.DataFrame(
        {
            "extra": [0, 0],
            "output_tokens": [4.0, 5.0],
            "arrival_s": ["0.3", 0.1],
            "prompt_tokens": pd.array([2, 3], dtype="Int64"),
            "session": [7.0, np.nan],
            "block_hashes": [np.array([2**64 - 1], np.uint64), (1, 2)],
        }
    )
    trace = Trace.from_frame(frame)
    assert trace.arrival_ns.tolist() == [0, 200_000_000]
    assert trace.prompt_tokens.tolist() == [3, 2]
    assert trace.session is not None
    assert trace.block_hashes is not None
    assert trace.session.tolist() == ["", "7"]
    assert trace.block_hashes.tolist() == [(1, 2), (2**64 - 1,)]
    assert trace.report is not None
    assert (trace.report.format, trace.report.rows, trace.report.kept) == ("frame", 2, 2)


def test_bad_frames() -> None:
    frame = pd.DataFrame({"arrival_s": [0, 1], "prompt_tokens": [1, 2], "output_tokens": [3, 4]})
    for bad, message in (
        (frame.drop(columns="prompt_tokens"), "mine: lacks the column prompt_tokens; found 'arrival_s, output_tokens'"),
        (frame[:0], "mine: has no rows"),
        (
            frame.assign(output_tokens=[1, np.nan]),
            r"mine: row 2: output_tokens(='') is missing or not finite; it must be",
        ),
        (
            frame.assign(arrival_s=[-1, 0]),
            r"mine: row 1: arrival_s(='-1') is negative; it must be 0 to 9,000,000,000 s",
        ),
        (frame.assign(arrival_s=[0, np.inf]), r"mine: row 2: arrival_s(='inf') is missing or not finite"),
        (pd.concat([frame, frame[["arrival_s"]]], axis=1), "mine: has the column arrival_s more than once"),
    ):
        with pytest.raises(InputError) as caught:
            Trace.from_frame(bad, name="mine")
        assert str(caught.value).startswith(message)


NARROW = "arrival_s holds {}, which is exact to {} s only at {} s; read as printed"
FLOAT32, FLOAT16 = NARROW.format("float32", 0.062, "1,000,000"), NARROW.format("float16", 0.5, "1,000")
TENTHS = [0.1, 0.3]


@pytest.mark.parametrize("kind", ["frame", "parquet"])
@pytest.mark.parametrize(
    ("arrivals", "gap_ns", "notes"),
    [
        (np.array(TENTHS, np.float32), 200_000_000, (FLOAT32,)),
        (np.array(TENTHS, np.float16), 200_000_000, (FLOAT16,)),
        (pd.array(TENTHS, dtype="Float32"), 200_000_000, (FLOAT32,)),
        (pd.Categorical(np.array(TENTHS, np.float32)), 200_000_000, (FLOAT32,)),
        (pd.Series(TENTHS, dtype="float[pyarrow]"), 200_000_000, (FLOAT32,)),
        (np.array([123456792, 123456800], np.float32), 8 * 10**9, (FLOAT32,)),  # shortest: 1.2345679e+08
        (np.array([1e6, 1e6 + 0.0625], np.float32), 60_000_000, (FLOAT32,)),  # printed as 1000000.06
        (TENTHS, 200_000_000, ()),
        ([Decimal("0.1"), Decimal("3E-1")], 200_000_000, ()),
        (["0.1", "0.3"], 200_000_000, ()),
        (pd.array([1, 3], dtype="Int64"), 2 * 10**9, ()),
        (pd.to_timedelta([100_000_001, 300_000_000], unit="ns"), 199_999_999, ()),
        (pd.Series([timedelta(milliseconds=100), timedelta(milliseconds=300)], dtype=object), 200_000_000, ()),
        (pd.DatetimeIndex(["2023-11-16 18:17:03.979960001", "2023-11-16 18:17:04.000000000"]), 20_039_999, ()),
        (pd.DatetimeIndex(["2023-11-16", "2023-11-17"], tz="Europe/Berlin"), 86_400 * 10**9, ()),
        (pd.Series([datetime(2023, 1, 1), datetime(2023, 1, 1, 0, 0, 0, 5)], dtype=object), 5000, ()),
        (["2023-11-16T18:17:03Z", "2023-11-16T19:17:03.2+01:00"], 200_000_000, ()),
    ],
)
def test_arrivals_of_every_type(tmp_path: Path, kind: str, arrivals: Any, gap_ns: int, notes: tuple[str, ...]) -> None:
    frame = pd.DataFrame({"arrival_s": arrivals, "prompt_tokens": [1, 2], "output_tokens": [3, 4]})
    if kind == "parquet":
        frame.to_parquet(tmp_path / "t.parquet")
        trace = Trace.read(tmp_path / "t.parquet", strict=True)
    else:
        trace = Trace.from_frame(frame)
    assert trace.arrival_ns.tolist() == [0, gap_ns]
    assert trace.report is not None
    assert trace.report.notes == notes


@pytest.mark.parametrize("kind", ["frame", "parquet"])
def test_durations_know_their_unit_whatever_the_column_is_called(tmp_path: Path, kind: str) -> None:
    times = pd.to_timedelta([1500, 4000], unit="ms")
    frame = pd.DataFrame({"start_ms": times, "prompt_len": [1.0, 2.0], "output_len": [3, 4]})
    frame.to_parquet(tmp_path / "t.parquet")
    trace = Trace.from_frame(frame) if kind == "frame" else Trace.read(tmp_path / "t.parquet")
    assert trace.arrival_ns.tolist() == [0, 2_500_000_000]
    assert trace.report is not None
    assert trace.report.origin == "1.5 s"
    assert trace.report.notes == (
        "columns by their usual names: arrival=start_ms, prompt=prompt_len, output=output_len",
    )


def test_from_frame_by_the_names_of_columns() -> None:
    frame = pd.DataFrame({"a": [1000, 2500], "b": [1, 2], "c": [3, 4], "time": [0, 0]})
    trace = Trace.from_frame(frame, columns={"arrival": "a:ms", "prompt": "c", "output": "b"})
    assert (trace.arrival_ns.tolist(), trace.prompt_tokens.tolist()) == ([0, 1_500_000_000], [3, 4])
    with pytest.raises(InputError, match="mine: columns: output=d: there is no such column; the columns of"):
        Trace.from_frame(frame, "mine", columns="arrival=a,prompt=b,output=d")
    for missing in (pd.array([1, None], dtype="Int64"), pd.DatetimeIndex(["2023-11-16", None])):
        bad = pd.DataFrame({"arrival_s": missing, "prompt_tokens": [1, 2], "output_tokens": [3, 4]})
        with pytest.raises(InputError, match=r"frame: row 2: arrival_s\(=''\) is missing or not finite"):
            Trace.from_frame(bad)


SESSIONS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=5)
# A float holds whole nanoseconds up to 2^23 s.
REQUESTS = st.tuples(
    st.integers(0, 2**23 * 10**9 - 1),
    st.integers(1, MAX_TOKENS),
    st.integers(1, MAX_TOKENS),
    SESSIONS,
    st.lists(st.integers(0, 2**64 - 1), max_size=3),
)


@given(st.lists(REQUESTS, min_size=1, max_size=20), st.booleans())
def test_a_trace_survives_the_way_to_a_file_and_back(
    tmp_path_factory: pytest.TempPathFactory, requests: list[tuple[int, int, int, str, list[int]]], extras: bool
) -> None:
    arrival, prompt, output, session, hashes = zip(*requests, strict=True)
    trace = Trace.from_columns(
        arrival, prompt, output, session=session if extras else None, block_hashes=hashes if extras else None
    )
    path = tmp_path_factory.getbasetemp() / "round-trip.csv"
    trace.to_frame().to_csv(path, index=False)
    for again in (Trace.read(path, strict=True), Trace.from_frame(trace.to_frame())):
        assert again.sha256 == trace.sha256
        for name in ("arrival_ns", "prompt_tokens", "output_tokens", "session", "block_hashes"):
            one, two = getattr(trace, name), getattr(again, name)
            assert (one is None and two is None) or one.tolist() == two.tolist()


# Statistics.


def test_describe() -> None:
    trace = Trace.from_columns([0, 10**9, 4 * 10**9], [1, 2, 6], [10, 10, 40])
    assert describe(trace) == {
        "rows": 3,
        "duration_s": 4.0,
        "rate_per_s": 0.75,
        "gap_cv": 0.5,  # gaps 1 and 3: mean 2, deviation 1
        "sessions": None,
        "rows_with_blocks": None,
        "prompt_tokens": {"mean": 3.0, "p50": 2.0, "p99": pytest.approx(5.92), "max": 6},
        "output_tokens": {"mean": 20.0, "p50": 10.0, "p99": pytest.approx(39.4), "max": 40},
    }


def test_describe_without_gaps() -> None:
    for arrivals in ([5], [5, 5]):
        numbers = describe(Trace.from_columns(arrivals, arrivals, arrivals))
        assert (numbers["duration_s"], numbers["rate_per_s"], numbers["gap_cv"]) == (0.0, None, None)


def test_the_longest_trace_there_can_be() -> None:
    numbers = describe(Trace.from_columns([0, MAX_TIME_NS], [1, MAX_TOKENS], [1, 1]))
    assert numbers["duration_s"] == 9e9
    assert numbers["gap_cv"] is None  # one gap deviates from nothing


# What a command line names.


def test_open_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "sharegpt:rate=4,requests=3"
    assert open_trace(text).name == "sharegpt:rate=4,requests=3,seed=0"
    assert open_trace("azure-code").name == "azure-code:rate=2.5667,duration=900,seed=0"
    Path(text).write_text("arrival_s,prompt_tokens,output_tokens\n0,5,6\n0,0,0\n")
    assert open_trace(text).prompt_tokens.tolist() == [5]  # a file comes first
    with pytest.raises(InputError, match="row 2"):
        open_trace(text, strict=True)
    known = "workloads are sharegpt, azure-conv, azure-code, mooncake-conv, arxiv"
    for wrong in ("", "none.csv", "sharegtp:rate=4", "x" * 5000, "a\0b", "two\nlines"):
        with pytest.raises(InputError, match=f"is neither a file nor a workload; {known}$") as caught:
            open_trace(wrong)
        assert len(str(caught.value).splitlines()) == 1


def test_a_pipe_can_be_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("arrival_s,prompt_tokens,output_tokens\n0,5,6\n",))
    writer.start()
    assert open_trace(str(pipe)).prompt_tokens.tolist() == [5]
    writer.join()


# The real files.


@pytest.mark.parametrize(
    ("file", "digest", "figures", "prompt", "output"),
    [
        (
            "AzureLLMInferenceTrace_code.csv",
            "f4c04843a2",
            (8_819, 2.57, 13.15),
            (2048, 1469, 7436, 7437),
            (27.9, 13, 251, 1899),
        ),
        (
            "AzureLLMInferenceTrace_conv.csv",
            "e7574cf3f3",
            (19_366, 5.53, 1.09),
            (1155, 1020, 4142, 14050),
            (211, 129, 601, 1000),
        ),
        (
            "mooncake_conversation_trace.jsonl",
            "076f4c5412",
            (12_031, 3.40, 3.03),
            (12035, 6909, 85400, 126195),
            (343, 350, 1119, 2000),
        ),
    ],
)
def test_the_real_files(
    file: str, digest: str, figures: tuple[float, ...], prompt: tuple[float, ...], output: tuple[float, ...]
) -> None:
    folder = os.environ.get("KVFRAG_TRACES")
    if not folder:
        pytest.skip("KVFRAG_TRACES does not name a folder with the public traces")
    trace = Trace.read(Path(folder) / file, strict=True)
    numbers = describe(trace)
    assert trace.report is not None
    assert (trace.report.kept, trace.report.out_of_order) == (figures[0], 0)
    assert trace.sha256.startswith(digest)
    assert tuple(round(numbers[key], 2) for key in ("rows", "rate_per_s", "gap_cv")) == figures
    for key, expected in (("prompt_tokens", prompt), ("output_tokens", output)):
        for value, figure in zip(numbers[key].values(), expected, strict=True):
            assert round(value, 0 if figure == int(figure) else 1) == figure
    if trace.block_hashes is not None:
        blocks = [len(hashes) for hashes in trace.block_hashes]
        assert blocks == (-(-trace.prompt_tokens // 512)).tolist()
    else:
        assert file.startswith("Azure")
    assert np.unique(trace.arrival_ns).size == len(trace) or file.startswith("mooncake")
