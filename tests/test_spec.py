"""The mini-language: the project's allocators by name, and a user's own by its dotted path."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from allocators import ALLOCATORS, Allocator, InputError, check_allocator, make_allocator, parse_spec

CAPACITY, MAX_MODEL_LEN = 15_728, 2048

# What a user writes, with nothing but the protocol at hand.
OWN = '''
from allocators import Extent, MisuseError


class Slab:
    """Slabs of equal size, one a request."""

    contiguous = True
    grow_slots = 0

    def __init__(self, capacity: int, slab: int, highest: bool = False, spare: float = 0, limit: int | None = 9,
                 scale: int | float = 1):
        self.capacity, self.slab, self.highest, self.spare = capacity, slab, highest, spare
        self.limit, self.scale = limit, scale
        self.tail_slots = capacity % slab
        self.starts = list(range(0, capacity - self.tail_slots, slab))
        self.held = {}

    spec = property(lambda self: f"own_slabs.Slab:slab={self.slab}")
    free_slots = property(lambda self: self.capacity - self.slab * len(self.held))
    largest_free_slots = property(lambda self: self.slab if self.starts else 0)

    def asked_slots(self, prompt_tokens, output_tokens):
        return prompt_tokens + output_tokens - 1

    def fits_empty(self, prompt_tokens, output_tokens):
        return self.asked_slots(prompt_tokens, output_tokens) <= self.slab

    def admit(self, request_id, prompt_tokens, output_tokens, alone=False):
        if request_id in self.held:
            raise MisuseError(f"{request_id} is there")
        if not self.starts or not self.fits_empty(prompt_tokens, output_tokens):
            return 0
        self.held[request_id] = self.starts.pop(-1 if self.highest else 0)
        return self.slab

    def grow(self, request_ids):
        return 0 * sum(self.held_slots(request_id) for request_id in request_ids)

    def release(self, request_id):
        slab = self.held_slots(request_id)
        self.starts = sorted([*self.starts, self.held.pop(request_id)])
        return slab

    def held_slots(self, request_id):
        return self.extents(request_id)[0].slots

    def extents(self, request_id):
        if request_id not in self.held:
            raise MisuseError(f"{request_id} is not there")
        return (Extent(self.held[request_id], self.slab),)


class Bare(Slab):
    def __init__(self, capacity):
        super().__init__(capacity, slab=10)


class Untyped(Bare):
    def __init__(self, capacity, text="x", *, max_model_len):
        super().__init__(capacity)
        self.given = text, max_model_len


def whole_slab(capacity: int, count: int = 1) -> Slab:
    return Slab(capacity, capacity // count)


VALUE = 7
'''


@pytest.fixture
def own_slabs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "own_slabs.py").write_text(OWN)
    (tmp_path / "own_broken.py").write_text("import a_module_that_is_not_there\n")
    (tmp_path / "own_failing.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_slabs", None)


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("paged", "paged", {}),
        ("paged:", "paged", {}),
        ("paged:block_size=16", "paged", {"block_size": "16"}),
        (" buddy : split = largest , min_block=16 ", "buddy", {"split": "largest", "min_block": "16"}),
        ("a.b.C:path=x:y=z", "a.b.C", {"path": "x:y=z"}),
    ],
)
def test_a_spec_is_split_into_a_name_and_its_options(text: str, name: str, options: dict[str, str]) -> None:
    assert parse_spec(text) == (name, options)
    assert list(parse_spec(text)[1]) == list(options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' must start with a name, as in name:key=value,key=value"),
        (" :block_size=16", "' :block_size=16' must start with a name, as in name:key=value,key=value"),
        ("paged:16", "'16' in 'paged:16' must read key=value, as in name:key=value,key=value"),
        (
            "paged:block_size=",
            "'block_size=' in 'paged:block_size=' must read key=value, as in name:key=value,key=value",
        ),
        ("paged:=16", "'=16' in 'paged:=16' must read key=value, as in name:key=value,key=value"),
        ("paged:a=1,,b=2", "'' in 'paged:a=1,,b=2' must read key=value, as in name:key=value,key=value"),
        ("paged:a=1,\n", "'' in 'paged:a=1,\\n' must read key=value, as in name:key=value,key=value"),
        ("paged:a=1,a=1", "'a' is given twice in 'paged:a=1,a=1'"),
    ],
)
def test_a_text_that_is_no_spec_is_told_in_one_line(text: str, message: str) -> None:
    for read in (parse_spec, lambda text: make_allocator(text, CAPACITY)):
        with pytest.raises(InputError) as told:
            read(text)
        assert str(told.value) == message


@pytest.mark.parametrize(
    ("text", "filled_in"),
    [
        ("contiguous", "contiguous:reserve=max,fit=first"),
        ("contiguous:fit=next,reserve=oracle", "contiguous:reserve=oracle,fit=next"),
        ("buddy", "buddy:reserve=max,min_block=1,max_block=none,split=smallest"),
        ("buddy:max_block=none", "buddy:reserve=max,min_block=1,max_block=none,split=smallest"),
        ("paged", "paged:block_size=16,watermark=0"),
        ("paged:block_size=16,watermark=0.01", "paged:block_size=16,watermark=0.01"),
        ("paged:block_size=1,watermark=1e-3", "paged:block_size=1,watermark=0.001"),
        ("paged:watermark=0.50", "paged:block_size=16,watermark=0.5"),
    ]
    + [
        (f"contiguous:reserve={reserve},fit={fit}", f"contiguous:reserve={reserve},fit={fit}")
        for reserve in ("max", "pow2", "oracle")
        for fit in ("first", "best", "worst", "next")
    ]
    + [
        (f"buddy:{options}", f"buddy:{options}")
        for options in ("reserve=pow2,min_block=16,max_block=2048,split=largest",)
    ]
    + [
        (f"buddy:reserve={reserve},split={split}", f"buddy:reserve={reserve},min_block=1,max_block=none,split={split}")
        for reserve in ("max", "pow2", "oracle")
        for split in ("smallest", "largest")
    ],
)
def test_a_spec_has_its_defaults_filled_in_and_makes_the_same_again(text: str, filled_in: str) -> None:
    allocator = make_allocator(text, CAPACITY, MAX_MODEL_LEN)
    again = make_allocator(filled_in, CAPACITY, MAX_MODEL_LEN)
    assert isinstance(allocator, Allocator)
    assert isinstance(allocator, type(again))
    assert (allocator.spec, again.spec) == (filled_in, filled_in)
    assert (allocator.capacity, again.capacity) == (CAPACITY, CAPACITY)
    for request_id, (prompt_tokens, output_tokens) in enumerate([(700, 33), (1, 1), (2000, 40)]):
        held = allocator.admit(request_id, prompt_tokens, output_tokens)
        assert held == again.admit(request_id, prompt_tokens, output_tokens) > 0
        assert allocator.extents(request_id) == again.extents(request_id)


def test_options_reach_the_allocator() -> None:
    buddy = make_allocator("buddy:min_block=16,max_block=2048,split=largest", CAPACITY, MAX_MODEL_LEN)
    assert (buddy.asked_slots(1, 1), buddy.largest_free_slots) == (MAX_MODEL_LEN, 2048)
    paged = make_allocator("paged:block_size=8,watermark=0.5", 80)
    assert (paged.admit(1, 41, 1), paged.admit(1, 40, 1), paged.grow_slots) == (0, 40, 8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "pagd:block_size=16",
            "unknown allocator 'pagd'; choose from buddy, contiguous, paged, or name your own as package.module.Class",
        ),
        ("paged:block=16", "unknown option 'block' of paged; choose from block_size, watermark"),
        ("paged:capacity=16", "unknown option 'capacity' of paged; choose from block_size, watermark"),
        ("contiguous:max_model_len=9", "unknown option 'max_model_len' of contiguous; choose from fit, reserve"),
        ("buddy:fit=best", "unknown option 'fit' of buddy; choose from max_block, min_block, reserve, split"),
        ("paged:block_size=1.5", "block_size of paged(='1.5') must be a whole number"),
        ("paged:block_size=none", "block_size of paged(='none') must be a whole number"),
        ("buddy:max_block=x", "max_block of buddy(='x') must be a whole number"),
        ("paged:block_size=0", "block_size(=0) must be a whole number >= 1"),
        ("contiguous:fit=tight", "fit(='tight') must be one of first, best, worst, next"),
        ("paged:block_size=20000", "capacity(=15728) must be >= block_size(=20000)"),
    ],
)
def test_an_unknown_name_option_or_value_lists_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(InputError) as told:
        make_allocator(text, CAPACITY, MAX_MODEL_LEN)
    assert str(told.value) == message


@pytest.mark.usefixtures("own_slabs")
def test_a_users_own_allocator_is_made_by_its_dotted_path_and_keeps_the_protocol() -> None:
    allocator = make_allocator("own_slabs.Slab:slab=16", 100, MAX_MODEL_LEN)
    assert isinstance(allocator, Allocator)
    assert (allocator.spec, allocator.tail_slots, allocator.admit(1, 16, 1)) == ("own_slabs.Slab:slab=16", 4, 16)
    assert make_allocator(allocator.spec, 100).spec == allocator.spec
    for options in ("slab=8", "slab=8,highest=true"):
        check_allocator(lambda: make_allocator(f"own_slabs.Slab:{options}", 100), steps=300)  # noqa: B023


@pytest.mark.usefixtures("own_slabs")
@pytest.mark.parametrize(
    ("options", "given"),
    [
        ("slab=7", (7, False, 0, 9, 1)),
        ("slab=7,highest=true", (7, True, 0, 9, 1)),
        ("slab=7,highest=false,spare=0.5", (7, False, 0.5, 9, 1)),
        ("slab=7,spare=1e-2,limit=none", (7, False, 0.01, None, 1)),
        ("slab=7,spare=2,limit=-3,scale=2", (7, False, 2.0, -3, 2)),
        ("slab=7,scale=0.5", (7, False, 0, 9, 0.5)),
    ],
)
def test_options_are_read_as_the_type_hints_say(options: str, given: tuple[object, ...]) -> None:
    slab = vars(make_allocator(f"own_slabs.Slab:{options}", 100))
    read = tuple(slab[name] for name in ("slab", "highest", "spare", "limit", "scale"))
    assert read == given
    assert [type(value) for value in read] == [type(value) for value in given]


@pytest.mark.usefixtures("own_slabs")
def test_an_own_constructor_gets_what_it_takes() -> None:
    assert make_allocator("own_slabs.Bare", 100, 50).spec == "own_slabs.Slab:slab=10"
    assert vars(make_allocator("own_slabs.Untyped", 100, 50))["given"] == ("x", 50)
    assert vars(make_allocator("own_slabs.Untyped:text=7", 100))["given"] == ("7", None)
    assert make_allocator("own_slabs.whole_slab:count=2", 100).spec == "own_slabs.Slab:slab=50"


@pytest.mark.usefixtures("own_slabs")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("own_slabs.Slab", "own_slabs.Slab needs slab, as in own_slabs.Slab:slab=..."),
        ("own_slabs.Slab:highest=true", "own_slabs.Slab needs slab, as in own_slabs.Slab:slab=..."),
        (
            "own_slabs.Slab:size=4",
            "unknown option 'size' of own_slabs.Slab; choose from highest, limit, scale, slab, spare",
        ),
        ("own_slabs.Bare:slab=4", "unknown option 'slab' of own_slabs.Bare; choose from (none)"),
        ("own_slabs.Slab:slab=4,slab=5", "'slab' is given twice in 'own_slabs.Slab:slab=4,slab=5'"),
        ("own_slabs.Slab:slab=four", "slab of own_slabs.Slab(='four') must be a whole number"),
        ("own_slabs.Slab:slab=4,highest=True", "highest of own_slabs.Slab(='True') must be true or false"),
        ("own_slabs.Slab:slab=4,highest=1", "highest of own_slabs.Slab(='1') must be true or false"),
        ("own_slabs.Slab:slab=4,spare=some", "spare of own_slabs.Slab(='some') must be a number"),
        ("own_slabs.Slab:slab=4,limit=0.5", "limit of own_slabs.Slab(='0.5') must be a whole number"),
        (
            "own_slabs.Slap:slab=4",
            "unknown allocator 'own_slabs.Slap'; choose from buddy, contiguous, paged (own_slabs has no class Slap)",
        ),
        (
            "own_slabs.VALUE",
            "unknown allocator 'own_slabs.VALUE'; choose from buddy, contiguous, paged (own_slabs has no class VALUE)",
        ),
        (
            "own_slab.Slab",
            "unknown allocator 'own_slab.Slab'; choose from buddy, contiguous, paged "
            "(own_slab cannot be imported: No module named 'own_slab')",
        ),
        (
            "own_broken.Slab",
            "own_broken cannot be imported: ModuleNotFoundError: No module named 'a_module_that_is_not_there' "
            "(own_broken.py, line 1)",
        ),
        ("own_failing.Slab", "own_failing cannot be imported: SystemExit: 3 (own_failing.py, line 1)"),
        (
            "os.getcwd",
            "os.getcwd is not an allocator class: it must take the capacity, in slots, as its first argument",
        ),
    ],
)
def test_what_is_wrong_with_an_own_allocator_is_told_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as told:
        make_allocator(text, 100)
    assert str(told.value) == message


def test_a_thing_that_is_no_class_of_python_is_told() -> None:
    with pytest.raises(InputError, match=r"^builtins\.int is not an allocator class: no signature"):
        make_allocator("builtins.int", 100)


def test_the_table_has_the_projects_allocators() -> None:
    assert list(ALLOCATORS) == sorted(ALLOCATORS) == ["buddy", "contiguous", "paged"]
    for name in ALLOCATORS:
        assert make_allocator(name, CAPACITY, MAX_MODEL_LEN).spec.startswith(f"{name}:")
