"""Rows of what benchmarks of servers write: vLLM's, SGLang's, AIPerf, inference-perf, LLMPerf."""

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

from allocators.base import InputError
from simulator.traces.logs.log_rows import Failures, in_words, row_by_row, within
from simulator.traces.schema import Reading
from simulator.traces.text.jsontext import Dropped, EditedRows, Row, Rows


def timed_run(rows: Rows, reading: Reading, told: "Counter[str]") -> EditedRows:
    """The requests of one run of vLLM's benchmark; they arrive when the client's own queue takes them in.

    Raises InputError on a second run in the file: each has a clock and a rate of its own.
    """
    del reading
    failures = Failures()
    first = 0
    for line, run in rows:
        if run is None:
            yield line, None
            continue
        if first:
            raise InputError(
                f"holds several runs (lines {first} and {line}), each with a clock and a rate of its own: "
                "make a file of each, sed -n 1p FILE > ONE"
            )
        first = line
        if not run.get("queue_times"):
            told["requests that arrive at their start_times, for want of queue_times"] += len(_list(run, "input_lens"))
        yield from ((line, row) for row in _requests(run, failures, timed=True))


def runs_without_times(rows: Rows, reading: Reading, told: "Counter[str]") -> EditedRows:
    """The requests of runs of SGLang's benchmark, and of vLLM's before it wrote times, one run after the other."""
    del reading
    failures = Failures()
    runs = 0
    for line, run in rows:
        if run is not None and "input_lens" not in run:
            yield line, Dropped("a run without its requests (--output-details writes them)")
        elif run is not None:
            runs += 1
            yield from ((line, row) for row in _requests(run, failures, timed=False))
        else:
            yield line, None
    if runs > 1:
        told["runs in the file, taken one after the other"] += runs


def _requests(run: Row, failures: Failures, timed: bool) -> Iterator[Row | Dropped]:
    """A row for each place of a run's parallel arrays. Raises InputError where they are of different lengths."""
    names = ("input_lens", "output_lens", *(("start_times",) if timed else ()))
    optional = tuple(name for name in ("queue_times", "errors") if run.get(name))
    columns = {name: _list(run, name) for name in (*names, *optional)}
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f"{name} {len(column):,}" for name, column in columns.items())
        raise InputError(f"the arrays of a run must be of one length; they are {lengths}")
    for place in range(len(columns["input_lens"])):
        row = {name: column[place] for name, column in columns.items()}
        if row.get("errors"):
            yield failures(row["errors"])
            continue
        if timed:
            row["start_times"] = _earlier(row["start_times"], row.get("queue_times"))
        yield row


def _list(run: Row, name: str) -> list[object]:
    value = run.get(name)
    if not isinstance(value, list):
        raise InputError(f"{name} of a run must be a list, a value for each request; it is {type(value).__name__}")
    return value


def _earlier(start: object, wait: object) -> object:
    """A start less the wait before it, exactly; the start as it is where either is no number."""
    try:
        return str(Decimal(str(start)) - Decimal(str(0 if wait is None else wait)))
    except ArithmeticError:
        return start


@row_by_row
def aiperf_records(record: Row, failures: Failures, told: "Counter[str]") -> Row | Dropped | None:
    """The request of a record of AIPerf's ``profile_export.jsonl``; those of its warm-up are left out."""
    if within(record, "metadata", "benchmark_phase") == "warmup":
        told["requests of the warm-up, left out"] += 1
        return None
    if record.get("error") is not None:
        return failures(in_words(record["error"], "code", "type"))
    if within(record, "metadata", "was_cancelled") is True:
        return failures("cancelled")
    row = {name: within(record, "metadata", name) for name in ("request_start_ns", "x_correlation_id")}
    lengths = ("input_sequence_length", "output_sequence_length")
    return row | {name: within(record, "metrics", name, "value") for name in lengths}


@row_by_row
def inference_perf_records(record: Row, failures: Failures, told: "Counter[str]") -> Row | Dropped:
    """The request of a record of inference-perf; older ones have their lengths at the top of ``info``."""
    del told
    if record.get("error") is not None:
        return failures(in_words(record["error"], "error_type"))
    info = record.get("info")
    prompt = within(info, "request_metrics", "text", "input_tokens")
    output = within(info, "response_metrics", "output_tokens")
    return {
        "start_time": record.get("start_time"),
        "input_tokens": within(info, "input_tokens") if prompt is None else prompt,
        "output_tokens": within(info, "output_tokens") if output is None else output,
    }


@row_by_row
def llmperf_responses(response: Row, failures: Failures, told: "Counter[str]") -> Row | Dropped:
    """The request of one of LLMPerf's individual responses."""
    del told
    code = response.get("error_code")
    return response if code is None else failures(f"error_code {code}")
