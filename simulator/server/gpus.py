"""GPUs: the memory that the driver reports, and the vendors' peak rates.

A card sold as "80 GB" does not have 80 x 10^9 bytes for an engine: ``memory_bytes`` is the total that the CUDA
runtime reports, read from the start-up logs of vLLM. Where several logs differ, the least is taken. A MIG slice
or WSL shows other totals: ``dataclasses.replace(load_gpu("h100"), memory_bytes=...)``.
"""

import re
from dataclasses import dataclass

from allocators.base import InputError

_G, _T = 10**9, 10**12


@dataclass(frozen=True)
class Gpu:
    """A GPU's memory and peak rates: HBM, dense fp16/bf16 tensor cores, host link in one direction."""

    name: str
    memory_bytes: int
    bandwidth_bytes_per_s: int
    flops_per_s: int
    host_link_bytes_per_s: int


def _gib(total: str) -> int:
    """The total of a log, in GiB, as whole bytes."""
    whole, _, hundredths = total.partition(".")
    return (int(whole) * 100 + int(hundredths)) * 2**30 // 100


# Totals: logs of vLLM, in GiB (L4 22.03; A10G 22.06 to 22.07, the card not named in the log; RTX 4090 25,250,627,584
# bytes; L40S 44.31 to 44.39; A100 39.39 to 39.56 and 79.15; H100 79.18 to 79.22; H200 139.80 to 139.81; B200 178.36;
# MI300X 191.45 to 191.69). The H100 PCIe was not seen: nvidia-smi shows the H100 SXM's 81,559 MiB for it, so it has
# that card's total here. Rates: the vendors' datasheets, as nanochat, torchtitan, llm-analysis and LLMServingSim give
# them too; rates with sparsity (H100, H200: 1,979 TFLOP/s) and both-ways rates of the host link (PCIe Gen4 64 GB/s,
# Gen5 128 GB/s) are halved.
GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("L4", _gib("22.03"), 300 * _G, 121 * _T, 32 * _G),
        Gpu("A10G", _gib("22.06"), 600 * _G, 70 * _T, 32 * _G),
        Gpu("RTX-4090", 25_250_627_584, 1_008 * _G, 165_200 * _G, 32 * _G),
        Gpu("L40S", _gib("44.31"), 864 * _G, 362 * _T, 32 * _G),
        Gpu("A100-40GB", _gib("39.39"), 1_555 * _G, 312 * _T, 32 * _G),
        Gpu("A100-80GB", _gib("79.15"), 2_039 * _G, 312 * _T, 32 * _G),
        Gpu("H100", _gib("79.18"), 3_350 * _G, 1_979 * _T // 2, 64 * _G),
        Gpu("H100-PCIe", _gib("79.18"), 2_000 * _G, 756 * _T, 64 * _G),
        Gpu("H200", _gib("139.80"), 4_800 * _G, 1_979 * _T // 2, 64 * _G),
        Gpu("B200", _gib("178.36"), 8_000 * _G, 2_250 * _T, 64 * _G),
        Gpu("MI300X", _gib("191.45"), 5_300 * _G, 1_307 * _T, 64 * _G),
    )
}

# Other names of the same cards, as drivers, clouds and people write them; letters and digits only.
_ALIASES = {
    "h100sxm": "H100",
    "h100sxm5": "H100",
    "h10080gb": "H100",
    "h10080gbhbm3": "H100",
    "h100sxm80gb": "H100",
    "h100pcie80gb": "H100-PCIe",
    "h200sxm": "H200",
    "h200141gb": "H200",
    "b200sxm": "B200",
    "a10040": "A100-40GB",
    "a100sxm40gb": "A100-40GB",
    "a100sxm440gb": "A100-40GB",
    "a10080": "A100-80GB",
    "a100sxm80gb": "A100-80GB",
    "a100sxm480gb": "A100-80GB",
    "4090": "RTX-4090",
    "geforcertx4090": "RTX-4090",
    "l424gb": "L4",
    "l40s48gb": "L40S",
    "a10g24gb": "A10G",
    "instinctmi300x": "MI300X",
}


def plain_name(name: str) -> str:
    """A name's letters and digits in lower case: ``RTX 4090``, ``rtx-4090`` and ``RTX4090`` are one."""
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def load_gpu(name: str) -> Gpu:
    """The GPU preset of that name or one of its aliases, in any case. Raises InputError that lists the presets."""
    plain = re.sub("^(nvidia|amd)", "", plain_name(name))
    presets = {plain_name(preset): gpu for preset, gpu in GPUS.items()}
    gpu = presets.get(plain) or GPUS.get(_ALIASES.get(plain, ""))
    if gpu is None:
        raise InputError(f"unknown GPU {name!r}; choose from {', '.join(GPUS)}")
    return gpu
