"""What the GPU part's tests share: the device they run on and how exact each type must be."""

import os

import torch

DEVICE = torch.device(os.environ.get("KVFRAG_DEVICE", "cpu"))
FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16
BARS = {FP32: 1e-6, FP16: 1e-3, BF16: 4e-3}
"""Worst relative error of a head's output against float64."""
