"""Memory managers for a KV cache: which slots belong to which request, address by address."""

from allocators.base import Allocator, Extent, InputError, MisuseError
from allocators.buddy import Buddy
from allocators.check import check_allocator
from allocators.contiguous import Contiguous
from allocators.paged import Paged
from allocators.reservation import Reserving
from allocators.spec import ALLOCATORS, make_allocator, parse_spec

__all__ = [
    "ALLOCATORS",
    "Allocator",
    "Buddy",
    "Contiguous",
    "Extent",
    "InputError",
    "MisuseError",
    "Paged",
    "Reserving",
    "check_allocator",
    "make_allocator",
    "parse_spec",
]
