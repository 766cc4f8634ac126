"""``kvfrag`` and ``python -m simulator``: run the command line; every failure ends in one line and an exit code."""

import os
import signal
import sys
import threading
from contextlib import suppress
from time import monotonic

from simulator.cli.standard import STANDARD_OUTPUT, prepare_output, say

INPUT_WRONG, FAILED, INTERRUPTED = 2, 1, 130
_DEAF_S = 2.0


def main() -> None:
    """Run ``kvfrag`` with the process's arguments.

    Exit codes: 0 done, 2 wrong input, 130 interrupted, 143 terminated, 1 all else.
    """
    stop = _Stop()
    try:
        stop.listen()
        prepare_output()
        code = _run()
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = _say("interrupted", INTERRUPTED)
    except OSError as error:
        if error.filename != STANDARD_OUTPUT:
            raise
        code = _say_output_failed(error)
    stop.leave()
    sys.exit(stop.code if code == INTERRUPTED else code)


class _Stop:
    """Ctrl-C, and SIGTERM just so: one KeyboardInterrupt, and deaf to more of them while the command clears up.

    Not for ever: an interrupt can get lost in code that swallows exceptions, and is then repeated.
    """

    def __init__(self) -> None:
        self.code = INTERRUPTED
        self._process, self._deaf_until = os.getpid(), 0.0

    def listen(self) -> None:
        """From now on; a signal that our starter wants to be ignored stays so."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.getsignal(number)
                if before in (signal.default_int_handler, signal.SIG_DFL) or isinstance(before, _Stop):
                    signal.signal(number, self)

    def leave(self) -> None:
        """Whoever was stopped is deaf for good now: at its end the interpreter lets go of handlers."""
        if self._deaf_until:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)

    def __call__(self, number: int, _: object) -> None:
        if os.getpid() != self._process:  # a child that was born with this handler
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif monotonic() >= self._deaf_until:
            self.code, self._deaf_until = 128 + number, monotonic() + _DEAF_S
            raise KeyboardInterrupt


def _run() -> int:
    # Imported here, so that an interrupt during the imports ends in one line too, and so does one that fails.
    try:
        from typer.exceptions import TyperException

        from allocators.base import InputError
        from simulator.cli.app import app
        from simulator.cli.options import StoppedError
        from simulator.cli.plugins import BrokenCommandError, add_commands

        # A user's own allocator may lie in the current folder; what is installed goes before it.
        if "" not in sys.path:
            sys.path.append("")
        add_commands(app)
    except Exception as error:
        return _say_failed(error)
    try:
        code: int = app(sys.argv[1:] or ["--help"], prog_name="kvfrag", standalone_mode=False) or 0
    except TyperException as error:
        context = getattr(error, "ctx", None)
        hint = f"; see {context.command_path} --help" if context else ""
        return _say(error.format_message().rstrip(".") + hint, INPUT_WRONG)
    except InputError as error:
        return _say(str(error), INPUT_WRONG)
    except StoppedError as error:
        return _say(f"interrupted; {error}", INTERRUPTED)
    except BrokenCommandError as error:
        return _say(str(error), FAILED)
    except Exception as error:
        return _say_failed(error)
    if code == INTERRUPTED:  # Typer makes an exit code of it
        raise KeyboardInterrupt
    return code


def _say_failed(error: Exception) -> int:
    if os.environ.get("KVFRAG_TRACEBACK") or (isinstance(error, OSError) and error.filename == STANDARD_OUTPUT):
        raise error
    from allocators.failures import told

    return _say(f"{told(error)}; KVFRAG_TRACEBACK=1 shows the way there", FAILED)


def _say_output_failed(error: OSError) -> int:
    # Python would try to write what is left once more on its way out.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return FAILED  # whoever read it has left, and knows
    return _say(f"{STANDARD_OUTPUT} cannot be written: {error.strerror}", FAILED)


def _say(message: str, code: int) -> int:
    with suppress(OSError):  # standard error is full, or nobody reads it: the exit code remains
        say(f"kvfrag: {' '.join(message.split())}")
    return code


if __name__ == "__main__":
    main()
