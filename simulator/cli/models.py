"""``kvfrag models``: the models and the GPUs that are known by name."""

from typing import Any

from rich.table import Table

from simulator.cli.options import Json, json_file
from simulator.cli.tables.printing import console, print_table, say, table
from simulator.cli.tables.report import write_json
from simulator.files.writing import check_outputs
from simulator.server.gpus import GPUS
from simulator.server.models import MODELS


def models(json_to: Json = None) -> None:
    """The models and GPUs known by name: bytes per token slot and weights, memory and peak rates."""
    check_outputs({"--json": json_file(json_to)})
    if json_to is not None:
        write_json(json_to, as_json())
    if json_to == "-":
        return
    out = console()
    print_table(out, model_table())
    print_table(out, gpu_table())
    noted = {name: model.notes for name, model in MODELS.items() if model.notes}
    for name, notes in noted.items():
        say(out, f"{name}: {'; '.join(notes)}")
    out.print()
    say(out, "A model may also be a Hugging Face config.json. GPU memory is the total that the driver reports.")


def model_table() -> Table:
    """A row per model."""
    shown = table("Models", "model", "bytes per slot", "slots per GiB", "weights (GiB)", "parameters", "max positions")
    for name, model in MODELS.items():
        shown.add_row(
            name,
            f"{model.bytes_per_slot:,}",
            f"{2**30 // model.bytes_per_slot:,}",
            "-" if model.weight_bytes is None else f"{model.weight_bytes / 2**30:,.2f}",
            "-" if model.parameters is None else f"{model.parameters:,}",
            "-" if model.max_positions is None else f"{model.max_positions:,}",
        )
    return shown


def gpu_table() -> Table:
    """A row per GPU."""
    shown = table("GPUs", "GPU", "memory (GiB)", "memory (TB/s)", "16-bit dense (TFLOP/s)", "host link (GB/s)")
    for name, gpu in GPUS.items():
        shown.add_row(
            name,
            f"{gpu.memory_bytes / 2**30:,.2f}",
            f"{gpu.bandwidth_bytes_per_s / 10**12:.3f}",
            f"{gpu.flops_per_s / 10**12:,.1f}",
            f"{gpu.host_link_bytes_per_s / 10**9:,.0f}",
        )
    return shown


def as_json() -> dict[str, Any]:
    """Both tables: sizes in bytes, rates per second."""
    return {
        "models": [
            {
                "name": model.name,
                "bytes_per_slot": model.bytes_per_slot,
                "weight_bytes": model.weight_bytes,
                "parameters": model.parameters,
                "active_parameters": model.active_parameters,
                "max_positions": model.max_positions,
                "notes": list(model.notes),
            }
            for model in MODELS.values()
        ],
        "gpus": [vars(gpu) for gpu in GPUS.values()],
    }
