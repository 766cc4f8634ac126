"""Trace files as their publishers wrote them: a line a format in :data:`FORMATS`, recognised from the content.

Every format comes down to three columns (time, prompt tokens, output tokens) and two more where a file has them
(session, block hashes). Units are fixed by the format, never guessed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from itertools import pairwise

from allocators.base import InputError
from simulator.traces.logs.log_formats import LOG_FORMATS
from simulator.traces.notes import DATE, MICROSECONDS, MILLISECONDS, NANOSECONDS, SECONDS
from simulator.traces.schema import Format, Reading
from simulator.traces.text.fields import MAX_TIME_NS
from simulator.traces.text.jsontext import Decimals, Row, Rows, value_text

# Mooncake, Qwen-Bailian, RAGPulse and AIPerf name their columns alike, but do not count in the same unit.


def _is_number(value: object) -> bool:
    return isinstance(value, int | Decimals) and not isinstance(value, bool)


def _is_mooncake(row: Row) -> bool:
    plain = _is_number(row["timestamp"]) and isinstance(row.get("hash_ids") or [], list)
    return plain and not row.keys() & {"chat_id", "session_id", "delay"}


def _is_ragpulse(row: Row) -> bool:
    return isinstance(row.get("hash_ids"), dict)


def _is_aiperf(row: Row) -> bool:
    times = [row[name] for name in ("timestamp", "created_time") if row.get(name) is not None]
    plain = all(map(_is_number, times)) and isinstance(row.get("hash_ids") or [], list)
    return plain and "chat_id" not in row


def _is_plain_aiperf(row: Row) -> bool:
    """Whether nothing but the names of time and tokens says AIPerf, and people's own logs have such names too."""
    return _is_aiperf(row) and "input_tokens" in row and not row.keys() & {"session_id", "delay", "hash_ids"}


_ROOTS = ("", "-1")  # of a chat without one before it; null is no text at all


def _qwen_sessions(rows: Rows, reading: Reading, told: "Counter[str]") -> Rows:
    """Every turn is a chat of its own that names the one before; the session is the first of them."""
    del reading, told
    root_of: dict[str, str] = {}
    for line, row in rows:
        if row is not None:
            chat, parent = (_name(row.get(column)) for column in ("chat_id", "parent_chat_id"))
            session = chat if parent in _ROOTS else root_of.get(parent, parent)
            if chat:
                root_of[chat] = session
            row = {**row, "session": session}
        yield line, row


def _name(value: object) -> str:
    """What tells a session from others: null has no name, and the numbers 7 and 7.0 are one."""
    return "" if value is None else value_text(value).strip()


def _aiperf_delays(rows: Rows, reading: Reading, told: "Counter[str]") -> Rows:
    """A turn with a delay in place of a time comes that long after the turn before, whose answer takes no time here."""
    del reading
    last: dict[str, Decimal] = {}
    for line, row in rows:
        if row is not None:
            session = _name(row.get("session_id"))
            time = next((row[name] for name in ("timestamp", "created_time") if row.get(name) is not None), None)
            if time is not None:
                if (known := _decimal(time)) is not None:
                    last[session] = known
            elif session in last:
                delay = _decimal(row.get("delay"))
                if delay is not None and delay >= 0:
                    last[session] += delay
                    told["turns with a delay in place of a time, placed that long after the arrival of the last"] += 1
                    row = {**row, "timestamp": str(last[session])}
                else:  # the row is dropped for it, and the rest of its session is not
                    row = {**row, "timestamp": row.get("delay")}
        yield line, row


def _decimal(value: object) -> Decimal | None:
    """A number that a time can be, as it was written; None for anything else."""
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    # abs() would overflow.
    return number if number.is_finite() and -MAX_TIME_NS < number < MAX_TIME_NS else None


_ASKS, _ANSWERS = ("human", "user"), ("gpt", "chatgpt", "assistant", "bing", "bard")


def _conversations(rows: Rows, reading: Reading, told: "Counter[str]") -> Rows:
    """The first question of each conversation and the answer to it, as vLLM's benchmark takes them."""
    del told
    counter = reading.counter
    for number, (line, row) in enumerate(rows, start=1):
        if row is None or (pair := _first_answered(row.get("conversations"))) is None:
            yield line, row and {}
            continue
        try:
            yield line, {"prompt": counter.prompt(pair[0]), "output": counter.answer(pair[1])}
        except InputError as error:
            raise InputError(f"row {number} (line {line}): {error}") from error


def _first_answered(turns: object) -> tuple[str, str] | None:
    """The texts of the first question that the next turn answers."""
    texts = [
        (str(turn.get("from", turn.get("role"))), turn.get("value", turn.get("content")))
        if isinstance(turn, dict)
        else ("", None)  # a turn is lost there: what is before it and what is after it are no pair
        for turn in (turns if isinstance(turns, list) else [])
    ]
    for (asker, question), (other, answer) in pairwise(texts):
        if asker in _ASKS and other in _ANSWERS and isinstance(question, str) and isinstance(answer, str):
            return question, answer
    return None


NEUTRAL = Format(
    "neutral", "csv", SECONDS, "arrival_s", "prompt_tokens", "output_tokens", "session", "block_hashes", dates=True
)

_AIPERF = Format(
    "aiperf",
    "json",
    MILLISECONDS,
    "timestamp|created_time",
    "input_length|input_tokens",
    "output_length|output_tokens",
    session="session_id",
    block_hashes="hash_ids",
    matches=_is_aiperf,
    edit=_aiperf_delays,
)

FORMATS = (
    NEUTRAL,
    Format("azure", "csv", DATE, "TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    Format("burstgpt", "csv", SECONDS, "Timestamp", "Request tokens", "Response tokens", session="Session ID"),
    Format("vidur", "csv", SECONDS, "arrived_at", "num_prefill_tokens", "num_decode_tokens"),
    Format("splitwise-sim", "csv", SECONDS, "arrival_timestamp", "prompt_size", "token_size"),
    Format(
        "blis",
        "csv",
        MICROSECONDS,
        "arrival_time_us",
        "input_tokens",
        "output_tokens",
        session="session_id",
        status="status",
    ),
    Format(
        "mooncake",
        "json",
        MILLISECONDS,
        "timestamp",
        "input_length",
        "output_length",
        block_hashes="hash_ids",
        matches=_is_mooncake,
        block_tokens=512,
    ),
    Format(
        "qwen-bailian",
        "json",
        SECONDS,
        "timestamp",
        "input_length",
        "output_length",
        session="session",
        block_hashes="hash_ids",
        matches=lambda row: "chat_id" in row,
        block_tokens=16,
        edit=_qwen_sessions,
    ),
    Format(
        "ragpulse",
        "json",
        SECONDS,
        "timestamp",
        "input_length",
        "output_length",
        session="session_id",
        matches=_is_ragpulse,
        remark="its hash_ids are documents, not prefix blocks of the prompt: they are left out",
    ),
    Format("llmservingsim", "json", NANOSECONDS, "arrival_time_ns", "input_toks", "output_toks"),
    replace(
        _AIPERF,
        matches=_is_plain_aiperf,
        remark="taken for AIPerf's, whose times are in ms; if they are in seconds, "
        "--columns arrival=NAME:s,prompt=input_tokens,output=output_tokens",
    ),
    _AIPERF,
    *LOG_FORMATS,
    Format("sharegpt", "json", NANOSECONDS, "", "prompt", "output", edit=_conversations, signs=("conversations",)),
    Format("vidur-lengths", "csv", SECONDS, "", "num_prefill_tokens", "num_decode_tokens"),
    Format("lengths", "csv", SECONDS, "", "prompt_tokens", "output_tokens", "session", "block_hashes"),
)
"""Every format; the first that matches is taken. A new one is a line here."""


Reader = Callable[[Iterable[str]], Iterable[Mapping[str, object]]]
"""A reader of one's own: from the lines of a file to rows with the columns of the neutral format."""


@dataclass(frozen=True)
class OwnFormat:
    """A format of a user's own: its reader, and how it is told by the first line (None: only by name)."""

    name: str
    reader: Reader
    matches: Callable[[str], bool] | None = None


OWN_FORMATS: dict[str, OwnFormat] = {}


def register_reader(name: str, reader: Reader, matches: Callable[[str], bool] | None = None) -> None:
    """Make files of one's own readable as ``format=name``, and without it where ``matches(first line)`` is true.

    ``reader`` gets the lines of the text (unpacked, decoded, without line ends) and yields a mapping a request:
    ``arrival_s``, ``prompt_tokens``, ``output_tokens``, and if there are ``session`` and ``block_hashes``. They are
    checked, sorted and counted as those of any file. A name taken again is replaced; those of :data:`FORMATS` are not.
    """
    if name in {form.name for form in FORMATS}:
        raise InputError(f"format {name!r} is there already: choose another name for your own")
    OWN_FORMATS[name] = OwnFormat(name, reader, matches)
