"""Before any test module is imported: where the GPU part's kernels run.

KVFRAG_DEVICE=cuda asks for a device; otherwise Triton's interpreter runs them on the CPU, which Triton must know
when it is imported. Without torch and Triton the GPU part's tests are left out.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import settings

# A slow machine is no fault of the code: no test may fail by the clock.
settings.register_profile("kvfrag", deadline=None)
settings.load_profile("kvfrag")

DEVICE = os.environ.get("KVFRAG_DEVICE", "cpu")
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"

HAS_GPU_PART = find_spec("torch") is not None and find_spec("triton") is not None
if not HAS_GPU_PART:
    collect_ignore_glob = ["test_gpu_*.py"]


COMPILE = """
from allocators import Paged
from simulator import Trace, simulate
trace = Trace.from_columns([0], [5], [9])
for spec in ("contiguous:reserve=oracle", "buddy:reserve=oracle", "paged"):
    simulate(trace, spec, capacity=64)
simulate(trace, type("Own", (Paged,), {})(64))
"""
"""Runs that use the loop for every kind of pool."""


def pytest_configure(config: pytest.Config) -> None:
    """Compile the loop before any test: one that looks at standard error must not see that it is compiled.

    A machine with a GPU may lack what a simulation needs, and runs only the tests of the GPU part.
    """
    if not hasattr(config, "workerinput"):
        root = Path(__file__).parents[1]
        subprocess.run([sys.executable, "-c", COMPILE], cwd=root, stderr=subprocess.DEVNULL, check=False)


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """Each test, and what it starts, hears Ctrl-C and SIGTERM as a program does that is started at a terminal.

    A shell ignores SIGINT for what it runs in the background, and children inherit that. ``main`` ends a process, and
    at an interrupt's end ignores others; the tests that call it here go on.
    """
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, signal.SIG_DFL),
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def pytest_report_header() -> str:
    return f"gpu part: {DEVICE if HAS_GPU_PART else 'left out, torch and triton are not installed'}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without ``-m``, leave out what takes minutes, unless it is for a device.

    KVFRAG_SHARD=k/n keeps one of n parts: on a device the time goes into compiling, which n processes share.
    """
    part, _, parts = os.environ.get("KVFRAG_SHARD", "0/1").partition("/")
    if not config.option.markexpr and DEVICE == "cpu":
        items[:] = [item for item in items if not item.get_closest_marker("whole")]
    items[:] = [item for item in items if crc32(item.nodeid.encode()) % int(parts) == int(part)]
