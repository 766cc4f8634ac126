"""``kvfrag sweep``: from command to curve, through interrupts and killed processes, and what bad input says."""

import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest

from gated import GO, WORKLOAD, gated_sweep, results_in, started, wait_until
from simulator.__main__ import main
from simulator.cli.tables.sweep_report import curves, print_sweep
from simulator.examples.figure2 import SETTINGS
from simulator.results.ledger import CATEGORIES

FIGURE2 = [
    "--capacity",
    "15728",
    "--max-model-len",
    "2048",
    "--max-batch",
    "256",
    "--max-batch-tokens",
    "2560",
    "--window",
    "300",
    "900",
]


def kvfrag(*arguments: str) -> int:
    """The exit code of ``kvfrag sweep``, in this process."""
    before = sys.argv
    sys.argv = ["kvfrag", "sweep", *arguments]
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        sys.argv = before
    return 0


def test_block_sizes_at_figure_2s_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Larger blocks, less of the pool in use: measured 97.9 % at 1, 96.3 % at 16 and 75.4 % at 256."""
    monkeypatch.chdir(tmp_path)
    assert SETTINGS["max_batch"] == 256 and SETTINGS["window_s"] == (300, 900)
    spec = "paged:block_size={1,8,16,32,64,128,256},watermark=0.01"
    trace = "sharegpt:rate=4,duration=900,max_total=2047"
    files = ["-o", "sizes.csv", "--plot", "sizes.png", "--explain"]
    assert kvfrag(trace, "-a", spec, "--seeds", "3", *FIGURE2, *files) == 0
    table = pd.read_csv("sizes.csv")
    used = 100 * table.groupby("block_size")["used"].mean()
    assert used.index.tolist() == [1, 8, 16, 32, 64, 128, 256] and len(table) == 21
    assert used.is_monotonic_decreasing
    assert used[[1, 16, 256]].tolist() == pytest.approx([97.9, 96.3, 75.4], abs=2)
    assert Path("sizes.png").read_bytes().startswith(b"\x89PNG")
    shown = capsys.readouterr()
    lines = [line.split() for line in shown.out.splitlines() if line.startswith(" paged:watermark=0.01 ")]
    assert [line[1] for line in lines] == ["1", "8", "16", "32", "64", "128", "256"]
    assert [float(line[2]) for line in lines] == [round(value, 1) for value in used]
    assert all(line[3] == "±" for line in lines) and "95 % interval of the mean of 3 seeds (Student's t)" in shown.out
    assert shown.err.splitlines() == ["wrote sizes.csv: 21 runs", "drew sizes.png"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("times", [1, 6])
def test_ctrl_c_ends_in_one_line_and_the_same_command_goes_on(
    number: signal.Signals, code: int, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    partial = tmp_path / "t.csv.partial"
    command = gated_sweep("t.csv")
    with started(tmp_path, *command) as process:
        wait_until(lambda: results_in(partial) == 2, process)
        for _ in range(times):  # impatient
            with suppress(ProcessLookupError):
                if number == signal.SIGINT:
                    os.killpg(process.pid, number)  # as a terminal does: to all of them
                else:
                    process.send_signal(number)
            time.sleep(0.01)
        out, told = process.communicate(timeout=120)
    assert (process.returncode, out) == (code, "")
    assert told == "kvfrag: interrupted; 2 runs are kept in t.csv.partial, and the same command goes on\n"
    wait_until(lambda: not alive(tmp_path))
    assert not list(scratch.iterdir())
    _finish(tmp_path, command, done=2)


def test_a_kill_loses_only_what_was_on_and_leaves_no_process_behind(tmp_path: Path) -> None:
    partial = tmp_path / "t.csv.partial"
    command = gated_sweep("t.csv")
    with started(tmp_path, *command) as process:
        wait_until(lambda: results_in(partial) == 2, process)
        process.kill()
        process.wait()
        wait_until(lambda: not alive(tmp_path))
    with partial.open("ab") as file:
        file.write(b'{"run": "half')
    _finish(tmp_path, command, done=2)


@pytest.mark.parametrize("name", ["t.csv", "link.csv"])
def test_a_second_sweep_into_the_same_file_is_refused_until_the_first_has_left(name: str, tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to("t.csv")
    command = gated_sweep("t.csv")
    with started(tmp_path, *command) as process:
        wait_until(lambda: results_in(tmp_path / "t.csv.partial") == 2, process)
        with started(tmp_path, *gated_sweep(name, last=1)) as second:
            out, told = second.communicate()
        assert (second.returncode, out) == (2, "")
        assert told == f"kvfrag: -o(={name}): another sweep is writing {name}; wait for its end, or name another file\n"
        assert process.poll() is None and results_in(tmp_path / "t.csv.partial") == 2
        process.kill()  # the lock goes with the processes, however they went
        process.wait()
    _finish(tmp_path, command, done=2)


def alive(folder: Path) -> list[int]:
    """Which of the processes that ran something still do."""
    found = []
    for pid in (int(path.name.removeprefix("pid-")) for path in folder.glob("pid-*")):
        state = Path(f"/proc/{pid}/stat")
        if state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
            found.append(pid)
    return found


def _finish(folder: Path, command: Sequence[str], done: int) -> None:
    """Go on, and compare with a sweep that nobody interrupted."""
    (folder / GO).touch()
    with started(folder, *command) as process:
        _, told = process.communicate(timeout=120)
    assert process.returncode == 0, told
    assert told.splitlines()[0] == f"{done} of 6 runs were done already, in t.csv.partial"
    whole = gated_sweep("whole.csv")
    with started(folder, *whole) as process:
        process.communicate(timeout=120)
    assert (folder / "t.csv").read_bytes() == (folder / "whole.csv").read_bytes()
    assert not (folder / "t.csv.partial").exists()


def test_failed_runs_are_counted_and_the_exit_code_is_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = [WORKLOAD, "-a", "paged:block_size={16,5000,6000}", "--capacity", "4000", "-o", "t.parquet"]
    assert kvfrag(*command) == 1
    shown = capsys.readouterr()
    assert "1 run failed: capacity(=4000) must be >= block_size(=5000)" in shown.out
    assert shown.err.endswith("kvfrag: 2 of 3 runs failed; the same command tries them again\n")
    assert pd.read_parquet("t.parquet")["error"].isna().tolist() == [True, False, False]
    assert kvfrag(*command, "--quiet") == 1
    assert capsys.readouterr().err == "kvfrag: 2 of 3 runs failed; the same command tries them again\n"
    assert kvfrag(*command[:2], "paged:block_size=5000", *command[3:5], "--plot", "none.png", "--x", "rate") == 1
    assert "none.png is not drawn: no run has both rate and used" in capsys.readouterr().err


def test_every_list_of_the_command_line_becomes_a_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lengths = str(Path(__file__).parents[1] / "traces" / "lengths.csv")
    lists = ["--rate", "1:2:0.5", "--seeds", "3,5", "--max-batch", "4,8", "--max-model-len", "2048,4096"]
    pool = ["--memory", "4GiB", "--model", "opt-13b", "--preemption", "swap", "--swap-slots", "100"]
    assert kvfrag(lengths, "-a", "paged", *lists, *pool, "--max-batch-tokens", "4096", "-o", "t.csv") == 0
    told = capsys.readouterr().err.splitlines()
    assert "the file has no arrivals" in told[0] and told[1] == "wrote t.csv: 24 runs"
    cost_of = "OPT-13B on one H100, from peak rates (assumed)"
    assert told[2] == f"note: no GPU is named: the cost is that of {cost_of}; --gpu or --cost says another"
    assert told[3].startswith("note: max_model_len is 4,096, and OPT-13B has 2,048 positions: ")
    assert told[4].startswith("note: 24 of 24 runs rejected requests, up to ")
    assert told[5:] == ["note: not all runs rejected the same requests, and their figures are of different work"]
    table = pd.read_csv("t.csv")
    found = {name: sorted(table[name].unique()) for name in ("rate", "seed", "max_batch", "max_model_len", "capacity")}
    assert found == {
        "rate": [1, 1.5, 2],
        "seed": [3, 5],
        "max_batch": [4, 8],
        "max_model_len": [2048, 4096],
        "capacity": [4 * 2**30 // 819_200],
    }
    assert set(table["cost_of"]) == {cost_of}
    assert len(table) == 3 * 2 * 2 * 2 and set(table["swap_slots"]) == {100} and set(table["preemption"]) == {"swap"}


BASE = [WORKLOAD, "-a", "paged:block_size={1,2}", "--capacity", "4000"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sharegpt:rate=4", "-a", "paged"], "how large is the pool?"),
        ([*BASE, "--rate", "1:4:1"], "rate is given twice"),
        ([*BASE, "--seeds", "0"], "--seeds(=0) must be a whole number >= 1"),
        ([*BASE, "--seeds", "a"], "--seeds(=a) must be a whole number"),
        ([*BASE, "--rate", "4:1"], "--rate: the range '4:1' is empty"),
        ([*BASE, "--max-batch", "1,"], "--max-batch: the list '1,' has a part with nothing in it"),
        ([*BASE, "--capacity", ""], "--capacity: the list '' has a part"),
        ([*BASE, "--y", "usd", "--plot", "a.png"], "--y(='usd') must be one of duration_s"),
        ([*BASE, "--x", "usd", "--plot", "a.png"], "--x(='usd') must be one of allocator, block_size"),
        ([*BASE, "--x", "window_end_s", "--plot", "a.png"], "--x(='window_end_s'): no run has a value there"),
        ([*BASE, "--x", "rate"], "--x needs --plot FILE"),
        ([WORKLOAD, "-a", "paged", "--capacity", "4000", "--plot", "a.png"], "--plot needs a setting with two values"),
        ([*BASE, "--plot", "a.gif"], "--plot(=a.gif) must end in one of .png, .svg, .pdf"),
        ([*BASE, "-o", "a.json"], "-o(=a.json) must end in one of .csv, .parquet"),
        ([*BASE, "-o", "none/a.csv"], "-o(=none/a.csv) cannot be written: there is no folder none"),
        ([*BASE, "-o", "mine.csv"], "-o(=mine.csv) holds no sweep of this version"),
        ([*BASE, "--dask", "a", "--workers", "2"], "--workers is for this machine, and --dask for a cluster"),
        ([*BASE, "--workers", "0"], "workers(=0) must be a whole number >= 1"),
        ([*BASE, "--dask", "nowhere"], "--dask(=nowhere): no scheduler answers there"),
        ([*BASE, "--dask", "tcp://127.0.0.1:9"], "--dask(=tcp://127.0.0.1:9): no scheduler answers there"),
    ],
)
def test_bad_input_is_told_in_one_line_and_nothing_runs(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if any("--dask" in one for one in arguments):
        pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text("a,b\n1,2\n")
    assert kvfrag(*arguments) == 2
    out, told = capsys.readouterr()
    assert out == "" and told.startswith(f"kvfrag: {message}") and told.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]
    assert Path("mine.csv").read_text() == "a,b\n1,2\n"


def test_what_the_seeds_cannot_tell_apart_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-a", "paged:block_size={15,16}", "-a", "contiguous:reserve=oracle", "--capacity", "4000"]
    assert kvfrag("sharegpt:rate=4,duration=20", *arguments, "--seeds", "4") == 0
    out, told = capsys.readouterr()
    assert told == ""
    notes = out.partition("used differs by less than its band")[2].splitlines()[1:]
    for note in notes:
        found = re.search(r"([-+][\d.]+) ± ([\d.]+)$", note)
        assert found and abs(float(found[1])) <= float(found[2])
    assert [note.split(": ")[0] for note in notes] == ["  paged:block_size=15 and paged:block_size=16"]


def rows_of(**settings: object) -> list[dict[str, object]]:
    """The rows of two seeds, as far as they are printed."""
    own = {"allocator": "paged", "block_size": 1, "capacity": 4000, "trace": "t", "error": None} | settings
    return [
        own
        | {"seed": seed, "saturated_s": 1.0 + seed, "duration_s": 10.0}
        | dict.fromkeys(CATEGORIES, 0.1 + 0.01 * seed)
        for seed in (0, 1)
    ]


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120, 160])
def test_a_narrow_terminal_gets_all_figures_and_none_in_two_lines(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("simulator.cli.tables.printing._PIPE_COLUMNS", width)
    rows = [row for size in (1, 16) for row in rows_of(block_size=size)]
    print_sweep(pd.DataFrame(rows), [f"paged:block_size={row['block_size']}" for row in rows], everything=True)
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if line.startswith((" paged", " 1 paged", " 2 paged"))]
    assert max(map(len, table)) <= width
    of_first = " ".join(line for line in table if " 16 " not in line and not line.startswith(" 2 "))
    # Five parts of the pool and the refused time, each with its band.
    assert re.findall(r"[\d.]+ ± [\d.]+", of_first) == [
        *["10.5 ± 6.4"] * 2,
        *["21.0 ± 12.7"] + ["10.5 ± 6.4"] + ["21.0 ± 12.7"],
        "15.0 ± 63.5",
    ]


def test_an_allocator_is_called_what_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    """But for the options that have a column of their own; of two that would be called alike each is told whole."""
    settings: list[tuple[str, dict[str, object]]] = [
        ("paged", {"block_size": 16}),
        ("paged:watermark=0.1,block_size=64", {"block_size": 64}),
        ("contiguous:reserve=oracle", {"allocator": "contiguous", "block_size": None}),
    ]
    rows = [row for _, own in settings for row in rows_of(**own)]
    print_sweep(pd.DataFrame(rows), [spec for spec, _ in settings for _ in (0, 1)], everything=True)
    out = capsys.readouterr().out
    table = [line.split()[:2] for line in out.splitlines() if " ± 6.4" in line]
    assert table == [["paged", "16"], ["paged:watermark=0.1", "64"], ["contiguous:reserve=oracle", "-"]]
    assert "  paged and paged:watermark=0.1,block_size=64: +0.00 ± 0.00" in out

    specs = ["mine.Mine", "mine.Mine:block_size=1", "mine.Mine:block_size=2"]
    rows = [row for size in (1, 1, 2) for row in rows_of(allocator="mine.Mine", block_size=size)]
    print_sweep(pd.DataFrame(rows), [spec for spec in specs for _ in (0, 1)], everything=True)
    table = [line.split()[:2] for line in capsys.readouterr().out.splitlines() if " ± 6.4" in line]
    assert [name for name, _ in table] == specs


def test_explain_says_what_the_columns_mean_and_a_line_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.DataFrame(rows_of())
    print_sweep(frame, ["paged"] * 2, everything=True)
    out = capsys.readouterr().out
    assert "--explain says what the columns mean." in out and "written keys and values" not in out
    print_sweep(frame, ["paged"] * 2, everything=True, explain=True)
    out = capsys.readouterr().out
    assert "--explain" not in out and "  used         written keys and values" in out


def test_curves_are_named_by_what_varies_among_them() -> None:
    rows = [
        {"allocator": name, "block_size": size, "capacity": capacity, "seed": 0, "used": used}
        for name, size, capacity, used in (
            ("paged", 1, 1000, 0.9),
            ("paged", 16, 1000, 0.8),
            ("paged", 1, 2000, 0.7),
            ("paged", 16, 2000, float("nan")),
            ("buddy", float("nan"), 1000, 0.5),
        )
    ]
    table, specs = pd.DataFrame(rows), [*("paged", "paged:block_size=16") * 2, "buddy:reserve=oracle"]
    drawn, left_out = curves(table, specs, "block_size", "used")
    assert drawn["curve"].tolist() == ["capacity=1,000", "capacity=1,000", "capacity=2,000"]
    assert left_out == ["buddy:reserve=oracle"]
    drawn, left_out = curves(table, specs, "capacity", "used")
    assert drawn["curve"].tolist() == ["paged", "paged:block_size=16", "paged", "buddy:reserve=oracle"]
    assert not left_out
    drawn, _ = curves(
        table[:2], ["paged:block_size=1,watermark=0.01", "paged:block_size=16,watermark=0.01"], "block_size", "used"
    )
    assert drawn["curve"].tolist() == ["paged:watermark=0.01"] * 2
    drawn, _ = curves(table, specs, "allocator", "used")
    assert drawn["allocator"].tolist() == [*specs[:3], specs[4]]
    assert drawn["curve"].tolist() == ["capacity=1,000", "capacity=1,000", "capacity=2,000", "capacity=1,000"]
