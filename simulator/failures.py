"""What went wrong, in one line."""

import traceback
from pathlib import Path


def told(error: BaseException) -> str:
    """What an exception says, and where it was raised: in our code or in a user's own allocator."""
    while error.__cause__ is not None:  # SimPy raises a copy of what its process raised
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}{where}".split())
