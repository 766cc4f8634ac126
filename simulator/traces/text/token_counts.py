"""How many tokens a text has: by a function that counts them, or else by its words or characters."""

import re
from collections.abc import Callable, Iterator
from operator import index

from allocators.base import InputError

_LONG_WORD = 32  # characters of a word in the mean: no language has as many between blanks
_UNSPACED = re.compile(
    "["
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese characters
    "]"
)
"""Letters of scripts that put no blanks between words."""


class TokenCounter:
    """Counts tokens, and remembers how many texts were counted in which way.

    ``count``: text -> tokens; None counts words between blanks, or characters where a text hardly has blanks.
    ``name``: of the file that ``count`` is from. ``special``: tokens that a server puts around each prompt (such as
    BOS) and ``count`` leaves out. An answer gets none: the token that ends it is never stored.
    """

    def __init__(self, count: Callable[[str], int] | None = None, name: str = "", special: int = 0) -> None:
        self._count, self._name, self._special = count, name, special
        self._words = self._characters = self._counted = 0  # texts

    def prompt(self, text: str) -> int:
        """The tokens of a prompt. Raises InputError where the function fails."""
        return self.answer(text) + self._special

    def answer(self, text: str) -> int:
        """The tokens of an answer. Raises InputError where the function fails."""
        if self._count is not None:
            self._counted += 1
            try:
                return index(self._count(text))
            except Exception as error:
                raise InputError(f"counting tokens failed: {error!r}") from error
        words = text.split()
        if has_blanks(words):
            self._words += 1
            return len(words)
        self._characters += 1
        return sum(map(len, words))

    @property
    def guesses(self) -> bool:
        """Whether it counted words or characters, for want of a tokenizer."""
        return bool(self._words or self._characters)

    def notes(self) -> Iterator[str]:
        """How tokens were counted, if they were."""
        if self.guesses:
            ways = (
                ("words between blanks", self._words),
                ("characters in texts with hardly any blanks", self._characters),
            )
            counts = ", ".join(f"{way} (texts: {texts:,})" for way, texts in ways if texts)
            yield f"for want of a tokenizer, tokens are {counts}: --tokenizer tokenizer.json counts them"
        elif self._counted and self._name:
            special = f", and {self._special} special more for each prompt (such as BOS)" if self._special else ""
            yield f"tokens are those of {self._name} (texts: {self._counted:,}){special}"
        elif self._count is not None and not self._counted:
            yield "the tokenizer was not used: the file says how many tokens there are"


def has_blanks(words: list[str]) -> bool:
    """Whether a text, given by what stands between its blanks, has them between words.

    It has not if most of its characters are of a script without blanks, or its words are too long to be words.
    """
    characters = sum(map(len, words))
    unspaced = sum(len(_UNSPACED.findall(word)) for word in words)
    return 2 * unspaced <= characters <= _LONG_WORD * len(words)
