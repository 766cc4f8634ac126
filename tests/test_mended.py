"""Faults that were found once: in the conformance kit, in specs and in a watermark. Each stays mended."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from allocators import Extent, InputError, Paged, check_allocator, make_allocator
from allocators.twins import BrokenPromiseError
from test_check import Toy


# ---- the kit: what breaks a promise with another exception, or is not looked at
class RaisesKeyError(Toy):
    def table(self, request_id: int) -> list[int]:
        return self.slots[request_id]


class RaisesWhenFull(Toy):
    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        if prompt_tokens > len(self.free):
            raise MemoryError("full")
        return super().admit(request_id, prompt_tokens, output_tokens, alone)


class AdmitPlacesNothing(Toy):
    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        held = super().admit(request_id, prompt_tokens, output_tokens, alone)
        if held:
            self.release(request_id)
        return held


class UnknownHasNoExtents(Toy):
    def extents(self, request_id: int) -> tuple[Extent, ...]:
        return super().extents(request_id) if request_id in self.slots else ()


class FitsOnlyThePrompt(Toy):
    def fits_empty(self, prompt_tokens: int, output_tokens: int) -> bool:
        return prompt_tokens <= self.capacity


class FitsEverything(Toy):
    def fits_empty(self, prompt_tokens: int, output_tokens: int) -> bool:
        return True


class FitsNothing(Toy):
    def fits_empty(self, prompt_tokens: int, output_tokens: int) -> bool:
        return False


class GrowsThoughItNeverGrows(Toy):
    grow_slots = 0

    def asked_slots(self, prompt_tokens: int, output_tokens: int) -> int:
        return prompt_tokens + output_tokens - 1

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        return super().admit(request_id, prompt_tokens + output_tokens - 1, 1, alone)

    def grow(self, request_ids: Sequence[int]) -> int:
        return len([self.table(request_id) for request_id in request_ids])


class LargestIsZero(Toy):
    largest_free_slots = 0


class ContiguousInPieces(Toy):
    contiguous = True

    @property
    def largest_free_slots(self) -> int:
        return min(1, len(self.free))


class NegativeTail(Toy):
    tail_slots = -3


@pytest.mark.parametrize(
    "mutant",
    [
        RaisesKeyError,
        RaisesWhenFull,
        AdmitPlacesNothing,
        UnknownHasNoExtents,
        FitsOnlyThePrompt,
        FitsEverything,
        FitsNothing,
        GrowsThoughItNeverGrows,
        LargestIsZero,
        ContiguousInPieces,
        NegativeTail,
    ],
)
def test_kit(mutant: type[Toy]) -> None:
    with pytest.raises(BrokenPromiseError):
        check_allocator(mutant)


# ---- spec
@pytest.mark.parametrize("watermark", ["0.1234567890123456789012345678901234", "0.99999999999999999999999999999999999"])
def test_watermark_round_trips(watermark: str) -> None:
    pool = Paged(1600, watermark=watermark)
    assert pool.spec == f"paged:block_size=16,watermark={watermark}"
    assert make_allocator(pool.spec, 1600).spec == pool.spec


@pytest.mark.parametrize(
    "make",
    [
        lambda: Paged(100, watermark="x\ny"),
        lambda: make_allocator("paged:watermark=a\nb", 100),
        lambda: make_allocator("a\nb.C", 100),
    ],
)
def test_one_line(make: Callable[[], object]) -> None:
    with pytest.raises(InputError) as told:
        make()
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "text", [".a.B", "..x", "builtins.int", "math.sqrt", "fractions.Fraction", "os.getcwd", "json.dumps"]
)
def test_no_allocator(text: str) -> None:
    with pytest.raises(InputError) as told:
        make_allocator(text, 100)
    assert "allocator" in str(told.value)


OWN = """
from typing import Literal, Optional
from allocators import Paged
class A(Paged):
    def __init__(self, capacity: int, block: Optional[int] = None, kind: Literal["a", "b"] = "a", **rest: int):
        super().__init__(capacity, block or 16)
"""


@pytest.mark.parametrize("text", ["own_hints.A:block=4", "own_hints.A:kind=a", "own_hints.A"])
def test_hints(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_hints.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    make_allocator(text, 100)


def test_import_error_of_many_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_lines.py").write_text("raise ImportError('one\\ntwo')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError) as told:
        make_allocator("own_lines.A", 100)
    assert "\n" not in str(told.value)
