"""The installed command as a process: signals, pipes, closed outputs, terminals, and the same bytes everywhere."""

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from functools import partial
from pathlib import Path
from resource import RLIMIT_FSIZE, setrlimit

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
    folder: Path,
    *arguments: str,
    stdout: int = subprocess.PIPE,
    largest_file: int | None = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [KVFRAG, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "", **environment},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=None if largest_file is None else partial(setrlimit, RLIMIT_FSIZE, (largest_file, largest_file)),
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


WRITING = [
    ([*RUN, "--json", "out.json"], "out.json"),
    ([*RUN, "--plot", "out.png"], "out.png"),
    ([*RUN, "--plot", "out.svg"], "out.svg"),
    ([*RUN, "--plot", "out.html"], "out.html"),
    (["sweep", "sharegpt:rate=4,duration=9", *RUN[2:], "-o", "out.csv"], "out.csv.partial"),
    (["sweep", "sharegpt:rate=4,duration=9", *RUN[2:], "--plot", "out.pdf", "-a", "paged:block_size=1"], "out.pdf"),
    (["trace", "info", "good.csv", "--json", "out.json"], "out.json"),
    (["trace", "convert", "good.csv", "-o", "out.csv"], "out.csv"),
    (["trace", "convert", "good.csv", "-o", "out.csv.gz"], "out.csv.gz"),
    (["trace", "convert", "good.csv", "-o", "out.parquet"], "out.parquet"),
    (["trace", "profile", "good.csv", "-o", "out.json"], "out.json"),
]


@pytest.mark.parametrize(("arguments", "name"), WRITING, ids=[" ".join(line) for line, _ in WRITING])
def test_a_file_that_the_disk_does_not_take_is_named(arguments: list[str], name: str, folder: Path) -> None:
    (folder / "matplotlib.py").unlink()
    ended = kvfrag(folder, *arguments, "--quiet", largest_file=50)
    assert (ended.returncode, ended.stderr) == (2, f"kvfrag: {name} cannot be written: File too large\n")
    left = {path.name for path in folder.iterdir()} - {"good.csv", "mine.py", "__pycache__"}
    assert left <= {"out.csv.partial"}


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_file_that_is_none_of_ours_is_not_called_standard_output(unbuffered: str, folder: Path) -> None:
    (folder / "full.py").write_text("def fill(lines):\n    open('/dev/full', 'w', 1).write('text\\n')\n")
    (folder / "fills.py").write_text("open('/dev/full', 'w', 1).write('text\\n')\n")
    ended = kvfrag(folder, *RUN, "-a", "fills.Any", PYTHONUNBUFFERED=unbuffered)
    told = "kvfrag: OSError: [Errno 28] No space left on device (fills.py, line 1); KVFRAG_TRACEBACK=1 shows"
    assert ended.returncode == 1 and ended.stderr.startswith(told) and ended.stderr.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full")
def test_a_full_standard_error_leaves_the_exit_code(folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run([KVFRAG, *RUN[:-1], "0"], cwd=folder, stdout=subprocess.PIPE, stderr=full, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")


@pytest.mark.parametrize("module", ["numpy", "pandas", "rich", "typer"])
def test_an_installation_that_is_broken_is_told_in_one_line(module: str, folder: Path) -> None:
    broken = folder / "broken"
    broken.mkdir()
    (broken / f"{module}.py").write_text("import absent\n")
    ended = kvfrag(folder, *RUN, PYTHONPATH=str(broken))
    told = f"kvfrag: ModuleNotFoundError: No module named 'absent' ({module}.py, line 1)"
    way = "; KVFRAG_TRACEBACK=1 shows the way there\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", told + way)
    assert "Traceback" in kvfrag(folder, *RUN, PYTHONPATH=str(broken), KVFRAG_TRACEBACK="1").stderr


@pytest.mark.parametrize(
    ("module", "arguments", "told"),
    [
        (
            "matplotlib",
            [*RUN, "--plot", "a.png"],
            "ImportError: half of it (matplotlib.py, line 1); KVFRAG_TRACEBACK=1",
        ),
        (
            "plotly",
            [*RUN, "--plot", "a.html"],
            "plotly.offline is installed, but cannot be imported: ImportError: half",
        ),
        (
            "pyarrow",
            ["sweep", *RUN[1:], "-o", "a.parquet"],
            "pyarrow is installed, but cannot be imported: ImportError: h",
        ),
        (
            "distributed",
            ["sweep", *RUN[1:], "--dask", "x"],
            "distributed is installed, but cannot be imported: ImportError",
        ),
    ],
)
def test_a_library_that_is_broken_is_told_when_it_is_needed(
    module: str, arguments: list[str], told: str, folder: Path
) -> None:
    broken = folder / "broken"
    broken.mkdir()
    (broken / f"{module}.py").write_text("raise ImportError('half of it')\n")
    ended = kvfrag(folder, *arguments, PYTHONPATH=str(broken))
    assert ended.returncode in (1, 2) and ended.stdout == ""
    assert ended.stderr.startswith(f"kvfrag: {told}") and ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("def f(:\n", "kvfrag: SyntaxError: invalid syntax (own.py, line 1)"),
        ("import absent\n", "own cannot be imported: ModuleNotFoundError: No module named 'absent' (own.py, line 1)"),
        ("\n1 / 0\n", "kvfrag: ZeroDivisionError: division by zero (own.py, line 2)"),
        ("import sys\nsys.exit('no')\n", "own cannot be imported: SystemExit: no (own.py, line 2)"),
        ("raise BaseException('of its own')\n", "own cannot be imported: BaseException: of its own (own.py, line 1)"),
        (
            "class Any:\n def __init__(self, capacity): raise OSError(28, 'full')\n",
            "OSError: [Errno 28] full (own.py, line 2)",
        ),
    ],
)
def test_whatever_a_users_module_does_is_told_in_one_line(code: str, told: str, folder: Path) -> None:
    (folder / "own.py").write_text(code)
    ended = kvfrag(folder, *RUN, "-a", "own.Any")
    assert ended.stdout == "" and ended.stderr.count("\n") == 1 and told in ended.stderr
    assert ended.returncode == (2 if "cannot be imported" in told else 1)


def test_a_name_cannot_reach_the_terminal(folder: Path) -> None:
    name = "a\x1b[31mb\n\u202ec\td\r.csv"
    shown = r"a\x1b[31mb\n\u202ec\td\r.csv"
    shutil.move(folder / "good.csv", folder / name)
    for command in (["run", name, *RUN[2:]], ["trace", "info", name], ["sweep", name, *RUN[2:]]):
        ended = kvfrag(folder, *command)
        assert ended.returncode == 0
        assert ended.stdout.startswith(f"{shown}: ") and "\x1b" not in ended.stdout + ended.stderr
    ended = kvfrag(folder, *RUN[:1], f"{name}x", *RUN[2:])
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1 and not set("\x1b\r\t\u202e") & set(ended.stderr)
    (folder / name).write_text("arrival_s,prompt_tokens,\x1b[2Joutput\n")
    ended = kvfrag(folder, "run", name, *RUN[2:])
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1 and "\x1b" not in ended.stderr


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
