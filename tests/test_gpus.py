"""GPUs: the totals that the driver reports, and the names people write."""

import pytest

from allocators.base import InputError
from simulator.server.gpus import GPUS, Gpu, load_gpu


@pytest.mark.parametrize(
    ("name", "gib", "terabytes_per_s", "teraflops"),
    [
        ("L4", 22.03, 0.3, 121),
        ("A10G", 22.06, 0.6, 70),
        ("RTX-4090", 23.52, 1.008, 165.2),
        ("L40S", 44.31, 0.864, 362),
        ("A100-40GB", 39.39, 1.555, 312),
        ("A100-80GB", 79.15, 2.039, 312),
        ("H100", 79.18, 3.35, 989.5),
        ("H100-PCIe", 79.18, 2.0, 756),
        ("H200", 139.8, 4.8, 989.5),
        ("B200", 178.36, 8.0, 2250),
        ("MI300X", 191.45, 5.3, 1307),
    ],
)
def test_a_card_has_the_total_of_the_logs_and_the_vendor_s_rates(
    name: str, gib: float, terabytes_per_s: float, teraflops: float
) -> None:
    gpu = GPUS[name]
    assert round(gpu.memory_bytes / 2**30, 2) == gib
    assert gpu.bandwidth_bytes_per_s == round(terabytes_per_s * 10**12)
    assert gpu.flops_per_s == round(teraflops * 10**12)


def test_every_card_is_checked() -> None:
    assert len(GPUS) == 11
    assert GPUS["RTX-4090"] == Gpu("RTX-4090", 25_250_627_584, 1_008 * 10**9, 165_200 * 10**9, 32 * 10**9)


@pytest.mark.parametrize(
    ("name", "card"),
    [
        *((name.upper(), name) for name in GPUS),
        *((f" {name.lower()} ", name) for name in GPUS),
        ("rtx4090", "RTX-4090"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("4090", "RTX-4090"),
        ("h100-sxm", "H100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("h100 pcie", "H100-PCIe"),
        ("a100-40", "A100-40GB"),
        ("a100_80gb", "A100-80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("AMD Instinct MI300X", "MI300X"),
    ],
)
def test_a_card_has_many_names(name: str, card: str) -> None:
    assert load_gpu(name) is GPUS[card]


@pytest.mark.parametrize("name", ["V100", "a100", "h10", "", "nvidia", "a10"])
def test_a_name_that_is_unknown_or_says_too_little(name: str) -> None:
    with pytest.raises(InputError) as told:
        load_gpu(name)
    assert str(told.value) == f"unknown GPU {name!r}; choose from {', '.join(GPUS)}"
