"""Files that look like logs of requests and are none: one line that says what each is, and what writes the requests."""

import json
from pathlib import Path

import pytest

from allocators import InputError
from simulator.traces.logs.lookalikes import lookalike
from simulator.traces.trace import Trace

EVENT = {"type": "BlockStored", "block_hashes": [11], "parent_block_hash": None, "token_ids": [1, 2], "block_size": 2}
SUMMARY = {"backend": "x", "request_rate": 4.0, "duration": 4.1, "completed": 2, "total_input_tokens": 545}
AVERAGE = {"unit": "ms", "avg": 5.0}

FILES = {
    "events": (
        json.dumps([1764500000.25, [EVENT], 0]),
        ["KV-cache events", "--save-detailed", "--otlp-traces-endpoint"],
    ),
    "events of older versions": (json.dumps([1.5, [["BlockStored", [11], None]]]), ["KV-cache events"]),
    "events, a line each": (json.dumps(EVENT) + "\n", ["KV-cache events"]),
    "vLLM's summary": (
        json.dumps({**SUMMARY, "num_prompts": 3, "latencies": [1.0], "queue_times": [0.0]}),
        ["by vLLM, without its requests", "vllm bench serve --save-result --save-detailed"],
    ),
    "vLLM's summary, printed": (json.dumps({**SUMMARY, "num_prompts": 3}, indent=2), ["by vLLM", "--save-detailed"]),
    "SGLang's summary": (
        json.dumps({**SUMMARY, "dataset_name": "random"}) + "\n",
        ["by SGLang, without its requests", "bench_serving --output-details"],
    ),
    "genai-perf's summary": (
        json.dumps({"request_throughput": AVERAGE, "request_latency": AVERAGE, "input_config": {}}),
        ["by genai-perf or AIPerf", "profile_export.json (genai-perf)", "profile_export.jsonl (AIPerf"],
    ),
    "genai-perf's table": ("Metric,avg,min,max\nRequest Latency (ms),1,2,3\n", ["by genai-perf or AIPerf"]),
    "LLMPerf's summary": (
        json.dumps({"version": "2023-08-31", "results_num_completed_requests": 5}),
        ["by LLMPerf", "_individual_responses.json"],
    ),
    "inference-perf's summary": (
        json.dumps({"load_summary": {"count": 5}, "successes": {}}),
        ["by inference-perf", "report.request_lifecycle.per_request: true"],
    ),
    "vLLM's request log": (
        "INFO 11-30 10:15:00 [logger.py:43] Received request cmpl-1: params: SamplingParams(n=1, max_tokens=16)\n",
        ["log of a vLLM server", "no lengths of requests", "--enable-log-requests"],
    ),
    "vLLM's log": (
        "INFO 11-30 10:15:00 Engine 000: Avg prompt throughput: 1.0 tokens/s, Running: 1 reqs\n",
        ["log of a vLLM server"],
    ),
    "metrics": (
        "# HELP vllm:num_requests_running Number of requests.\n# TYPE vllm:num_requests_running gauge\n",
        ["Prometheus metrics", "sums over all requests"],
    ),
    "metrics without help": ('vllm:num_requests_running{engine="0"} 3.0\n', ["Prometheus metrics"]),
    "time series": (
        "t,prompt_throughput,gen_throughput,running,waiting,kv_cache_pct\n0,1,2,3,4,5\n",
        ["LLMServingSim's time series", "requests.jsonl"],
    ),
    "OpenTelemetry's metrics": (json.dumps({"resourceMetrics": []}) + "\n", ["metrics or logs, not spans"]),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("format", [None, "vllm-bench"])
def test_each_is_told_by_what_it_is_and_lacks(tmp_path: Path, name: str, format: str | None) -> None:
    content, words = FILES[name]
    path = tmp_path / "file"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        Trace.read(path, format=format, rate=4.0)
    told = str(caught.value)
    assert told.startswith(f"trace file '{path}': ")
    assert len(told.splitlines()) == 1
    for word in words:
        assert word in told


def test_a_trace_may_say_anything_in_its_texts(tmp_path: Path) -> None:
    talk = 'Received request a: # HELP "BlockStored" {"request_latency": {'
    turns = [{"from": "human", "value": talk}, {"from": "gpt", "value": talk}]
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([{"conversations": turns}]))
    assert lookalike(path.read_bytes()) is not None
    assert Trace.read(path, rate=4.0).prompt_tokens.tolist() == [len(talk.split())]


def test_any_other_file_is_none_of_them() -> None:
    for content in (b"", b"a,b\n1,2\n", b"{}", b"\xff\xfe", "\ufeffMetrics,x".encode()):
        assert lookalike(content) is None
