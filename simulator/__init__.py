"""Replay a request-length trace against an allocator and say where every slot of memory was.

The names below are imported when they are first used: ``import simulator`` is quick, and reading a saved
:class:`Run` needs neither SimPy nor matplotlib.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator import plots
    from simulator.advice import Advice, advise
    from simulator.cost import StepCost
    from simulator.fitting import Fit, backlog, fit
    from simulator.formats import register_reader
    from simulator.replay import simulate
    from simulator.run import Run
    from simulator.scheduler_check import check_scheduler
    from simulator.server.gpus import Gpu
    from simulator.server.models import Model
    from simulator.server.pool import PoolEstimate, estimate_pool
    from simulator.settings import Settings
    from simulator.sizing import Size, size
    from simulator.sweeping import sweep
    from simulator.trace import Trace, open_trace

_HOMES = {
    "Advice": "simulator.advice",
    "Fit": "simulator.fitting",
    "Gpu": "simulator.server.gpus",
    "Model": "simulator.server.models",
    "PoolEstimate": "simulator.server.pool",
    "Run": "simulator.run",
    "Settings": "simulator.settings",
    "Size": "simulator.sizing",
    "StepCost": "simulator.cost",
    "Trace": "simulator.trace",
    "advise": "simulator.advice",
    "backlog": "simulator.fitting",
    "check_scheduler": "simulator.scheduler_check",
    "estimate_pool": "simulator.server.pool",
    "fit": "simulator.fitting",
    "open_trace": "simulator.trace",
    "register_reader": "simulator.formats",
    "simulate": "simulator.replay",
    "size": "simulator.sizing",
    "sweep": "simulator.sweeping",
}

__all__ = [
    "Advice",
    "Fit",
    "Gpu",
    "Model",
    "PoolEstimate",
    "Run",
    "Settings",
    "Size",
    "StepCost",
    "Trace",
    "advise",
    "backlog",
    "check_scheduler",
    "estimate_pool",
    "fit",
    "open_trace",
    "plots",
    "register_reader",
    "simulate",
    "size",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name == "plots":
        return import_module("simulator.plots")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
