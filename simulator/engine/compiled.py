"""Compiles the loop, with all rules and answers of ``allocators/seam.py``, and keeps the result on disk.

Machine code is kept in a folder of the user's cache that is named after the source text of everything that goes into
it: numba itself looks at the file of the loop only, and would not see that an allocator has changed. Under
``NUMBA_DISABLE_JIT=1`` nothing is compiled, and the same functions run in Python.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Any

import numba
import platformdirs
from numba.core import event
from numba.extending import overload

import allocators.spec  # noqa: F401 - all rules of the project's allocators are registered
from allocators import seam

_ROOT = Path(__file__).parents[2]
_SOURCES = ("allocators/*.py", "simulator/engine/**/*.py")
_KEPT, _KEPT_S = 4, 30 * 86400  # folders of other versions, and all that somebody may use now

# Reference counts would be most of the time: a pool or a batch is a tuple of arrays, handed on in every call. Nothing
# in the loop makes or keeps an array, so none is needed (numba's switch for it has no public name, and no type).
_NO_COUNTS: Any = {"_nrt": False}
_INLINED: Any = {**_NO_COUNTS, "forceinline": True}

_COMPILED: dict[Any, str] = {}
"""What has been made by :func:`compiled`: whether it is kept."""


def register(function: Callable[..., Any]) -> None:
    """Let compiled code call a rule."""

    @overload(function, strict=False, jit_options=_INLINED)
    def choose(*arguments: Any) -> Callable[..., Any]:
        return function


def _register_question(asked: Callable[..., Any]) -> None:
    """Let compiled code ask a question: the type of the first argument has the answer."""

    @overload(asked, strict=False, jit_options=_INLINED)
    def choose(state: Any, *arguments: Any) -> Callable[..., Any] | None:
        return seam.ANSWERS.get((asked, getattr(state, "instance_class", object)))


def compiled(function: Callable[..., Any], kept_in: str | None = "") -> Callable[..., Any]:
    """The function, compiled when it is first called, with all rules and answers that are registered by then.

    ``kept_in``: in which folder of the cache folder; None: not kept.
    """
    while seam.RULES:
        register(seam.RULES.pop())
    while seam.QUESTIONS:
        _register_question(seam.QUESTIONS.pop())
    if kept_in is None:
        made, kept = numba.njit(**_NO_COUNTS)(function), "each time anew"
    else:
        made, kept = _compiled_and_kept(function, kept_in)
    _COMPILED[made] = kept
    return made


def _compiled_and_kept(function: Callable[..., Any], kept_in: str) -> tuple[Callable[..., Any], str]:
    """The function, and whether it is kept: where no folder can be written it is not."""
    config: Any = numba.config
    before = config.CACHE_DIR
    try:
        config.CACHE_DIR = str(cache_folder() / kept_in)
        made = numba.njit(cache=True, **_NO_COUNTS)(function)
    except (RuntimeError, OSError):
        return numba.njit(**_NO_COUNTS)(function), f"each time anew, as {_above()} cannot be written"
    finally:
        config.CACHE_DIR = before
    _forgive(made)
    return made, f"once, it is kept in {_above()}"


def _forgive(made: Any) -> None:
    """Compile again what is damaged on disk; numba would fail, in every run from then on."""
    cache = getattr(made, "_cache", None)  # there is none under NUMBA_DISABLE_JIT
    if cache is None:
        return
    load = cache.load_overload

    def load_or_none(signature: Any, context: Any) -> Any:
        try:
            return load(signature, context)
        except Exception:
            cache.flush()
            return None

    cache.load_overload = load_or_none


class _Tell(event.Listener):
    """Says on standard error what is compiled, once for each: it takes some seconds."""

    def __init__(self) -> None:
        self._told: set[str | None] = set()

    def on_start(self, event: Any) -> None:
        kept = _COMPILED.get(event.data["dispatcher"])
        kinds = [getattr(argument, "instance_class", object).__name__ for argument in event.data["args"]]
        pool = next((kind.removesuffix("Pool").lower() for kind in kinds if kind.endswith("Pool")), None)
        what = "allocators in Python" if pool == "foreign" else pool
        if kinds[0].startswith("Own"):
            what = f"{what} and a scheduler of your own"
        if kept and pool and what not in self._told:
            self._told.add(what)
            print(f"kvfrag: compiling the simulation loop for {what} ({kept})", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        """Nothing more to say."""


event.register("numba:compile", _Tell())  # type: ignore[no-untyped-call]


def cache_folder() -> Path:
    """Where the machine code of this version of the sources is kept; it is made. Raises OSError if it cannot be."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(path for pattern in _SOURCES for path in _ROOT.glob(pattern)):
        digest.update(path.name.encode() + path.read_bytes())
    above = _above()
    folder = above / f"kvfrag-{digest.hexdigest()[:16]}"
    if not folder.is_dir():
        others = sorted(above.glob("kvfrag-*"), key=lambda path: path.stat().st_mtime)
        for old in others[:-_KEPT]:
            if time() - old.stat().st_mtime > _KEPT_S:
                shutil.rmtree(old, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def _above() -> Path:
    return Path(os.environ.get("NUMBA_CACHE_DIR") or platformdirs.user_cache_path("kvfrag") / "compiled")
