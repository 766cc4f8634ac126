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
    monkeypatch.setattr(suite, "SHARDS", 1)
    monkeypatch.setattr(suite, "TEST_FILES", ("shard",))
    monkeypatch.setattr(suite, "TESTS", folder)
    (folder / "test_gpu_shard.py").write_text("def test_one(): ...\n")


def refusing(_: object) -> rivals.Call:
    raise RuntimeError("no kernel")


@pytest.mark.usefixtures("without_a_device")
def test_every_stage_prints_and_leaves_its_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = suite.Suite(DEVICE, [LOG], tmp_path)
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
    made = suite.Suite(DEVICE, [wrong], tmp_path)
    monkeypatch.setattr(made, "tests", made.check)
    assert not made.run()
    printed = capsys.readouterr().out
    assert "differences in 1 samples" in printed
    assert "28 slots are written, the ledger uses 27" in printed
    assert "caching: RuntimeError: out of luck" in printed
    late = suite.Suite(DEVICE, [], tmp_path, total_s=-1)
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
    monkeypatch.setattr(suite, "SHARDS", 2)
    made = suite.Suite(DEVICE, [], tmp_path)
    monkeypatch.setattr(subprocess, "Popen", shard)
    assert not made.tests()
    assert made.results["tests"] == {"passed": 10, "failed": 4, "skipped": 2, "error": 0, "cut off": 0}
    assert "FAILED tests/x.py::test_y" in capsys.readouterr().out


@pytest.mark.skipif(DEVICE.type == "cuda", reason="there is a device")
def test_without_a_device_it_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert suite.main([]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_it_needs_nothing_that_a_gpu_machine_may_lack() -> None:
    program = (
        "import sys\n"
        "lacking = ('simulator', 'simpy', 'pandas', 'matplotlib', 'typer', 'rich', 'tqdm', 'pytest')\n"
        "sys.modules.update(dict.fromkeys(lacking))\n"  # to import one of them is an error from here on
        "import gpu.suite"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    LOG.write(path)
    read = Log.read(path)
    assert (read.spec, read.capacity) == (LOG.spec, LOG.capacity)
    assert list(read.decisions) == DECISIONS
    assert LOG.lengths() == (6, 22)
    assert LOG.lengths(1) == (6,)
    assert Log("paged", 64, []).lengths() == ()


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
