"""What the engine answers stays what it was, byte for byte: see golden.py."""

import json
import os
from pathlib import Path

import pytest

import golden

RECORDED = json.loads(golden.FILE.read_text())


def test_scenarios_answer_what_they_did() -> None:
    found = {name: golden.digests(make()) for name, make in golden.scenario_runs()}
    changed = {name: found[name] for name in found if found[name] != RECORDED[name]}
    assert not changed
    assert len(found) == len(golden.RANDOM) + len(golden.ALIGNED)


@pytest.mark.whole
def test_public_traces_answer_what_they_did() -> None:
    folder = os.environ.get("KVFRAG_TRACES")
    if folder is None:
        pytest.skip("KVFRAG_TRACES does not name a folder with the public traces")
    found = {name: golden.digests(make()) for name, make in golden.trace_runs(Path(folder))}
    assert found == {name: RECORDED[name] for name in found}
    assert len(found) == len(golden.TRACES) * len(golden.SPECS)
