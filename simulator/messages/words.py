"""Words of the messages that all rooms print: counts, quotations, and text that a terminal shows as it is."""

from unicodedata import category

_JOINERS = "\u200c\u200d"  # letters of some scripts, and signs made of several, need them; they move nothing


def counted(number: int, what: str) -> str:
    """So many of something: ``1 run``, ``2,000 runs``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def short(text: str, length: int = 120) -> str:
    """A text quoted, on one line and not too long."""
    return repr(text if len(text) <= length else text[:length] + "...")


def printable(text: str, keep: str = "") -> str:
    """A text that a terminal shows as it is: what would move the cursor, change colours or turn text around is escaped.

    That is all control characters (``\\x1b``, ``\\n``), line separators, marks of direction (``\\u202e``) and halves
    of characters; but those in ``keep``.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if one in keep else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    if character in _JOINERS or category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character
    return repr(character)[1:-1]
