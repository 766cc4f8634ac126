"""What says which server is simulated, as keywords: their types, other names for some, and what is unknown."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypedDict

from allocators.base import InputError
from simulator.server.gpus import Gpu
from simulator.server.models import Model
from simulator.server.settings import SettingsFields

_ALIASES = {"max_num_seqs": "max_batch", "max_num_batched_tokens": "max_batch_tokens", "window": "window_s"}


class HardwareFields(TypedDict, total=False):
    """What says how large the pool is, and what it runs on, as keywords; None: not given."""

    memory: str | int | None
    """Bytes of the pool, such as ``"12GiB"``; with ``model``."""
    model: Model | str | None
    """A preset's name, or the path of a Hugging Face ``config.json``."""
    gpu: Gpu | str | None
    gpu_memory_utilization: float | None
    tensor_parallel_size: int | None
    kv_cache_dtype: str | None
    activation_memory: str | int | None


class ServerFields(SettingsFields, HardwareFields, total=False):
    """All that says what server is simulated, as keywords: settings, hardware, and other names for three of them."""

    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    window: tuple[float | str, float | str] | None


def known_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords by our own names. Raises InputError for an unknown one, and for one given under both names."""
    allowed = [*ServerFields.__annotations__, "capacity"]
    for name in given:
        if name not in allowed:
            near = get_close_matches(str(name), allowed, 1)
            meant = f" (did you mean {near[0]}?)" if near else ""
            raise InputError(f"unknown setting {name!r}{meant}; choose from {', '.join(allowed)}")
    known = {name: value for name, value in given.items() if name not in _ALIASES}
    for alias, name in _ALIASES.items():
        if given.get(alias) is not None:
            if given.get(name) is not None:
                raise InputError(f"{alias} and {name} are two names of one setting; give one of them")
            known[name] = given[alias]
    return known
