"""The samples of logs, one in each format of logs that kvfrag reads: the same requests, and some that failed."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

Request = tuple[int, int, int]
"""Arrival in nanoseconds, prompt tokens, output tokens."""

EPOCH_NS = 1_767_600_000_000_000_000  # 2026-01-05 08:00:00 in UTC
_FAILED_PROMPT = 777


def _lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _seconds(time_ns: int, digits: int = 9) -> float:
    return round(time_ns / 1e9, digits)


def _arrays(requests: list[Request]) -> dict[str, list[Any]]:
    """The parallel arrays of both benchmarks; the last request failed."""
    prompts, outputs = [p for _, p, _ in requests], [g for _, _, g in requests]
    return {
        "input_lens": [*prompts, _FAILED_PROMPT],
        "output_lens": [*outputs, 0],
        "ttfts": [0.05] * len(requests) + [0.0],
        "itls": [[0.01, 0.012]] * len(requests) + [[]],
        "generated_texts": ["lorem ipsum"] * len(requests) + [""],
        "errors": [""] * len(requests) + ["Bad Gateway"],
    }


def vllm_bench(requests: list[Request]) -> str:
    # A clock that began when the machine did; every third request waited for a place among the client's own.
    waits = [0.25 if i % 3 == 2 else 0.0 for i in range(len(requests) + 1)]
    arrivals = [5000 + _seconds(t, 6) for t, _, _ in requests] + [5080.0]
    head: dict[str, Any] = {"date": "20260105-080000", "backend": "openai-chat", "model_id": "m", "tokenizer_id": "m"}
    head |= {"num_prompts": len(waits), "request_rate": 0.5, "completed": len(requests), "failed": 1}
    times = {"start_times": [round(a + w, 6) for a, w in zip(arrivals, waits, strict=True)], "queue_times": waits}
    return json.dumps({**head, **_arrays(requests), **times})


def vllm_bench_old(requests: list[Request]) -> str:
    # Before it wrote times; and as somebody who wants to see it has it printed.
    head = {"date": "20250105-080000", "backend": "vllm", "model_id": "m", "tokenizer_id": "m", "request_rate": "inf"}
    return json.dumps({**head, **_arrays(requests)}, indent=1)


def sglang_bench(requests: list[Request]) -> str:
    # A line for each run of the benchmark, appended.
    def run(some: list[Request], rate: float) -> dict[str, Any]:
        head = {
            "tag": None,
            "backend": "sglang",
            "dataset_name": "random",
            "request_rate": rate,
            "max_concurrency": None,
        }
        return {**head, "completed": len(some), "total_input_tokens": 0, **_arrays(some)}

    return _lines([run(requests[:25], 0.5), run(requests[25:], float("inf"))])


def aiperf_export(requests: list[Request]) -> str:
    # In order of completion; a request of the warm-up, one that failed, one that was cancelled.
    def record(number: int, time_ns: int, metrics: dict[str, int], **more: Any) -> dict[str, Any]:
        metadata = {"x_request_id": f"r{number}", "x_correlation_id": f"s{number // 2}", "turn_index": number % 2}
        metadata |= {"request_start_ns": EPOCH_NS + time_ns, "benchmark_phase": "profiling", "was_cancelled": False}
        values = {name: {"value": value, "unit": "tokens"} for name, value in metrics.items()}
        return {"metadata": metadata | more, "metrics": values, "error": None}

    rows = [
        record(i, t, {"input_sequence_length": p, "output_sequence_length": g}) for i, (t, p, g) in enumerate(requests)
    ]
    rows[4], rows[6] = rows[6], rows[4]
    failed = record(90, 0, {"error_isl": _FAILED_PROMPT})
    failed["error"] = {"code": 500, "type": "Internal Server Error", "message": "x"}
    return _lines(
        [
            record(91, 0, {"input_sequence_length": 5, "output_sequence_length": 5}, benchmark_phase="warmup"),
            *rows,
            failed,
            record(92, 1, {}, was_cancelled=True),
        ]
    )


def genai_perf(requests: list[Request]) -> str:
    # The odd ones are streams, whose last event has the counts; one had no answer at all.
    def request(time_ns: int, number: int, responses: list[str]) -> dict[str, Any]:
        payload = json.dumps({"model": "m", "messages": [{"role": "user", "content": "lorem"}]})
        return {
            "timestamp": EPOCH_NS + time_ns,
            "request_inputs": {"session_id": f"s{number // 2}", "payload": payload},
            "response_timestamps": [EPOCH_NS + time_ns + 10**9] * len(responses),
            "response_outputs": [{"response": text} for text in responses],
        }

    rows = []
    for i, (t, p, g) in enumerate(requests):
        usage = json.dumps({"choices": [], "usage": {"prompt_tokens": p, "completion_tokens": g}})
        first = json.dumps({"choices": [{"delta": {"content": "lorem"}}]})
        rows.append(
            request(t, i, [f"data: {first}\n\n", f"data: {usage}\n\n", "data: [DONE]\n\n"] if i % 2 else [usage])
        )
    rows.append(request(1, 90, []))
    return json.dumps({"experiments": [{"experiment": {"mode": "request_rate", "value": 0.5}, "requests": rows}]})


def inference_perf(requests: list[Request]) -> str:
    # Half of it as older versions wrote it.
    rows: list[dict[str, Any]] = []
    for i, (t, p, g) in enumerate(requests):
        new = {"request_metrics": {"text": {"input_tokens": p}}, "response_metrics": {"output_tokens": g}}
        info = {"input_tokens": p, **(new if i % 2 else {"output_tokens": g})}
        start = 5000 + _seconds(t, 6)
        rows.append({"start_time": start, "end_time": start + 1, "request": "{}", "response": "x", "info": info})
    error = {"error_type": "ClientError", "error_msg": "x"}
    failed = {"start_time": 5000.5, "end_time": 5001, "info": {"input_tokens": _FAILED_PROMPT}, "error": error}
    return json.dumps([{**row, "error": None} for row in rows] + [failed])


def llmperf(requests: list[Request]) -> str:
    rows = [
        {"error_code": None, "ttft_s": 0.3, "number_output_tokens": g, "number_input_tokens": p} for _, p, g in requests
    ]
    return json.dumps([*rows, {**rows[0], "error_code": 429, "error_msg": "rate limit", "number_output_tokens": 0}])


def llmservingsim_bench(requests: list[Request]) -> str:
    return _lines(
        [
            {
                "request_id": f"bench-{i}",
                "input_toks": p,
                "output_toks": g,
                "arrival_time": EPOCH_NS / 1e9 + _seconds(t, 6),
                "queued_ts": 5000 + _seconds(t, 6),
            }
            for i, (t, p, g) in enumerate(requests)
        ]
    )


def _spend_logs(requests: list[Request], stamp: Callable[[int], str]) -> list[dict[str, Any]]:
    """Rows of LiteLLM's table: a failure, an answer of the proxy's cache and an embedding among them."""

    def row(number: int, time_ns: int, prompt: int, output: int, **more: Any) -> dict[str, Any]:
        counts = {"total_tokens": prompt + output, "prompt_tokens": prompt, "completion_tokens": output}
        when = {"startTime": stamp(time_ns), "endTime": stamp(time_ns + 10**9)}
        rest = {"model": "m", "metadata": "{}", "cache_hit": "False", "session_id": f"s{number // 3}"}
        return {
            "request_id": f"r{number}",
            "call_type": "acompletion",
            **counts,
            **when,
            **rest,
            "status": "success",
        } | more

    failed = {"status": "failure", "metadata": json.dumps({"error_information": {"error_code": "429"}})}
    rows = [row(i, t, p, g) for i, (t, p, g) in enumerate(requests)]
    rows.insert(3, row(90, 1, 0, 0, **failed))
    rows.insert(5, row(91, 1, _FAILED_PROMPT, 50, cache_hit="True"))
    rows.insert(7, row(92, 1, _FAILED_PROMPT, 0, call_type="aembedding"))
    return rows


def litellm_csv(requests: list[Request], stamp: Callable[[int], str]) -> str:
    rows = _spend_logs(requests, stamp)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def litellm_json(requests: list[Request], stamp: Callable[[int], str]) -> str:
    return json.dumps(_spend_logs(requests, lambda t: stamp(t).replace(" ", "T") + "Z"), indent=1)


def litellm_payload(requests: list[Request]) -> str:
    rows = []
    for i, (t, p, g) in enumerate(requests):
        start = EPOCH_NS / 1e9 + _seconds(t, 6)
        row = {"id": f"r{i}", "trace_id": f"t{i // 2}", "call_type": "acompletion", "status": "success", "model": "m"}
        rows.append({**row, "prompt_tokens": p, "completion_tokens": g, "startTime": start, "endTime": start + 1})
    failed = {**rows[0], "status": "failure", "prompt_tokens": 0, "completion_tokens": 0}
    return _lines([*rows, {**failed, "error_information": {"error_code": "429", "error_class": "RateLimitError"}}])


def opentelemetry(requests: list[Request]) -> str:
    # A batch for every ten; an agent's span above two calls, with their sums; one call failed; one span is no call.
    def span(number: int, time_ns: int, attributes: dict[str, Any], **more: Any) -> dict[str, Any]:
        ids = {"traceId": f"{number // 2:032x}", "spanId": f"{number + 1:016x}", "name": "chat m", "kind": 3}
        kinds = {str: "stringValue", int: "intValue"}
        listed = [
            {"key": key, "value": {kinds[type(value)]: str(value) if number % 2 else value}}
            for key, value in attributes.items()
        ]
        when = {"startTimeUnixNano": str(EPOCH_NS + time_ns), "endTimeUnixNano": str(EPOCH_NS + time_ns + 10**9)}
        return {**ids, **when, "attributes": listed, "status": {}} | more

    spans = []
    for i, (t, p, g) in enumerate(requests):
        names = ("input_tokens", "output_tokens") if i % 2 else ("prompt_tokens", "completion_tokens")
        counts = {f"gen_ai.usage.{name}": value for name, value in zip(names, (p, g), strict=True)}
        spans.append(span(i, t, {"gen_ai.conversation.id": f"s{i // 2}", **counts}))
    spans[0]["parentSpanId"] = spans[1]["parentSpanId"] = "a" * 16
    (_, p, g), (_, q, h) = requests[:2]
    sums = {"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": p + q}
    agent = span(0, 0, {**sums, "gen_ai.usage.output_tokens": g + h}, spanId="a" * 16, name="invoke_agent")
    failed = span(90, 1, {"gen_ai.operation.name": "chat", "error.type": "timeout"}, status={"code": 2})
    spans += [agent, failed, span(92, 1, {"http.request.method": "POST"}, name="POST")]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "app"}}]}
    return _lines(
        [
            {
                "resourceSpans": [
                    {"resource": resource, "scopeSpans": [{"scope": {}, "spans": spans[first : first + 10]}]}
                ]
            }
            for first in range(0, len(spans), 10)
        ]
    )
