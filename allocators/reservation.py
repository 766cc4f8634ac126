"""How many slots a request asks for when it must be given all its memory at once.

The three rules are those of the PagedAttention paper's baselines (Kwon et al., SOSP 2023, section 6.1):
Orca (Max), Orca (Pow2) and Orca (Oracle) are a buddy allocator with ``max``, ``pow2`` and ``oracle``.
"""

from allocators.base import InputError, one_of, whole

RESERVE = ("max", "pow2", "oracle")


class Reserving:
    """The part that contiguous and buddy share: a request asks once, and never grows.

    ``reserve``: ``max`` asks ``max_model_len``; ``pow2`` the prompt and the output rounded up to a power of
    two, at most ``max_model_len``; ``oracle`` exactly what will be written, P + G - 1.
    """

    contiguous = True
    grow_slots = 0

    def __init__(self, reserve: str, max_model_len: int | None) -> None:
        self.reserve = one_of("reserve", reserve, RESERVE)
        self.max_model_len = None if max_model_len is None else whole("max_model_len", max_model_len)
        if reserve == "max" and max_model_len is None:
            raise InputError("max_model_len(=None) must be given with reserve=max: it is what a request asks for")

    def asked_slots(self, prompt_tokens: int, output_tokens: int) -> int:
        """Slots asked for a request, before any rounding by the allocator."""
        if self.reserve == "oracle":
            return prompt_tokens + output_tokens - 1
        limit = self.max_model_len
        if self.reserve == "max" and limit is not None:
            return limit
        # 2 ** ceil(log2 G) without floats; the last token's state is never written, hence the - 1.
        asked = prompt_tokens + (1 << (output_tokens - 1).bit_length()) - 1
        return asked if limit is None else min(asked, limit)

    def _must_place(self, most_slots: int) -> None:
        """Refuse a pool in which reserve=max could never place a single request."""
        if self.reserve == "max" and self.asked_slots(1, 1) > most_slots:
            raise InputError(
                f"max_model_len(={self.max_model_len}) must be <= {most_slots}, the most this pool can ever place "
                "for one request: reserve=max asks for all of it"
            )
