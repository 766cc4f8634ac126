"""Python functions that compiled code calls, through pointers: of an allocator, or a scheduler, of a user's own.

What such a function raises is kept, and raised again once the compiled code has been left.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import numba.experimental.function_type  # noqa: F401 - without it compiled code takes no such argument
from numba import types
from numba.core.types import WrapperAddressProtocol

FAILED = -(1 << 62)
"""What a callback returns when its function raised something."""


class CalledError(Exception):
    """Raised in compiled code when a callback has failed: see ``Callbacks.error``."""


class Callback(WrapperAddressProtocol):
    """A Python function of 64-bit integers, as compiled code can call it. It must not raise."""

    def __init__(self, function: Callable[..., int], arguments: int) -> None:
        self.function, self.arguments = function, arguments
        # Not CFUNCTYPE: the loop runs with Python's lock held.
        self._pointer = ctypes.PYFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * arguments)(function)

    def __wrapper_address__(self) -> int:
        address = ctypes.cast(self._pointer, ctypes.c_void_p).value
        assert address is not None
        return address

    def signature(self) -> Any:
        return types.int64(*[types.int64] * self.arguments)

    def __call__(self, *arguments: int) -> int:
        return self.function(*map(int, arguments))  # as compiled code does


class Callbacks:
    """Makes callbacks, and keeps what one of them raised."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def of(self, function: Callable[..., int], arguments: int) -> Callback:
        """A function, of so many arguments, as a callback."""

        def call(*given: int) -> int:
            try:
                return function(*given)
            except BaseException as error:  # Ctrl-C too: nothing passes through compiled code
                self.error = error
                return FAILED

        return Callback(call, arguments)

    def raised(self) -> BaseException:
        """What was raised, after a CalledError."""
        assert self.error is not None
        return self.error
