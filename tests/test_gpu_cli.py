"""``kvfrag gpu``: what it prints and writes, its exit codes, and what it says without torch or a device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from allocators import Extent, InputError
from gpu import cli
from gpu.decisions import Admit, Log, Sample, Write
from gpu_device import DEVICE

ROOT = Path(__file__).parent.parent


def log(folder: Path, used: int) -> str:
    path = folder / f"{used}.log"
    Log(
        "paged:block_size=16,watermark=0", 64, [Admit(0, [Extent(16, 16)], 5), Write(0), Sample(0.5, used, 16, {0: 6})]
    ).write(path)
    return str(path)


def test_check_prints_a_line_a_sample_and_the_verdict(tmp_path: Path) -> None:
    path = tmp_path / "check.json"
    done = CliRunner().invoke(cli.app, ["check", log(tmp_path, 6), "--device", "cpu", "--json", str(path)])
    assert done.exit_code == 0, done.output
    assert "every counted slot equals the ledger in 1 samples" in done.output
    assert json.loads(path.read_text())["checks"][0]["samples"][0]["counted"] == 6


def test_check_ends_with_1_on_a_difference(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.app, ["check", log(tmp_path, 6), log(tmp_path, 7), "--device", "cpu"])
    assert done.exit_code == 1
    assert "at 0.500 s 6 slots are written, the ledger uses 7" in done.output
    assert "1 differences in 1 samples" in done.output


def test_json_to_standard_output_comes_alone(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.app, ["check", log(tmp_path, 6), "--device", "cpu", "--json", "-"])
    assert json.loads(done.output)["checks"][0]["equal"] is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "none.log", "--device", "tpu"], r"device\(='tpu'\) must be one of cuda, cpu"),
        (["check", "none.log", "--device", "cpu"], "none.log cannot be read: No such file or directory"),
        (["check", "none.log", "--heads", "3/2"], r"heads\(='3/2'\) must be query heads / kv heads"),
        (["check", "LOG", "--device", "cpu", "--dtype", "fp8"], r"dtype\(='fp8'\) must be one of fp16, bf16, fp32"),
        (["bench", "--seconds", "0"], r"seconds\(=0\) must be a whole number >= 1"),
        (["compile", "--target", "sm_70"], r"target\(='sm_70'\) must be one of sm_80"),
        (["compile", "--head-dim", "300"], r"head_dim\(=300\) must be <= 256"),
        (["compile", "--json", "no/such/folder/x.json"], "there is no folder"),
    ],
)
def test_wrong_input_is_told_in_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    arguments = [log(tmp_path, 6) if word == "LOG" else word for word in arguments]
    with pytest.raises(InputError, match=message) as refused:
        CliRunner().invoke(cli.app, arguments, standalone_mode=False, catch_exceptions=False)
    assert "\n" not in str(refused.value)


@pytest.mark.skipif(DEVICE.type == "cuda", reason="there is a device")
def test_bench_without_a_device_says_so_in_one_line() -> None:
    with pytest.raises(InputError, match="gpu bench needs a CUDA device, and torch sees none"):
        CliRunner().invoke(cli.app, ["bench"], standalone_mode=False, catch_exceptions=False)


def test_compile_prints_a_table_and_writes_json(tmp_path: Path) -> None:
    path = tmp_path / "code.json"
    options = ["compile", "--dtype", "fp16", "--head-dim", "64", "--block-size", "16", "--target", "sm_90"]
    program = f"from gpu.cli import app\napp({[*options, '--json', str(path)]}, standalone_mode=False)"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(path.read_text())["kernels"]
    assert [row["kernel"] for row in rows] == ["decode", "write", "decode in one pass", "merge"]
    assert all(row["spills"] == 0 for row in rows)
    assert "kv_copy_bytes" in done.stdout


def test_without_torch_or_triton_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "find_spec", lambda name: None if name == "triton" else object())
    with pytest.raises(InputError, match=r"kvfrag gpu needs triton: pip install 'torch>=2.11' 'triton>=3.6'"):
        cli.require()
