"""``kvfrag models``: every model and GPU by name, in two tables and in JSON."""

import json

from simulator.server.gpus import GPUS
from simulator.server.models import MODELS
from test_cli import Kvfrag
from test_cli import folder as folder
from test_cli import kvfrag as kvfrag


def test_two_tables_name_all_that_is_known(kvfrag: Kvfrag) -> None:
    done = kvfrag("models")
    assert (done.code, done.err) == (0, "")
    rows = {line.split()[0]: line.split()[1:] for line in done.out.splitlines() if line.strip()}
    assert MODELS.keys() | GPUS.keys() <= rows.keys()
    assert rows["Llama-3-8B"] == ["131,072", "8,192", "14.96", "8,030,261,248", "8,192"]
    assert rows["H100"] == ["79.18", "3.350", "989.5", "64"]
    assert "12 of 48 layers keep a KV cache" in done.out


def test_json_has_the_same_in_bytes(kvfrag: Kvfrag) -> None:
    done = kvfrag("models --json -")
    told = json.loads(done.out)
    assert [model["name"] for model in told["models"]] == list(MODELS)
    assert [gpu["name"] for gpu in told["gpus"]] == list(GPUS)
    mixtral = next(model for model in told["models"] if model["name"] == "Mixtral-8x7B")
    assert mixtral == {
        "name": "Mixtral-8x7B",
        "bytes_per_slot": 131_072,
        "weight_bytes": 93_405_585_408,
        "parameters": 46_702_792_704,
        "active_parameters": 12_879_925_248,
        "max_positions": 32_768,
        "notes": [],
    }
    assert told["gpus"][0]["memory_bytes"] == 23_654_532_382


def test_a_file_that_cannot_be_written_is_told(kvfrag: Kvfrag) -> None:
    done = kvfrag("models --json none/x.json")
    assert (done.code, done.out) == (2, "")
    assert "--json(=none/x.json) cannot be written: there is no folder none" in done.err
