"""What went wrong, in one line."""

import traceback
from pathlib import Path


def told(error: BaseException) -> str:
    """What an exception says, and where it was raised: in our code or in a user's own."""
    while error.__cause__ is not None:  # SimPy raises a copy of what its process raised
        error = error.__cause__
    # The import system's own frames are those of a module that is not there: who imports it is what helps.
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith("<frozen")]
    # A SyntaxError says itself where it is.
    known = bool(frames) and not isinstance(error, SyntaxError)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if known else ""
    return one_line(f"{type(error).__name__}: {error}{where}")


def one_line(text: str) -> str:
    """A text without line ends, whatever a name in it holds."""
    return " ".join(text.split())
