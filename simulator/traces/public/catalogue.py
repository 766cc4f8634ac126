"""Public traces by name: where their publishers keep them, under which licence, and where they lie once downloaded."""

from dataclasses import dataclass
from pathlib import Path

import platformdirs

from allocators.base import InputError
from simulator.traces.text.stdin import DASH, standard_input

_AZURE = "https://raw.githubusercontent.com/Azure/AzurePublicDataset/b469a113cedca53ddc3bdea71a143dc4b7d8700c/data/"
_AZURE_2024 = "https://github.com/Azure/AzurePublicDataset/releases/download/dataset-llm-2024/"
_BURSTGPT = "https://github.com/HPMLL/BurstGPT/releases/download/v2.0/"
_MOONCAKE = (
    "https://raw.githubusercontent.com/kvcache-ai/Mooncake/3b5a594133958449a1feaf1c9e0fc1b553e34a28/"
    "FAST25-release/traces/"
)
_QWEN = "https://media.githubusercontent.com/media/alibaba-edu/qwen-bailian-usagetraces-anon/main/"

_SPLITWISE = "Patel et al., Splitwise: Efficient Generative LLM Inference Using Phase Splitting, ISCA 2024"
_DYNAMO = (
    "Stojkovic et al., DynamoLLM: Designing LLM Inference Clusters for Performance and Energy Efficiency, HPCA 2025"
)
_BURST = "Wang et al., BurstGPT: A Real-World Workload Dataset to Optimize LLM Serving Systems, KDD 2025"
_FAST = "Qin et al., Mooncake: Trading More Storage for Less Computation, FAST 2025"
_ATC = "Wang et al., KVCache Cache in the Wild, USENIX ATC 2025"


@dataclass(frozen=True)
class PublicTrace:
    """A trace as it is published. ``sha256``: of the file, where it is known (None: it is not)."""

    url: str
    licence: str
    citation: str
    about: str
    sha256: str | None = None

    @property
    def file(self) -> str:
        """Its file's name."""
        return self.url.rpartition("/")[2]

    @property
    def path(self) -> Path:
        """Where it lies once it is downloaded."""
        return cache_folder() / self.file


CATALOGUE = {
    "azure-2023-code": PublicTrace(
        _AZURE + "AzureLLMInferenceTrace_code.csv",
        "CC-BY-4.0",
        _SPLITWISE,
        "code completion, 8,819 requests in an hour",
        "54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6",
    ),
    "azure-2023-conv": PublicTrace(
        _AZURE + "AzureLLMInferenceTrace_conv.csv",
        "CC-BY-4.0",
        _SPLITWISE,
        "conversations, 19,366 requests in an hour",
        "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8",
    ),
    "azure-2024-code": PublicTrace(
        _AZURE_2024 + "AzureLLMInferenceTrace_code_1week.csv", "CC-BY-4.0", _DYNAMO, "code completion, a week"
    ),
    "azure-2024-conv": PublicTrace(
        _AZURE_2024 + "AzureLLMInferenceTrace_conv_1week.csv",
        "CC-BY-4.0",
        _DYNAMO,
        "conversations, a week, 27 million requests, 1.1 GB",
    ),
    "burstgpt-1": PublicTrace(
        _BURSTGPT + "BurstGPT_1.csv", "CC-BY-4.0", _BURST, "ChatGPT and GPT-4 of a campus, two months"
    ),
    "burstgpt-2": PublicTrace(_BURSTGPT + "BurstGPT_2.csv", "CC-BY-4.0", _BURST, "the two months behind"),
    "burstgpt-3": PublicTrace(_BURSTGPT + "BurstGPT_3.csv", "CC-BY-4.0", _BURST, "later, with sessions"),
    "mooncake-conversation": PublicTrace(
        _MOONCAKE + "conversation_trace.jsonl",
        "Apache-2.0",
        _FAST,
        "conversations, 12,031 requests in an hour, prefix blocks",
        "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df",
    ),
    "mooncake-synthetic": PublicTrace(
        _MOONCAKE + "synthetic_trace.jsonl", "Apache-2.0", _FAST, "put together from public data sets, prefix blocks"
    ),
    "mooncake-toolagent": PublicTrace(
        _MOONCAKE + "toolagent_trace.jsonl", "Apache-2.0", _FAST, "tools and agents, an hour, prefix blocks"
    ),
    "qwen-bailian-a": PublicTrace(
        _QWEN + "qwen_traceA_blksz_16.jsonl", "Apache-2.0", _ATC, "chats of consumers, two hours, prefix blocks"
    ),
    "qwen-bailian-b": PublicTrace(
        _QWEN + "qwen_traceB_blksz_16.jsonl", "Apache-2.0", _ATC, "calls by programs, two hours, prefix blocks"
    ),
}
"""Every public trace that can be downloaded by name. A new one is an entry here."""


def cache_folder() -> Path:
    """The user's folder for downloaded traces."""
    return Path(platformdirs.user_cache_dir("kvfrag")) / "traces"


def downloaded(name: str) -> Path:
    """Where a public trace lies. Raises InputError when it was not downloaded."""
    path = CATALOGUE[name].path
    if not path.is_file():
        raise InputError(f"the public trace {name} is not here yet: kvfrag trace download {name}")
    return path


def find_file(name: str) -> str | None:
    """The path of a file, of a copy of standard input (``-``), or of a public trace by its name; None if it is none.

    Raises InputError for a public trace that was not downloaded, and where standard input cannot be read.
    """
    if name == DASH:
        return standard_input()
    try:
        if name and Path(name).exists():
            return name
    except (OSError, ValueError):  # too long for a name, or with a character none can have
        return None
    return str(downloaded(name)) if name in CATALOGUE else None
