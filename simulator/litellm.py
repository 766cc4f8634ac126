"""Rows of LiteLLM: its table of spend logs, and the payloads that its callbacks write."""

from collections import Counter

from simulator.failed import Failures, in_words, within
from simulator.jsontext import EditedRows, Row, Rows, json_row
from simulator.schema import Reading

_NO_GENERATION = ("embedding", "image", "transcription", "speech", "moderation", "rerank", "ocr", "search")
"""Calls of these kinds generate no text token by token."""


def litellm_requests(rows: Rows, reading: Reading, told: "Counter[str]") -> EditedRows:
    """The requests that reached a server and generated text."""
    del reading
    failures = Failures()
    for line, row in rows:
        if row is None:
            yield line, None
        elif any(word in str(row.get("call_type")).lower() for word in _NO_GENERATION):
            told["calls that generate no text (embeddings, images, ...), left out"] += 1
        elif str(row.get("cache_hit")).lower() == "true":
            told["requests that the proxy answered from its own cache, left out"] += 1
        elif str(row.get("status")).lower() == "failure":
            yield line, failures(_why(row))
        else:
            yield line, row


def _why(row: Row) -> object:
    """Why a request failed, as far as a row says."""
    metadata = row.get("metadata")
    if isinstance(metadata, str):
        metadata = json_row(metadata)
    error = row.get("error_information") or within(metadata, "error_information")
    return in_words(error, "error_code", "error_class") or "status is failure"
