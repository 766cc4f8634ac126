"""``kvfrag gpu check|bench|compile``. torch and triton are optional: they are imported when a command needs them."""

import os
import time
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocators.base import InputError, one_of, whole
from simulator.cli.options import whole_number
from simulator.cli.tables.printing import console, table
from simulator.files.writing import check_outputs

if TYPE_CHECKING:
    from gpu.decisions import Log
    from gpu.shapes import Layout

DTYPES = ("fp16", "bf16", "fp32")

app = typer.Typer(help="The same decisions on device memory: check them, time the kernel, look at its machine code.")

Json = Annotated[
    str | None, typer.Option("--json", metavar="FILE|-", help="Write all figures as JSON; - for standard output.")
]
Heads = Annotated[str, typer.Option(metavar="QUERY/KV", help="Query heads and kv heads; they must divide.")]
HeadDim = Annotated[int, typer.Option(metavar="N", help="Elements of a head, at most 256.")]
Dtype = Annotated[str, typer.Option(metavar="|".join(DTYPES), help="Type of keys, values and queries.")]


@app.command()
def check(
    source: Annotated[
        str,
        typer.Argument(
            metavar="TRACE|FOLDER|LOG", help="A trace as for kvfrag run; or a saved run with decisions; or a log."
        ),
    ],
    allocator: Annotated[
        list[str] | None, typer.Option("-a", "--allocator", metavar="SPEC", help="As for kvfrag run; repeat.")
    ] = None,
    capacity: Annotated[int | None, whole_number("SLOTS", "Size of the pool in token slots.")] = None,
    max_model_len: Annotated[int | None, whole_number("N", "Longest prompt + output, in tokens.")] = None,
    max_batch: Annotated[int | None, whole_number("N", "Most requests running at once.")] = None,
    cost: Annotated[str | None, typer.Option(metavar="KEY=TIME,...", help="What an iteration costs.")] = None,
    samples: Annotated[
        int | None, whole_number("N", "How often to count, at equal distances; 12 unless given.")
    ] = None,
    logs_to: Annotated[
        Path | None, typer.Option("--logs", metavar="FOLDER", help="Write the decision logs there, for make gpu.")
    ] = None,
    device: Annotated[str, typer.Option(metavar="cuda|cpu", help="cpu: in Triton's interpreter, slowly.")] = "cuda",
    heads: Heads = "4/2",
    head_dim: HeadDim = 16,
    dtype: Dtype = "fp16",
    json: Json = None,
) -> None:
    """Carry out a run's decisions on device memory and count the bytes; exit code 1 if they differ from the ledger."""
    query_heads, kv_heads = read_heads(heads)
    if samples is not None:
        whole("--samples", samples)
    if not allocator:  # a log's decisions are made: an option that is ignored would look as if it had been heard
        made = {"--capacity": capacity, "--max-model-len": max_model_len, "--max-batch": max_batch, "--cost": cost}
        for option, value in (made | {"--samples": samples}).items():
            if value is not None:
                raise InputError(f"{option}(={value}) is for a trace with -a SPEC; a log or saved run has its own")
    require(interpret=one_of("device", device, ("cuda", "cpu")) == "cpu")
    _check_json(json)
    if logs_to is not None:
        _make_folder(logs_to)
    logs = _saved(Path(source)) if not allocator else []
    if allocator:
        settings = {"max_model_len": max_model_len, "max_batch": max_batch}
        logs = _simulated(source, allocator, capacity, samples, settings | ({"cost": cost} if cost else {}))
    for number, log in enumerate(logs if logs_to else (), start=1):
        assert logs_to is not None
        log.write(logs_to / f"{number}-{log.spec.partition(':')[0]}.jsonl")
    from gpu.check import check_log

    say = (lambda _: None) if json == "-" else print
    checks = [check_log(log, layout_of(kv_heads, head_dim, dtype), query_heads, device, say) for log in logs]
    if json:
        from simulator.cli.tables.report import write_json

        write_json(json, {"checks": [done.to_dict() for done in checks]})
    if not all(done.equal for done in checks):
        raise typer.Exit(1)


def _saved(path: Path) -> "list[Log]":
    """The logs of a saved run (or of several, a folder each), or of a log file. No simulator is needed for that."""
    from gpu.decisions import Log, log_of
    from simulator.results.run import Run

    if not path.exists():
        raise InputError(f"{path} is neither a saved run nor a decision log; a trace needs allocators: -a SPEC")
    if path.is_file():
        return [Log.read(path)]
    folders = [path] if (path / "run.json").exists() else sorted(inner.parent for inner in path.glob("*/run.json"))
    return [log_of(Run.load(folder)) for folder in folders or [path]]


def _simulated(
    source: str, specs: list[str], capacity: int | None, samples: int | None, settings: dict[str, Any]
) -> "list[Log]":
    """Simulate a trace with each allocator, with memory maps at equal distances, and return the logs."""
    from gpu.decisions import log_of
    from simulator.cli.options import read_trace
    from simulator.cli.run import MAPS, recorded
    from simulator.cli.server_options import allocator_of, as_option
    from simulator.server.hardware import server_of

    if capacity is None:
        raise InputError("how large is the pool? --capacity SLOTS")
    server = server_of({"capacity": capacity, **settings}, spelled=as_option)
    assert server.slots is not None
    makes = [partial(allocator_of, spec, server.slots, server.settings.max_model_len) for spec in specs]
    for make in makes:
        make()  # what is wrong with a later one is told before the first runs
    trace = read_trace(source)
    return [log_of(recorded(trace, make, samples or MAPS, timeline_bins=0, **vars(server.settings))) for make in makes]


@app.command()
def bench(
    seconds: Annotated[int, typer.Option(metavar="S", help="Stop timing after so long.")] = 180,
    json: Json = None,
) -> None:
    """Time the kernel beside torch's on a CUDA device; ceilings first, every output checked before it is timed."""
    whole("seconds", seconds)
    require()
    from gpu import bench as timing

    _check_json(json)
    device, end_s = timing.cuda_device(), time.monotonic() + seconds
    say = (lambda _: None) if json == "-" else print
    where, ceilings = timing.environment(device), timing.ceilings(device)
    say(", ".join(f"{name} {value}" for name, value in where.items()))
    say(", ".join(f"{name} {speed:.2f} TB/s" for name, speed in ceilings.items()))
    rows = []
    for row in timing.rows([*timing.loads_with_bars(), *timing.other_loads()], device, ceilings["copy"], end_s):
        say(str(row))
        rows.append(row)
    bars = timing.bars(rows)
    for bar in bars:
        measured = "not measured" if bar["measured"] is None else f"{bar['measured']:.1f}%"
        say(f"{'met' if bar['met'] else 'missed'}: {bar['bar']}: {measured}")
    if json:
        table_rows = [asdict(row) for row in rows]
        from simulator.cli.tables.report import write_json

        write_json(json, {"environment": where, "ceilings_tb_per_s": ceilings, "bench": table_rows, "bars": bars})


@app.command("compile")
def compile_(
    dtype: Annotated[list[str] | None, typer.Option(metavar="|".join(DTYPES), help="Repeat for several.")] = None,
    head_dim: Annotated[list[int] | None, typer.Option(metavar="N", help="Repeat for several.")] = None,
    block_size: Annotated[list[int] | None, typer.Option(metavar="N", help="Repeat for several.")] = None,
    heads: Heads = "32/8",
    target: Annotated[list[str] | None, typer.Option(metavar="sm_NN", help="Repeat for several.")] = None,
    json: Json = None,
) -> None:
    """Compile the kernels for GPUs that need not be here: registers, shared memory, spills, width of K/V copies."""
    query_heads, kv_heads = read_heads(heads)
    require()
    from gpu.compile import REACHABLE, TARGETS, Shape, compile_table

    _check_json(json)
    types = [layout_of(kv_heads, 1, name).dtype for name in dtype or DTYPES[:2]]
    shapes = [
        Shape(kind, dim, size, query_heads, kv_heads)
        for kind in types for dim in head_dim or (64, 128, 256) for size in block_size or (16, 32)
    ]  # fmt: skip
    allowed = {f"sm_{number}": number for number in REACHABLE}
    targets = [allowed[one_of("target", name, list(allowed))] for name in target or map("sm_{}".format, TARGETS)]
    rows = [code.row() for code in compile_table(shapes, targets, ("decode", "write"))]
    rows += [code.row() for code in compile_table(shapes[:1], targets, ("decode in one pass", "merge"))]
    if json != "-":
        shown = table("The kernels' machine code", "kernel", *list(rows[0])[1:])
        for row in rows:
            shown.add_row(*("-" if value is None else str(value) for value in row.values()))
        console().print(shown)
    if json:
        from simulator.cli.tables.report import write_json

        write_json(json, {"kernels": rows})


def require(interpret: bool = False) -> None:
    """Raise InputError without torch and triton. ``interpret``: Triton, not imported yet, is to run on the CPU."""
    missing = [name for name in ("torch", "triton") if find_spec(name) is None]
    if missing:
        raise InputError(f"kvfrag gpu needs {' and '.join(missing)}: pip install 'torch>=2.11' 'triton>=3.6'")
    if interpret:
        os.environ["TRITON_INTERPRET"] = "1"


def read_heads(text: str) -> tuple[int, int]:
    """(query heads, kv heads) of ``32/8``. Raises InputError for what does not read so or does not divide."""
    query, slash, kv = text.partition("/")
    if not (slash and query.isdecimal() and kv.isdecimal() and int(kv) and int(query) and int(query) % int(kv) == 0):
        raise InputError(f"heads(={text!r}) must be query heads / kv heads, a multiple of the other, as in 32/8")
    return int(query), int(kv)


def layout_of(kv_heads: int, head_dim: int, dtype: str) -> "Layout":
    """What a pool keeps of a token. Raises InputError for an unknown dtype or a size that cannot be."""
    from gpu.shapes import DTYPES as NAMES
    from gpu.shapes import Layout

    named: dict[str, Any] = {name: kind for kind, name in NAMES.items()}
    return Layout(kv_heads, head_dim, named[one_of("dtype", dtype, DTYPES)])


def _make_folder(path: Path) -> None:
    """Make the folder of --logs before anything is simulated. Raises InputError for a path that cannot be one."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"--logs(={path}) must be a folder, there or to be made: {reason}") from error


def _check_json(json: str | None) -> None:
    check_outputs({"--json": Path(json) if json and json != "-" else None})
