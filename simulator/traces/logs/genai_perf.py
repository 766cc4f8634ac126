"""Rows of genai-perf's ``profile_export.json``: requests and responses as texts, with the server's counts or not."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from allocators.base import InputError
from simulator.traces.logs.log_rows import Failures, within
from simulator.traces.schema import Reading
from simulator.traces.text.jsontext import EditedRows, Row, Rows, json_row
from simulator.traces.text.token_counts import TokenCounter


def genai_perf_requests(rows: Rows, reading: Reading, told: "Counter[str]") -> EditedRows:
    """The requests, with what the ``usage`` of their last response says, or else with the tokens of their texts."""
    failures = Failures()
    for number, (line, request) in enumerate(rows, start=1):
        if request is None:
            yield line, None
            continue
        responses = list(_responses(request.get("response_outputs")))
        usage = next((usage for row in reversed(responses) if isinstance(usage := row.get("usage"), dict)), None)
        answer = "".join(chain.from_iterable(map(_said, responses)))
        if usage is None and not answer:
            error = next((row["error"] for row in responses if row.get("error")), None)
            yield line, failures("no usable response" if error is None else within(error, "message") or error)
            continue
        if usage is not None:
            told["requests with the server's own counts (usage)"] += 1
            prompt, output = usage.get("prompt_tokens"), usage.get("completion_tokens")
        else:
            try:
                prompt, output = _counted(request, answer, reading.counter)
            except InputError as error:
                raise InputError(f"row {number} (line {line}): {error}") from error
        yield (
            line,
            {
                "timestamp": request.get("timestamp"),
                "prompt_tokens": prompt,
                "completion_tokens": output,
                "session_id": within(request.get("request_inputs"), "session_id"),
            },
        )


def _counted(request: Row, answer: str, counter: TokenCounter) -> tuple[int | None, int]:
    """Prompt and output tokens by their texts; None for a prompt that is not there."""
    prompt = "\n".join(_asked(request.get("request_inputs")))
    return counter.prompt(prompt) if prompt else None, counter.answer(answer)


def _responses(outputs: object) -> Iterator[Row]:
    """The objects in the responses of one request: each is a text with one, or with server-sent events."""
    for output in outputs if isinstance(outputs, list) else []:
        text = within(output, "response")
        whole = json_row(text) if isinstance(text, str) else None
        if whole is not None:
            yield whole
        elif isinstance(text, str):
            events = (json_row(line.removeprefix("data:")) for line in text.splitlines() if line.startswith("data:"))
            yield from (event for event in events if event is not None)


def _said(response: Row) -> Iterator[str]:
    """The pieces of text in one response, of a chat, a completion or Triton's own generate."""
    choices = response.get("choices")
    for choice in choices if isinstance(choices, list) else []:
        for holder in (within(choice, "delta"), within(choice, "message"), choice):
            for name in ("reasoning_content", "content", "text"):
                if isinstance(piece := within(holder, name), str):
                    yield piece
    if isinstance(piece := response.get("text_output"), str):
        yield piece


def _asked(inputs: object) -> Iterator[str]:
    """The pieces of text in one request."""
    payload = within(inputs, "payload")
    request = (json_row(payload) if isinstance(payload, str) else payload) or inputs
    messages = within(request, "messages")
    for message in messages if isinstance(messages, list) else []:
        content = within(message, "content")
        parts = content if isinstance(content, list) else [{"text": content}]
        yield from (text for part in parts if isinstance(text := within(part, "text"), str))
    for name in ("prompt", "text_input"):
        value = within(request, name)
        yield from (text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str))
