"""An allocator that waits at a gate, or makes trouble: for tests of what happens in the middle of a sweep."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from allocators import Paged

TESTS = Path(__file__).parent
KVFRAG = str(Path(sys.executable).with_name("kvfrag"))
WORKLOAD = "sharegpt:rate=4,duration=9"
GO, DIED = "go", "died"


class Gated(Paged):
    """Runs 0 and 1 pass; those from 2 on wait until the file ``go`` is in the folder. Trouble comes with run 1."""

    def __init__(self, capacity: int, nth: int = 0, trouble: str = "none") -> None:
        super().__init__(capacity, 16)
        self.nth, self.trouble = nth, trouble

    @property
    def spec(self) -> str:
        return f"gated.Gated:nth={self.nth},trouble={self.trouble}"

    def fits_empty(self, prompt_tokens: int, output_tokens: int) -> bool:
        folder = Path(os.environ["KVFRAG_TEST_FOLDER"])
        (folder / f"pid-{os.getpid()}").touch()
        if self.nth == 1:
            self._make_trouble(folder)
        while self.nth >= 2 and not (folder / GO).exists():
            time.sleep(0.01)
        return super().fits_empty(prompt_tokens, output_tokens)

    def _make_trouble(self, folder: Path) -> None:
        if self.trouble == "raises":
            raise RuntimeError("two\nlines")
        if self.trouble == "leaves":
            sys.exit(3)
        if self.trouble == "interrupts":
            raise KeyboardInterrupt("mine")
        if self.trouble == "base":
            raise BaseException("of its own")
        if self.trouble == "dies" or (self.trouble == "dies_once" and not (folder / DIED).exists()):
            (folder / DIED).touch()
            os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def started(folder: Path, *command: str, path: Path = TESTS) -> Iterator[subprocess.Popen[str]]:
    """A command in a group of processes of its own, all gone at the end. ``path``: its PYTHONPATH."""
    environment = os.environ | {"KVFRAG_TEST_FOLDER": str(folder), "PYTHONPATH": str(path)}
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def gated_sweep(out: str, trouble: str = "none", last: int = 5) -> Sequence[str]:
    """The command of a sweep that stops at the gate after two of ``last`` + 1 runs."""
    spec = f"gated.Gated:nth={{0:{last}}},trouble={trouble}"
    return [KVFRAG, "sweep", WORKLOAD, "-a", spec, "--capacity", "4000", "-o", out, "--workers", "2"]


def wait_until(is_so: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Wait for something that comes sooner or later, or for the end of the process that should do it."""
    for _ in range(12_000):
        if is_so():
            return
        assert process is None or process.poll() is None, process.communicate(timeout=120)
        time.sleep(0.01)
    raise AssertionError("it did not come")


def results_in(partial: Path) -> int:
    """The results that a journal has on the disk."""
    return partial.read_text().count('"duration_s"') if partial.exists() else 0
