"""A tokenizer that is asked for: a tokenizer.json, or a function of the user's own."""

import os
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from allocators.base import InputError
from allocators.dotted import optional, own
from simulator.messages.words import short
from simulator.traces.text.token_counts import TokenCounter

Tokenizer = str | PathLike[str] | Callable[[str], int] | TokenCounter
"""A tokenizer.json or the folder it is in; a function, text -> tokens, or its dotted path, whose module is imported."""


def token_counter(tokenizer: Tokenizer | None, option: str = "count_tokens") -> TokenCounter:
    """The counter that a tokenizer makes; the one of words and characters for None.

    ``option``: what the tokenizer is called where it is given. Raises InputError for what is no tokenizer, and for a
    file that is broken.
    """
    if isinstance(tokenizer, TokenCounter):
        return tokenizer
    if tokenizer is None:
        return TokenCounter()
    if callable(tokenizer):
        return TokenCounter(tokenizer)
    text = os.fspath(tokenizer)
    named, path = f"{option}(={short(text)})", Path(text)
    if path.suffix == ".json" or len(path.parts) > 1 or path.exists():
        return _of_file(path / "tokenizer.json" if path.is_dir() else path, named)
    return TokenCounter(own(text, f"{named} must be a tokenizer.json, or package.module.function", "function"))


def _of_file(path: Path, named: str) -> TokenCounter:
    """The counter of a tokenizer.json. It counts whole texts, whatever the file says of truncation and padding."""
    if not path.is_file():
        raise InputError(f"{named}: there is no file {short(str(path))}; it must be a tokenizer.json")
    library = optional("tokenizers", f"{named} needs the tokenizers library: pip install 'kvfrag[tokenizer]'")
    try:
        model: Any = library.Tokenizer.from_file(str(path))
        model.no_truncation()
        model.no_padding()
        special = int(model.num_special_tokens_to_add(False))
    except Exception as error:  # the library raises this class itself
        why = short(" ".join(str(error).split()), 200)
        raise InputError(f"{named} is no tokenizer.json that the tokenizers library can read: {why}") from None

    def count(text: str) -> int:
        # JSON may hold halves of characters (lone surrogates), which are no text to the library.
        return len(model.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=False))

    return TokenCounter(count, path.name, special)
