"""Logs of requests, in the shapes that their programs write: the exact trace of each, what is dropped and said."""

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators import InputError
from simulator.traces.formats import FORMATS
from simulator.traces.logs.log_formats import LOG_FORMATS
from simulator.traces.text.jsontext import MISFIT
from simulator.traces.trace import Trace

Rows = list[tuple[int, int, int]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


def read(folder: Path, content: str, **options: Any) -> Trace:
    (folder / "log").write_text(content, encoding="utf-8")
    return Trace.read(folder / "log", **options)


def rows(trace: Trace) -> Rows:
    columns = (trace.arrival_ns, trace.prompt_tokens, trace.output_tokens)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def complaint(folder: Path, content: str, **options: Any) -> str:
    """The error, without the file's name at its front."""
    with pytest.raises(InputError) as caught:
        read(folder, content, **options)
    front = f"trace file '{folder / 'log'}': "
    assert str(caught.value).startswith(front)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(front)


def dropped(trace: Trace) -> dict[str, int]:
    assert trace.report is not None
    return dict(trace.report.dropped)


def notes(trace: Trace) -> tuple[str, ...]:
    assert trace.report is not None
    return trace.report.notes


def lines(*objects: object) -> str:
    return "".join(json.dumps(one) + "\n" for one in objects)


# vLLM and SGLang: a run as one object of parallel arrays.

VLLM: dict[str, Any] = {
    "date": "20261130-101500",
    "backend": "openai-chat",
    "model_id": "m",
    "num_prompts": 4,
    "request_rate": "inf",
    "total_input_tokens": 545,
    "input_lens": [512, 33, 2048, 7],
    "output_lens": [128, 7, 0, 9],
    "ttfts": [0.08, 0.03, 0.0, 0.1],
    "itls": [[0.01], [0.01], [], [0.02, 0.03]],
    "latencies": [1.4, 0.1, 0.0, 1.0],
    "start_times": [91.2, 91.85, 92.1, 92.100000001],
    "queue_times": [0.0, 0.0, 0.4, 0.9],
    "generated_texts": ["a", "b", "", "{[,"],
    "errors": ["", "", "Bad Gateway", ""],
}
SGLANG: dict[str, Any] = {
    "backend": "sglang",
    "dataset_name": "random",
    "request_rate": 4.0,
    "total_input_tokens": 1936,
    "input_lens": [900, 1024, 12],
    "output_lens": [100, 64, 5],
    "itls": [[0.01], [0.01], [0.01]],
    "errors": ["", "timeout", ""],
}


def test_vllm_bench_arrives_when_the_client_queues_a_request(folder: Path) -> None:
    for content in (json.dumps(VLLM), json.dumps(VLLM, indent=2), lines(VLLM)):
        trace = read(folder, content)
        assert rows(trace) == [(0, 512, 128), (1, 7, 9), (650_000_000, 33, 7)]
        assert dropped(trace) == {"failed: Bad Gateway": 1}
        assert trace.report is not None
        assert (trace.report.format, trace.report.rows, trace.report.out_of_order) == ("vllm-bench", 4, 1)
        assert trace.report.origin == "91.2 s of a clock that began anywhere (monotonic: no date)"
        assert notes(trace) == ()


def test_a_failed_request_is_an_error_when_strict(folder: Path) -> None:
    assert complaint(folder, json.dumps(VLLM), strict=True) == "row 3 (line 1): failed: Bad Gateway"
    good = {name: value[:2] if isinstance(value, list) else value for name, value in VLLM.items()}
    assert rows(read(folder, json.dumps(good), strict=True)) == [(0, 512, 128), (650_000_000, 33, 7)]


def test_vllm_bench_without_queue_times_says_what_an_arrival_is(folder: Path) -> None:
    content = json.dumps({name: value for name, value in VLLM.items() if name != "queue_times"})
    assert rows(read(folder, content)) == [(0, 512, 128), (650_000_000, 33, 7), (900_000_001, 7, 9)]
    assert notes(read(folder, content)) == ("requests that arrive at their start_times, for want of queue_times: 4",)


def test_runs_with_a_clock_each_are_not_mixed(folder: Path) -> None:
    assert complaint(folder, lines(VLLM, VLLM)) == (
        "holds several runs (lines 1 and 2), each with a clock and a rate of its own: "
        "make a file of each, sed -n 1p FILE > ONE"
    )


def test_vllm_bench_without_times_needs_a_rate(folder: Path) -> None:
    old = {name: value for name, value in VLLM.items() if not name.endswith("_times")}
    assert complaint(folder, json.dumps(old)).startswith("has lengths but no arrivals: give a rate")
    trace = read(folder, lines(old, old), rate=2.0)
    assert [row[1:] for row in rows(trace)] == [(512, 128), (33, 7), (7, 9)] * 2
    assert trace.report is not None
    assert trace.report.format == "vllm-bench-lengths"
    assert notes(trace)[0] == "runs in the file, taken one after the other: 2"


def test_sglang_bench_is_lengths_of_all_its_runs(folder: Path) -> None:
    bare = lines(SGLANG, {**SGLANG, "request_rate": float("inf")})
    assert "Infinity" in bare
    assert complaint(folder, bare).startswith("has lengths but no arrivals: give a rate")
    trace = read(folder, bare, rate=4.0)
    assert [row[1:] for row in rows(trace)] == [(900, 100), (12, 5)] * 2
    assert dropped(trace) == {"failed: timeout": 2}
    assert trace.report is not None
    assert trace.report.format == "sglang-bench"
    summary = {name: value for name, value in SGLANG.items() if not isinstance(value, list)}
    assert dropped(read(folder, lines(SGLANG, summary), rate=4.0)) == {
        "failed: timeout": 1,
        "a run without its requests (--output-details writes them)": 1,
    }


def test_arrays_that_are_not_parallel_are_an_error(folder: Path) -> None:
    assert complaint(folder, json.dumps({**VLLM, "output_lens": [1]})) == (
        "the arrays of a run must be of one length; they are "
        "input_lens 4, output_lens 1, start_times 4, queue_times 4, errors 4"
    )
    assert complaint(folder, json.dumps({**VLLM, "start_times": 5})) == (
        "start_times of a run must be a list, a value for each request; it is int"
    )


def test_odd_times_are_the_rows_own_fault(folder: Path) -> None:
    odd = {
        **VLLM,
        "start_times": [1.5, None, "x", "1e999999999"],
        "queue_times": [2, 0, 0, "1e-999999999"],
        "errors": [],
    }
    assert complaint(folder, json.dumps(odd)) == (
        "has no usable row among 4: time missing or not finite (1), time negative (1), "
        "time out of range (1), time unreadable (1)"
    )


def test_an_object_may_be_longer_than_a_line_of_a_trace(folder: Path) -> None:
    long = {**VLLM, "generated_texts": ["x" * 2_500_000] * 4, "itls": [[0.1] * 100_000] * 4}
    assert rows(read(folder, json.dumps(long))) == rows(read(folder, json.dumps(VLLM)))


def test_reasons_for_failures_are_few_short_and_plain(folder: Path) -> None:
    errors = [
        'Traceback (most recent call last):\n  File "a.py"\nTimeoutError: \x1b[31mlate',
        "x" * 500,
        *(f"request {i} failed" for i in range(20)),
    ]
    run = {"model_id": "m", "input_lens": [5] * 23, "output_lens": [6] * 23, "errors": [*errors, ""]}
    trace = read(folder, json.dumps(run), rate=1.0)
    assert dropped(trace) == {
        "failed: TimeoutError: [31mlate": 1,
        f"failed: {'x' * 60}": 1,
        **{f"failed: request {i} failed": 1 for i in range(6)},
        "failed: another reason": 14,
    }


# A record for each request.


def aiperf(start_ns: object, metrics: dict[str, object], **more: Any) -> dict[str, Any]:
    metadata = {"x_correlation_id": "s1", "request_start_ns": start_ns, "benchmark_phase": "profiling"}
    metadata |= {"was_cancelled": False}
    values = {name: {"value": value, "unit": "tokens"} for name, value in metrics.items()}
    return {"metadata": {**metadata, **more}, "metrics": values, "error": None}


def lengths(prompt: object, output: object) -> dict[str, object]:
    return {"input_sequence_length": prompt, "output_sequence_length": output, "time_to_first_token": 21.5}


def test_aiperf_export(folder: Path) -> None:
    failed = {"error": {"code": 500, "type": "Internal Server Error", "message": "x"}}
    trace = read(
        folder,
        lines(
            aiperf(1764500000100000001, lengths(550, 90)),
            aiperf(1764500000100000000, lengths(700, 12), x_correlation_id="s2"),
            aiperf(1, lengths(1, 1), benchmark_phase="warmup"),
            aiperf(1764500002000000000, {"error_isl": 550}) | failed,
            aiperf(1764500002000000000, {}) | failed | {"metrics": None},
            aiperf(1764500002000000000, lengths(5, 5), was_cancelled=True),
            aiperf(1764500002000000000, lengths(5, [1, 2])),
            {"metadata": None, "metrics": []},
        ),
    )
    assert rows(trace) == [(0, 700, 12), (1, 550, 90)]
    assert trace.session is not None
    assert trace.session.tolist() == ["s2", "s1"]
    assert dropped(trace) == {
        "failed: 500 Internal Server Error": 2,
        "failed: cancelled": 1,
        "output unreadable": 1,
        "time missing or not finite": 1,
    }
    assert notes(trace) == ("requests of the warm-up, left out: 1",)
    assert trace.report is not None
    assert (trace.report.format, trace.report.origin) == ("aiperf-export", "2025-11-30 10:53:20.100000000Z")


def genai(timestamp: int, responses: list[str], payload: object = "{}", session: str = "s1") -> dict[str, Any]:
    return {
        "timestamp": timestamp,
        "request_inputs": {"session_id": session, "payload": payload},
        "response_timestamps": [timestamp],
        "response_outputs": [{"response": text} for text in responses],
    }


def genai_file(*requests: object) -> str:
    return json.dumps({"experiments": [{"experiment": {"mode": "x"}, "requests": list(requests)}], "version": "1"})


def chunk(text: str, **more: Any) -> str:
    return "data: " + json.dumps({"choices": [{"delta": {"content": text}}], **more}) + "\n\n"


USAGE = {"usage": {"prompt_tokens": 33, "total_tokens": 65, "completion_tokens": 32}}
CHAT = json.dumps({"messages": [{"role": "system", "content": "be good"}, {"role": "user", "content": "why is this"}]})


def test_genai_perf_counts_are_the_servers_or_those_of_the_texts(folder: Path) -> None:
    trace = read(
        folder,
        genai_file(
            genai(1764500000100000000, [json.dumps(USAGE)]),
            genai(1764500000100000007, [chunk("a b"), chunk(" c", **USAGE), "data: [DONE]\n\n"], session="s2"),
            genai(1764500000200000000, [chunk("one "), chunk("two") + chunk(" three"), "data: [DONE]"], CHAT),
            genai(1764500000200000001, [json.dumps({"text_output": "x y"})], json.dumps({"text_input": "a b c"})),
            genai(1764500000300000000, []),
            genai(1764500000300000000, ["", "data: [DONE]"]),
            genai(1764500000300000000, [json.dumps({"error": {"message": "too long"}})]),
            "no request",
        ),
    )
    assert rows(trace) == [(0, 33, 32), (7, 33, 32), (100_000_000, 5, 3), (100_000_001, 3, 2)]
    assert trace.session is not None
    assert trace.session.tolist() == ["s1", "s2", "s1", "s1"]
    assert dropped(trace) == {"failed: no usable response": 2, "failed: too long": 1, MISFIT: 1}
    assert notes(trace) == (
        "requests with the server's own counts (usage): 2",
        "for want of a tokenizer, tokens are words between blanks (texts: 4): --tokenizer tokenizer.json counts them",
    )
    counted = read(folder, genai_file(genai(0, [chunk("one two")], CHAT)), count_tokens=len)
    assert rows(counted) == [(0, 19, 7)]


def test_genai_perf_tells_where_a_tokenizer_fails(folder: Path) -> None:
    content = genai_file(genai(0, [json.dumps(USAGE)]), genai(0, [chunk("one two")], CHAT))
    assert complaint(folder, content, count_tokens=lambda _: 0.5) == (  # a float is no count
        "row 2 (line 1): counting tokens failed: TypeError(\"'float' object cannot be interpreted as an integer\")"
    )


def test_genai_perf_cut_off_is_an_error(folder: Path) -> None:
    content = genai_file(genai(0, [json.dumps(USAGE)]), genai(0, [json.dumps(USAGE)]))
    assert complaint(folder, content[:-200]).startswith("line 1 is no JSON (")
    assert complaint(folder, '{"experiments": [\n5]}') == (
        "line 2 is no JSON (Expecting '{'), or the file breaks off there"
    )
    assert complaint(folder, '{"experiments": [5]}') == "line 1 is not a JSON object: '{\"experiments\": [5]}'"


def test_inference_perf_of_now_and_of_before(folder: Path) -> None:
    new = {
        "input_tokens": 1,
        "request_metrics": {"text": {"input_tokens": 120}},
        "response_metrics": {"output_tokens": 40},
    }
    failed = {"error_type": "ClientError", "error_msg": "x"}
    records = [
        {"start_time": 501.1, "end_time": 502, "request": "{}", "response": "a", "info": new, "error": None},
        {"start_time": 501.05, "request": "{}", "info": {"input_tokens": 9, "output_tokens": 3}, "error": None},
        {"start_time": 501.35, "request": "{}", "response": None, "info": new, "error": failed},
    ]
    for content in (json.dumps(records), json.dumps(records, indent=1)):
        trace = read(folder, content)
        assert rows(trace) == [(0, 9, 3), (50_000_000, 120, 40)]
        assert dropped(trace) == {"failed: ClientError": 1}
        assert trace.report is not None
        assert trace.report.origin == "501.05 s of a clock that began anywhere (monotonic: no date)"
    assert complaint(folder, json.dumps(records), strict=True) == "row 3 (line 1): failed: ClientError"


def test_llmperf_has_no_times(folder: Path) -> None:
    good = {"error_code": None, "number_output_tokens": 100, "number_input_tokens": 550, "ttft_s": 0.3}
    content = json.dumps([good, {**good, "error_code": 429, "number_output_tokens": 0}])
    assert complaint(folder, content).startswith("has lengths but no arrivals: give a rate")
    trace = read(folder, content, rate=4.0)
    assert rows(trace) == [(0, 550, 100)]
    assert dropped(trace) == {"failed: error_code 429": 1}
    assert notes(trace)[-1] == "its tokens are those of one fixed Llama tokenizer, and its rows in order of completion"


def test_llmservingsim_bench_arrives_by_the_wall_clock(folder: Path) -> None:
    row = {"request_id": "bench-0", "input_toks": 2358, "output_toks": 531, "queued_ts": 27536.66}
    content = lines({**row, "arrival_time": 1787267980.08}, {**row, "arrival_time": 1787267981, "output_toks": 5})
    trace = read(folder, content, strict=True)
    assert rows(trace) == [(0, 2358, 531), (920_000_000, 2358, 5)]
    assert trace.report is not None
    assert (trace.report.format, trace.report.origin) == ("llmservingsim-bench", "2026-08-20 23:19:40.080000000Z")


# LiteLLM.


def spend(second: object, **more: Any) -> dict[str, Any]:
    row = {"request_id": "a", "call_type": "acompletion", "prompt_tokens": 812, "completion_tokens": 95}
    row |= {"startTime": f"2026-11-30T10:15:{second}Z", "session_id": "s1", "status": "success", "cache_hit": "False"}
    return {**row, **more}


SPENT = [
    spend("00.120"),
    spend("00.400", status="failure", prompt_tokens=0, completion_tokens=0, session_id=None, cache_hit="None"),
    spend("00.500", status="failure", metadata=json.dumps({"error_information": {"error_code": "429"}, "a": '"x", y'})),
    spend("01", cache_hit="True"),
    spend("01", call_type="aembedding", completion_tokens=0),
    spend("00", status=None, cache_hit=None, session_id=None, prompt_tokens=7),
]
SPENT_DROPPED = {"failed: status is failure": 1, "failed: 429": 1}
SPENT_NOTES = (
    "requests that the proxy answered from its own cache, left out: 1",
    "calls that generate no text (embeddings, images, ...), left out: 1",
)


def as_csv(table: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [*table[2]], lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()


@pytest.mark.parametrize("content", [json.dumps(SPENT), json.dumps(SPENT, indent=1), lines(*SPENT), as_csv(SPENT)])
def test_litellm_spend_logs(folder: Path, content: str) -> None:
    trace = read(folder, content)
    assert rows(trace) == [(0, 7, 95), (120_000_000, 812, 95)]
    assert trace.session is not None
    assert trace.session.tolist() == ["", "s1"]
    assert dropped(trace) == SPENT_DROPPED
    assert notes(trace) == SPENT_NOTES
    assert trace.report is not None
    assert (trace.report.format, trace.report.origin) == ("litellm", "2026-11-30 10:15:00.000000000Z")
    assert complaint(folder, content, strict=True).endswith("failed: status is failure")


def test_litellm_spend_logs_packed_and_as_parquet(folder: Path) -> None:
    expected = rows(read(folder, as_csv(SPENT)))
    (folder / "log").write_bytes(gzip.compress(as_csv(SPENT).encode()))
    assert rows(Trace.read(folder / "log")) == expected
    pd.DataFrame(SPENT).to_parquet(folder / "log")
    trace = Trace.read(folder / "log")
    assert (rows(trace), dropped(trace), notes(trace)) == (expected, SPENT_DROPPED, SPENT_NOTES)
    with pytest.raises(InputError, match=r"row 2 .*: failed: status is failure"):
        Trace.read(folder / "log", strict=True)


def test_a_row_of_litellms_csv_with_too_many_fields_is_told_as_such(folder: Path) -> None:
    assert dropped(read(folder, as_csv(SPENT) + "1,2\r\n")) == {**SPENT_DROPPED, "not the header's 9 fields": 1}


def test_what_is_no_request_is_left_out_when_strict_too(folder: Path) -> None:
    content = lines(SPENT[0], SPENT[3], SPENT[4])
    assert rows(read(folder, content, strict=True)) == [(0, 812, 95)]
    assert complaint(folder, lines(SPENT[3])) == (
        "has no rows; requests that the proxy answered from its own cache, left out: 1"
    )


def test_litellms_payload_counts_seconds_since_1970(folder: Path) -> None:
    row = {"id": "c", "trace_id": "t1", "call_type": "acompletion", "prompt_tokens": 40, "completion_tokens": 9}
    failed = {"status": "failure", "error_information": {"error_code": "429", "error_class": "RateLimitError"}}
    trace = read(
        folder,
        lines(
            {**row, "startTime": 1764500101.25, "status": "success", "cache_hit": None},
            {**row, "startTime": 1764500100, "status": "success", "trace_id": "t2"},
            {**row, "startTime": 1764500101.5, **failed},
        ),
    )
    assert rows(trace) == [(0, 40, 9), (1_250_000_000, 40, 9)]
    assert trace.session is not None
    assert trace.session.tolist() == ["t2", "t1"]
    assert dropped(trace) == {"failed: 429 RateLimitError": 1}
    assert trace.report is not None
    assert (trace.report.format, trace.report.origin) == ("litellm-payload", "2025-11-30 10:55:00.000000000Z")


# OpenTelemetry.


def span(name: str, start_ns: object, attributes: dict[str, Any], parent: str = "", **more: Any) -> dict[str, Any]:
    kinds = {str: "stringValue", int: "intValue", float: "doubleValue"}
    listed = [{"key": key, "value": {kinds[type(value)]: value}} for key, value in attributes.items()]
    own = {"traceId": "t", "spanId": name, "parentSpanId": parent, "startTimeUnixNano": start_ns}
    return {**own, "attributes": listed, "status": {}, **more}


def batch(*spans: object) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


def tokens(prompt: object, output: object, **more: Any) -> dict[str, Any]:
    return {"gen_ai.usage.input_tokens": prompt, "gen_ai.usage.output_tokens": output} | more


def test_spans_of_vllm_and_of_clients(folder: Path) -> None:
    vllm = {"gen_ai.usage.prompt_tokens": "550", "gen_ai.usage.completion_tokens": "90", "gen_ai.request.id": "r"}
    client = tokens(120, 40.0, **{"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "s1"})
    trace = read(
        folder,
        lines(
            batch(span("1", "1764500000100000001", vllm)),
            batch(span("2", 1764500000100000000, client), span("3", "1764500000400000000", {"http.method": "POST"})),
            batch(span("4", "5", {"gen_ai.operation.name": "chat", "error.type": "timeout"}, status={"code": 2})),
            batch(
                span("5", "5", {"gen_ai.operation.name": "chat"}, status={"code": "STATUS_CODE_ERROR", "message": "m"})
            ),
            batch(span("6", "5", tokens(5, 5, **{"gen_ai.operation.name": "embeddings"}))),
            batch(span("7", "5", {"http.method": "GET"}, status={"code": 2})),
        ),
    )
    assert rows(trace) == [(0, 120, 40), (1, 550, 90)]
    assert trace.session is not None
    assert trace.session.tolist() == ["s1", ""]
    assert dropped(trace) == {"failed: timeout": 1, "failed: m": 1}
    assert notes(trace) == ("spans that are no call with token counts, left out: 3",)
    assert trace.report is not None
    assert (trace.report.format, trace.report.origin) == ("opentelemetry", "2025-11-30 10:53:20.100000000Z")


def test_spans_above_calls_are_not_counted_whichever_batch_they_are_in(folder: Path) -> None:
    agent = span("a", 1, tokens(30, 12, **{"gen_ai.operation.name": "invoke_agent"}), status={"code": 2})
    middle = span("m", 2, {"name": "step"}, "a")
    calls = [span("c", 2, tokens(10, 5), "m"), span("d", 9, tokens(20, 7), "m")]
    alone = span("z", 10, tokens(99, 1, **{"gen_ai.operation.name": "invoke_agent"}))
    for content in (
        lines(batch(*calls), batch(middle), batch(agent, alone)),
        lines(batch(alone, agent, middle, *calls)),
    ):
        trace = read(folder, content, strict=True)
        assert rows(trace) == [(0, 10, 5), (7, 20, 7), (8, 99, 1)]
        assert set(notes(trace)) == {
            "spans that are no call with token counts, left out: 1",
            "spans with calls among their descendants, whose tokens they repeat, left out: 1",
            "spans of whole agent runs, without their calls, taken as one request each: 1",
        }


def test_spans_that_are_their_own_ancestors_end(folder: Path) -> None:
    loop = [span("a", 1, tokens(1, 1), "b"), span("b", 1, tokens(1, 1), "a"), span("c", 4, tokens(3, 3), "c")]
    assert complaint(folder, lines(batch(*loop))).startswith("has no rows; spans with calls among their descendants")


def test_a_line_of_spans_that_is_cut_off_is_one_row(folder: Path) -> None:
    content = lines(batch(span("1", 5, tokens(1, 1))))
    assert dropped(read(folder, content + content[:-30])) == {MISFIT: 1}
    assert dropped(read(folder, content + "nonsense\n" + content)) == {MISFIT: 1}
    assert complaint(folder, content + content[:-30], strict=True) == f"row 1 (line 2): {MISFIT}"


# All of them.


def test_a_named_format_of_logs_needs_its_columns(folder: Path) -> None:
    assert rows(read(folder, json.dumps(VLLM), format="vllm-bench")) == rows(read(folder, json.dumps(VLLM)))
    assert complaint(folder, json.dumps(SGLANG), format="vllm-bench").startswith("lacks the column start_times; found")
    assert complaint(folder, "a,b\n1,2\n", format="litellm") == (
        "lacks the columns startTime, prompt_tokens, completion_tokens; found 'a, b' (taken for the format litellm)"
    )
    assert complaint(folder, "a,b\n1,2\n", format="genai-perf").endswith(
        "it needs JSON with request_inputs, response_outputs"
    )


@pytest.mark.parametrize(
    ("time", "prompt", "output", "known"),
    [
        ("startTime", "prompt_tokens", "completion_tokens", "litellm-payload (s), litellm (dates)"),
        ("arrival_time", "input_toks", "output_toks", "llmservingsim-bench (s)"),
        ("time", "number_input_tokens", "number_output_tokens", ""),
    ],
)
def test_a_log_of_ones_own_with_such_names_is_none_of_them(
    folder: Path, time: str, prompt: str, output: str, known: str
) -> None:
    for content in (
        lines(*({time: at, prompt: 5, output: 6} for at in (10, 12.5))),
        f"{time},{prompt},{output}\n10,5,6\n12.5,5,6\n",
    ):
        if known:
            assert complaint(folder, content).endswith(
                f"{time}(='10') may be in any unit, for the columns are named as in {known}: "
                f"say which, s, ms, us or ns: --columns arrival={time}:ms,prompt={prompt},output={output}"
            )
        else:
            assert notes(read(folder, content))[0].startswith(f"no unit is given for {time}: taken for seconds")
        told = {"arrival": f"{time}:ms", "prompt": prompt, "output": output}
        assert rows(read(folder, content, columns=told)) == [(0, 5, 6), (2_500_000, 5, 6)]
    dates = [{time: f"2026-11-30T10:15:0{second}Z", prompt: 5, output: 6} for second in (1, 4)]
    assert rows(read(folder, lines(*dates), strict=True)) == [(0, 5, 6), (3_000_000_000, 5, 6)]


def test_all_formats_have_names_of_their_own() -> None:
    names = [form.name for form in FORMATS]
    for form in LOG_FORMATS:
        assert names.count(form.name) == 1


ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 2**65)
    | st.floats()
    | st.sampled_from(["", "x", "1", "NaN", "[]", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["usage", "choices", "response", "value", "key", "spans", "delta"]), inner)
    ),
    max_leaves=6,
)
WHOLE: list[tuple[Any, bool]] = [
    (VLLM, False),
    (SGLANG, False),
    (aiperf(1, lengths(1, 1)), False),
    (json.loads(genai_file(genai(0, [chunk("a", **USAGE)], CHAT))), False),
    ([{"start_time": 1, "info": {"input_tokens": 1, "output_tokens": 1}, "error": None}], True),
    (SPENT, True),
    (batch(span("1", 5, tokens(1, 1), "p")), False),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to all values in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inner for found in places(item, (*path, key)))]


@given(st.data())
@settings(deadline=None, max_examples=400)
def test_whatever_stands_in_a_log_is_a_trace_or_one_line(folder: Path, data: st.DataObject) -> None:
    whole, _ = data.draw(st.sampled_from(WHOLE))
    changed = json.loads(json.dumps(whole))
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from(places(changed)[1:]))
        holder = changed
        for key in path:
            holder = holder[key]
        holder[last] = data.draw(ODD)
    for strict in (False, True):
        try:
            trace = read(folder, json.dumps(changed), strict=strict, rate=data.draw(st.sampled_from([None, 2.0])))
        except InputError as error:
            assert str(error).startswith(f"trace file '{folder / 'log'}': ")
            assert len(str(error).splitlines()) == 1
            assert len(str(error)) < 2000
        else:
            assert len(trace) > 0
