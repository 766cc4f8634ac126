"""The installed command as a process: signals, pipes, closed outputs, terminals, and the same bytes everywhere."""

import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

KVFRAG = str(Path(sys.executable).with_name("kvfrag"))
RUN = ["run", "good.csv", "-a", "paged", "--capacity", "100"]
MINE = """
import os, signal
from allocators import Paged

class Mine(Paged):
    def __init__(self, capacity: int, arg: int = 1) -> None:
        super().__init__(capacity, block_size=arg)

class Interrupts(Mine):
    def admit(self, *request):
        os.kill(os.getpid(), signal.SIGINT)
        return super().admit(*request)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5\n1,20,6\n2.5,5,1\n")
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "matplotlib.py").write_text("raise ImportError('what is installed goes before what lies around')\n")
    return tmp_path


def kvfrag(
    folder: Path, *arguments: str, stdout: int = subprocess.PIPE, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [KVFRAG, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "", **environment},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background may have made them deaf.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def test_the_command_and_the_module_are_the_same_and_have_the_exit_codes(folder: Path) -> None:
    good = kvfrag(folder, *RUN)
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.startswith("good.csv: 3 requests, a pool of 100 token slots\n")
    bad = kvfrag(folder, *RUN[:-1], "0")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == "kvfrag: --capacity(=0) must be 1 to 1,000,000,000 token slots\n"
    module = subprocess.run(
        [sys.executable, "-m", "simulator", *RUN], cwd=folder, capture_output=True, text=True, check=True
    )
    assert module.stdout == good.stdout


def test_version_is_the_installed_one(folder: Path) -> None:
    assert re.fullmatch(r"kvfrag \d+\.\d+\.\d+\n", kvfrag(folder, "--version").stdout)


def test_a_module_in_the_current_folder_can_be_named_and_hides_none_that_is_installed(folder: Path) -> None:
    ended = kvfrag(folder, *RUN, "-a", "mine.Mine:arg=4", "--plot", "bars.png", "--quiet")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "mine.Mine:arg=4" in ended.stdout


def test_json_has_the_same_bytes_everywhere(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    shutil.copy(folder / "good.csv", elsewhere)
    rest = [*RUN[2:], "-a", "contiguous:reserve=oracle", "--json", "-"]
    outputs = [
        kvfrag(cwd, "run", str(path), *rest, PYTHONHASHSEED=seed, TZ=zone).stdout
        for cwd, path, seed, zone in (
            (folder, "good.csv", "0", "UTC"),
            (elsewhere, folder / "good.csv", "1", "Asia/Tokyo"),
            (folder.parent, elsewhere / "good.csv", "2", "UTC"),
        )
    ]
    assert outputs[0].startswith("{")
    assert outputs == outputs[:1] * 3


def test_an_interrupt_ends_in_one_line_and_130(folder: Path) -> None:
    ended = kvfrag(folder, *RUN, "-a", "mine.Interrupts:arg=4", "--json", "out.json", "--save", "saved")
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "kvfrag: interrupted\n")
    assert {path.name for path in folder.iterdir() if path.name != "__pycache__"} == {
        "good.csv",
        "mine.py",
        "matplotlib.py",
    }


@pytest.mark.parametrize("arguments", [RUN, [*RUN, "--json", "-"], ["--help"]], ids=["table", "json", "help"])
def test_a_reader_that_has_left_is_no_reason_to_complain(arguments: list[str], folder: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = kvfrag(folder, *arguments, stdout=writer)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [RUN, [*RUN, "--json", "-"]], ids=["table", "json"])
def test_a_full_standard_output_is_told_in_one_line(arguments: list[str], folder: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        ended = kvfrag(folder, *arguments, stdout=full)
    finally:
        os.close(full)
    told = "kvfrag: standard output cannot be written: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (1, told)


@pytest.mark.parametrize(
    ("closed", "line", "code"),
    [(">&-", "run good.csv -a paged --capacity 100", 0), ("2>&-", "run good.csv -a paged --capacity 0", 2)],
)
def test_closed_outputs_are_done_without(closed: str, line: str, code: int, folder: Path) -> None:
    ended = subprocess.run(f"{KVFRAG} {line} {closed}", shell=True, cwd=folder, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", "")


def test_a_sign_that_the_output_lacks_is_shown_as_another(folder: Path) -> None:
    shutil.move(folder / "good.csv", folder / "caf\N{LATIN SMALL LETTER E WITH ACUTE}.csv")
    ended = kvfrag(folder, "trace", "info", "caf\N{LATIN SMALL LETTER E WITH ACUTE}.csv", PYTHONIOENCODING="ascii")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("caf?.csv: 3 requests over 2.5 s\n")


def test_a_terminal_gets_tables_that_fit_and_no_bar_for_a_short_run(folder: Path) -> None:
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
    command = [
        KVFRAG,
        *RUN,
        "-a",
        "buddy:reserve=max,min_block=16,max_block=64,split=smallest",
        "--max-model-len",
        "50",
    ]
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        while True:
            try:
                part = os.read(screen, 1 << 16)
            except OSError:  # how Linux says that the other end is closed
                break
            if not part:
                break
            shown += part
    os.close(screen)
    assert process.returncode == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).split("\r\n")
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("  2 buddy:reserve=max,min_block=16") for line in lines)
    assert "req/s" not in shown.decode()
