"""Rows of OpenTelemetry: spans of calls of language models (GenAI), as the collector's file exporter writes them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from simulator.traces.logs.log_rows import Failures, within
from simulator.traces.schema import Reading
from simulator.traces.text.jsontext import Dropped, EditedRows, Row, Rows

_PROMPT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
_OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
"""Of each pair the second is the older name, which vLLM itself still writes."""

_OTHER_WORK = ("embeddings", "execute_tool", "create_agent", "retrieval")
"""What else has GenAI spans, and is no request that generates text."""

_AGENTS = ("invoke_agent", "invoke_workflow")
_ERROR = (2, "2", "STATUS_CODE_ERROR")


@dataclass(frozen=True)
class _Call:
    """A span of a call, or of an agent that makes some: its line and name, and its row."""

    line: int
    name: str
    row: Row | Dropped
    is_agent: bool


def model_calls(rows: Rows, reading: Reading, told: "Counter[str]") -> EditedRows:
    """The calls in all batches. A span with a call among its descendants repeats their sums, and is left out.

    Spans end before their parents, and batches are of spans that ended: whose parent a span is, only all batches tell.
    """
    del reading
    failures = Failures()
    calls: list[_Call] = []
    parent_of: dict[str, str] = {}
    for line, batch in rows:
        if batch is None:
            yield line, None
            continue
        for span in _spans(batch):
            name = f"{span.get('traceId')}/{span.get('spanId')}"
            if span.get("parentSpanId"):
                parent_of[name] = f"{span.get('traceId')}/{span['parentSpanId']}"
            call = _call(line, name, span, failures)
            if call is None:
                told["spans that are no call with token counts, left out"] += 1
            else:
                calls.append(call)
    callers = _ancestors(calls, parent_of)
    for call in calls:
        if call.name in callers:
            told["spans with calls among their descendants, whose tokens they repeat, left out"] += 1
            continue
        told["spans of whole agent runs, without their calls, taken as one request each"] += call.is_agent
        yield call.line, call.row


def _ancestors(calls: list[_Call], parent_of: Mapping[str, str]) -> set[str]:
    """The names of all spans above any of the calls."""
    above: set[str] = set()
    for call in calls:
        name = parent_of.get(call.name)
        while name is not None and name not in above:
            above.add(name)
            name = parent_of.get(name)
    return above


def _spans(batch: Row) -> Iterator[Row]:
    for resource in _objects(batch.get("resourceSpans")):
        for scope in _objects(resource.get("scopeSpans") or resource.get("instrumentationLibrarySpans")):
            yield from _objects(scope.get("spans"))


def _objects(value: object) -> Iterator[Row]:
    return (item for item in (value if isinstance(value, list) else []) if isinstance(item, dict))


def _call(line: int, name: str, span: Row, failures: Failures) -> _Call | None:
    """The call that a span is of; None for a span of anything else."""
    has = _attributes(span)
    operation = str(has.get("gen_ai.operation.name"))
    prompt, output = (next((has[key] for key in keys if key in has), None) for keys in (_PROMPT, _OUTPUT))
    error = has.get("error.type")
    failed = error is not None or within(span.get("status"), "code") in _ERROR
    if operation in _OTHER_WORK or not any(key.startswith("gen_ai.") for key in has):
        return None
    if prompt is None and output is None and not failed:
        return None
    row = {
        "startTimeUnixNano": span.get("startTimeUnixNano"),
        "input_tokens": prompt,
        "output_tokens": output,
        "gen_ai.conversation.id": has.get("gen_ai.conversation.id"),
    }
    why = error or within(span.get("status"), "message") or "status code 2"
    return _Call(line, name, failures(why) if failed else row, operation in _AGENTS)


def _attributes(span: Row) -> dict[str, object]:
    """The attributes of a span by their keys: an ``intValue`` is text or a number."""
    found: dict[str, object] = {}
    for item in _objects(span.get("attributes")):
        value = item.get("value")
        if isinstance(value, dict) and len(value) == 1:
            found[str(item.get("key"))] = next(iter(value.values()))
    return found
