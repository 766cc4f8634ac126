"""Replays a simulator's decisions on device memory and counts the bytes: do they say what the ledger says?

The two sides share nothing but the decisions. The simulator's is its ledger: slots used, slots held, tokens of each
request. The device's is what a scan of the poisoned pool finds, what is read back through the block tables, and what
attention over them gives. At each sample

1. the written slots are counted; they must equal ``used``, and the slots of the extents must equal ``held``;
2. a slot that nobody owns must be unwritten, and no page may be in two tables;
3. of each request exactly the first slots must be written, as many as the ledger has tokens;
4. keys and values read back through the tables must equal, bit for bit, the function of (request, position) they came
   from, and attention over them a float64 reference over the same function in contiguous memory.

Nothing here knows the engine: decisions come from a run in memory, a saved one, or straight from an allocator.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from allocators import Extent, InputError, MisuseError, parse_spec
from gpu.content import key_values, queries
from gpu.decisions import Admit, Decision, Grow, Log, Release, Sample, Write
from gpu.pool import BITS, DevicePool, device_memory
from gpu.reference import BARS, attend_contiguous, worst_error
from gpu.report import CHECK_HEADER, Row, check_line
from gpu.shapes import DTYPES, Layout, group_size

SHOWN = 10  # differences that are told; --json has all


@dataclass
class Check:
    """One run's decisions against one pool. Take the rows of :meth:`run` as they come; then look at ``differences``."""

    spec: str
    pool: DevicePool
    capacity: int
    query_heads: int
    rows: list[Row] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        group_size(self.query_heads, self.pool.layout.kv_heads)
        self._extents: dict[int, Sequence[Extent]] = {}
        self._pending: dict[int, int] = {}

    @property
    def equal(self) -> bool:
        """Whether samples were taken and none differed."""
        return bool(self.rows) and not self.differences

    @property
    def verdict(self) -> str:
        """One line for people."""
        if not self.rows and not self.differences:
            return f"{self.spec}: nothing was compared, there was no sample"
        if self.differences:
            return f"{self.spec}: {len(self.differences)} differences in {len(self.rows)} samples"
        worst = max(row.attention_error for row in self.rows)
        return (
            f"{self.spec}: every counted slot equals the ledger in {len(self.rows)} samples;"
            f" attention within {worst:.1e} of float64"
        )

    def run(self, decisions: Iterable[Decision]) -> Iterator[Row]:
        """Carry out the decisions in order and yield a row at each sample.

        A decision that the pool refuses (memory outside it, or that has an owner) is a difference and ends the replay.
        """
        for decision in decisions:
            try:
                row = self._carry_out(decision)
            except (InputError, MisuseError) as refused:
                self.differences.append(f"the pool refused {type(decision).__name__.lower()}: {refused}")
                return
            if row is not None:
                self.rows.append(row)
                yield row

    def to_dict(self) -> dict[str, Any]:
        """The whole check for ``--json``."""
        layout = self.pool.layout
        return {
            "allocator": self.spec, "capacity": self.capacity, "page_slots": self.pool.page_slots,
            "device": str(self.pool.device), "dtype": str(layout.dtype).removeprefix("torch."),
            "query_heads": self.query_heads, "kv_heads": layout.kv_heads, "head_dim": layout.head_dim,
            "samples": [row.to_dict() for row in self.rows], "differences": self.differences,
            "equal": self.equal, "memory": device_memory(self.pool),
        }  # fmt: skip

    def _carry_out(self, decision: Decision) -> Row | None:
        match decision:
            case Admit(request_id, extents, written_tokens):
                self.pool.admit(request_id, extents)
                self._extents[request_id] = extents
                self._pending[request_id] = written_tokens
            case Grow(request_id, extents):
                self.pool.grow(request_id, extents)
                self._extents[request_id] = extents
            case Write(request_id, tokens):
                self._pending[request_id] = self._pending.get(request_id, 0) + tokens
            case Release(request_id):
                self._flush()
                self.pool.release(request_id)
                del self._extents[request_id]
            case Sample():
                self._flush()
                return self._compare(decision)
        return None

    def _flush(self) -> None:
        """Write what is pending in one launch. A release waits for it; an admission or a growth need not."""
        if not self._pending:
            return
        pool, ids, counts = self.pool, list(self._pending), list(self._pending.values())
        first = [pool.written(request_id) for request_id in ids]
        slots = pool.append(ids, counts)
        requests = torch.from_numpy(np.repeat(np.array(ids), counts))
        positions = torch.from_numpy(np.concatenate([np.arange(f, f + n) for f, n in zip(first, counts, strict=True)]))
        pool.write(slots, *key_values(requests.to(pool.device), positions.to(pool.device), pool.layout))
        self._pending = {}

    def _compare(self, sample: Sample) -> Row:
        before = len(self.differences)
        written, torn = (part.cpu().numpy().ravel() for part in self.pool.scan())
        slots = {request_id: slots_of(extents) for request_id, extents in self._extents.items()}
        counted, held = int(written.sum()), sum(map(len, slots.values()))
        self._differ(sample, counted != sample.used, f"{counted} slots are written, the ledger uses {sample.used}")
        self._differ(sample, held != sample.held, f"{held} slots are in extents, the ledger holds {sample.held}")
        self._differ(sample, bool(torn.any()), f"{int(torn.sum())} slots are written in part")
        self._differ(
            sample, slots.keys() != sample.written.keys(),
            f"requests {sorted(slots)} hold memory, the ledger runs {sorted(sample.written)}",
        )  # fmt: skip
        unowned = np.ones(len(written), dtype=bool)
        for own in slots.values():
            unowned[own] = False
        stray = np.flatnonzero(written & unowned)
        self._differ(sample, len(stray) > 0, f"{len(stray)} slots nobody owns are written, the first is {stray[:1]}")
        tables = [page for request_id in slots for page in self.pool.table(request_id)]
        self._differ(sample, len(set(tables)) < len(tables), "a page is in the block tables twice")
        for request_id, tokens in sample.written.items():
            if request_id in slots:
                self._compare_request(sample, request_id, tokens, written[slots[request_id]])
        return Row(
            sample.time_s, len(slots), sample.used, counted, held, sample.used / self.capacity,
            counted / self.capacity, self._attention_error(sample), len(self.differences) - before,
        )  # fmt: skip

    def _compare_request(self, sample: Sample, request_id: int, tokens: int, written: npt.NDArray[np.bool_]) -> None:
        """Full blocks and then the tail, as many as the ledger says; and the bytes themselves."""
        prefix = bool(written[:tokens].all()) and not written[tokens:].any() and tokens <= len(written)
        self._differ(
            sample, not prefix,
            f"request {request_id} should have its first {tokens} slots written and has {int(written.sum())},"
            f" unwritten from {int(np.argmin(np.append(written, False)))} on",
        )  # fmt: skip
        self._differ(
            sample, self.pool.written(request_id) != tokens,
            f"request {request_id} has length {self.pool.written(request_id)} on the device, {tokens} in the ledger",
        )  # fmt: skip
        want = self._content(request_id, self.pool.written(request_id))
        bits = BITS[self.pool.layout.dtype]
        for name, got, right in zip(("keys", "values"), self.pool.read(request_id), want, strict=True):
            wrong = (got.view(bits) != right.contiguous().view(bits)).flatten(1).any(1).nonzero().flatten().tolist()
            self._differ(
                sample, bool(wrong), f"{name} of request {request_id} are not its own at positions {wrong[:4]}"
            )

    def _attention_error(self, sample: Sample) -> float:
        """Attention of every running request over the pool, against float64 over contiguous keys and values."""
        ids = [request_id for request_id in sample.written if request_id in self._extents]
        if not ids:
            return 0.0
        requests = torch.tensor(ids, device=self.pool.device)
        lengths = torch.tensor([sample.written[request_id] for request_id in ids], device=self.pool.device)
        query = queries(requests, lengths, self.query_heads, self.pool.layout)
        with np.errstate(invalid="ignore"):  # in the interpreter NumPy would warn of a NaN, which is what poison is
            got = self.pool.attend(query, self.pool.batch(ids))
        worst = 0.0
        for row, request_id in enumerate(ids):
            want = attend_contiguous(query[row], *self._content(request_id, sample.written[request_id]))
            worst = max(worst, worst_error(got[row], want.cpu().numpy()))
        bar = BARS[self.pool.layout.dtype]
        self._differ(sample, not worst < bar, f"attention is {worst:.1e} away from float64, allowed is {bar:.0e}")
        return worst

    def _content(self, request_id: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        positions = torch.arange(tokens, device=self.pool.device)
        return key_values(torch.full_like(positions, request_id), positions, self.pool.layout)

    def _differ(self, sample: Sample, differs: bool, what: str) -> None:
        if differs:
            self.differences.append(f"at {sample.time_s:.3f} s {what}")


def check_log(
    log: Log, layout: Layout, query_heads: int, device: torch.device | str, say: Callable[[str], object] = print
) -> Check:
    """Replay one log in a pool made for it; a header, a line a sample and the verdict go to ``say`` as they come.

    ``layout`` and ``query_heads`` are free to choose: decisions know no heads. Raises InputError for a device or heads
    that cannot be.
    """
    pool = DevicePool(log.capacity, layout, page_slots_of(log.spec), device, poisoned=True)
    check = Check(log.spec, pool, log.capacity, query_heads)
    say(f"{log.spec} on {pool.device}, {log.capacity} slots, {DTYPES[layout.dtype]}")
    say(CHECK_HEADER)
    for row in check.run(log.decisions):
        say(check_line(row))
    for difference in check.differences[:SHOWN]:
        say(difference)
    say(check.verdict)
    return check


def page_slots_of(spec: str) -> int:
    """Slots a block-table entry names for an allocator of this spec: its blocks if it is paged, else single slots."""
    name, options = parse_spec(spec)
    return int(options.get("block_size", 16)) if name == "paged" else 1


def slots_of(extents: Sequence[Extent]) -> npt.NDArray[np.int64]:
    """The slots of a request in the order of its tokens."""
    return np.concatenate([np.arange(start, start + slots) for start, slots in extents] or [np.empty(0, np.int64)])
