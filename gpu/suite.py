"""Everything that needs a GPU, in one command that ends by itself: ``python -m gpu.suite [LOG ...]``, or ``make gpu``.

Stages, the most important first; each prints as it ends and rewrites ``gpu/results/<device>.json`` and ``.md``, so that
a run that is cut off still tells what it found:

1. the ceilings, and the kernel on the loads for which there are bars, block sizes and SDPA beside it;
2. the check of each decision log, and torch's caching allocator beside its model;
3. the tests on the device, in shards side by side (compiling is most of their time);
4. the other loads, FlexAttention, other plans, for as long as there is time.

It needs torch, triton and numpy; without pytest the tests are left out. Nothing here imports the simulator.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from allocators.base import InputError
from gpu.decisions import Log


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 when no stage found an error, 1 when one did, 2 for input that is wrong, told in one line."""
    try:
        from gpu import bench, stages  # torch and triton: a machine without them is told what it lacks
    except ImportError as error:
        if error.name not in ("torch", "triton", "numpy"):
            raise
        print(f"gpu.suite needs torch, triton and numpy, {error.name} is not installed", file=sys.stderr)
        return 2
    try:
        device = bench.cuda_device(who="gpu.suite")
        suite = stages.Suite(device, [Log.read(Path(path)) for path in arguments])
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if suite.run() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
