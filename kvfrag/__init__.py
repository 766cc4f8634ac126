"""kvfrag in Python: ``import kvfrag`` gives the public names of :mod:`allocators` and :mod:`simulator`.

``kvfrag.simulate(kvfrag.Trace.read("log.csv"), kvfrag.Paged(15_728))``. A name of the simulator is imported when it is
first used, so that the import itself is quick. ``python -m kvfrag`` is the command line.
"""

from typing import TYPE_CHECKING, Any

import allocators
import simulator
from allocators import *  # noqa: F403  # what is public is said once, there

if TYPE_CHECKING:
    from simulator import *  # noqa: F403

__version__: str

__all__: list[str] = []
__all__ += allocators.__all__
__all__ += simulator.__all__


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    if name not in simulator.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(simulator, name)


def __dir__() -> list[str]:
    return sorted(__all__)
