"""The kernels against their float64 twin: every known trap by name, 200 random shapes, and mutants that must die."""

import importlib.util
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from allocators.base import InputError
from gpu import kernels as the_kernels
from gpu import reference
from gpu.plan import Plan, plan_attention
from gpu.reference import BARS
from gpu_device import BF16, DEVICE, FP16, FP32

NAN, INF = float("nan"), float("inf")
WILD = (-1, "blocks", 2**31 - 1)


@dataclass
class Case:
    """A pool that holds ``poison`` wherever nothing was written, and requests scattered over it.

    Block 0 belongs to nobody. Table columns behind a length hold ``stale`` ids in turn.
    """

    query: torch.Tensor
    pool: torch.Tensor
    tables: torch.Tensor
    lengths: torch.Tensor

    @staticmethod
    def make(
        lengths: list[int], *, block_size: int = 16, kv_heads: int = 2, group: int = 2, head_dim: int = 64,
        dtype: torch.dtype = FP32, columns: int | None = None, poison: float = NAN, poison_in: str = "both",
        stale: tuple[int | str, ...] = WILD, seed: int = 0,
    ) -> "Case":  # fmt: skip
        random = torch.Generator().manual_seed(seed)
        used = [-(-length // block_size) for length in lengths]
        columns = max(used, default=0) + 1 if columns is None else columns
        blocks = sum(used) + 1
        pool = torch.zeros((blocks, 2, block_size, kv_heads, head_dim), dtype=dtype)
        for part, name in enumerate(("keys", "values")):
            if poison_in in (name, "both"):
                pool[:, part] = poison
        ids = (1 + torch.randperm(blocks - 1, generator=random)).tolist()
        tables = torch.tensor(
            [[blocks if s == "blocks" else int(s) for s in (stale * columns)[:columns]] for _ in lengths]
        ).reshape(len(lengths), columns)
        slots = []
        for request, length in enumerate(lengths):
            for column in range(used[request]):
                tables[request, column] = ids.pop()
            slots += [int(tables[request, t // block_size]) * block_size + t % block_size for t in range(length)]
        shape = (len(slots), kv_heads, head_dim)
        keys, values = (torch.randn(shape, generator=random).to(dtype) for _ in range(2))
        reference.write_kv(pool, torch.tensor(slots, dtype=torch.int64), keys, values)
        query = torch.randn((len(lengths), kv_heads * group, head_dim), generator=random).to(dtype)
        lengths_tensor = torch.tensor(lengths, dtype=torch.int32)
        return Case(query.to(DEVICE), pool.to(DEVICE), tables.to(torch.int32).to(DEVICE), lengths_tensor.to(DEVICE))

    def attend(self, kernels: Any, **options: Any) -> torch.Tensor:
        got: torch.Tensor = kernels.paged_attention(self.query, self.pool, self.tables, self.lengths, **options)
        return got

    def error(self, kernels: Any, **options: Any) -> float:
        want = reference.paged_attention(self.query, self.pool, self.tables, self.lengths, options.get("scale"))
        return reference.worst_error(self.attend(kernels, **options), want)

    def check(self, kernels: Any, **options: Any) -> None:
        error = self.error(kernels, **options)
        assert error < BARS[self.query.dtype], error


@pytest.fixture
def kernels() -> ModuleType:
    return the_kernels


# The traps. Each takes the module of kernels, so that a mutant can be handed to it.


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16])
@pytest.mark.parametrize("poison", [NAN, INF, -INF])
@pytest.mark.parametrize("poison_in", ["keys", "values", "both"])
def test_poison_in_the_unwritten_part_of_the_last_block(
    kernels: Any, poison_in: str, poison: float, dtype: torch.dtype
) -> None:
    Case.make([5, 17], poison=poison, poison_in=poison_in, dtype=dtype).check(kernels)


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 32, 33])
def test_lengths_around_a_block_with_a_poisoned_spare_page_in_the_table(kernels: Any, length: int) -> None:
    case = Case.make([length], columns=4, stale=(0,))
    case.check(kernels)
    if length == 0:
        assert not case.attend(kernels).any()


def test_length_0_among_others_gives_zeros_in_one_pass_and_split(kernels: Any) -> None:
    case = Case.make([0, 40, 0], columns=3)
    for plan in (Plan(16, 48), Plan(16, 16)):
        got = case.attend(kernels, plan=plan)
        assert not got[0].any()
        assert not got[2].any()
        case.check(kernels, plan=plan)


def test_wild_ids_in_table_columns_behind_the_length(kernels: Any) -> None:
    case = Case.make([5, 33, 1], columns=6)
    assert {-1, len(case.pool), 2**31 - 1} <= set(case.tables.flatten().tolist())
    case.check(kernels)
    case.check(kernels, plan=Plan(16, 16))


def test_a_block_id_past_65536(kernels: Any) -> None:
    far_block(kernels, block=70_000, head_dim=16)


def test_a_pool_past_2_to_the_31_elements(kernels: Any) -> None:
    far_block(kernels, block=2**20 + 3, head_dim=64)


def test_a_pool_past_2_to_the_32_elements(kernels: Any) -> None:
    far_block(kernels, block=2**21 + 3, head_dim=64)  # an offset cut to 32 bits would land in block 3


def far_block(kernels: Any, block: int, head_dim: int) -> None:
    """Write and attend in a block far into a pool whose other pages are never touched, and cost no memory."""
    pool = torch.empty((block + 2, 2, 16, 1, head_dim), dtype=FP16, device=DEVICE)
    pool[3] = pool[block] = 7.0
    random = torch.Generator().manual_seed(0)
    keys, values = (torch.randn((20, 1, head_dim), generator=random).to(FP16).to(DEVICE) for _ in range(2))
    table = [block, block + 1]
    slots = torch.tensor([table[t // 16] * 16 + t % 16 for t in range(20)], device=DEVICE)
    kernels.write_kv(pool, slots, keys, values)
    assert torch.equal(pool[block, 0], keys[:16])
    assert torch.equal(pool[block + 1, 1, :4], values[16:])
    query = torch.randn((1, 2, head_dim), generator=random).to(FP16).to(DEVICE)
    tables = torch.tensor([table], dtype=torch.int32, device=DEVICE)
    lengths = torch.tensor([20], dtype=torch.int32, device=DEVICE)
    Case(query, pool, tables, lengths).check(kernels)


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16])
@pytest.mark.parametrize("head_dim", [1, 8, 64, 80, 96, 120, 128, 192, 256])
def test_head_dims(kernels: Any, head_dim: int, dtype: torch.dtype) -> None:
    case = Case.make([19, 3], head_dim=head_dim, kv_heads=1, dtype=dtype)
    if head_dim >= 64:
        case.check(kernels)
    else:  # a vector of so few lanes may all but cancel out: the error is measured against the values' size, 1
        want = reference.paged_attention(case.query, case.pool, case.tables, case.lengths)
        assert np.abs(case.attend(kernels).double().cpu().numpy() - want).max() < BARS[dtype] * 2


@pytest.mark.parametrize("block_size", [1, 3, 7, 16, 32, 100])
def test_block_sizes(kernels: Any, block_size: int) -> None:
    Case.make([101, 6, 1], block_size=block_size, kv_heads=1).check(kernels)


@pytest.mark.parametrize("group", [1, 2, 5, 7, 8, 16, 17])
def test_group_sizes(kernels: Any, group: int) -> None:
    Case.make([21, 2], group=group).check(kernels)


def test_query_head_31_of_32_reads_kv_head_7_of_8(kernels: Any) -> None:
    case = Case.make([18], kv_heads=8, group=4, head_dim=16)
    case.pool[:, 1] = torch.arange(8, device=DEVICE, dtype=FP32)[:, None]
    got = case.attend(kernels)[0, :, 0]
    assert torch.allclose(got, torch.arange(32, device=DEVICE) // 4 * 1.0, rtol=1e-6)
    assert got[31] == pytest.approx(7, rel=1e-6)


def test_3_query_heads_on_2_kv_heads_are_refused(kernels: Any) -> None:
    case = Case.make([4])
    with pytest.raises(InputError, match=r"query_heads\(=3\) must be a multiple of kv_heads\(=2\)"):
        kernels.paged_attention(case.query[:, :3], case.pool, case.tables, case.lengths)


def test_a_batch_equals_each_request_alone(kernels: Any) -> None:
    case = Case.make([5, 17, 16])
    together = case.attend(kernels)
    for one in range(3):
        rows = slice(one, one + 1)
        alone = Case(case.query[rows], case.pool, case.tables[rows], case.lengths[rows]).attend(kernels)
        assert torch.equal(together[rows], alone)
    case.check(kernels)


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16])
def test_all_scores_minus_100000_give_the_mean_of_the_values(kernels: Any, dtype: torch.dtype) -> None:
    case = Case.make([40], dtype=dtype, kv_heads=1, group=1)
    case.pool[:, 0] = -1.0
    case.query[:] = 1.0
    for plan in (None, Plan(16, 16)):
        case.check(kernels, scale=1e5 / 64, plan=plan)


def test_a_non_contiguous_query(kernels: Any) -> None:
    case = Case.make([17, 3])
    wide = torch.full((2, 4, 2, 64), NAN, device=DEVICE)
    wide[:, :, 1] = case.query
    case.query = wide[:, :, 1]
    assert not case.query.is_contiguous()
    case.check(kernels)


@pytest.mark.parametrize("max_length", [0, 1, 20, 64])
def test_a_bound_that_is_too_small_leaves_tokens_out_and_reads_nothing_else(kernels: Any, max_length: int) -> None:
    # Lengths lie: 100 tokens where the bound reaches fewer chunks. Parts that no program wrote must not be merged.
    case, plan = Case.make([100, 3, 100]), Plan(16, 16, 4, 3)
    reached = 16 * max(1, -(-max_length // 16))
    cut = Case(case.query, case.pool, case.tables, case.lengths.clamp(max=reached))
    got = case.attend(kernels, max_length=np.int64(max_length), plan=plan)
    assert torch.isfinite(got).all()
    want = reference.paged_attention(cut.query, cut.pool, cut.tables, cut.lengths)
    assert reference.worst_error(got, want) < BARS[FP32]


@pytest.mark.parametrize("plan", [Plan(16, 128, 4, 3), Plan(16, 48, 4, 3)])
def test_a_length_beyond_its_table_ends_with_the_table(kernels: Any, plan: Plan) -> None:
    case = Case.make([64, 64], columns=4)
    want = case.attend(kernels, plan=plan)
    case.lengths[0] += 1000  # of the first request: what lies behind its table is the next one's
    assert torch.equal(case.attend(kernels, plan=plan), want)


@pytest.mark.parametrize("max_length", [-1, 1.5])
def test_a_bound_that_is_no_count_is_refused(kernels: Any, max_length: Any) -> None:
    with pytest.raises(InputError, match=r"max_length\(=.*\) must be a whole number >= 0"):
        Case.make([3]).attend(kernels, max_length=max_length)


def test_an_empty_batch(kernels: Any) -> None:
    case = Case.make([], dtype=BF16)
    got = case.attend(kernels)
    assert got.shape == (0, 4, 64)
    assert got.dtype == BF16
    nothing = case.pool[:0, 0, 0]
    kernels.write_kv(case.pool, torch.empty(0, dtype=torch.int64, device=DEVICE), nothing, nothing)


@pytest.mark.parametrize("chunk_tokens", [16, 32, 48, 304])
def test_split_equals_one_pass(kernels: Any, chunk_tokens: int) -> None:
    case = Case.make([290, 33, 0], kv_heads=1)  # at 16 tokens a chunk there are more chunks than a merge tile holds
    case.query *= 4  # uneven masses
    case.check(kernels, plan=Plan(16, chunk_tokens))
    one_pass = case.attend(kernels, plan=Plan(16, 304)).double().cpu().numpy()
    assert reference.worst_error(case.attend(kernels, plan=Plan(16, chunk_tokens)), one_pass) < 1e-6


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16])
@pytest.mark.parametrize("elements", [(1, 1), (3, 80), (9, 128)])
def test_write_is_bitwise_and_touches_nothing_else(kernels: Any, elements: tuple[int, int], dtype: torch.dtype) -> None:
    kv_heads, head_dim = elements
    bits = torch.int32 if dtype == FP32 else torch.int16
    random = torch.Generator().manual_seed(0)
    shape = (5, kv_heads, head_dim)
    keys, values = (  # any bits, NaN with a payload among them
        torch.randint(-(2**15), 2**15, shape, generator=random).to(bits).to(DEVICE).view(dtype) for _ in range(2)
    )
    want = torch.full((4, 2, 7, kv_heads, head_dim), NAN, dtype=dtype, device=DEVICE)
    got = want.clone()
    slots = torch.tensor([0, 27, 6, -1, 13], device=DEVICE)
    kernels.write_kv(got, slots, keys, values)
    reference.write_kv(want, slots, keys, values)
    assert torch.equal(got.view(bits), want.view(bits))


# Errors, told before a kernel runs.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": lambda c: c.query.half()}, r"query is torch.float16, it must be torch.float32"),
        ({"query": lambda c: c.query[..., :32]}, r"query\(=\[2, 4, 32\]\) must be .*head_dim 64"),
        ({"tables": lambda c: c.tables.long()}, r"tables is torch.int64, it must be torch.int32"),
        ({"tables": lambda c: c.tables[:1]}, r"tables\(=\[1, 3\]\) must be \[requests 2, columns\]"),
        ({"lengths": lambda c: c.lengths[:1]}, r"lengths\(=\[1\]\) must have the shape \[2\]"),
        ({"lengths": lambda c: c.lengths.to("meta")}, r"lengths is on meta, it must be on the pool's device"),
        ({"pool": lambda c: c.pool[:, :, ::2]}, r"must be contiguous, \[blocks, 2, block_size, kv_heads, head_dim\]"),
        ({"pool": lambda c: c.pool.double()}, r"dtype\(=torch.float64\) must be one of torch.float32"),
        ({"pool": lambda _: torch.zeros(2, 2, 1, 1, 257, device=DEVICE)}, r"head_dim\(=257\) must be <= 256"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    change: dict[str, Callable[[Case], torch.Tensor]], message: str
) -> None:
    case = Case.make([17, 3])
    arguments: dict[str, Any] = {"query": case.query, "pool": case.pool, "tables": case.tables, "lengths": case.lengths}
    arguments.update({name: make(case) for name, make in change.items()})
    with pytest.raises(InputError, match=message) as refused:
        the_kernels.paged_attention(**arguments)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("tile", "chunk", "message"),
    [(24, 48, "power of two"), (8, 8, "power of two"), (16, 40, "multiple of tile_tokens")],
)
def test_a_plan_that_cannot_be_run_is_refused(tile: int, chunk: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Plan(tile, chunk)


def test_plans_fill_the_device_and_cut_no_chunk_below_512_tokens() -> None:
    plan = plan_attention(64, 8, 128, FP16, 4096, processors=132)
    assert (plan.tile_tokens, plan.chunk_tokens) == (64, 1024)
    long = plan_attention(1, 8, 128, FP16, 131_072, processors=132)
    assert 8 * -(-131_072 // long.chunk_tokens) >= 8 * 132
    assert plan_attention(1, 1, 128, FP16, 700, processors=132).chunk_tokens == 512
    assert plan_attention(1, 1, 128, FP16, 0, processors=132).chunk_tokens == 64


@pytest.mark.parametrize("length", [0, 1, 40])
def test_the_references_agree(length: int) -> None:
    random = torch.Generator().manual_seed(length)
    query, (keys, values) = (
        torch.randn((6, 20), generator=random), torch.randn((2, length, 3, 20), generator=random)
    )  # fmt: skip
    loops = reference.attend(query.double().numpy(), keys.double().numpy(), values.double().numpy())
    assert reference.worst_error(reference.attend_contiguous(query, keys, values), loops) < 1e-14


def test_an_error_that_is_not_finite_is_not_small() -> None:
    want = np.ones((1, 1, 2))
    assert reference.worst_error(torch.tensor([[[NAN, 1.0]]]), want) == INF
    assert reference.worst_error(torch.tensor([[[1.0, 2.0]]]), want) == pytest.approx(0.5**0.5)
    assert reference.worst_error(torch.tensor([[[3.0, 4.0]]]), want * 0) == 5


# Random shapes.


SHAPES = 200 if DEVICE.type == "cpu" else 24  # on a device each one is compiled


@pytest.mark.whole
def test_random_shapes_stay_within_the_bars() -> None:
    random = np.random.default_rng(5)
    worst = dict.fromkeys(BARS, 0.0)
    for seed in range(SHAPES):
        kv_heads, group = int(random.integers(1, 3)), int(random.choice([1, 2, 3, 4, 5, 8]))
        head_dim, block_size = int(random.integers(16, 257)), int(random.integers(1, 40))
        lengths = random.integers(0, 97, int(random.integers(1, 3))).tolist()
        plan = Plan(int(random.choice([16, 32, 64])), int(random.choice([64, 128])))
        for dtype in worst:
            case = Case.make(
                lengths, block_size=block_size, kv_heads=kv_heads, group=group, head_dim=head_dim,
                dtype=dtype, seed=seed,
            )  # fmt: skip
            worst[dtype] = max(worst[dtype], case.error(the_kernels, plan=plan))
    assert all(worst[dtype] < bar for dtype, bar in BARS.items()), worst


# Mutants: a kernel with one fault must fail the trap that is named for it.

MUTANTS: dict[str, tuple[str, str, Callable[[Any], None]]] = {
    "drop the V mask": (
        "v = tl.load(value_at, mask=is_token[:, None] & is_lane, other=0.0)",
        "v = tl.load(value_at, mask=(position < end + TILE)[:, None] & is_lane, other=0.0)",
        lambda k: test_poison_in_the_unwritten_part_of_the_last_block(k, "values", NAN, FP32),
    ),
    "drop the length bound": (
        "end = tl.minimum(begin + chunk_tokens, length)",
        "end = begin + chunk_tokens",
        lambda k: test_lengths_around_a_block_with_a_poisoned_spare_page_in_the_table(k, 17),
    ),
    "drop the score mask": (
        'score = tl.where(is_token[None, :], score, float("-inf"))',
        "score = score + 0.0",
        lambda k: test_lengths_around_a_block_with_a_poisoned_spare_page_in_the_table(k, 17),
    ),
    "int32 offsets in decode": (
        "mask=is_token, other=0).to(tl.int64)",
        "mask=is_token, other=0)",
        test_a_pool_past_2_to_the_32_elements,
    ),
    "int32 offsets in write": (
        "mask=token < tokens, other=-1)",
        "mask=token < tokens, other=-1).to(tl.int32)",
        test_a_pool_past_2_to_the_32_elements,
    ),
    "wrong kv head": (
        "(slot_row * KV_HEADS + kv_head)",
        "(slot_row * KV_HEADS + (kv_head + 1) % KV_HEADS)",
        test_query_head_31_of_32_reads_kv_head_7_of_8,
    ),
    "query heads interleaved": (
        "head = request * (KV_HEADS * GROUP) + kv_head * GROUP + row",
        "head = request * (KV_HEADS * GROUP) + row * KV_HEADS + kv_head",
        lambda k: test_group_sizes(k, 5),
    ),
    "merge without mass": (
        "weight = tl.exp2(mass - top)",
        "weight = tl.where(chunk < used, 1.0, 0.0)",
        lambda k: test_split_equals_one_pass(k, 48),
    ),
    "merge behind the length": (
        "used = (tl.load(lengths + request) + chunk_tokens - 1) // chunk_tokens",
        "used = tl.load(lengths + request) // chunk_tokens",
        lambda k: test_split_equals_one_pass(k, 48),
    ),
    "merge parts that nobody wrote": (
        "used = tl.minimum(used, chunks)",
        "used = used + 0",
        lambda k: test_a_bound_that_is_too_small_leaves_tokens_out_and_reads_nothing_else(k, 20),
    ),
    "read behind the table": (
        "length = tl.minimum(tl.load(lengths + request), columns * BLOCK_SIZE)",
        "length = tl.load(lengths + request)",
        lambda k: test_a_length_beyond_its_table_ends_with_the_table(k, Plan(16, 48, 4, 3)),
    ),
    "stale table column": (
        "table + position // BLOCK_SIZE",
        "table + (position * 0 + first) // BLOCK_SIZE",
        lambda k: test_lengths_around_a_block_with_a_poisoned_spare_page_in_the_table(k, 33),
    ),
    "weights not taken from the best score": (
        "tl.exp2(score - higher[:, None])",
        "tl.exp2(score - higher[:, None] * 0.0)",
        lambda k: test_all_scores_minus_100000_give_the_mean_of_the_values(k, FP32),
    ),
    "values where the keys belong": (
        "value_at = key_at + BLOCK_SIZE * SLOT_ELEMENTS",
        "value_at = key_at",
        lambda k: test_write_is_bitwise_and_touches_nothing_else(k, (3, 80), FP16),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_killed(name: str, tmp_path: Path) -> None:
    right, wrong, trap = MUTANTS[name]
    trap(the_kernels)  # the trap is not failing anyway
    mutant = mutated(right, wrong, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy under the interpreter warns of what the mutant computes
        with pytest.raises(AssertionError):
            trap(mutant)


def mutated(right: str, wrong: str, folder: Path) -> ModuleType:
    """The module of kernels with one piece of text replaced, from a file: Triton reads a kernel's source there."""
    source = Path(str(the_kernels.__file__)).read_text(encoding="utf-8")
    assert source.count(right) == 1, f"{right!r} must occur once"
    path = folder / "mutant_kernels.py"
    path.write_text(source.replace(right, wrong), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("mutant_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutant_kernels"] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["mutant_kernels"]
    return module
