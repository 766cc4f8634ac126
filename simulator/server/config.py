"""A Hugging Face ``config.json``, read key by key: sizes of the transformer, its heads, its data type.

Every architecture has names of its own for the same few numbers. A key that is there and null counts as missing;
a key that has a value and is not understood is an error that names it (see :mod:`simulator.server.attention`).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from allocators.base import InputError, in_short, whole
from simulator.server.class_defaults import ALL_HEADS, CLASS_DEFAULTS

_BYTES_PER_ELEMENT = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}

_TEXT_PARTS = ("text_config", "language_config", "llm_config", "thinker_config")
"""Where multimodal models keep their language model."""


class MissingKeyError(InputError):
    """A key that is needed is not in the file."""


class Config:
    """The keys of the language model in a configuration; errors name the file and the key."""

    def __init__(self, source: str, content: Mapping[str, Any]) -> None:
        self.source = source
        self.content: dict[str, Any] = dict(content)
        self.notes: list[str] = []
        """What is assumed or left out, for people to read."""
        self.unknown = ""
        """Why the parameters or the weights are not known."""
        part: Mapping[str, Any] | None = content
        while part is not None:
            found = [part[key] for key in _TEXT_PARTS if isinstance(part.get(key), dict)]
            part = found[0] if found else None
            self.content |= {key: value for key, value in (part or {}).items() if value is not None}

    def note(self, text: str) -> None:
        """Keep a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    @property
    def kind(self) -> str:
        """The ``model_type``; empty where the file has none."""
        kind = self.content.get("model_type")
        return kind if isinstance(kind, str) else ""

    def error(self, key: str, allowed: str) -> InputError:
        """The error for a key: its value, and what is allowed."""
        shown = repr(self.content.get(key))
        return InputError(f"{self.source}: {key}(={shown if len(shown) <= 80 else shown[:77] + '...'}) {allowed}")

    def given(self, *keys: str) -> str | None:
        """The first of ``keys`` that is there and not null."""
        return next((key for key in keys if self.content.get(key) is not None), None)

    def count(self, *keys: str, default: int | None = None) -> int:
        """The first of ``keys`` that is there and not null, a whole number >= 1; else ``default``."""
        key = self.given(*keys)
        if key is not None:
            return whole(f"{self.source}: {key}", self.content[key])
        if default is None:
            raise MissingKeyError(f"{self.source}: {keys[0]} is missing; it must be a whole number >= 1")
        return default

    def agreed(self, *keys: str, default: int | None = None) -> int:
        """As :meth:`count`, of keys for one thing. Raises InputError when two of them say different numbers."""
        said = {key: whole(f"{self.source}: {key}", self.content[key]) for key in keys if self.given(key)}
        if len(set(said.values())) > 1:
            numbers = ", ".join(f"{key} says {number}" for key, number in said.items())
            raise InputError(f"{self.source}: two keys for one number must agree: {numbers}")
        return self.count(*keys, default=default)

    def numbers_of(self, key: str) -> int:
        """``key`` as a whole number >= 0; 0 where it is null."""
        value = self.content[key]
        return 0 if value is None else whole(f"{self.source}: {key}", value, at_least=0)

    def count_if_given(self, *keys: str) -> int | None:
        """The first of ``keys`` that is there and not null, a whole number >= 1; else None."""
        return None if self.given(*keys) is None else self.count(*keys)

    def flag(self, key: str, default: bool = False) -> bool:
        """``key`` as a bool; ``default`` where it is missing or null."""
        value = self.content.get(key)
        if value is not None and not isinstance(value, bool):
            raise InputError(f"{self.source}: {key}(={in_short(value)}) must be true or false")
        return default if value is None else value

    def names(self, key: str) -> list[str]:
        """``key`` as a list of strings."""
        value = self.content[key]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(key, "must be a list of names, one per layer")
        return value

    def numbers(self, key: str) -> list[int]:
        """``key`` as a list of whole numbers >= 0."""
        value = self.content[key]
        if not isinstance(value, list):
            raise self.error(key, "must be a list of whole numbers")
        return [whole(f"{self.source}: {key}", item, at_least=0) for item in value]

    def present(self) -> Iterator[str]:
        """The keys that have a value: neither null nor false, nor an empty list or object."""
        return (key for key, value in self.content.items() if value not in (None, False, [], {}, ""))

    @property
    def layers(self) -> int:
        kinds = self.content.get("layers_block_type")  # Nemotron-H's files may have nothing else
        default = len(kinds) if isinstance(kinds, list) and kinds else None
        return self.agreed("num_hidden_layers", "n_layer", "n_layers", "num_layers", default=default)

    @property
    def heads(self) -> int:
        keys = ("num_attention_heads", "n_head", "n_heads")
        default = None if self.given(*keys) else self.class_default("num_attention_heads")
        return self.agreed(*keys, default=default)

    @property
    def hidden(self) -> int:
        return self.agreed("hidden_size", "n_embd", "d_model")

    @property
    def vocab(self) -> int | None:
        return self.count_if_given("vocab_size", "padded_vocab_size")

    @property
    def max_positions(self) -> int | None:
        return self.count_if_given(
            "max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "max_seq_len"
        )

    def class_default(self, key: str) -> int | None:
        """What transformers takes for ``key`` where a file of this model type leaves it out, with a note."""
        value = None if key in self.content else CLASS_DEFAULTS.get(self.kind, {}).get(key)
        if value is not None:
            self.note(f"{key} is not in the file: {value}, as transformers takes it for {self.kind}")
        return value

    @property
    def kv_heads(self) -> int:
        """Heads with keys and values of their own; all of them where the file says nothing else."""
        if self.kind in ("falcon", "RefinedWeb", "RefinedWebModel") and not self.flag("new_decoder_architecture"):
            return self._old_falcon_heads()
        if self.given("attn_config") is not None:
            return self._nested_heads()
        if self.given("multi_query_attention") is not None:
            groups = self.flag("multi_query_attention")
            return self.count("multi_query_group_num") if groups else self.heads
        keys = (
            *("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "num_query_groups"),
            "num_attention_groups",
        )
        if self.flag("multi_query", default=self.kind == "gpt_bigcode"):
            if self.count(*keys, default=1) != 1:
                raise self.error(str(self.given(*keys)), "must be 1 where multi_query is true")
            return 1
        if self.given(*keys) is None:
            return self.class_default("num_key_value_heads") or self._all_heads()
        return self.agreed(*keys)

    def _all_heads(self) -> int:
        """As many KV heads as heads, where the key is null or the model type is known for it. Else an InputError."""
        known = self.kind in ALL_HEADS or self.kind in CLASS_DEFAULTS
        if known or "num_key_value_heads" in self.content or "multi_query" in self.content:
            return self.heads
        of = f"model_type {self.kind!r}" if self.kind else "a file without model_type"
        raise MissingKeyError(
            f"{self.source}: num_key_value_heads is missing, and how many KV heads {of} has is not known here; add the "
            f"key ({self.heads} if each of the attention heads has its own)"
        )

    def _old_falcon_heads(self) -> int:
        """Falcon before ``new_decoder_architecture``: one head, unless ``n_head_kv`` or ``multi_query`` says else."""
        if self.given("n_head_kv") is not None:
            return self.count("n_head_kv")
        return 1 if self.flag("multi_query", default=self.kind != "RefinedWeb") else self.heads

    def _nested_heads(self) -> int:
        """MPT and DBRX keep their KV heads in ``attn_config``."""
        inner = self.content["attn_config"]
        if not isinstance(inner, dict):
            raise self.error("attn_config", "must be an object")
        part = Config(f"{self.source}: attn_config", inner)
        kind = inner.get("attn_type", "multihead_attention")
        if kind == "multiquery_attention":
            return 1
        if kind not in ("multihead_attention", "grouped_query_attention"):
            allowed = "multihead_attention, multiquery_attention or grouped_query_attention"
            raise part.error("attn_type", f"must be {allowed}")
        return part.count("kv_n_heads", default=self.heads)

    @property
    def head_dim(self) -> int:
        keys = ("head_dim", "attention_head_dim", "kv_channels")
        default = None if self.given(*keys) else self.class_default("head_dim")
        if self.given(*keys) or default is not None:
            return self.count(*keys, default=default)
        if self.hidden % self.heads:
            allowed = f"a multiple of num_attention_heads(={self.heads}) where there is no head_dim"
            raise InputError(f"{self.source}: hidden_size(={self.hidden}) must be {allowed}")
        return self.hidden // self.heads

    @property
    def bytes_per_element(self) -> int:
        """Bytes of an element in the model's own data type; bf16 or fp16, with a note, where the file names none."""
        key = self.given("torch_dtype", "dtype")
        dtype = "assumed" if key is None else self.content[key]
        if key is None:
            self.note("no dtype in the file: bf16 or fp16 is assumed, 2 bytes per element")
            return 2
        if not isinstance(dtype, str) or dtype.removeprefix("torch.") not in _BYTES_PER_ELEMENT:
            allowed = ", ".join(_BYTES_PER_ELEMENT)
            raise InputError(f"{self.source}: {key}(={in_short(dtype)}) must be one of {allowed}")
        if dtype.removeprefix("torch.") == "float32":
            self.note("float32 in the file: an engine that serves it in 16 bits needs half of weights and cache")
        return _BYTES_PER_ELEMENT[dtype.removeprefix("torch.")]
