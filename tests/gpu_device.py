"""Where the GPU part's tests run: on the device KVFRAG_DEVICE names (cuda), else in Triton's interpreter on the CPU."""

import os

import pytest

NAME = os.environ.get("KVFRAG_DEVICE", "cpu")
if NAME == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported: it is read there, once
pytest.importorskip("torch", reason="the GPU part needs torch and triton")
pytest.importorskip("triton", reason="the GPU part needs torch and triton")

import torch  # noqa: E402

DEVICE = torch.device(NAME)
FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16
BARS = {FP32: 1e-6, FP16: 1e-3, BF16: 4e-3}
"""Worst relative error of a head's output against float64."""
