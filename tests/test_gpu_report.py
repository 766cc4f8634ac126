"""What was recorded of checks on a device is read back as it was, and what is no record is told in one line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from allocators import Extent, InputError
from gpu.decisions import Admit, Decision, Log, Release, Sample, Write
from gpu.report import recorded_checks
from gpu.stages import Suite
from gpu_device import DEVICE

DECISIONS: list[Decision] = [
    Admit(0, [Extent(16, 16)], 5), Sample(0.5, 5, 16, {0: 5}), Write(0, 2), Sample(0.75, 7, 16, {0: 7}), Release(0),
]  # fmt: skip
LOG = Log("paged:block_size=16,watermark=0", 64, DECISIONS)
WRONG = replace(LOG, spec="paged:block_size=8,watermark=0", decisions=[*DECISIONS[:3], Sample(0.75, 6, 16, {0: 6})])


def test_the_checks_of_a_suite_are_read_back(tmp_path: Path) -> None:
    assert recorded_checks(tmp_path / "results") == []
    suite = Suite(torch.device(DEVICE), [LOG, WRONG], tmp_path / "results")
    assert not suite.check()
    suite.write()
    good, bad = recorded_checks(tmp_path / "results")
    assert good.keys() == bad.keys()
    assert good["device"] == bad["device"] == suite.results["environment"]["device"]
    assert [good[name] for name in ("allocator", "samples", "used", "counted", "equal")] == [LOG.spec, 2, 12, 12, True]
    assert [bad[name] for name in ("allocator", "samples", "used", "counted", "equal")] == [
        WRONG.spec,
        2,
        11,
        12,
        False,
    ]
    assert good["attention_error"] == max(row["attention_error"] for row in suite.results["check"][0]["samples"])


def test_an_attention_that_was_no_number_stays_none(tmp_path: Path) -> None:
    samples = [{"used": 1, "counted": 1, "attention_error": error} for error in (1e-4, None)]
    check = {"allocator": "paged", "samples": samples, "equal": False}
    (tmp_path / "gpu.json").write_text(json.dumps({"environment": {"device": "GPU"}, "check": [check]}))
    assert recorded_checks(tmp_path)[0]["attention_error"] is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"check": [{}]}', '{"check": 3}', '{"check": [{"samples": [{}]}]}'])
def test_what_is_no_record_is_told_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "gpu.json").write_text(text)
    with pytest.raises(InputError, match=r"gpu\.json is not a record of make gpu: [^\n]*$"):
        recorded_checks(tmp_path)
