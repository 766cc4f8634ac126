"""The device that the GPU part's tests run on, and the types."""

import os

import torch

DEVICE = torch.device(os.environ.get("KVFRAG_DEVICE", "cpu"))
FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16
