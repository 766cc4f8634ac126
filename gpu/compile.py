"""What machine code the kernels become, for GPUs that are not in the machine.

Triton compiles for any target (``triton.compile(ASTSource(...), target=GPUTarget("cuda", 90, 32))``) and ships the
vendor's ptxas, cuobjdump and nvdisasm. Registers, stack and spills are read from the finished code, and so is the
width of each copy of keys and values: the disassembly names the line of ``kernels.py`` that an instruction stems from.
A copy of less than 16 bytes a thread, or a spill, is what makes such a kernel slow without making it wrong.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from allocators.base import InputError, one_of
from gpu import kernels
from gpu.kernels import INTERPRETED
from gpu.plan import WRITE_WARPS, Plan, padded, tile_tokens, write_tile
from gpu.shapes import DTYPES, MAX_HEAD_DIM, group_size

TARGETS = (80, 90, 100)
REACHABLE = (80, 86, 89, 90, 100, 120)  # for others Triton may abort with pages of its own intermediate code
KERNELS = ("decode", "decode in one pass", "write", "merge")
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
KV_COPY = re.compile(r"tl\.(load|store)\((key_at|value_at|keys|values)\b")
BYTES = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}


@dataclass(frozen=True)
class Shape:
    """What a kernel is compiled for; sizes in elements, tokens and heads. Raises InputError for what cannot be."""

    dtype: torch.dtype = torch.float16
    head_dim: int = 128
    block_size: int = 16
    query_heads: int = 32
    kv_heads: int = 8

    def __post_init__(self) -> None:
        for name in ("head_dim", "block_size", "query_heads", "kv_heads"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}(={getattr(self, name)}) must be a whole number >= 1")
        if self.head_dim > MAX_HEAD_DIM:
            raise InputError(f"head_dim(={self.head_dim}) must be <= {MAX_HEAD_DIM}")
        group_size(self.query_heads, self.kv_heads)


@dataclass(frozen=True)
class Code:
    """One kernel's machine code. Registers are per thread; ``shared_bytes`` per program; ``spills`` counts the
    instructions that move a register to or from the stack; ``kv_copy_bytes`` is the narrowest copy of keys or values
    by one thread (None: the kernel copies none)."""

    kernel: str
    shape: Shape
    target: int
    warps: int
    registers: int
    shared_bytes: int
    stack_bytes: int
    spills: int
    kv_copy_bytes: int | None
    kv_copies: int

    def row(self) -> dict[str, Any]:
        """The code as a row of a table, its keys carrying the units."""
        shape = self.shape
        return {
            "kernel": self.kernel, "dtype": DTYPES[shape.dtype], "head_dim": shape.head_dim,
            "block_size": shape.block_size, "heads": f"{shape.query_heads}/{shape.kv_heads}",
            "target": f"sm_{self.target}", "warps": self.warps, "registers": self.registers,
            "shared_bytes": self.shared_bytes, "stack_bytes": self.stack_bytes, "spills": self.spills,
            "kv_copy_bytes": self.kv_copy_bytes,
        }  # fmt: skip


SHAPES = tuple(
    Shape(dtype, head_dim, block_size)
    for dtype in (torch.float16, torch.bfloat16)
    for head_dim in (64, 128, 256)
    for block_size in (16, 32)
)
"""The shapes of the table unless others are asked for: those of the usual models, 32/8 heads."""


def compile_table(
    shapes: Iterable[Shape] = SHAPES, targets: Sequence[int] = TARGETS, names: Sequence[str] = KERNELS
) -> Iterator[Code]:
    """Compile each kernel for each shape and target and yield what came out, one by one (about half a second each).

    Raises InputError under Triton's interpreter, which leaves nothing to compile, and for a target outside REACHABLE.
    """
    if INTERPRETED:
        raise InputError("gpu compile needs Triton's compiler: unset TRITON_INTERPRET")
    for shape in shapes:
        for name in names:
            for target in targets:
                yield compile_kernel(name, shape, target)


def compile_kernel(name: str, shape: Shape, target: int, plan: Plan | None = None) -> Code:
    """Compile one kernel as :mod:`gpu.kernels` would launch it (or as ``plan`` says), and read its machine code."""
    one_of("kernel", name, KERNELS)
    one_of("target", f"sm_{target}", [f"sm_{known}" for known in REACHABLE])
    kernel, signature, constants, options = _launch(name, shape, plan)
    pointers = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind[0] == "*"}
    source = ASTSource(kernel, signature | dict.fromkeys(constants, "constexpr"), constants, pointers)
    try:
        compiled: Any = triton.compile(source, target=GPUTarget("cuda", target, 32), options=options)
        with tempfile.TemporaryDirectory() as folder:
            cubin = Path(folder) / "kernel.cubin"
            cubin.write_bytes(compiled.asm["cubin"])
            usage = _tool("cuobjdump", "-res-usage", cubin)
            assembly = _tool("nvdisasm", "-c", "-gi", cubin)
    except Exception as error:
        told = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
        reason = (told or "").strip().splitlines() or [type(error).__name__]
        raise InputError(f"{name} cannot be compiled for sm_{target}: {reason[-1].strip()}") from error
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if found is None:
        raise RuntimeError(f"cuobjdump told no registers of {name} for sm_{target}")
    widths = list(kv_widths(assembly))
    return Code(
        name, shape, target, options["num_warps"], int(found[1]), int(compiled.metadata.shared), int(found[2]),
        len(re.findall(r"\s(?:LDL|STL)[.\s]", assembly)), min(widths, default=None), len(widths),
    )  # fmt: skip


def kv_widths(assembly: str) -> Iterator[int]:
    """Bytes a thread moves in each instruction that stems from a load or store of keys or values in kernels.py."""
    lines = Path(kernels.__file__).read_text(encoding="utf-8").splitlines()
    here = Path(kernels.__file__).name
    is_copy = False
    for text in assembly.splitlines():
        if place := re.search(r'//## File "([^"]*)", line (\d+)', text):
            is_copy = Path(place[1]).name == here and bool(KV_COPY.search(lines[int(place[2]) - 1]))
        elif is_copy and (access := re.search(r"\s(LDG|LDGSTS|STG)\.(\S*)", text)):
            yield next((BYTES[part] for part in access[2].split(".") if part in BYTES), 4)


def _launch(name: str, shape: Shape, plan: Plan | None) -> tuple[Any, dict[str, str], dict[str, Any], dict[str, int]]:
    """(kernel, types of the run-time arguments, compile-time constants, options) of a launch."""
    kind, lanes = DTYPES[shape.dtype], padded(shape.head_dim)
    if name == "write":
        elements = shape.kv_heads * shape.head_dim
        types = {"keys": f"*{kind}", "values": f"*{kind}", "slots": "*i64", "pool": f"*{kind}", "tokens": "i32"}
        rows, width = write_tile(elements)
        constants = {"BLOCK_SIZE": shape.block_size, "SLOT_ELEMENTS": elements, "TOKENS": rows, "LANES": width}
        options = {"num_warps": WRITE_WARPS, "num_stages": 3}
        return kernels.write_kernel, types, constants, options
    if name == "merge":
        types = {"parts": "*fp32", "masses": "*fp32", "lengths": "*i32", "output": f"*{kind}"}
        types |= {"chunks": "i32", "chunk_tokens": "i32"}
        constants = {"HEADS": shape.query_heads, "HEAD_DIM": shape.head_dim, "LANES": lanes, "TILE": 16}
        return kernels.merge_kernel, types, constants, {"num_warps": 4, "num_stages": 3}
    split = name == "decode"
    group = group_size(shape.query_heads, shape.kv_heads)
    if plan is None:
        tile = tile_tokens(shape.head_dim, shape.dtype)
        plan = Plan(tile, tile)
    types = {"query": f"*{kind}", "pool": f"*{kind}", "tables": "*i32", "lengths": "*i32"}
    types |= {"output": "*fp32" if split else f"*{kind}", "masses": "*fp32" if split else f"*{kind}"}
    types |= {"scale_log2": "fp32", "columns": "i32", "chunks": "i32", "chunk_tokens": "i32"}
    constants = {
        "BLOCK_SIZE": shape.block_size, "KV_HEADS": shape.kv_heads, "GROUP": group, "HEAD_DIM": shape.head_dim,
        "ROWS": padded(group), "LANES": lanes, "TILE": plan.tile_tokens, "SPLIT": split, "UPCAST": False,
    }  # fmt: skip
    return kernels.decode_kernel, types, constants, {"num_warps": plan.warps, "num_stages": plan.stages}


def _tool(name: str, *arguments: str | Path) -> str:
    """What one of the tools beside Triton prints."""
    done = subprocess.run([TOOLS / name, *arguments], capture_output=True, text=True, check=True)
    return done.stdout
