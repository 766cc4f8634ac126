"""Logs of requests that people have: of benchmarks of servers, of proxies, of traces of calls. A line each in
:data:`LOG_FORMATS`, whose ``edit`` brings what is nested down to columns.

Field by field they are as the programs that write them have them: vLLM ``vllm bench serve --save-result
--save-detailed``, SGLang ``bench_serving --output-details``, AIPerf ``profile_export.jsonl``, genai-perf
``profile_export.json``, inference-perf ``per_request_lifecycle_metrics.json``, LLMPerf ``*_individual_responses.json``,
LLMServingSim ``requests.jsonl``, LiteLLM's spend logs and standard logging payloads, OpenTelemetry's GenAI spans.
"""

from functools import partial

from simulator.traces.logs.bench_logs import (
    aiperf_records,
    inference_perf_records,
    llmperf_responses,
    runs_without_times,
    timed_run,
)
from simulator.traces.logs.genai_perf import genai_perf_requests
from simulator.traces.logs.litellm import litellm_requests
from simulator.traces.logs.spans import model_calls
from simulator.traces.notes import DATE, EPOCH, MONOTONIC, NANOSECONDS, SECONDS
from simulator.traces.schema import Format
from simulator.traces.text.jsontext import Decimals, Row

_LITELLM = partial(
    Format,
    time="startTime",
    prompt="prompt_tokens",
    output="completion_tokens",
    edit=litellm_requests,
    signs=("startTime", "prompt_tokens", "completion_tokens"),
    also=("call_type", "cache_hit", "status", "metadata"),
)
_PARALLEL = partial(Format, kind="json", unit=SECONDS, prompt="input_lens", output="output_lens")


def _is_vllm(row: Row) -> bool:
    return "tokenizer_id" in row or "model_id" in row


# Logs of one's own may name their columns as these do, but not with the same unit, clock or kind of time.


def _is_litellm(row: Row) -> bool:
    return bool(row.keys() & {"call_type", "cache_hit", "spend"})


def _is_payload(row: Row) -> bool:
    return _is_litellm(row) and isinstance(row["startTime"], int | Decimals)


LOG_FORMATS = (
    _PARALLEL(
        "vllm-bench",
        time="start_times",
        edit=timed_run,
        signs=("input_lens", "output_lens", "start_times"),
        clock=MONOTONIC,
    ),
    _PARALLEL(
        "vllm-bench-lengths", time="", edit=runs_without_times, signs=("input_lens", "output_lens"), matches=_is_vllm
    ),
    _PARALLEL("sglang-bench", time="", edit=runs_without_times, signs=("input_lens", "output_lens")),
    Format(
        "aiperf-export",
        "json",
        NANOSECONDS,
        "request_start_ns",
        "input_sequence_length",
        "output_sequence_length",
        session="x_correlation_id",
        edit=aiperf_records,
        signs=("metadata", "metrics"),
        clock=EPOCH,
    ),
    Format(
        "genai-perf",
        "json",
        NANOSECONDS,
        "timestamp",
        "prompt_tokens",
        "completion_tokens",
        session="session_id",
        edit=genai_perf_requests,
        signs=("request_inputs", "response_outputs"),
        clock=EPOCH,
    ),
    Format(
        "inference-perf",
        "json",
        SECONDS,
        "start_time",
        "input_tokens",
        "output_tokens",
        edit=inference_perf_records,
        signs=("start_time", "info"),
        clock=MONOTONIC,
    ),
    Format(
        "llmperf",
        "json",
        SECONDS,
        "",
        "number_input_tokens",
        "number_output_tokens",
        matches=lambda row: "error_code" in row,
        edit=llmperf_responses,
        remark="its tokens are those of one fixed Llama tokenizer, and its rows in order of completion",
    ),
    Format(
        "llmservingsim-bench",
        "json",
        SECONDS,
        "arrival_time",
        "input_toks",
        "output_toks",
        matches=lambda row: "queued_ts" in row,
        clock=EPOCH,
    ),
    _LITELLM("litellm-payload", kind="json", unit=SECONDS, session="trace_id", matches=_is_payload, clock=EPOCH),
    _LITELLM("litellm", kind="csv|json", unit=DATE, session="session_id", matches=_is_litellm),
    Format(
        "opentelemetry",
        "json",
        NANOSECONDS,
        "startTimeUnixNano",
        "input_tokens",
        "output_tokens",
        session="gen_ai.conversation.id",
        edit=model_calls,
        signs=("resourceSpans",),
        clock=EPOCH,
    ),
)
"""Every format of logs; the first that matches is taken."""
