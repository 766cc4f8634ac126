"""A trace written and read again is the same trace, and gives the same run."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators import InputError, Paged
from simulator import Trace, simulate
from simulator.traces.text.fields import MAX_TIME_NS, MAX_TOKENS
from simulator.traces.write import EXACT_FLOAT_NS

ENDINGS = ("csv", "csv.gz", "parquet")
TRACE = Trace.from_columns(
    [0, 1, 1_500_000_000],
    [5, 6, 7],
    [1, 2, 3],
    session=['say "hi", twice\n', None, "ü\r"],
    block_hashes=[[2**64 - 1, 2**53 + 1], [], [0]],
)


def same(one: Trace, two: Trace) -> None:
    assert one.sha256 == two.sha256
    for name in ("arrival_ns", "prompt_tokens", "output_tokens", "session", "block_hashes"):
        first, second = getattr(one, name), getattr(two, name)
        assert (first is None and second is None) or first.tolist() == second.tolist(), name


SESSIONS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)
REQUESTS = st.tuples(
    st.integers(0, EXACT_FLOAT_NS - 1) | st.integers(0, MAX_TIME_NS),
    st.integers(1, MAX_TOKENS),
    st.integers(1, MAX_TOKENS),
    SESSIONS,
    st.lists(st.integers(0, 2**64 - 1), max_size=3),
)


@pytest.mark.parametrize("ending", ENDINGS)
@given(st.lists(REQUESTS, min_size=1, max_size=20), st.booleans())
@settings(max_examples=150)
def test_a_trace_survives_every_kind_of_file(
    tmp_path_factory: pytest.TempPathFactory,
    ending: str,
    requests: list[tuple[int, int, int, str, list[int]]],
    extras: bool,
) -> None:
    arrival, prompt, output, session, hashes = zip(*requests, strict=True)
    more = {"session": session, "block_hashes": hashes} if extras else {"session": session}
    trace = Trace.from_columns(arrival, prompt, output, **more)  # type: ignore[arg-type]
    path = tmp_path_factory.getbasetemp() / f"trace.{ending}"
    trace.write(path)
    again = Trace.read(path, strict=True)
    same(trace, again)
    assert again.report is not None
    assert again.report.format == "neutral"


def test_the_same_trace_gives_the_same_run(tmp_path: Path) -> None:
    trace = Trace.workload("azure-conv", rate=5, requests=300, cv=2.0)
    run = simulate(trace, Paged(20_000))
    for ending in ENDINGS:
        path = tmp_path / f"t.{ending}"
        trace.write(path)
        again = simulate(Trace.read(path), Paged(20_000))
        assert again.summary() == run.summary()
        pd.testing.assert_frame_equal(again.requests, run.requests)


def test_how_the_files_look(tmp_path: Path) -> None:
    TRACE.write(tmp_path / "t.csv")
    text = (
        "arrival_s,prompt_tokens,output_tokens,session,block_hashes\n"
        '0,5,1,"say ""hi"", twice\n","[18446744073709551615, 9007199254740993]"\n'
        '0.000000001,6,2,,[]\n1.5,7,3,"ü\r",[0]\n'
    )
    assert (tmp_path / "t.csv").read_bytes().decode() == text
    TRACE.write(tmp_path / "t.csv.gz")
    assert gzip.decompress((tmp_path / "t.csv.gz").read_bytes()).decode() == text
    TRACE.write(tmp_path / "again.csv.gz")
    assert (tmp_path / "again.csv.gz").read_bytes() == (tmp_path / "t.csv.gz").read_bytes()
    TRACE.write(tmp_path / "t.parquet")
    kinds = [str(kind) for kind in pq.read_schema(tmp_path / "t.parquet").types]
    assert kinds[:4] == ["double", "int64", "int64", "string"]
    assert kinds[4].startswith("list<")
    assert "uint64" in kinds[4]


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"path\(=.*t\.txt\) must end in one of \.csv, \.csv\.gz, \.parquet"):
        TRACE.write(tmp_path / "t.txt")
    with pytest.raises(InputError, match="cannot be written: No such file"):
        TRACE.write(tmp_path / "none" / "t.csv")
    nul = Trace.from_columns([0, 1], [1, 1], [1, 1], session=["a", "b\0"])
    with pytest.raises(InputError, match=r"the session of row 2 holds a NUL byte; Parquet can"):
        nul.write(tmp_path / "t.csv")
    assert not list(tmp_path.iterdir())
    nul.write(tmp_path / "t.parquet")
    same(Trace.read(tmp_path / "t.parquet"), nul)


# Parquet of others.


def parquet(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_parquet_in_any_format_of_csv_and_any_type(tmp_path: Path) -> None:
    stamps = pa.array([1_700_000_000_123_456, 1_700_000_000_123_457, None], pa.timestamp("us", "UTC"))
    path = parquet(tmp_path / "azure", TIMESTAMP=stamps, ContextTokens=[5.0, 6.0, 7.0], GeneratedTokens=["8", "9", "1"])
    trace = Trace.read(path)
    assert trace.arrival_ns.tolist() == [0, 1000]
    assert trace.prompt_tokens.tolist() == [5, 6]
    assert trace.report is not None
    assert (trace.report.format, dict(trace.report.dropped)) == ("azure", {"time missing or not finite": 1})
    words = pa.array(["a", None, "b"]).dictionary_encode()
    seconds = [0.1 + 0.2, 1e-9, 5.0]
    path = parquet(tmp_path / "t", arrival_s=seconds, prompt_tokens=[1, 2, 3], output_tokens=[1, 1, 1], session=words)
    trace = Trace.read(path, strict=True)
    assert trace.arrival_ns.tolist() == [0, 299_999_999, 4_999_999_999]
    assert trace.session is not None
    assert trace.session.tolist() == ["", "a", "b"]


def test_bad_parquet(tmp_path: Path) -> None:
    lacking = parquet(tmp_path / "a", arrival_s=[1], prompt_tokens=[1])
    with pytest.raises(InputError, match=r"lacks the column output_tokens; found 'arrival_s, prompt_tokens' \(taken"):
        Trace.read(lacking)
    bad = parquet(tmp_path / "b", arrival_s=[1, 2], prompt_tokens=[1, 0], output_tokens=[1, 1])
    with pytest.raises(InputError, match=r"row 2: prompt_tokens\(='0'\) is below 1"):
        Trace.read(bad, strict=True)
    with pytest.raises(InputError, match="the reader <lambda> is for lines of text"):
        Trace.read(bad, format=lambda lines: [{"a": line} for line in lines])
    content = bad.read_bytes()
    for cut in (content[:50], content[:-9] + b"\xff" * 9, content[:4]):
        bad.write_bytes(cut)
        with pytest.raises(InputError, match=r"'.*b': is a damaged Parquet file: ") as caught:
            Trace.read(bad)
        assert len(str(caught.value).splitlines()) == 1


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_mutated_parquet_is_a_trace_or_one_line(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "mutated.parquet"
    TRACE.write(path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        assert len(Trace.read(path)) > 0
    except InputError as error:
        assert len(str(error).splitlines()) == 1


def test_without_pyarrow_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    TRACE.write(tmp_path / "t.parquet")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    for attempt in (lambda: Trace.read(tmp_path / "t.parquet"), lambda: TRACE.write(tmp_path / "u.parquet")):
        with pytest.raises(InputError, match=r"Parquet needs pyarrow: pip install 'kvfrag\[parquet\]'"):
            attempt()


# Parts and scales.


def test_between() -> None:
    trace = Trace.from_columns([0, 10**9, 10**9 + 1, 3 * 10**9], [1, 2, 3, 4], [1, 1, 1, 1], name="t")
    part = trace.between(1, "3")
    assert (part.arrival_ns.tolist(), part.prompt_tokens.tolist()) == ([0, 1], [2, 3])
    assert trace.between("1.000000001", 1e9).prompt_tokens.tolist() == [3, 4]
    for edges, message in (
        ((1.5, 2), r"no request of t arrives from 1\.5 to 2 s; it lasts 3\.0 s"),
        ((2, 2), r"start\(=2\) must be before end\(=2\)"),
        ((-1, 2), r"start\(=-1\) must be a number of seconds"),
        ((0, "soon"), r"end\(=soon\) must be a number of seconds"),
    ):
        with pytest.raises(InputError, match=message):
            trace.between(*edges)


def test_scaled() -> None:
    scaled = TRACE.scaled(rate=2, lengths=0.5)
    assert scaled.arrival_ns.tolist() == [0, 0, 750_000_000]
    assert (scaled.prompt_tokens.tolist(), scaled.output_tokens.tolist()) == ([2, 3, 4], [1, 1, 2])
    assert scaled.session is not None
    assert scaled.block_hashes is None
    same(TRACE.scaled(), TRACE)
    assert TRACE.scaled(rate=0.5).block_hashes is not None
    exact = Trace.from_columns([0, MAX_TIME_NS - 1], [1, 1], [1, 1])
    assert exact.scaled(rate=1.0).sha256 == exact.sha256
    if np.finfo(np.longdouble).nmant >= 63:
        assert exact.scaled(rate=3.0).arrival_ns[1] == (MAX_TIME_NS - 1) // 3 + 1
    for factors, message in (
        ({"rate": 0}, r"rate\(=0\) must be a finite factor > 0"),
        ({"lengths": float("nan")}, r"lengths\(=nan\) must be a finite factor"),
        ({"rate": 1e-12}, r"rate\(=1e-12\) must be larger"),
        ({"lengths": 1e9}, r"lengths\(=1e\+09\) must be smaller: 1,000,000,000 tokens are the most"),
    ):
        with pytest.raises(InputError, match=message):
            TRACE.scaled(**factors)
