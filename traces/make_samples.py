"""Write the sample traces: ``python traces/make_samples.py [FOLDER]``, a small workload in each format kvfrag reads.

The requests are drawn by kvfrag (the command is :data:`COMMAND`), so nothing of a public trace is in them. Every file
has the same requests, as exactly as its format's clock allows, and the oddities of the published files of its format.
"""

import gzip
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import log_samples
from log_samples import Request
from simulator import Trace
from simulator.traces.workload.workload import parse_workload

WORKLOAD = "azure-conv:rate=0.5,requests=40,seed=1"
COMMAND = f"kvfrag trace generate {WORKLOAD} -o neutral.csv"


def stamp(time_ns: int, digits: int, middle: str = " ") -> str:
    """A date with so many digits of a second's fraction."""
    seconds, fraction = divmod(time_ns, 10**9)
    date = str(np.datetime64("2026-01-05T08:00:00") + np.timedelta64(seconds, "s")).replace("T", middle)
    return date + (f".{fraction:09d}"[: digits + 1] if digits else "")


def azure_2023(requests: list[Request]) -> str:
    rows = [f"{stamp(t, 7)},{p},{g}" for t, p, g in requests]
    return "\r\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows])


def azure_2024(requests: list[Request]) -> str:
    # A whole second is without a fraction.
    rows = [f"{stamp(t, 6 if t % 10**9 else 0)}+00:00,{p},{g}\n" for t, p, g in requests]
    return "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(rows)


def azure_2025(requests: list[Request]) -> str:
    rows = [f"{stamp(t, 3, 'T')}Z,{i % 3},{p},{g}\n" for i, (t, p, g) in enumerate(requests)]
    return "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n" + "".join(rows)


def burstgpt_1(requests: list[Request]) -> str:
    rows = [f"{5270414 + t // 10**9},ChatGPT,{p},{g},{p + g},Conversation log\n" for t, p, g in requests]
    failed = "5270414,GPT-4,777,0,777,API log\n"
    return "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" + "".join([*rows, failed])


def burstgpt_3(requests: list[Request]) -> str:
    head = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    sessions = ["", *(f"{i:08x}" for i in range(1, 6))]
    return head + "".join(
        f"{19440110 + t // 10**9}.0,{sessions[i % 6]},{i % 9},GPT-4,{p},{g},{p + g},Conversation log\n"
        for i, (t, p, g) in enumerate(requests)
    )


def _blocks(prompt: int, size: int, first: int) -> list[int]:
    """Prefix blocks: the first is everybody's, the others are one's own."""
    return [0, *range(first, first + -(-prompt // size) - 1)]


def mooncake(requests: list[Request]) -> str:
    # Stamps come in steps of 3 s.
    return "".join(
        json.dumps(
            {
                "timestamp": t // (3 * 10**9) * 3000,
                "input_length": p,
                "output_length": g,
                "hash_ids": _blocks(p, 512, 100 * i + 1),
            }
        )
        + "\n"
        for i, (t, p, g) in enumerate(requests)
    )


def qwen_bailian(requests: list[Request]) -> str:
    # Three turns a conversation: 0, 1, 2 are one, each with the chat before as its parent.
    return "".join(
        json.dumps(
            {
                "chat_id": i,
                "parent_chat_id": i - 1 if i % 3 else -1,
                "timestamp": t // 10**6 / 1000,
                "input_length": p,
                "output_length": g,
                "type": "text",
                "turn": i % 3 + 1,
                "hash_ids": _blocks(p, 16, 1000 * i + 1),
            }
        )
        + "\n"
        for i, (t, p, g) in enumerate(requests)
    )


def ragpulse(requests: list[Request]) -> str:
    rows = [
        json.dumps(
            {
                "timestamp": str(t // 10**9),
                "input_length": p,
                "output_length": g,
                "hash_ids": {"sys_prompt": [8325], "passages_ids": [6123 + i, 7239], "user_input": [23648 + i]},
                "session_id": f"session-{i % 7}",
            }
        )
        for i, (t, p, g) in enumerate(requests)
    ]
    rows[3], rows[9] = rows[9], rows[3]
    return "\n".join(rows) + "\n\n"


def vidur(requests: list[Request]) -> str:
    rows = [f"{t / 1e9:.6f},{p},{g}\n" for t, p, g in requests]
    return "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(rows)


def vidur_lengths(requests: list[Request]) -> str:
    rows = [f"{p},{g},{p + g},{p / g:.4f}\n" for _, p, g in requests]
    return "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n" + "".join(rows)


def lengths(requests: list[Request]) -> str:
    return "prompt_tokens,output_tokens\n" + "".join(f"{p},{g}\n" for _, p, g in requests)


def splitwise_sim(requests: list[Request]) -> str:
    head = "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
    return head + "".join(f"{i},2,0,{t / 1e9:.4f},1,{p},{g}\n" for i, (t, p, g) in enumerate(requests))


def blis(requests: list[Request]) -> str:
    head = "request_id,client_id,session_id,input_tokens,output_tokens,arrival_time_us,send_time_us,status\n"
    return head + "".join(
        f"{i},c{i % 3},s{i % 5},{p},{g},{t // 1000},{t // 1000 + 3},ok\n" for i, (t, p, g) in enumerate(requests)
    )


def llmservingsim(requests: list[Request]) -> str:
    return "".join(json.dumps({"input_toks": p, "output_toks": g, "arrival_time_ns": t}) + "\n" for t, p, g in requests)


def aiperf(requests: list[Request]) -> str:
    # Hashes need all of their 64 bits. Every fourth row is a second turn, half a second behind the first.
    rows = []
    for i, (t, p, g) in enumerate(requests):
        when = {"delay": 500} if i % 4 == 1 else {"timestamp": t // 10**6}
        row = {"session_id": f"s{(i - (i % 4 == 1)):02d}", **when, "input_tokens": p, "output_tokens": g}
        rows.append(json.dumps({**row, "hash_ids": [2**64 - 1 - b for b in _blocks(p, 512, 100 * i + 1)]}) + "\n")
    return "".join(rows)


def sharegpt(requests: list[Request]) -> str:
    # A word for every 20 tokens, or it would be a book.
    def text(words: int) -> str:
        return " ".join(["lorem", "ipsum", "dolor", "sit"][i % 4] for i in range(1 + words // 20))

    return json.dumps(
        [
            {
                "id": f"c{i}",
                "conversations": [{"from": "human", "value": text(p)}, {"from": "gpt", "value": text(g)}],
            }
            for i, (_, p, g) in enumerate(requests[:12])
        ],
        indent=1,
    )


SAMPLES: dict[str, Callable[[list[Request]], str]] = {
    "azure-2023.csv": azure_2023,
    "azure-2024.csv": azure_2024,
    "azure-2025.csv.gz": azure_2025,
    "burstgpt-1.csv": burstgpt_1,
    "burstgpt-3.csv": burstgpt_3,
    "mooncake.jsonl": mooncake,
    "qwen-bailian.jsonl": qwen_bailian,
    "ragpulse.jsonl": ragpulse,
    "vidur.csv": vidur,
    "vidur-lengths.csv": vidur_lengths,
    "lengths.csv": lengths,
    "splitwise-sim.csv": splitwise_sim,
    "blis.csv": blis,
    "llmservingsim.jsonl": llmservingsim,
    "aiperf.jsonl": aiperf,
    "sharegpt.json": sharegpt,
    "vllm-bench.json": log_samples.vllm_bench,
    "vllm-bench-old.json": log_samples.vllm_bench_old,
    "sglang-bench.jsonl": log_samples.sglang_bench,
    "aiperf-export.jsonl": log_samples.aiperf_export,
    "genai-perf.json": log_samples.genai_perf,
    "inference-perf.json": log_samples.inference_perf,
    "llmperf.json": log_samples.llmperf,
    "llmservingsim-bench.jsonl": log_samples.llmservingsim_bench,
    "litellm.csv": lambda requests: log_samples.litellm_csv(requests, partial(stamp, digits=6)),
    "litellm.json": lambda requests: log_samples.litellm_json(requests, partial(stamp, digits=3)),
    "litellm-payload.jsonl": log_samples.litellm_payload,
    "opentelemetry.jsonl": log_samples.opentelemetry,
}


def main(folder: Path) -> None:
    """Write all samples into a folder."""
    trace = Trace.of_workload(parse_workload(WORKLOAD))
    trace.write(folder / "neutral.csv")
    columns = (trace.arrival_ns, trace.prompt_tokens, trace.output_tokens)
    requests: list[Request] = list(zip(*(column.tolist() for column in columns), strict=True))
    for name, write in SAMPLES.items():
        content = write(requests).encode()
        (folder / name).write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent)
