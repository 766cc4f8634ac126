"""Columns by their usual names and by those that a user gives: what is read, what is assumed, what is refused."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from allocators import InputError
from simulator import Trace
from simulator.traces.naming import as_option, named_format, names_of, option_hint, usual_format
from simulator.traces.notes import DATE, MICROSECONDS, MILLISECONDS, NANOSECONDS, SECONDS

S = 10**9
OF_SECONDS = (
    "no unit is given for {0}: taken for seconds; if it is in ms, --columns arrival={0}:ms,prompt={1},output={2}"
)
BY_NAME = "columns by their usual names: arrival={0}, prompt={1}, output={2}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "log"


def rows(trace: Trace) -> list[tuple[int, int, int]]:
    columns = (trace.arrival_ns, trace.prompt_tokens, trace.output_tokens)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def notes(trace: Trace) -> tuple[str, ...]:
    assert trace.report is not None
    return trace.report.notes


def complaint(path: Path, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        Trace.read(path, **options)
    told = str(caught.value)
    assert len(told.splitlines()) == 1
    return told.removeprefix(f"trace file '{path}': ")


def write(path: Path, kind: str, names: list[str], table: list[tuple[Any, ...]]) -> None:
    """The same rows as CSV, JSON lines, a list of JSON, or Parquet."""
    records = [dict(zip(names, row, strict=True)) for row in table]
    if kind == "csv":
        path.write_text("\n".join(",".join(map(str, row)) for row in [names, *table]) + "\n")
    elif kind == "lines":
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    elif kind == "list":
        path.write_text(json.dumps(records, indent=1))
    else:
        pd.DataFrame(records).to_parquet(path)


KINDS = ("csv", "lines", "list", "parquet")
DATES = ("2026-11-30T10:15:00.120Z", "2026-11-30T10:15:01.6209Z")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "names",
    [
        ["time", "input_len", "output_len"],
        ["timestamp", "input_tokens", "output_tokens"],
        ["timestamp", "prompt_tokens", "completion_tokens"],
        ["created", "prompt_tokens", "completion_tokens"],
        ["arrival", "prompt_len", "gen_len"],
        ["arrivalTime", "nPromptTokens", "numGeneratedTokens"],
        ["Start Time", "Input Tokens", "Output Tokens"],
        ["@timestamp", "input_token_count", "output_token_count"],
        ["received_at", "ISL", "OSL"],
        ["t", "tokens_in", "tokens_out"],
        ["date", "n_prompt", "n_gen"],
        ["timestamp", "input_length", "output_length"],
        ["arrival_s", "prompt_tokens", "output_tokens"],
        ["TIMESTAMP", "context_tokens", "decode_tokens"],
    ],
)
def test_usual_names_with_dates(file: Path, kind: str, names: list[str]) -> None:
    write(file, kind, names, [(DATES[0], 812, 95), (DATES[1], 10, 5)])
    trace = Trace.read(file, strict=True)
    assert rows(trace) == [(0, 812, 95), (1_500_900_000, 10, 5)]
    assert trace.report is not None
    assert (trace.report.format, trace.report.origin) == ("neutral", "2026-11-30 10:15:00.120000000Z")
    own = names == ["arrival_s", "prompt_tokens", "output_tokens"] and kind in ("csv", "parquet")
    assert notes(trace) == (() if own else (BY_NAME.format(*names),))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("names", [["time", "input_len", "output_len"], ["created", "prompt_tokens", "gen_tokens"]])
def test_numbers_without_a_unit_are_seconds_and_it_is_said(file: Path, kind: str, names: list[str]) -> None:
    write(file, kind, names, [(1764500000.25, 812, 95), (1764500001, 10, 5)])
    trace = Trace.read(file, strict=True)
    assert rows(trace) == [(0, 812, 95), (750_000_000, 10, 5)]
    assert notes(trace) == (OF_SECONDS.format(*names), BY_NAME.format(*names))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [1764500000123, 1764500000123456, 1764500000123456789])
def test_numbers_that_cannot_be_seconds_are_no_guess(file: Path, kind: str, first: int) -> None:
    names = ["created", "prompt_tokens", "completion_tokens"]
    write(file, kind, names, [(first, 812, 95), (first + 1, 10, 5)])
    line = {"csv": " (line 2)", "parquet": ""}.get(kind, " (line 1)" if kind == "lines" else " (line 2)")
    assert complaint(file) == (
        f"row 1{line}: created(='{first}') is beyond 9,000,000,000 s, so it is in another unit: say which, s, ms, us "
        "or ns: --columns arrival=created:ms,prompt=prompt_tokens,output=completion_tokens"
    )
    option = "arrival=created:{},prompt=prompt_tokens,output=completion_tokens"
    for unit, step in (("ms", 10**6), ("us", 10**3), ("ns", 1)):
        if first * step < 9 * 10**18:
            assert rows(Trace.read(file, strict=True, columns=option.format(unit))) == [(0, 812, 95), (step, 10, 5)]


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        *(("arrival_time_ms", MILLISECONDS), ("timestampMs", MILLISECONDS), ("time (ms)", MILLISECONDS)),
        *(("start_time_us", US := MICROSECONDS), ("created_micros", US), ("startTimeUnixNano", NANOSECONDS)),
        *(("ts_ns", NANOSECONDS), ("time, s", SECONDS), ("Time [seconds]", SECONDS), ("arrival_sec", SECONDS)),
    ],
)
def test_a_unit_at_the_end_of_a_name_counts(name: str, unit: int) -> None:
    form = usual_format([name, "prompt_tokens", "output_tokens"], "csv")
    assert form is not None
    assert (form.time, form.unit, form.dates, form.stated) == (name, unit, True, True)


def test_names_that_say_a_length_of_something_else_are_not_taken() -> None:
    for names in (
        ["time", "total_tokens", "output_tokens"],
        ["time", "cached_prompt_tokens", "output_tokens"],
        ["time", "prompt_tokens", "max_output_tokens"],
        ["time", "request_size", "response_size"],
        ["time", "prompt_cost", "output_cost"],
    ):
        assert usual_format(names, "csv") is None
    form = usual_format(["end_time", "latency", "prompt_tokens", "output_tokens"], "csv")
    assert form is not None
    assert form.time == ""


def test_bare_words_are_taken_last_and_arrivals_first() -> None:
    form = usual_format(["arrival_time", "start_time", "prompt", "prompt_tokens", "output", "completion_len"], "csv")
    assert form is not None
    assert (form.time, form.prompt, form.output) == ("arrival_time", "prompt_tokens", "completion_len")
    bare = usual_format(["time", "input", "output", "conversation_id", "hash_ids"], "csv")
    assert bare is not None
    assert bare.columns == ("time", "input", "output", "conversation_id", "hash_ids")


def test_two_columns_that_may_be_meant_are_told(file: Path) -> None:
    file.write_text("time,created,prompt_tokens,output_tokens\n1,2,3,4\n")
    assert complaint(file) == (
        "has several columns for arrival: time, created; say which is which: "
        "--columns arrival=time,prompt=prompt_tokens,output=output_tokens"
    )
    file.write_text("time,prompt_tokens,input_tokens,output_tokens\n1,2,3,4\n")
    assert complaint(file).startswith("has several columns for prompt: prompt_tokens, input_tokens; ")


@pytest.mark.parametrize("kind", ["csv", "parquet", "lines"])
def test_names_of_formats_in_several_units_are_no_guess(file: Path, kind: str) -> None:
    write(file, kind, ["timestamp", "input_length", "output_length"], [("27000", 5, 6), ("30000", 7, 8)])
    assert complaint(file).removeprefix("row 1").partition(": ")[2] == (
        "timestamp(='27000') may be in any unit, for the columns are named as in mooncake (ms), qwen-bailian (s), "
        "ragpulse (s): say which, s, ms, us or ns: "
        "--columns arrival=timestamp:ms,prompt=input_length,output=output_length"
    )
    trace = Trace.read(file, columns="arrival=timestamp:ms,prompt=input_length,output=output_length")
    assert rows(trace) == [(0, 5, 6), (3 * S, 7, 8)]
    assert notes(trace) == ()


def test_json_that_only_looks_like_aiperf_says_so(file: Path) -> None:
    write(file, "lines", ["timestamp", "input_tokens", "output_tokens"], [(0, 5, 6), (250, 7, 8)])
    trace = Trace.read(file)
    assert rows(trace) == [(0, 5, 6), (250_000_000, 7, 8)]
    assert trace.report is not None
    assert trace.report.format == "aiperf"
    assert (
        "taken for AIPerf's, whose times are in ms; if they are in seconds, --columns arrival=NAME:s" in notes(trace)[0]
    )


def test_usage_in_an_object_of_its_own(file: Path) -> None:
    record = {"created": 5, "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}
    file.write_text(json.dumps(record))
    assert rows(Trace.read(file)) == [(0, 3, 4)]
    assert names_of(record) == ["created", "usage.prompt_tokens", "usage.completion_tokens", "usage.total_tokens"]


def test_dates_and_numbers_are_not_mixed(file: Path) -> None:
    for first, second, message in (
        ("0", DATES[0], "mixes times that are dates (row 2 (line 3)) and numbers (row 1 (line 2))"),
        (DATES[0], "7", "mixes times that are dates (row 1 (line 2)) and numbers (row 2 (line 3))"),
        (DATES[0], DATES[0][:-1], "mixes times with a UTC offset (row 1 (line 2)) and without (row 2 (line 3))"),
    ):
        file.write_text(f"time,prompt_len,output_len\n{first},3,4\n{second},5,6\n")
        assert complaint(file) == message
    file.write_text("arrival_s,prompt_tokens,output_tokens\nsoon,1,1\n2026-11-30 10:15:00+01:00,3,4\n")
    trace = Trace.read(file)
    assert trace.report is not None
    assert (trace.report.origin, dict(trace.report.dropped)) == (
        "2026-11-30 09:15:00.000000000Z",
        {"time unreadable": 1},
    )
    file.write_text("time,prompt_len,output_len\n2026-11-30 10:15:00+01:00,3,4\n2026-11-30 09:15:00Z,5,6\n")
    assert rows(Trace.read(file)) == [(0, 3, 4), (0, 5, 6)]


def test_arrivals_that_are_known_by_no_name_can_be_named(file: Path) -> None:
    file.write_text("id,moment,prompt_tokens,output_tokens\n0,1,3,4\n1,2.5,5,6\n")
    assert complaint(file) == (
        "has lengths but no arrivals: give a rate in requests a second, --rate 4 (Python: rate=4); or if a column has "
        "them, say which is which: --columns arrival=moment,prompt=prompt_tokens,output=output_tokens"
    ).replace("arrival=moment", "arrival=COLUMN")
    trace = Trace.read(file, columns="arrival=moment:s,prompt=prompt_tokens,output=output_tokens")
    assert rows(trace) == [(0, 3, 4), (1_500_000_000, 5, 6)]
    only = Trace.read(file, columns="prompt=prompt_tokens,output=output_tokens", rate=2.0)
    assert only.prompt_tokens.tolist() == [3, 5]
    assert "the file has no arrivals: Poisson ones, 2 a second, seed 0" in notes(only)


# Columns that the user names.

ODD = ["when?", "p, tokens", 'o "x"|y', "who", "blocks"]
ODD_OPTION = 'arrival=when?:ms,prompt="p, tokens",output="o ""x""|y",session=who,block_hashes=blocks'
ODD_COLUMNS = dict(zip(("arrival", "prompt", "output", "session", "block_hashes"), ["when?:ms", *ODD[1:]], strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [ODD_OPTION, ODD_COLUMNS])
def test_any_columns_by_name(file: Path, kind: str, columns: str | dict[str, str]) -> None:
    names = ["when?", '"p, tokens"', '"o ""x""|y"', "who", "blocks"] if kind == "csv" else ODD
    write(file, kind, names, [(5, 812, 95, "a", "1 2"), (10, 10, 5, "b", "3")])
    trace = Trace.read(file, strict=True, columns=columns)
    assert rows(trace) == [(0, 812, 95), (5_000_000, 10, 5)]
    assert trace.session is not None and trace.block_hashes is not None
    assert (trace.session.tolist(), trace.block_hashes.tolist()) == (["a", "b"], [(1, 2), (3,)])
    assert trace.report is not None
    assert (trace.report.format, notes(trace)) == ("columns", ())


def test_columns_of_objects_in_json_are_paths(file: Path) -> None:
    file.write_text('[{"m": {"start_ns": 5}, "a.b": 3, "x": {"y": {"z": 4}}}, {"m": null, "a.b": 3, "x": {}}]')
    trace = Trace.read(file, columns="arrival=m.start_ns,prompt=a.b,output=x.y.z")
    assert rows(trace) == [(0, 3, 4)]
    assert trace.report is not None
    assert (trace.report.origin, dict(trace.report.dropped)) == ("5 ns", {"time missing or not finite": 1})


def test_columns_of_a_file_that_is_recognised_can_be_named_too(file: Path) -> None:
    write(file, "lines", ["timestamp", "input_length", "output_length"], [(1, 5, 6), (2, 7, 8)])
    trace = Trace.read(file, columns="arrival=timestamp:s,prompt=output_length,output=input_length")
    assert rows(trace) == [(0, 6, 5), (S, 8, 7)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            "arrivals=a,prompt=b,output=c",
            "columns: unknown key 'arrivals'; the keys are arrival, prompt, output, session,",
        ),
        ("arrival=a,prompt=b", "columns: output=NAME is lacking"),
        ("arrival=a,prompt=b,output=", "columns: output=NAME is lacking"),
        ("arrival=a,prompt=b,output=z", "columns: output=z: there is no such column"),
        ("arrival=z,prompt=b,output=c", "columns: arrival=z: there is no such column"),
        ("arrival=a:min,prompt=b,output=c", "columns: arrival=a:min: the unit must be one of s, ms, us, ns, date"),
        ("arrival=a,prompt=b,output=b", "columns: b cannot be both prompt and output"),
        ("arrival=a,prompt=b,prompt=c,output=c", "columns: prompt is given twice"),
        ("a,b,c", "columns(='a,b,c') must be like arrival=NAME,prompt=NAME,output=NAME"),
        ("", "columns(='') must be like arrival=NAME,prompt=NAME,output=NAME"),
        ('arrival="a,prompt=b,output=c', "columns(='arrival=\"a,prompt=b,output=c') must be like"),
        ({"arrival": "a", "prompt": "b", "output": "d"}, "columns: output=d: there is no such column"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "lines", "parquet"])
def test_wrong_columns_are_told_with_those_of_the_file(file: Path, columns: Any, message: str, kind: str) -> None:
    write(file, kind, ["a", "b", "c"], [(1, 2, 3)])
    told = complaint(file, columns=columns)
    assert told.startswith(message)
    assert told.endswith("; the columns of the file are 'a, b, c'")


def test_a_column_that_is_there_twice_cannot_be_meant(file: Path) -> None:
    file.write_text("a,b,c,b\n1,2,3,4\n")
    assert complaint(file, columns="arrival=a,prompt=b,output=c") == "has the column b more than once"
    assert rows(Trace.read(file, columns="prompt=a,output=c", rate=1.0)) == [(0, 1, 3)]
    file.write_text("time,input_len,output_len,input_len\n1,2,3,4\n")
    assert complaint(file) == "has the column input_len more than once"


def test_a_format_and_columns_exclude_each_other(file: Path) -> None:
    file.write_text("a,b,c\n1,2,3\n")
    with pytest.raises(InputError, match="format and columns both say what the columns of a file are"):
        Trace.read(file, format="azure", columns="arrival=a,prompt=b,output=c")


def test_the_option_is_ready_to_be_typed(file: Path) -> None:
    names = ["Sent, at", 'in "tok"', "answer len", "user's name"]
    hint = option_hint(names)
    assert hint == 'say which is which: --columns \'arrival="Sent, at",prompt="in ""tok""",output=COLUMN\''
    assert as_option({"arrival": "a b"}, "ms") == "--columns 'arrival=a b:ms'"
    form = named_format('arrival="Sent, at":date,prompt="in ""tok""",output=answer len', names, "csv")
    assert (form.time, form.prompt, form.output, form.unit) == ("Sent, at", 'in "tok"', "answer len", DATE)
    file.write_text("stamp_time,prompt_toks_in,answer_toks,x\n1,2,3,4\n")
    assert (
        "is in none of the known formats: its columns are 'stamp_time, prompt_toks_in, answer_toks, x'; "
        in complaint(file)
    )
    assert "--columns arrival=" in complaint(file)
