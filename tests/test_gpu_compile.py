"""The kernels' machine code for GPUs that are not here: no spills, 16-byte copies; and the reading of it can fail."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allocators.base import InputError
from gpu import compile as gpu_compile
from gpu import kernels

ROOT = Path(__file__).parent.parent


def compiled(code: str) -> Any:
    """Run ``code`` in a process whose Triton compiles (this one's may interpret); what it puts in ``answer``."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    program = f"import json, torch\nfrom gpu.compile import *\n{code}\nprint(json.dumps(answer))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.whole
def test_no_spills_and_copies_of_16_bytes_for_every_shape_and_target() -> None:
    rows = compiled(
        "codes = [*compile_table(names=['decode']), *compile_table(SHAPES[::2], names=['write'])]\n"
        "answer = [code.row() for code in codes]"
    )
    assert len({tuple(row.values()) for row in rows}) == len(rows) == 2 * 3 * 2 * 3 + 2 * 3 * 3
    for row in rows:
        assert row["spills"] == row["stack_bytes"] == 0, row
        assert row["kv_copy_bytes"] == 16, row
        assert 0 < row["registers"] <= 255, row
    assert {row["target"] for row in rows} == {"sm_80", "sm_90", "sm_100"}


def test_one_pass_and_merge_do_not_spill_either() -> None:
    rows = compiled(
        "answer = [c.row() for c in compile_table([Shape(), Shape(torch.bfloat16, 256)],"
        " names=('decode in one pass', 'merge'))]"
    )
    assert len(rows) == 2 * 2 * 3
    assert all(row["spills"] == row["stack_bytes"] == 0 for row in rows), rows
    assert {row["kv_copy_bytes"] for row in rows} == {16, None}


def test_a_narrow_copy_and_a_spill_would_be_seen() -> None:
    narrow, spilling = compiled(
        "answer = [compile_kernel('decode', Shape(head_dim=60), 90).row(),"
        " compile_kernel('decode', Shape(head_dim=256), 90, Plan(128, 128)).row()]"
    )
    assert narrow["kv_copy_bytes"] == 8  # rows of 120 bytes begin at multiples of 8
    assert spilling["spills"] > 0
    assert spilling["stack_bytes"] > 0


def test_widths_are_read_from_the_lines_that_copy_keys_and_values() -> None:
    lines = Path(str(kernels.__file__)).read_text(encoding="utf-8").splitlines()
    at = {text: 1 + next(n for n, line in enumerate(lines) if text in line) for text in ("load(key_at", "load(lengths")}
    assembly = "\n".join(
        [
            f'//## File "{kernels.__file__}", line {at["load(lengths"]}',
            "/*0000*/ LDG.E.U16 R1, [R2] ;",
            f'//## File "{kernels.__file__}", line {at["load(key_at"]}',
            "/*0010*/ LDGSTS.E.BYPASS.128 [R1], [R2] ;",
            "/*0020*/ LDGSTS.E [R1], [R2] ;",
            "/*0030*/ LDG.E.U16.CONSTANT R1, [R2] ;",
            '//## File "/elsewhere/standard.py", line 1',
            "/*0040*/ LDG.E.64 R1, [R2] ;",
        ]
    )
    assert list(gpu_compile.kv_widths(assembly)) == [16, 4, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_dim": 257}, r"head_dim\(=257\) must be <= 256"),
        ({"block_size": 0}, r"block_size\(=0\) must be a whole number >= 1"),
        ({"query_heads": 3, "kv_heads": 2}, r"query_heads\(=3\) must be a multiple of kv_heads\(=2\)"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        gpu_compile.Shape(**options)


def test_a_target_or_a_kernel_that_there_is_not_is_refused() -> None:
    with pytest.raises(InputError, match=r"target\(='sm_70'\) must be one of sm_80, .* sm_120"):
        gpu_compile.compile_kernel("decode", gpu_compile.Shape(), 70)
    with pytest.raises(InputError, match=r"kernel\(='encode'\) must be one of decode, .*, write, merge"):
        gpu_compile.compile_kernel("encode", gpu_compile.Shape(), 90)


@pytest.mark.skipif(not kernels.INTERPRETED, reason="only under the interpreter is there nothing to compile")
def test_under_the_interpreter_compiling_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="unset TRITON_INTERPRET"):
        next(gpu_compile.compile_table())
