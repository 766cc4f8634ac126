"""Replay a request-length trace against an allocator and say where every slot of memory was.

The names below are imported when they are first used: ``import simulator`` is quick, and reading a saved
:class:`Run` needs neither SimPy nor matplotlib.
"""

from typing import TYPE_CHECKING

from allocators.lazy import lazily

if TYPE_CHECKING:
    from simulator import plots
    from simulator.answers.advice import Advice, advise
    from simulator.answers.fitting import Fit, backlog, fit
    from simulator.answers.sizing import Size, size
    from simulator.conformance import check_scheduler
    from simulator.replay import simulate
    from simulator.results.run import Run
    from simulator.server.cost import StepCost
    from simulator.server.gpus import Gpu
    from simulator.server.models import Model
    from simulator.server.pool import PoolEstimate, estimate_pool
    from simulator.server.settings import Settings
    from simulator.sweeps.sweeping import sweep
    from simulator.traces.formats import register_reader
    from simulator.traces.trace import Trace, open_trace

_HOMES = {
    "Advice": "simulator.answers.advice",
    "Fit": "simulator.answers.fitting",
    "Gpu": "simulator.server.gpus",
    "Model": "simulator.server.models",
    "PoolEstimate": "simulator.server.pool",
    "Run": "simulator.results.run",
    "Settings": "simulator.server.settings",
    "Size": "simulator.answers.sizing",
    "StepCost": "simulator.server.cost",
    "Trace": "simulator.traces.trace",
    "advise": "simulator.answers.advice",
    "backlog": "simulator.answers.fitting",
    "check_scheduler": "simulator.conformance",
    "estimate_pool": "simulator.server.pool",
    "fit": "simulator.answers.fitting",
    "open_trace": "simulator.traces.trace",
    "plots": "simulator.plots",
    "register_reader": "simulator.traces.formats",
    "simulate": "simulator.replay",
    "size": "simulator.answers.sizing",
    "sweep": "simulator.sweeps.sweeping",
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


__getattr__, __dir__ = lazily(__name__, _HOMES)
