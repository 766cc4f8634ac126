"""Keys, values and queries that are a function of request and position, so that nobody has to remember them.

Every element is a whole number of 64ths between -127/64 and 127/64: exact in bf16, fp16 and fp32, so what is read back
must be equal bit for bit. The number comes from a mixing function (the finaliser of SplitMix64, Steele, Lea and Flood,
OOPSLA 2014), so two tokens of two requests share a vector by no pattern.
"""

import torch

from gpu.shapes import Layout

MASK = 2**64 - 1
REQUEST, POSITION, LANE = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
QUERY_SALT = 0x27D4EB2F165667C5


def key_values(request_ids: torch.Tensor, positions: torch.Tensor, layout: Layout) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values ``[tokens, kv_heads, head_dim]`` of the layout's dtype.

    request_ids and positions int64 ``[tokens]``, on the device where the result is to be.
    """
    both = _elements(request_ids, positions, 2 * layout.kv_heads * layout.head_dim, 0).to(layout.dtype)
    both = both.reshape(len(positions), 2, layout.kv_heads, layout.head_dim)
    return both[:, 0], both[:, 1]


def queries(request_ids: torch.Tensor, positions: torch.Tensor, query_heads: int, layout: Layout) -> torch.Tensor:
    """Queries ``[tokens, query_heads, head_dim]`` of the layout's dtype; the arguments as in :func:`key_values`."""
    elements = _elements(request_ids, positions, query_heads * layout.head_dim, QUERY_SALT)
    return elements.to(layout.dtype).reshape(len(positions), query_heads, layout.head_dim)


def _elements(request_ids: torch.Tensor, positions: torch.Tensor, lanes: int, salt: int) -> torch.Tensor:
    """fp32 ``[tokens, lanes]``. Products wrap around modulo 2^64, on every device."""
    lane = torch.arange(lanes, dtype=torch.int64, device=positions.device) * _signed(LANE)
    token = request_ids * _signed(REQUEST) + positions * _signed(POSITION) + _signed(salt)
    mixed = token[:, None] + lane
    for multiplier, shift in ((0xBF58476D1CE4E5B9, 30), (0x94D049BB133111EB, 27)):
        mixed = (mixed ^ (mixed >> shift)) * _signed(multiplier)
    mixed = mixed ^ (mixed >> 31)
    return ((mixed >> 20) % 255 - 127).to(torch.float32) / 64


def _signed(number: int) -> int:
    """A 64-bit pattern as torch's int64 has it."""
    number &= MASK
    return number - 2**64 if number >> 63 else number
