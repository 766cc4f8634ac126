"""The command for a GPU machine, run here on the CPU with small loads and a timer that looks at no clock."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from allocators import Extent, InputError
from gpu import bench, caching, rivals, suite
from gpu import stages as the_stages
from gpu.decisions import Admit, Decision, Grow, Log, Release, Sample, Write
from gpu.loads import LLAMA_8, LLAMA_64, Load
from gpu.rivals import OURS
from gpu_device import DEVICE

DECISIONS: list[Decision] = [
    Admit(0, [Extent(16, 16)], 5), Admit(1, [Extent(0, 16), Extent(48, 16)], 20), Write(0), Write(1, 2),
    Sample(0.5, 28, 48, {0: 6, 1: 22}), Release(1), Write(0, 10), Grow(0, [Extent(16, 16), Extent(48, 16)]), Write(0),
    Sample(0.75, 17, 32, {0: 17}), Release(0),
]  # fmt: skip
LOG = Log("paged:block_size=16,watermark=0", 64, DECISIONS)


def small(name: str) -> Load:
    return Load(name, (33, 20), query_heads=4, kv_heads=2, head_dim=16)


def one_us(call: rivals.Call) -> bench.Timing:
    call()
    return bench.Timing(1.0, 1.0, 1.0)


@pytest.fixture
def without_a_device(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tests")
    monkeypatch.setattr(bench, "ceilings", lambda _: {"copy": 4.0, "fill": 4.0, "read": 4.0})
    monkeypatch.setattr(bench, "rows", partial(bench.rows, timer=one_us))
    first = [(small(load.name), {OURS: rivals.ours}) for load in (LLAMA_64, LLAMA_8)]
    monkeypatch.setattr(bench, "loads_with_bars", lambda: first)
    monkeypatch.setattr(bench, "other_loads", lambda lengths: [(Load("run", lengths), {"rival": refusing})])
    monkeypatch.setattr(caching, "measure_in_fresh_process", caching.model)
    monkeypatch.setattr(the_stages, "SHARDS", 1)
    monkeypatch.setattr(the_stages, "TEST_FILES", ("shard",))
    monkeypatch.setattr(the_stages, "TESTS", folder)
    (folder / "test_gpu_shard.py").write_text("def test_one(): ...\n")


def refusing(_: object) -> rivals.Call:
    raise RuntimeError("no kernel")


@pytest.mark.usefixtures("without_a_device")
def test_every_stage_prints_and_leaves_its_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = the_stages.Suite(DEVICE, [LOG], tmp_path)
    assert made.run()
    printed = capsys.readouterr().out
    assert made.results["tests"]["passed"] == 1
    assert "every counted slot equals the ledger in 2 samples" in printed
    assert "differ by at most 0 bytes" in printed
    (path,) = tmp_path.glob("*.json")
    results = json.loads(path.read_text())
    assert list(results["stages"]) == ["bench_bars", "check", "caching", "tests", "bench_rest"]
    assert [row["load"] for row in results["bench"]] == [LLAMA_64.name, LLAMA_8.name, "run"]
    assert [row["counted"] for row in results["check"][0]["samples"]] == [28, 17]
    assert results["bars"][0]["met"] is False
    table = path.with_suffix(".md").read_text()
    assert "| run | 16 | rival | refused: no kernel |" in table
    assert {line.count("|") for line in table.splitlines() if line.startswith("| ")} == {4, 10}


@pytest.mark.usefixtures("without_a_device")
def test_a_stage_that_fails_or_has_no_time_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(caching, "measure_in_fresh_process", broken)
    wrong = Log(LOG.spec, 64, [*DECISIONS[:4], Sample(0.5, 27, 48, {0: 6, 1: 21})])
    made = the_stages.Suite(DEVICE, [wrong], tmp_path)
    monkeypatch.setattr(made, "tests", made.check)
    assert not made.run()
    printed = capsys.readouterr().out
    assert "differences in 1 samples" in printed
    assert "28 slots are written, the ledger uses 27" in printed
    assert "caching: RuntimeError: out of luck" in printed
    late = the_stages.Suite(DEVICE, [], tmp_path, total_s=-1)
    assert late.run()
    assert "bench_bars: left out, no time was left" in capsys.readouterr().out


def test_tests_are_counted_over_their_shards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def shard(command: list[str], **options: Any) -> Any:
        assert options["env"]["KVFRAG_SHARD"] in ("0/2", "1/2")
        lines = "FAILED tests/x.py::test_y - assert 0\\n2 failed, 5 passed, 1 skipped in 3.2s"
        assert command[1:3] == ["-m", "pytest"]
        return popen([sys.executable, "-c", f"print('{lines}')"], text=True, stdout=subprocess.PIPE)

    popen = subprocess.Popen
    monkeypatch.setattr(the_stages, "SHARDS", 2)
    made = the_stages.Suite(DEVICE, [], tmp_path)
    monkeypatch.setattr(subprocess, "Popen", shard)
    assert not made.tests()
    assert made.results["tests"] == {"passed": 10, "failed": 4, "skipped": 2, "error": 0, "cut off": 0}
    assert "FAILED tests/x.py::test_y" in capsys.readouterr().out


@pytest.mark.skipif(DEVICE.type == "cuda", reason="there is a device")
def test_without_a_device_it_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert suite.main([]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "gpu bench" not in said


def test_without_torch_it_says_what_to_install() -> None:
    program = (
        "import runpy, sys\n"
        "sys.modules.update(dict.fromkeys(('torch', 'triton')))\n"  # as if they were not installed
        "runpy.run_module('gpu.suite', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "needs torch" in done.stderr


def test_it_needs_nothing_that_a_gpu_machine_may_lack() -> None:
    program = (
        "import sys\n"
        "lacking = ('simpy', 'pandas', 'matplotlib', 'typer', 'rich', 'tqdm', 'pytest')\n"
        "sys.modules.update(dict.fromkeys(lacking))\n"  # to import one of them is an error from here on
        "import gpu.suite, gpu.stages\n"
        "print(*(name for name in sys.modules if name.startswith('simulator')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # Files written whole, and nothing that simulates.
    assert done.stdout.split() == ["simulator", "simulator.files", "simulator.files.writing"]


def test_a_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    LOG.write(path)
    read = Log.read(path)
    assert (read.spec, read.capacity) == (LOG.spec, LOG.capacity)
    assert list(read.decisions) == DECISIONS
    assert LOG.lengths() == (6, 22)
    assert LOG.lengths(1) == (6,)
    assert Log("paged", 64, []).lengths() == ()


@pytest.mark.parametrize("kept", [0, 1, 5, -1])
def test_a_log_that_was_cut_off_is_refused(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "log"
    LOG.write(path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], *lines[1:][:kept]]))
    with pytest.raises(InputError, match=r"the log must end with the row .* cut off") as refused:
        Log.read(path)
    assert str(path) in str(refused.value)
    path.write_text("".join([*lines[:3], *lines[4:]]))  # a row in the middle is missing
    with pytest.raises(InputError, match="the log must end with the row"):
        Log.read(path)


def head(spec: str = '"paged"', capacity: str = "64") -> str:
    return f'["kvfrag decisions 1", {spec}, {capacity}]\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (head(capacity="null"), r"row 1: capacity\(=None\)"),
        (head(capacity="1e999"), r"row 1: capacity\(=inf\)"),
        (head(capacity="1" + 30 * "0"), r"row 1: capacity\(=1000"),
        (head(capacity="1" + 9999 * "0"), "row 1: not a row"),
        (head(spec='"pagd"'), "row 1: unknown allocator 'pagd'"),
        (head(spec='"paged:block_size=x"'), "row 1: block_size of paged"),
        (head(spec='"paged:block_size=0"'), "row 1: block_size"),
        (head(spec="7"), "row 1: not a row"),
        (head() + f'["release", {10**23}]\n', "row 2: request id"),
        (head() + '["release", -1]\n', "row 2: request id"),
        (head() + '["admit", 0, 3, [60, 16]]\n', r"row 2: extent's slots\(=16\)"),
        (head() + f'["admit", 0, 3, [0, {10**15}]]\n', "row 2: extent's slots"),
        (head() + '["write", 0, -3]\n', r"row 2: tokens\(=-3\)"),
        (head() + '["end", 0, 0]\n["release", 0]\n', "row 3: there is a row behind the end"),
        ("[" * 100_000, "row 1: not a row"),
    ],
)
def test_what_no_run_can_have_written_is_one_line_with_file_and_row(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    with pytest.raises(InputError, match=says) as refused:
        Log.read(path)
    assert str(refused.value).startswith(f"{path}, row ")
    assert "\n" not in str(refused.value)


def test_random_bytes_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(bytes(range(256)))
    with pytest.raises(InputError, match="row 1: not a row of a decision log"):
        Log.read(tmp_path / "log")


HEAD = '["kvfrag decisions 1", "paged", 64]\n'


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "row 1"),
        ('["kvfrag decisions 2", "paged", 64]\n', "row 1"),
        (HEAD + '["admit", 3]\n', "row 2"),
        (HEAD + '["release", 3]\n["grow", 3, [1]]\n', "row 3"),
        (HEAD + '["release", 3]\nrelease\n', "row 3"),
    ],
)
def test_a_broken_log_is_told_by_its_row(tmp_path: Path, text: str, place: str) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    with pytest.raises(InputError, match=f"{place}: not a row of a decision log"):
        Log.read(path)
    with pytest.raises(InputError, match="cannot be read"):
        Log.read(tmp_path / "none")
