"""What contiguous and buddy share: a request asks once, for all it may ever write, and gets one extent or nothing.

How much it asks for is its **reservation rule**. The three are those of the PagedAttention paper's baselines (Kwon et
al., SOSP 2023, section 6.1): Orca (Max), Orca (Pow2) and Orca (Oracle) are a buddy allocator with ``max``, ``pow2`` and
``oracle``. Where the extent comes from is the allocator's own business.
"""

from collections.abc import Sequence

from allocators.base import Extent, InputError, holds_already, holds_none, one_of, whole
from allocators.seam import rule

RESERVE = ("max", "pow2", "oracle")
MAX, POW2, ORACLE = range(3)


@rule
def reserved_slots(reserve: int, max_model_len: int, prompt_tokens: int, output_tokens: int) -> int:
    """Slots asked for by a rule, a place in RESERVE; ``max_model_len`` is 0 where there is none.

    ``max`` asks ``max_model_len``; ``pow2`` the prompt and the output rounded up to a power of two, at most
    ``max_model_len``; ``oracle`` exactly what will be written: the last token's state never is.
    """
    if reserve == MAX:
        return max_model_len
    if reserve == ORACLE:
        return prompt_tokens + output_tokens - 1
    power = 1
    while power < output_tokens:
        power *= 2
    asked = prompt_tokens + power - 1
    return min(asked, max_model_len) if max_model_len else asked


def check_reserve(reserve: str, max_model_len: int | None, most_slots: int) -> int | None:
    """``max_model_len`` as an int. Raises InputError for an unknown rule, and where no request could ever be placed:
    ``most_slots`` is the most that the pool can hand out to one."""
    one_of("reserve", reserve, RESERVE)
    limit = None if max_model_len is None else whole("max_model_len", max_model_len)
    if reserve != "max":
        return limit
    if limit is None:
        raise InputError("max_model_len(=None) must be given with reserve=max: it is what a request asks for")
    if limit > most_slots:
        raise InputError(
            f"max_model_len(={limit}) must be <= {most_slots}, the most this pool can ever place for one request: "
            "reserve=max asks for all of it"
        )
    return limit


class Reserving:
    """All of an allocator of one's own but where an extent comes from: a subclass writes ``_place`` and ``_give_back``.

    ``reserve``: a rule by name, see :func:`reserved_slots`.
    """

    contiguous = True
    grow_slots = 0
    tail_slots = 0

    def __init__(self, capacity: int, reserve: str, max_model_len: int | None = None) -> None:
        self.capacity = self.free_slots = self.most_slots = whole("capacity", capacity)
        self.max_model_len = check_reserve(reserve, max_model_len, self.capacity)
        self.reserve = reserve
        self._rule, self._limit = RESERVE.index(reserve), self.max_model_len or 0
        self._extents: dict[int, tuple[int, int]] = {}

    def _place(self, slots: int) -> tuple[int, int] | None:
        """Take a run of at least ``slots`` from the free ones: its start and slots; None when there is no such run,
        and nothing has changed."""
        raise NotImplementedError

    def _give_back(self, start: int, slots: int) -> None:
        """Make a run that ``_place`` returned free again."""
        raise NotImplementedError

    def asked_slots(self, prompt_tokens: int, output_tokens: int) -> int:
        """Slots asked for a request, before any rounding by the allocator."""
        return reserved_slots(self._rule, self._limit, prompt_tokens, output_tokens)

    def fits_empty(self, prompt_tokens: int, output_tokens: int) -> bool:
        return self.asked_slots(prompt_tokens, output_tokens) <= self.most_slots

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:  # noqa: ARG002
        if request_id in self._extents:
            raise holds_already(request_id)
        asked = self.asked_slots(prompt_tokens, output_tokens)
        extent = self._place(asked) if asked <= self.free_slots else None
        if extent is None:
            return 0
        self._extents[request_id] = extent
        self.free_slots -= extent[1]
        return extent[1]

    def grow(self, request_ids: Sequence[int]) -> int:
        """Nobody grows: all was reserved at once."""
        for request_id in request_ids:
            self.held_slots(request_id)  # raises for an unknown one
        return 0

    def release(self, request_id: int) -> int:
        extent = self._extents.pop(request_id, None)
        if extent is None:
            raise holds_none(request_id)
        start, slots = extent
        self._give_back(start, slots)
        self.free_slots += slots
        return slots

    def held_slots(self, request_id: int) -> int:
        return self.extents(request_id)[0].slots

    def extents(self, request_id: int) -> tuple[Extent, ...]:
        extent = self._extents.get(request_id)
        if extent is None:
            raise holds_none(request_id)
        return (Extent(*extent),)
