"""Trace files as they are found, and as they are broken: what comes out, or the one line that says what is wrong."""

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from allocators import InputError
from simulator.traces.formats import FORMATS, OWN_FORMATS, register_reader
from simulator.traces.logs.log_formats import LOG_FORMATS
from simulator.traces.reading import read_file
from simulator.traces.text import jsontext
from simulator.traces.text import opening as files
from simulator.traces.trace import Trace
from simulator.traces.workload.arrivals import poisson_arrivals

NEUTRAL = "arrival_s,prompt_tokens,output_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
MOONCAKE_ROW = '{"timestamp": 0, "input_length": 1, "output_length": 1}\n'
Rows = list[tuple[int, int, int]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


def read(folder: Path, content: str | bytes, strict: bool = False, format: str | None = None) -> Trace:
    path = folder / "sample"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Trace.read(path, strict, format)


def rows(trace: Trace) -> Rows:
    columns = (trace.arrival_ns, trace.prompt_tokens, trace.output_tokens)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def complaint(folder: Path, content: str | bytes, strict: bool = False, format: str | None = None) -> str:
    """The error, without the file's name at its front."""
    with pytest.raises(InputError) as caught:
        read(folder, content, strict, format)
    front = f"trace file '{folder / 'sample'}': "
    assert str(caught.value).startswith(front)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(front)


def dropped(trace: Trace) -> dict[str, int]:
    assert trace.report is not None
    return dict(trace.report.dropped)


# Samples: a file, and exactly the trace that must come out.

SAMPLES: dict[str, tuple[str | bytes, str, Rows]] = {
    "neutral": (NEUTRAL + "10.5,3,4\n11.25,5,6\n", "neutral", [(0, 3, 4), (750_000_000, 5, 6)]),
    "other order, more columns": (
        "note,output_tokens,arrival_s,prompt_tokens\nx,4,0,3\n,6,1,5\n",
        "neutral",
        [(0, 3, 4), (10**9, 5, 6)],
    ),
    "blanks around": (" arrival_s , prompt_tokens,output_tokens\n 0 , 3, 4\n", "neutral", [(0, 3, 4)]),
    "quoted": (
        '"arrival_s","prompt_tokens","output_tokens"\r\n"0","3","4"\r\n"1","5","6"',
        "neutral",
        [(0, 3, 4), (10**9, 5, 6)],
    ),
    "byte-order mark, CRLF, blank lines, no final newline": (
        b"\xef\xbb\xbf\r\n" + NEUTRAL.replace("\n", "\r\n").encode() + b"\r\n0,3,4\r\n\r\n  \r\n1,5,6",
        "neutral",
        [(0, 3, 4), (10**9, 5, 6)],
    ),
    "a Mac's line ends": ((NEUTRAL + "0,3,4\n1,5,6\n").replace("\n", "\r"), "neutral", [(0, 3, 4), (10**9, 5, 6)]),
    "out of order": (
        NEUTRAL + "2,1,1\n0,2,2\n2,3,3\n1,4,4\n",
        "neutral",
        [(0, 2, 2), (10**9, 4, 4), (2 * 10**9, 1, 1), (2 * 10**9, 3, 3)],
    ),
    "duplicates stay": (NEUTRAL + "0,3,4\n0,3,4\n", "neutral", [(0, 3, 4), (0, 3, 4)]),
    "azure 2023": (
        AZURE.strip() + "\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8",
        "azure",
        [(0, 4808, 10), (52_000_000, 3180, 8)],
    ),
    "azure 2024": (
        AZURE
        + "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01+00:00,7,8\n2024-05-10 01:00:01+01:00,9,9\n",
        "azure",
        [(0, 2162, 5), (990_070_000, 7, 8), (990_070_000, 9, 9)],
    ),
    "azure 2025": (
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15T12:00:00.269Z,0,770,491\n",
        "azure",
        [(0, 770, 491)],
    ),
    "mooncake": (
        '{"timestamp": 27000, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}\n\n'
        '{"timestamp": 30001, "input_length": 7, "output_length": 8, "hash_ids": []}\n\n',
        "mooncake",
        [(0, 6758, 500), (3_001_000_000, 7, 8)],
    ),
    "mooncake, a list": (
        '[\n{"timestamp": 1, "input_length": 9, "output_length": 8}, {"timestamp": 2,\n"input_length": 7, '
        '"output_length": 6}]\n',
        "mooncake",
        [(0, 9, 8), (1_000_000, 7, 6)],
    ),
    "burstgpt 1, its first arrival late, a float that is whole": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5270414,ChatGPT,472,18,490,Conversation log\n5270419,GPT-4,1087,230.0,1317,API log\n",
        "burstgpt",
        [(0, 472, 18), (5 * 10**9, 1087, 230)],
    ),
    "burstgpt 3, columns in the middle, a session that is blank": (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log\n"
        "19440111.5,,2,GPT-4,7,8,15,API log\n",
        "burstgpt",
        [(0, 906, 446), (1_500_000_000, 7, 8)],
    ),
    "qwen-bailian": (
        '{"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 33, "output_length": 132, '
        '"type": "text", "turn": 1, "hash_ids": [1089, 1090, 13148]}\n'
        '{"chat_id": 160, "parent_chat_id": 159, "timestamp": 61.114000001, "input_length": 16, "output_length": 80, '
        '"type": "search", "turn": 2, "hash_ids": [1089]}\n'
        '{"chat_id": 161, "parent_chat_id": 160, "timestamp": 62, "input_length": 1, "output_length": 1}\n'
        '{"chat_id": 9, "parent_chat_id": 5, "timestamp": 62, "input_length": 1, "output_length": 1}\n',
        "qwen-bailian",
        [(0, 33, 132), (1, 16, 80), (886_000_000, 1, 1), (886_000_000, 1, 1)],
    ),
    "ragpulse, a row out of order, two newlines at the end": (
        '{"timestamp": "82", "input_length": 3861, "output_length": 127, "hash_ids": {"sys_prompt": [8325, 8326], '
        '"user_input": [23648]}, "session_id": "1758-x"}\n'
        '{"timestamp": "27", "input_length": 5, "output_length": 6, "hash_ids": {"a": []}, "session_id": "a"}\n\n',
        "ragpulse",
        [(0, 5, 6), (55 * 10**9, 3861, 127)],
    ),
    "vidur": (
        "arrived_at,num_prefill_tokens,num_decode_tokens\n0.25,591,140\n0.375,547,248\n",
        "vidur",
        [(0, 591, 140), (125_000_000, 547, 248)],
    ),
    "splitwise-sim": (
        "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
        "0,2,0,0.0173,1,512,63\n1,2,0,0.1,1,3,4\n",
        "splitwise-sim",
        [(0, 512, 63), (82_700_000, 3, 4)],
    ),
    "blis": (
        "request_id,client_id,session_id,input_tokens,output_tokens,arrival_time_us,send_time_us,status\n"
        "0,c1,s1,10,5,1000000,1000007,ok\n1,c1,,11,6,1000001,1000008,ok\n",
        "blis",
        [(0, 10, 5), (1000, 11, 6)],
    ),
    "llmservingsim": (
        '{"input_toks": 12, "output_toks": 34, "arrival_time_ns": 5, "input_tok_ids": [1, 2]}\n'
        '{"input_toks": 13, "output_toks": 35, "arrival_time_ns": 9007199254740993}\n',
        "llmservingsim",
        [(0, 12, 34), (9007199254740988, 13, 35)],
    ),
    "aiperf": (
        '{"session_id": "a", "created_time": 1.5, "input_tokens": 10, "output_tokens": 4, '
        '"hash_ids": [18446744073709551615, 9007199254740993]}\n'
        '{"timestamp": 2, "input_length": 5, "output_length": 6, "hash_ids": null}\n'
        '{"session_id": "a", "delay": 0.25, "input_length": 20, "output_tokens": 7}\n'
        '{"session_id": "a", "delay": 10, "input_length": 30, "output_tokens": 8}\n',
        "aiperf",
        [(0, 10, 4), (250_000, 20, 7), (500_000, 5, 6), (10_250_000, 30, 8)],
    ),
}

SESSIONS = {
    "burstgpt 3, columns in the middle, a session that is blank": ["1722ac82", ""],
    "qwen-bailian": ["159", "159", "159", "5"],
    "ragpulse, a row out of order, two newlines at the end": ["a", "1758-x"],
    "blis": ["s1", ""],
    "aiperf": ["a", "a", "", "a"],
}
HASHES = {
    "mooncake": [(0, 1), ()],
    "qwen-bailian": [(1089, 1090, 13148), (1089,), (), ()],
    "aiperf": [(2**64 - 1, 2**53 + 1), (), (), ()],
}

LENGTHS_ONLY: dict[str, tuple[str, str, list[tuple[int, int]]]] = {
    "vidur lengths": (
        "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n591,140,731,4.2\n547,248,795,2.2\n",
        "vidur-lengths",
        [(591, 140), (547, 248)],
    ),
    "lengths": ("prompt_tokens,output_tokens\n5,6\n7,8\n", "lengths", [(5, 6), (7, 8)]),
    "sharegpt": (
        json.dumps(
            [
                {
                    "id": "a",
                    "conversations": [{"from": "human", "value": "why is\nthis"}, {"from": "gpt", "value": "so"}],
                },
                {
                    "id": "b",
                    "conversations": [
                        {"from": "system", "value": "be good"},
                        {"from": "gpt", "value": "hello there"},
                        {"from": "human", "value": "one ü"},
                        {"from": "gpt", "value": "a b c"},
                        {"from": "human", "value": "again"},
                    ],
                },
            ],
            indent=1,
        ),
        "sharegpt",
        [(3, 1), (2, 3)],
    ),
}


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_samples(folder: Path, sample: str, packed: bool, strict: bool) -> None:
    content, format, expected = SAMPLES[sample]
    raw = content.encode() if isinstance(content, str) else content
    trace = read(folder, gzip.compress(raw) if packed else raw, strict)
    assert rows(trace) == expected
    assert trace.report is not None
    assert trace.report.format == format
    assert (trace.report.rows, trace.report.kept, dropped(trace)) == (len(expected), len(expected), {})
    assert trace.name == "sample"
    assert (None if trace.session is None else trace.session.tolist()) == SESSIONS.get(sample)
    assert (None if trace.block_hashes is None else trace.block_hashes.tolist()) == HASHES.get(sample)


@pytest.mark.parametrize("sample", LENGTHS_ONLY)
def test_files_of_lengths_get_poisson_arrivals_at_a_rate(folder: Path, sample: str) -> None:
    content, format, expected = LENGTHS_ONLY[sample]
    assert complaint(folder, content).startswith("has lengths but no arrivals: give a rate")
    (folder / "sample").write_text(content, encoding="utf-8")
    trace = Trace.read(folder / "sample", strict=True, rate=4.0, seed=7)
    assert [row[1:] for row in rows(trace)] == expected
    gaps = poisson_arrivals(4.0, 2, 0, np.random.default_rng(7))
    assert trace.arrival_ns.tolist() == [0, gaps[1] - gaps[0]]
    assert trace.report is not None
    assert trace.report.format == format
    assert "the file has no arrivals: Poisson ones, 4 a second, seed 7" in trace.report.notes
    assert trace.report.origin == ""


def test_a_rate_is_for_files_without_arrivals(folder: Path) -> None:
    (folder / "sample").write_text(NEUTRAL + "0,1,1\n")
    with pytest.raises(InputError, match="has arrivals of its own: a rate is for a file of lengths only"):
        Trace.read(folder / "sample", rate=4.0)
    (folder / "sample").write_text("prompt_tokens,output_tokens\n1,1\n")
    for rate in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match=r"rate\(=.*\) must be a finite number > 0"):
            Trace.read(folder / "sample", rate=rate)


def test_conversations_take_any_tokenizer(folder: Path) -> None:
    (folder / "sample").write_text(LENGTHS_ONLY["sharegpt"][0])
    words = Trace.read(folder / "sample", rate=1.0)
    assert words.report is not None
    assert words.report.notes[0] == (
        "for want of a tokenizer, tokens are words between blanks (texts: 4): --tokenizer tokenizer.json counts them"
    )
    letters = Trace.read(folder / "sample", rate=1.0, count_tokens=len)
    assert [row[1:] for row in rows(letters)] == [(11, 2), (5, 5)]
    assert letters.report is not None
    assert len(letters.report.notes) == 1
    with pytest.raises(InputError, match=r"row 1 \(line 2\): counting tokens failed: ZeroDivisionError"):
        Trace.read(folder / "sample", rate=1.0, count_tokens=lambda text: len(text) // 0)
    with pytest.raises(InputError, match=r"row 1 \(line 2\): prompt\(='0'\) is below 1"):
        Trace.read(folder / "sample", strict=True, rate=1.0, count_tokens=lambda _: 0)


def test_conversations_without_an_answer_are_dropped(folder: Path) -> None:
    turns = [{"from": "human", "value": "a b"}, {"from": "gpt", "value": "c"}]
    odd: list[object] = [turns[:1], turns[::-1], [turns[0], {"from": "gpt"}], [3, None], "text", None, []]
    good = {"conversations": [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "c"}]}
    (folder / "sample").write_text(json.dumps([{"conversations": turns}, *({"conversations": o} for o in odd), good]))
    trace = Trace.read(folder / "sample", rate=1.0)
    assert [row[1:] for row in rows(trace)] == [(2, 1), (2, 1)]
    assert dropped(trace) == {"prompt missing or not finite": 7}


def test_failed_calls_of_burstgpt_are_dropped(folder: Path) -> None:
    head = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    text = head + "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n"
    assert dropped(read(folder, text)) == {"output below 1": 1}
    assert complaint(folder, text, strict=True).startswith("row 2 (line 3): Response tokens(='0') is below 1")


def test_aiperf_turns_without_any_time_are_dropped(folder: Path) -> None:
    first = '{"timestamp": 5, "input_length": 1, "output_length": 1, "session_id": "a"}\n'
    odd = ['{"session_id": "b", "delay": 1, "input_length": 1, "output_length": 1}']
    odd += ['{"session_id": "a", "delay": "soon", "input_length": 1, "output_length": 1}']
    odd += ['{"session_id": "a", "input_length": 1, "output_length": 1}']
    trace = read(folder, first + "\n".join(odd))
    assert dropped(trace) == {"time missing or not finite": 2, "time unreadable": 1}
    assert trace.report is not None
    assert trace.report.notes == ()


def sessions(trace: Trace) -> list[str]:
    assert trace.session is not None
    return list(trace.session)


AIPERF_TURN = '{{"session_id": {}, "{}": {}, "input_length": {}, "output_length": 1}}\n'


@pytest.mark.parametrize(
    "odd",
    ["NaN", "Infinity", "-Infinity", "null", "-5", "1e400", "1e9999999", "1e99999999999999999999", '"soon"', '"NaN"']
    + ["true", "[1]"],
)
def test_one_delay_that_cannot_be_read_loses_one_turn(folder: Path, odd: str) -> None:
    text = AIPERF_TURN.format('"a"', "timestamp", 1000, 7)
    text += AIPERF_TURN.format('"a"', "delay", odd, 8)
    text += AIPERF_TURN.format('"a"', "delay", 500, 9)
    trace = read(folder, text)
    assert rows(trace) == [(0, 7, 1), (500_000_000, 9, 1)]
    assert sum(dropped(trace).values()) == 1


def test_a_delay_of_less_than_a_nanosecond_is_none(folder: Path) -> None:
    text = AIPERF_TURN.format('"a"', "timestamp", 1000, 7)
    text += "".join(AIPERF_TURN.format('"a"', "delay", delay, 8) for delay in ("1e-9999999", "1e-999990", "1e-9"))
    assert rows(read(folder, text)) == [(0, 7, 1), *[(0, 8, 1)] * 3]


def test_one_time_that_cannot_be_read_loses_one_turn(folder: Path) -> None:
    text = "".join(AIPERF_TURN.format('"a"', "timestamp", time, 7) for time in (1000, "NaN"))
    trace = read(folder, text + AIPERF_TURN.format('"a"', "delay", 500, 9))
    assert rows(trace) == [(0, 7, 1), (500_000_000, 9, 1)]
    assert dropped(trace) == {"time missing or not finite": 1}


def test_a_session_is_the_same_however_its_number_is_written(folder: Path) -> None:
    text = AIPERF_TURN.format("7", "timestamp", 1000, 7)
    text += "".join(AIPERF_TURN.format(key, "delay", 500, 8) for key in ("7.0", '"7"', "7e0"))
    trace = read(folder, text)
    assert sessions(trace) == ["7"] * 4
    assert trace.arrival_ns.tolist() == [0, 5 * 10**8, 10**9, 15 * 10**8]
    qwen = '{{"chat_id": {}, "parent_chat_id": {}, "timestamp": 1, "input_length": 1, "output_length": 1}}\n'
    assert sessions(read(folder, qwen.format("7.0", -1) + qwen.format(8, "7") + qwen.format(9, '"8"'))) == ["7"] * 3


def test_chats_without_a_parent_are_chats_of_their_own(folder: Path) -> None:
    row = '{{"chat_id": {}, {} "timestamp": 1, "input_length": 1, "output_length": 1}}\n'
    roots = ["", *(f'"parent_chat_id": {root},' for root in ("null", "-1", "-1.0", '"-1"', "NaN", '""'))]
    text = "".join(row.format(number, root) for number, root in enumerate(roots))
    assert sessions(read(folder, text)) == [str(number) for number in range(len(roots))]
    unnamed = row.format(3, '"parent_chat_id": -1,') + 2 * row.format("null", '"parent_chat_id": null,')
    assert sessions(read(folder, unnamed)) == ["3", "", ""]


@pytest.mark.parametrize("column", ["hash_ids", "timestamp", "input_length"])
def test_what_is_null_in_the_first_row_does_not_change_the_format(folder: Path, column: str) -> None:
    row = {"timestamp": 27000, "input_length": 513, "output_length": 8, "hash_ids": [4, 5]}
    first: dict[str, object] = {**row, column: None}
    trace = read(folder, json.dumps(first) + "\n" + json.dumps(row))
    assert trace.report is not None
    assert (trace.report.format, trace.report.block_tokens, trace.report.rows) == ("mooncake", 512, 2)
    ragpulse: list[dict[str, object]] = [
        {"timestamp": "82", "input_length": 5, "output_length": 1, "hash_ids": ids} for ids in (None, {"a": [1]})
    ]
    trace = read(folder, "\n".join(map(json.dumps, ragpulse)))
    assert trace.report is not None
    assert (trace.report.format, trace.report.kept) == ("ragpulse", 2)


def test_aiperf_is_told_by_a_later_row(folder: Path) -> None:
    first = '{"timestamp": 1000, "input_length": 7, "output_length": 1, "hash_ids": null}\n'
    later = AIPERF_TURN.format('"a"', "timestamp", 1500, 7) + AIPERF_TURN.format('"a"', "delay", 500, 9)
    assert rows(read(folder, first + later)) == [(0, 7, 1), (500_000_000, 7, 1), (10**9, 9, 1)]


def test_a_turn_that_is_lost_parts_the_question_from_the_answer(folder: Path) -> None:
    ask, answer = {"from": "human", "value": "a b"}, {"from": "gpt", "value": "c"}
    holes: list[Any] = [None, 7, "x", [], {}, {"from": "system", "value": "x"}]
    for hole in holes:
        talks = [{"conversations": turns} for turns in ([ask, hole, answer], [hole, ask, answer, hole])]
        (folder / "sample").write_text(json.dumps(talks))
        trace = Trace.read(folder / "sample", rate=1.0)
        assert [row[1:] for row in rows(trace)] == [(2, 1)]
        assert dropped(trace) == {"prompt missing or not finite": 1}


def test_what_is_no_object_in_a_list_is_dropped_and_counted(folder: Path) -> None:
    one = MOONCAKE_ROW.strip()
    for content in (f"[{one},null,{one}]", f"[null,{one},{one}]", f"[{one},{one},\n7]"):
        trace = read(folder, content)
        assert (len(trace), dropped(trace)) == (2, {jsontext.MISFIT: 1})
    assert complaint(folder, f"[{one},\nnull]", strict=True) == f"row 2 (line 2): {jsontext.MISFIT}"
    talk = '{"conversations": [{"from": "human", "value": "a b"}, {"from": "gpt", "value": "c"}]}'
    (folder / "sample").write_text(f"[{talk}, null, {talk}]")
    trace = Trace.read(folder / "sample", rate=1.0)
    assert (len(trace), dropped(trace)) == (2, {jsontext.MISFIT: 1})


@pytest.mark.parametrize("strict", [False, True])
def test_several_lists_are_read_to_the_end(folder: Path, strict: bool) -> None:
    one = MOONCAKE_ROW.strip()
    assert len(read(folder, f"[{one},{one}]\n[{one},{one}]", strict)) == 4
    for content in (f"[{one} {one}]", f"[,{one}]", f"[{one},{one}]\n{one}", f"[{one},{one}]]", f"[{one},{one}"):
        assert "of the list" in complaint(folder, content, strict) or "after the list" in complaint(folder, content)


def test_headers_with_commas_and_newlines_in_quotes(folder: Path) -> None:
    text = '"time, s",prompt_tokens,"output\ntokens","prompt, asked"\n0,3,4,x\n1.5,5,6,"y, z"\n'
    trace = read(folder, text, strict=True)
    assert rows(trace) == [(0, 3, 4), (1_500_000_000, 5, 6)]
    assert complaint(folder, text + "2,0,1,x\n", strict=True).startswith("row 3 (line 5): prompt_tokens(='0') is below")


def test_lone_surrogates_do_not_make_two_sessions_one(folder: Path) -> None:
    text = "".join(AIPERF_TURN.format(f'"\\ud80{digit}"', "timestamp", 1000, 7) for digit in (0, 1))
    assert len(set(sessions(read(folder, text)))) == 2


def test_lines_that_end_in_carriage_returns_alone(folder: Path) -> None:
    lines = (MOONCAKE_ROW * 3).replace("\n", "\r")
    assert len(read(folder, lines, strict=True)) == 3
    dates = "time,prompt_len,output_len\r2026-11-30 10:15:00Z,3,4\r2026-11-30 10:15:00Z,5,6\r"
    trace = read(folder, dates, strict=True)
    assert rows(trace) == [(0, 3, 4), (0, 5, 6)]


# Readers of one's own.


def bars(lines: Iterable[str]) -> Iterator[dict[str, object]]:
    """A log such as ``12.5 | 512 > 20``."""
    for line in lines:
        if line.startswith("#"):
            continue
        seconds, _, tokens = line.partition("|")
        prompt, _, output = tokens.partition(">")
        yield {"arrival_s": seconds, "prompt_tokens": prompt, "output_tokens": output, "block_hashes": [1, 2**64 - 1]}


@pytest.fixture
def no_readers() -> Iterator[None]:
    yield
    OWN_FORMATS.clear()


@pytest.mark.usefixtures("no_readers")
def test_a_reader_of_ones_own(folder: Path) -> None:
    log = "# bars\r\n12.5 | 512 > 20\r\n11 | 3 > 0\r\n12 | 3 > 4"
    expected = [(0, 3, 4), (500_000_000, 512, 20)]
    by_path = read(folder, log, format=f"{__name__}.bars")
    assert rows(by_path) == expected
    (folder / "sample").write_bytes(gzip.compress(log.encode()))
    assert rows(Trace.read(folder / "sample", format=bars)) == expected
    assert complaint(folder, log).startswith("is in none of the known formats")
    register_reader("bars", bars, matches=lambda line: line == "# bars")
    for format in (None, "bars"):
        trace = read(folder, log, format=format)
        assert rows(trace) == expected
        assert trace.block_hashes is not None
        assert trace.block_hashes.tolist() == [(1, 2**64 - 1)] * 2
        assert trace.report is not None
        assert trace.report.format == "bars"
        assert (trace.report.rows, trace.report.out_of_order, dropped(trace)) == (3, 1, {"output below 1": 1})
    assert complaint(folder, log, strict=True).startswith("row 2 (line 3): output_tokens(=' 0') is below 1")
    with pytest.raises(InputError, match="format 'azure' is there already"):
        register_reader("azure", bars)


def test_a_reader_of_ones_own_that_fails(folder: Path) -> None:
    def breaks(lines: Iterable[str]) -> Iterator[dict[str, object]]:
        yield {"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1}
        for line in lines:
            yield {"arrival_s": int(line)}

    def numbers(lines: Iterable[str]) -> Iterator[Any]:
        yield from map(len, lines)

    for reader, message in (
        (breaks, "the reader breaks failed at line 1: ValueError: invalid literal for int() with base 10: 'x'"),
        (numbers, "the reader numbers failed at line 1: TypeError: it yields '1', no mapping of columns"),
    ):
        (folder / "sample").write_text("x\ny\n")
        with pytest.raises(InputError) as caught:
            Trace.read(folder / "sample", format=reader)
        assert str(caught.value).endswith(message)
    for path, message in (
        ("nowhere.at_all", "nowhere cannot be imported"),
        (f"{__name__}.nothing", f"{__name__} has no function nothing"),
    ):
        with pytest.raises(InputError, match=message):
            read(folder, NEUTRAL, format=path)


def test_out_of_order_rows_are_counted(folder: Path) -> None:
    trace = read(folder, SAMPLES["out of order"][0])
    assert trace.report is not None
    assert trace.report.out_of_order == 2
    assert str(trace.report) == "neutral: 4 rows read, 4 kept; 2 out of order, sorted"


def test_session_and_block_hashes(folder: Path) -> None:
    text = (
        "session,block_hashes,arrival_s,prompt_tokens,output_tokens\n"
        '"a ""b"", c\nd","[18446744073709551615, 0]",5,3,4\n,,4,5,6\n'
    )
    trace = read(folder, text, strict=True)
    assert rows(trace) == [(0, 5, 6), (10**9, 3, 4)]
    assert trace.session is not None
    assert trace.block_hashes is not None
    assert trace.session.tolist() == ["", 'a "b", c\nd']
    assert trace.block_hashes.tolist() == [(), (2**64 - 1, 0)]


def test_mooncake_block_hashes(folder: Path) -> None:
    trace = read(folder, SAMPLES["mooncake"][0])
    assert trace.block_hashes is not None
    assert trace.block_hashes.tolist() == [(0, 1), ()]
    assert trace.session is None


def test_nothing_in_a_column_is_no_column(folder: Path) -> None:
    trace = read(folder, "arrival_s,prompt_tokens,output_tokens,session,block_hashes\n0,1,1,,\n")
    assert trace.session is None
    assert trace.block_hashes is None


# Rows that cannot be used.


def test_rows_are_dropped_and_counted_by_reason(folder: Path) -> None:
    bad = ["nan,1,1", "inf,1,1", ",1,1", "-1,1,1", "x,1,1", "1e30,1,1", "0,0,1", "0,-2,1", "0,1.5,1", "0,,1"]
    bad += ["0,1,0", "0,1,0.25", "0,1,", "0,1,many", "0,1,1e12", "1,1", "1,1,1,1", ",,"]
    trace = read(folder, NEUTRAL + "0,5,446.0\n" + "\n".join(bad) + "\n1,6,7\n")
    assert rows(trace) == [(0, 5, 446), (10**9, 6, 7)]
    assert dropped(trace) == {
        "time missing or not finite": 4,
        "time negative": 1,
        "time unreadable": 1,
        "time out of range": 1,
        "prompt below 1": 2,
        "prompt fractional": 1,
        "prompt missing or not finite": 1,
        "output below 1": 1,
        "output fractional": 1,
        "output missing or not finite": 1,
        "output unreadable": 1,
        "output out of range": 1,
        "not the header's 3 fields": 2,
    }
    assert trace.report is not None
    assert (trace.report.rows, trace.report.kept) == (20, 2)
    assert str(trace.report).startswith("neutral: 20 rows read, 2 kept; dropped: ")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "-1,1,1",
            "arrival_s(='-1') is negative; it must be 0 to 9,000,000,000 s, or a date such as 2023-11-16 18:17:03.97, "
            "1970 to 2255, 0 to 9 fraction digits",
        ),
        ("1,0,1", "prompt_tokens(='0') is below 1; it must be a whole number from 1 to 1,000,000,000"),
        ("1,1,2.5", "output_tokens(='2.5') is fractional; it must be a whole number from 1 to 1,000,000,000"),
        ("1,1", "not the header's 3 fields"),
    ],
)
def test_strict_names_the_row(folder: Path, row: str, message: str) -> None:
    text = NEUTRAL + f"0,1,1\n\n0,1,1\n{row}\n-5,0,0\n"
    assert complaint(folder, text, strict=True) == f"row 3 (line 5): {message}"


def test_strict_counts_lines_through_quoted_fields(folder: Path) -> None:
    text = 'session,arrival_s,prompt_tokens,output_tokens\n"a\n\nb",0,1,1\nc,0,1,0\n'
    assert complaint(folder, text, strict=True).startswith("row 2 (line 5): output_tokens(='0') is below 1")


def test_strict_on_dates_hashes_and_json(folder: Path) -> None:
    assert complaint(folder, AZURE + "2023-11-16,1,1\n", strict=True) == (
        "row 1 (line 2): TIMESTAMP(='2023-11-16') is unreadable; "
        "it must be a date such as 2023-11-16 18:17:03.97, 1970 to 2255, 0 to 9 fraction digits"
    )
    good = '{"timestamp": 0, "input_length": 1, "output_length": 1}\n'
    assert complaint(folder, good + '\n{"timestamp": 0, "inp', strict=True) == f"row 2 (line 3): {jsontext.MISFIT}"
    assert complaint(folder, good + good.replace("}", ', "hash_ids": [-1]}'), strict=True) == (
        "row 2 (line 2): hash_ids(='[-1]') is unreadable; it must be whole numbers from 0 to 2^64 - 1, as in [0, 1, 2]"
    )


def test_broken_json_rows_are_dropped(folder: Path) -> None:
    good = '{"timestamp": 0, "input_length": 1, "output_length": 1}\n'
    deep = "[" * 100_000
    odd = ["[1]", "7", "nonsense", '{"timestamp": 1}', '{"timestamp": NaN, "input_length": 1}', deep]
    odd += ['{"timestamp": ' + "9" * 5000 + "}", '{"timestamp": true, "input_length": {}, "output_length": null}']
    odd += ['{"timestamp": 1, "timestamp": 2, "input_length": 1, "output_length": 1}']
    trace = read(folder, good + "\n".join(odd))
    assert rows(trace) == [(0, 1, 1)]
    assert dropped(trace) == {
        jsontext.MISFIT: 5,
        "time out of range": 1,
        "prompt missing or not finite": 1,
        "time missing or not finite": 1,
        "time unreadable": 1,
    }


def test_no_usable_row(folder: Path) -> None:
    assert complaint(folder, NEUTRAL) == "has no rows"
    assert complaint(folder, NEUTRAL + "0,1,0\n0,0,1\n0,1,0\n") == (
        "has no usable row among 3: output below 1 (2), prompt below 1 (1)"
    )


def test_mixed_time_zones(folder: Path) -> None:
    text = AZURE + "2024-05-10 00:00:00,1,1\n2024-05-10 00:00:01Z,1,0\n2024-05-10 00:00:02Z,1,1\n"
    assert complaint(folder, text) == "mixes times with a UTC offset (row 3 (line 4)) and without (row 1 (line 2))"


# Files that cannot be used.


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \r\n\n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (gzip.compress(NEUTRAL.encode(), mtime=0)[:30], "is a gzip file that ends too early: fetch it again"),
        (b"\x1f\x8b", "is a gzip file that ends too early: fetch it again"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "is a Git-LFS pointer, not the data"),
        (b"\n <!DOCTYPE html>\n<html></html>", "is a web page, not a trace: the download went wrong"),
        (NEUTRAL.encode("utf-16"), "is UTF-16 text: save it as UTF-8"),
        (NEUTRAL.encode("utf-16-le"), "is UTF-16 text: save it as UTF-8"),
        (NEUTRAL.encode("utf-16-be"), "is UTF-16 text: save it as UTF-8"),
        (b"\x7fELF\x02\x01\0\0\x05 and more", "holds a NUL byte in line 1: it is binary, or damaged"),
        (("時間,入力\n" + NEUTRAL).encode("utf-16-be"), "is UTF-16 text: save it as UTF-8"),
        (NEUTRAL.encode("utf-32"), "is UTF-32 text: save it as UTF-8"),
        (NEUTRAL.encode("utf-32-be"), "holds a NUL byte in line 1: it is binary, or damaged"),
        (bytes(1000), "holds a NUL byte in line 1: it is binary, or damaged"),
        (NEUTRAL.encode() + b"0,1,1\n" + bytes(1000), "holds a NUL byte in line 3: it is binary, or damaged"),
        (NEUTRAL.encode() + b"0,1,1\n0\0,\0" + b"1\0,1\n", "holds a NUL byte in line 3: it is binary, or damaged"),
        (NEUTRAL.encode()[:9] + bytes(900), "holds a NUL byte in line 1: it is binary, or damaged"),
        (b"PK\x03\x04....", "is a zip archive: unpack it first"),
        (b"PAR1....", "is a damaged Parquet file: "),
        ("caf\u00e9,b\n".encode("latin-1"), "is not UTF-8 text: byte 0xe9 in line 1"),
        ((NEUTRAL + "0,1,é\n").encode("latin-1"), "is not UTF-8 text: byte 0xe9 in line 2"),
        (
            "arrival_s,prompt_tokens,result\n0,1,1\n",
            "lacks the column output_tokens; found 'arrival_s, prompt_tokens, result' (taken for the format neutral); "
            "or say which is which: --columns arrival=arrival_s,prompt=prompt_tokens,output=COLUMN",
        ),
        (
            "TIMESTAMP,Tokens\n",
            "lacks the columns ContextTokens, GeneratedTokens; found 'TIMESTAMP, Tokens' (taken for",
        ),
        (
            '{"timestamp": 1, "input_length": 5}\n',
            "lacks the column output_length; found 'timestamp, input_length' (taken",
        ),
        (
            "0.5,10,20\n0.6,10,20\n",
            "is in none of the known formats: its columns are '0.5, 10, 20'; put a line with names above it, such as "
            "arrival_s,prompt_tokens,output_tokens; nearest first, they are neutral, azure, burstgpt, vidur, "
            "splitwise-sim, blis, litellm, vidur-lengths, lengths, mooncake,",
        ),
        (
            "arrived_then,prefills,decodes,x\n1,2,3,4\n",
            "is in none of the known formats: its columns are 'arrived_then, prefills, decodes, x'; say which is "
            "which: --columns arrival=arrived_then,prompt=prefills,output=decodes; nearest first, they are vidur",
        ),
        (
            "arrival_s;prompt_tokens;output_tokens\n0,5;1;1\n",
            "is separated by semicolons: save it with commas; it begins with 'arrival_s;prompt_tokens;output_tokens'",
        ),
        ("arrival_s\tprompt_tokens\toutput_tokens\n", "is separated by tabs: save it with commas; it begins with"),
        (NEUTRAL + "0,1,1\n0,\0,1\n", "holds a NUL byte in line 3: it is binary, or damaged"),
        ("x" * 10_000_000, "line 1 is longer than 4,194,304 bytes: that is no row of a trace"),
        (NEUTRAL + "0," + "1" * 10_000_000 + ",1\n", "line 2 is longer than 4,194,304 bytes: that is no row"),
        (NEUTRAL + '0,1,1\n"' + "x" * 10_000_000, 'line 3: a quote (") that does not enclose a field'),
        ('{"timestamp": 0}\n{"a": "' + "x" * 10_000_000, "lacks the columns input_length"),
        (MOONCAKE_ROW + MOONCAKE_ROW.replace("1}", "1" * 5_000_000 + "}"), "line 2 is longer than 4,194,304 bytes"),
        ("[]", "is in none of the known formats: it begins with '[]'"),
        ("[1]", "line 1 is not a JSON object: '[1]'"),
        ("[" + MOONCAKE_ROW + ",\n" + MOONCAKE_ROW, "row 3 (line 4) of the list is no whole JSON object"),
        ("[" + MOONCAKE_ROW + ', {"timestamp": }]', "row 2 (line 2) of the list is no whole JSON object"),
        ("[" + MOONCAKE_ROW + ',{"a":' + "[" * 100_000, "row 2 (line 2) of the list is no whole JSON object"),
        (
            '[{"conversations": []}]',
            "has lengths but no arrivals: give a rate in requests a second, --rate 4 (Python: rate=4)",
        ),
        ("num_prefill_tokens,num_decode_tokens\n1,1\n", "has lengths but no arrivals: give a rate"),
        (
            '{"timestamp": 1,\n "input_length": 5}\n',
            "lacks the column output_length; found 'timestamp, input_length' (taken",
        ),
        ('{"timestamp": 1,\n "input_length" 5}\n', "line 2 is no JSON (Expecting ':'), or the file breaks off there"),
        ('{"timestamp": 1, "input_le', 'line 1 is not a JSON object: \'{"timestamp": 1, "input_le\''),
        (
            '{"timestamp": "82", "input_length": 5, "output_length": 1, "hash_ids": []}\n',
            "row 1 (line 1): timestamp(='82') may be in any unit, for the columns are named as in mooncake (ms), "
            "qwen-bailian (s), ragpulse (s): say which, s, ms, us or ns: --columns arrival=timestamp:ms,",
        ),
        (
            "arrival_s,prompt_tokens,output_tokens,prompt_tokens\n0,1,1,1\n",
            "has the column prompt_tokens more than once",
        ),
        (NEUTRAL + '0,1,1\n0,"1,1\n', 'line 3: a quote (") that does not enclose a field; inside one it is written'),
        (NEUTRAL + '0,1,1\n0,1",1"\n', 'line 3: a quote (") that does not enclose a field'),
        (NEUTRAL + '0,1,1\n0,"1"x,1\n', 'line 3: a quote (") that does not enclose a field'),
    ],
)
def test_unusable_files(folder: Path, content: str | bytes, message: str) -> None:
    assert complaint(folder, content).startswith(message)


def test_a_gzip_with_a_wrong_byte(folder: Path) -> None:
    packed = bytearray(gzip.compress(NEUTRAL.encode() * 50))
    packed[-6] ^= 255
    assert complaint(folder, bytes(packed)).startswith(
        "is a damaged gzip file (Error -3 while decompressing data: incorrect data check)"
    )
    assert complaint(folder, b"\x1f\x8b\x07 and more").startswith("is a damaged gzip file")
    assert complaint(folder, bytes(packed[:10]) + b"\xff" * 20).startswith("is a damaged gzip file")


def test_missing_files_and_folders(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "none.csv", "there is no such file"),
        (tmp_path, "is a directory, not a file"),
        (tmp_path / ("x" * 300), "cannot be read: File name too long"),
        (tmp_path / "none.csv" / "below", "there is no such file"),
        (Path("a\0b"), "cannot be read: embedded null byte"),
    ):
        with pytest.raises(InputError) as caught:
            read_file(path)
        assert str(caught.value).startswith("trace file '")
        assert str(caught.value).endswith(f"': {reason}")


def test_a_named_format(folder: Path) -> None:
    ragpulse = '{"timestamp": "82", "input_length": 5, "output_length": 1}\n'
    assert rows(read(folder, ragpulse, format="mooncake")) == [(0, 5, 1)]
    assert complaint(folder, NEUTRAL, format="azure").startswith(
        "lacks the columns TIMESTAMP, ContextTokens, Generated"
    )
    assert complaint(folder, NEUTRAL, format="mooncake").startswith(
        "is not in the format mooncake: it begins with 'arr"
    )
    with pytest.raises(
        InputError, match=r"format\(='exe'\) must be one of neutral, azure, burstgpt, .*, or a reader of your own"
    ):
        read(folder, NEUTRAL, format="exe")


# Properties.


@given(st.binary() | st.text().map(str.encode), st.sampled_from(["", NEUTRAL, AZURE, "{", '{"timestamp":0,']))
@example(b'0,1,"', NEUTRAL)
@example(b'"' * 7, NEUTRAL)
@example(b'"\n"\n,"",""",', NEUTRAL)
@example(b'"input_length": 1, "output_length": 1}\n\xed\xa0\x80', '{"timestamp":0,')
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_bytes_are_a_trace_or_one_line(folder: Path, content: bytes, front: str) -> None:
    for raw in (front.encode() + content, gzip.compress(front.encode() + content)[: -len(content) % 9 + 40]):
        (folder / "any").write_bytes(raw)
        for strict in (False, True):
            try:
                trace = Trace.read(folder / "any", strict)
            except InputError as error:
                assert str(error).startswith(f"trace file '{folder / 'any'}': ")
                assert len(str(error).splitlines()) == 1
            else:
                assert len(trace) > 0


FIELD = st.sampled_from(["0", "1.5", "7", "-1", "", "x", "nan", '"3"', '"4\n"', '"a,b"', " 2 "])
LINES = st.lists(st.lists(FIELD, min_size=1, max_size=4).map(",".join)).map("\n".join)


@given(LINES, st.integers(1, 20), st.sampled_from(["\n", "\r\n"]))
def test_how_a_text_is_cut_makes_no_difference(folder: Path, text: str, size: int, end: str) -> None:
    def outcome() -> object:
        try:
            trace = read(folder, (NEUTRAL + text).replace("\n", end))
        except InputError as error:
            return str(error)
        return rows(trace), trace.report

    expected = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK_BYTES", size)
        patch.setattr("simulator.traces.kept._LARGE_ROWS", 2)
        assert outcome() == expected


@given(
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(-1, 9), st.integers(-1, 9)), min_size=1), st.integers(1, 5)
)
def test_json_lines_and_csv_say_the_same(folder: Path, sample: Rows, size: int) -> None:
    lines = [json.dumps({"timestamp": t, "input_length": p, "output_length": g}) for t, p, g in sample]
    usable = sorted((row for row in sample if min(row[1:]) >= 1), key=lambda row: row[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "ROWS_AT_ONCE", size)
        if not usable:
            assert complaint(folder, "\n".join(lines)).startswith("has no usable row")
            return
        trace = read(folder, "\n".join(lines))
    assert rows(trace) == [((t - usable[0][0]) * 10**6, p, g) for t, p, g in usable]
    seconds = [f"{t / 1000},{p},{g}\n" for t, p, g in sample]
    assert read(folder, NEUTRAL + "".join(seconds)).sha256 == trace.sha256


def test_every_format_has_a_sample() -> None:
    sampled = {format for _, format, _ in SAMPLES.values()} | {format for _, format, _ in LENGTHS_ONLY.values()}
    assert sampled == {form.name for form in FORMATS} - {form.name for form in LOG_FORMATS}


def test_a_blank_session_is_none(folder: Path) -> None:
    head = "Timestamp,Session ID,Request tokens,Response tokens\n"
    trace = read(folder, head + "0, ,1,1\n1, a ,1,1\n2,a,1,1\n")
    assert trace.session is not None
    assert trace.session.tolist() == ["", "a", "a"]
    assert read(folder, head + "0, ,1,1\n1,\t,1,1\n").session is None


def test_a_format_asked_for_tells_only_what_it_needs(folder: Path) -> None:
    assert complaint(folder, MOONCAKE_ROW, format="azure") == (
        f"is not in the format azure: it begins with {MOONCAKE_ROW.strip()!r}; "
        "it needs CSV with TIMESTAMP, ContextTokens, GeneratedTokens"
    )


def test_a_decompression_bomb_stops_at_the_stated_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_UNPACKING_FROM", 4 << 20)
    for filling in (b"\n" * 6_000_000, b" \n" * 3_000_000, (b" " * 1000 + b"0,1,1\n") * 6000):
        assert complaint(folder, gzip.compress(NEUTRAL.encode() + filling)) == (
            "unpacks to more than 250 times its size of what is no row (blank or long lines): a decompression bomb; "
            "if it is a trace, gunzip it first"
        )
    assert complaint(folder, gzip.compress(bytes(8 << 20))).startswith("unpacks to more than 250 times")


def test_equal_rows_are_no_decompression_bomb(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_UNPACKING_FROM", 4 << 20)
    content = NEUTRAL.encode() + b"0,1000,100\n" * 1_000_000
    packed = gzip.compress(content)
    assert len(content) > files.MAX_UNPACKING * len(packed)
    assert len(read(folder, packed)) == 1_000_000


def test_gzip_members_one_behind_the_other(folder: Path) -> None:
    packed = gzip.compress(NEUTRAL.encode() + b"0,1,1\n1,2") + gzip.compress(b",2\n") + b"\0" * 600
    assert rows(read(folder, packed)) == [(0, 1, 1), (10**9, 2, 2)]
    assert complaint(folder, packed + b"more").startswith("is a damaged gzip file")
