"""Compiles the loop, with all rules and answers of ``allocators/seam.py``, and keeps the result on disk.

Machine code is kept in a folder of the user's cache that is named after the source text of everything that goes into
it: numba itself looks at the file of the loop only, and would not see that an allocator has changed. Under
``NUMBA_DISABLE_JIT=1`` nothing is compiled, and the same functions run in Python.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import platformdirs
from numba import njit
from numba.extending import overload

from allocators import seam

_ROOT = Path(__file__).parents[2]
_SOURCES = ("allocators/*.py", "simulator/engine/**/*.py")
_KEPT = 4  # folders of other versions

# Reference counts would be most of the time: a pool or a batch is a tuple of arrays, handed on in every call. Nothing
# in the loop makes or keeps an array, so none is needed (numba's switch for it has no public name).
_OPTIONS = {"_nrt": False, "forceinline": True}


def register(function: Callable[..., Any]) -> None:
    """Let compiled code call a rule."""

    @overload(function, strict=False, jit_options=_OPTIONS)
    def choose(*arguments: Any) -> Callable[..., Any]:  # noqa: ARG001
        return function


def _register_question(asked: Callable[..., Any]) -> None:
    """Let compiled code ask a question: the type of the first argument has the answer."""

    @overload(asked, strict=False, jit_options=_OPTIONS)
    def choose(state: Any, *arguments: Any) -> Callable[..., Any] | None:  # noqa: ARG001
        return seam.ANSWERS.get((asked, getattr(state, "instance_class", object)))


def compiled(function: Callable[..., Any], kept_in: str | None = "") -> Callable[..., Any]:
    """The function, compiled when it is first called, together with all rules and answers that are registered by then.

    ``kept_in``: in which folder of the cache folder; None: not kept.
    """
    while _RULES:
        register(_RULES.pop())
    while _QUESTIONS:
        _register_question(_QUESTIONS.pop())
    if kept_in is None:
        return njit(_nrt=False)(function)
    before = numba.config.CACHE_DIR
    try:
        numba.config.CACHE_DIR = str(cache_folder() / kept_in)
        return njit(cache=True, _nrt=False)(function)
    except (RuntimeError, OSError):  # no folder can be written
        return njit(_nrt=False)(function)
    finally:
        numba.config.CACHE_DIR = before


def cache_folder() -> Path:
    """Where the machine code of this version of the sources is kept."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(path for pattern in _SOURCES for path in _ROOT.glob(pattern)):
        digest.update(path.name.encode() + path.read_bytes())
    above = Path(os.environ.get("NUMBA_CACHE_DIR") or platformdirs.user_cache_path("kvfrag") / "compiled")
    folder = above / f"kvfrag-{digest.hexdigest()[:16]}"
    if not folder.is_dir():
        others = sorted(above.glob("kvfrag-*"), key=lambda path: path.stat().st_mtime)
        for old in others[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
    return folder


_RULES, _QUESTIONS = seam.RULES, seam.QUESTIONS
