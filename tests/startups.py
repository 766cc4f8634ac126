"""Real start-ups of vLLM, and what the estimate says of each. ``python tests/startups.py`` prints the table of
``docs/limits.md``.

Sources: rows 1 to 8 of llm-d-incubation/llm-d-planner, docs/empirical-vllm-memory-results.md; the others as named.
Pools are GiB per GPU.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from simulator.server.gpus import Gpu
from simulator.server.models import MODELS, Model, read_model
from simulator.server.pool import PoolEstimate, estimate_pool

GIB = 2**30


@dataclass(frozen=True)
class StartUp:
    """One start of a server: what it was given, and the pool that it logged."""

    number: str
    model: Model
    card: str
    total_gib: float
    gpus: int
    utilization: float
    pool_gib: float
    """Per GPU."""
    vllm: str
    source: str
    max_num_seqs: int | None = None
    """None: the default of that version."""

    @property
    def gpu(self) -> Gpu:
        """A card with that total; its rates are of no account here."""
        return Gpu(self.card, round(self.total_gib * GIB), 1, 1, 1)

    def estimate(self) -> PoolEstimate:
        """What the tool says."""
        return estimate_pool(
            self.model,
            self.gpu,
            tensor_parallel_size=self.gpus,
            gpu_memory_utilization=self.utilization,
            max_num_seqs=self.max_num_seqs,
        )

    @property
    def estimated_gib(self) -> float:
        """The estimate, per GPU."""
        return self.estimate().pool_bytes / self.gpus / GIB

    @property
    def naive_gib(self) -> float:
        """Total x utilisation - weights, per GPU: what one would reckon at first."""
        assert self.model.weight_bytes is not None
        return self.total_gib * self.utilization - self.model.weight_bytes / self.gpus / GIB

    def error(self, gib: float) -> float:
        """Percent that a number is above the real pool."""
        return (gib / self.pool_gib - 1) * 100


def _of(name: str, kind: str, *sizes: int, **more: Any) -> Model:
    """A model that is no preset, from its configuration."""
    layers, hidden, inner, heads, kv_heads, vocab = sizes
    content = {
        "model_type": kind,
        "torch_dtype": "bfloat16",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
    }
    return read_model(name, content | more)


FP8 = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}},
}
LLAMA_70B_FP8 = _of("Llama-3.3-70B-FP8", "llama", 80, 8192, 28672, 64, 8, 128256, quantization_config=FP8)
GEMMA_3_4B = _of("Gemma-3-4B", "gemma3_text", 34, 2560, 10240, 8, 4, 262208, head_dim=256)
QWEN_14B = _of("Qwen2.5-14B", "qwen2", 48, 5120, 13824, 40, 8, 152064)
LLAMA_2_70B = _of("Llama-2-70B", "llama", 80, 8192, 28672, 64, 8, 32000)
_PLANNER = "llm-d-planner"

ROWS = [
    StartUp("1", MODELS["Llama-3.1-8B"], "H100", 79.18, 1, 0.90, 51.38, "0.11", _PLANNER),
    StartUp("2", LLAMA_70B_FP8, "H100", 79.18, 2, 0.90, 32.00, "0.11", _PLANNER),
    StartUp("3", MODELS["gpt-oss-20b"], "H100", 79.18, 1, 0.90, 50.28, "0.11", _PLANNER),
    StartUp("5", MODELS["Qwen3-0.6B"], "H100", 79.18, 1, 0.90, 64.45, "0.11", _PLANNER),
    StartUp("6", MODELS["Qwen3-32B"], "H100", 79.18, 1, 0.90, 4.45, "0.11", _PLANNER),
    StartUp("7", MODELS["Qwen3-32B"], "H100", 79.18, 2, 0.90, 34.49, "0.11", _PLANNER),
    StartUp("8", MODELS["Mistral-Small-24B"], "H100", 79.18, 1, 0.95, 28.20, "0.11", _PLANNER),
    StartUp("9", MODELS["Llama-3.1-8B"], "RTX 4090", 23.52, 1, 0.90, 2588 * 16 * 131072 / GIB, "0.19", "LLMServingSim"),
    StartUp("14", GEMMA_3_4B, "B200", 178.36, 1, 0.90, 141.9, "mid 2025", "vllm#21489"),
    StartUp("19", MODELS["Qwen3-8B"], "RTX 5090", 31.36, 1, 0.92, 89040 * 147456 / GIB, "V1", "a public start-up log"),
    StartUp("21", MODELS["gpt-oss-120b"], "RTX PRO 4500", 31.38, 8, 0.95, 19.0, "0.28", "vllm#51590"),
]
V0_ROWS = [
    StartUp("10", MODELS["Llama-3-8B"], "H100", 79.22, 1, 0.90, 53.29, "V0", "vllm#10511", 256),
    StartUp("10", MODELS["Llama-3-8B"], "H100", 79.22, 2, 0.90, 58.98, "V0", "vllm#10511", 256),
    StartUp("11", MODELS["Llama-3-8B"], "A100-40GB", 39.50, 1, 0.90, 11.12, "V0", "vllm#12330", 256),
    StartUp("12", MODELS["Llama-3.1-8B"], "RTX 3090", 23.58, 1, 0.90, 3.81, "V0", "vllm#10517", 256),
    StartUp("12", MODELS["Llama-3.1-8B"], "RTX 3090", 23.58, 1, 0.90, 2.89, "V0", "vllm#10517", 256),
    StartUp("13", MODELS["DeepSeek-V3"], "H200", 139.81, 8, 0.85, 21.43, "V0", "log", 256),
    StartUp(
        "16", MODELS["Llama-2-7B"], "A100-80GB", 79.15, 1, 0.90, 7351 * 16 * 524288 / GIB, "2023", "vllm#2031", 256
    ),
    StartUp("16", LLAMA_2_70B, "A100-80GB", 79.15, 4, 0.90, 20865 * 16 * 327680 / 4 / GIB, "2023", "vllm#2031", 256),
    StartUp("17", QWEN_14B, "RTX 4090", 23.52, 2, 0.98, 81536 * 196608 / 2 / GIB, "V0", "vllm#13061", 256),
    StartUp("18", MODELS["Qwen3-0.6B"], "H100", 79.19, 1, 0.80, 61.84, "V0", "mellea#416", 256),
]


def table(rows: list[StartUp]) -> Iterator[str]:
    """The lines of the table in Markdown."""
    for row in rows:
        gpus = "" if row.gpus == 1 else f" x {row.gpus}"
        naive, ours = row.error(row.naive_gib), row.error(row.estimated_gib)
        yield (
            f"| {row.number} | {row.model.name} | {row.card}{gpus} | {row.vllm} | {row.pool_gib:.2f} | {naive:+.1f} % "
            f"| {row.estimated_gib:.2f} | {ours:+.1f} % |"
        )


if __name__ == "__main__":
    print("\n".join([*table(ROWS), "", *table(V0_ROWS)]))
