"""Memory managers for a KV cache: which slots belong to which request, address by address.

The names below are imported when they are first used: an error is told even where numpy is missing.
"""

from typing import TYPE_CHECKING

from allocators.lazy import lazily

if TYPE_CHECKING:
    from allocators.base import Allocator, Extent, InputError, MisuseError
    from allocators.buddy import Buddy
    from allocators.check import check_allocator
    from allocators.contiguous import Contiguous
    from allocators.paged import Paged
    from allocators.reservation import Reserving
    from allocators.spec import ALLOCATORS, make_allocator, parse_spec

_HOMES = {
    "ALLOCATORS": "allocators.spec",
    "Allocator": "allocators.base",
    "Buddy": "allocators.buddy",
    "Contiguous": "allocators.contiguous",
    "Extent": "allocators.base",
    "InputError": "allocators.base",
    "MisuseError": "allocators.base",
    "Paged": "allocators.paged",
    "Reserving": "allocators.reservation",
    "check_allocator": "allocators.check",
    "make_allocator": "allocators.spec",
    "parse_spec": "allocators.spec",
}

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

__getattr__, __dir__ = lazily(__name__, _HOMES)
