"""Rows of LiteLLM: its table of spend logs, and the payloads that its callbacks write."""

from collections import Counter

from simulator.traces.logs.log_rows import Failures, in_words, row_by_row, within
from simulator.traces.text.jsontext import Dropped, Row, json_row

_NO_GENERATION = ("embedding", "image", "transcription", "speech", "moderation", "rerank", "ocr", "search")
"""Calls of these kinds generate no text token by token."""


@row_by_row
def litellm_requests(row: Row, failures: Failures, told: "Counter[str]") -> Row | Dropped | None:
    """The request of a row, if it reached a server and generated text."""
    if any(word in str(row.get("call_type")).lower() for word in _NO_GENERATION):
        told["calls that generate no text (embeddings, images, ...), left out"] += 1
        return None
    if str(row.get("cache_hit")).lower() == "true":
        told["requests that the proxy answered from its own cache, left out"] += 1
        return None
    return failures(_why(row)) if str(row.get("status")).lower() == "failure" else row


def _why(row: Row) -> object:
    """Why a request failed, as far as a row says."""
    metadata = row.get("metadata")
    if isinstance(metadata, str):
        metadata = json_row(metadata)
    error = row.get("error_information") or within(metadata, "error_information")
    return in_words(error, "error_code", "error_class") or "status is failure"
