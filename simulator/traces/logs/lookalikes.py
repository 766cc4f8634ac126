"""Files that look like logs of requests and are none: what each is, and what writes the requests."""

import re

_VLLM = "vllm bench serve --save-result --save-detailed"

_LOOKALIKES = (
    (
        r'"(?:BlockStored|BlockRemoved|AllBlocksCleared)"',
        "is a record of vLLM's KV-cache events, which are about blocks, not requests: "
        f"{_VLLM}, or a collector behind vllm serve --otlp-traces-endpoint, writes requests with their lengths",
    ),
    (
        r'^\{(?![^\0]*"input_lens")(?=[^\0]*"total_input_tokens")(?=[^\0]*"num_prompts")',
        f"is the summary of a benchmark by vLLM, without its requests: {_VLLM} writes them",
    ),
    (
        r'^\{(?![^\0]*"input_lens")(?=[^\0]*"total_input_tokens")(?=[^\0]*"dataset_name")',
        "is the summary of a benchmark by SGLang, without its requests: bench_serving --output-details writes them",
    ),
    (
        r'^\{[^\0]*"request_latency"\s*:\s*\{|^"?Metric"?,"?(?:avg|Value)"?',
        "is the summary of a benchmark by genai-perf or AIPerf, without its requests: they are beside it, "
        "in profile_export.json (genai-perf) or profile_export.jsonl (AIPerf, --export-level records)",
    ),
    (
        r'^\{[^\0]*"(?:num_completed_requests|results_num_completed_requests)"',
        "is the summary of a benchmark by LLMPerf, without its requests: they are beside it, "
        "in the file whose name ends in _individual_responses.json",
    ),
    (
        r'^\{[^\0]*"load_summary"\s*:\s*\{',
        "is the summary of a benchmark by inference-perf, without its requests: "
        "report.request_lifecycle.per_request: true writes per_request_lifecycle_metrics.json",
    ),
    (
        r"Received request \S+: |Avg prompt throughput: ",
        "is the log of a vLLM server, which has no lengths of requests, with --enable-log-requests neither: "
        f"{_VLLM}, or a collector behind vllm serve --otlp-traces-endpoint, writes them",
    ),
    (
        r"(?m)^# (?:HELP|TYPE) \w|^(?:vllm|sglang):\w+[{ ]",
        "is a page of Prometheus metrics, which are sums over all requests: "
        f"{_VLLM}, or a collector behind vllm serve --otlp-traces-endpoint, writes each request",
    ),
    (
        r"^t,prompt_throughput,gen_throughput",
        "is LLMServingSim's time series of a run, without its requests: they are beside it, in requests.jsonl",
    ),
    (
        r'^\{\s*"resource(?:Metrics|Logs)"',
        "holds OpenTelemetry metrics or logs, not spans: "
        "a file exporter in the collector's traces pipeline writes spans, one for each request",
    ),
)


def lookalike(beginning: bytes) -> str | None:
    """What a file is that begins so, and what writes the requests that it lacks; None where it is not known.

    To be asked only where the file is in no format: a text of a request may say anything.
    """
    text = beginning.decode("utf-8", "replace").removeprefix("\ufeff").lstrip()
    return next((what for pattern, what in _LOOKALIKES if re.search(pattern, text)), None)
