"""``kvfrag`` and ``python -m simulator``: run the command line; every failure ends in one line and an exit code."""

import errno
import os
import sys
from io import TextIOWrapper
from pathlib import Path

INPUT_WRONG, FAILED, INTERRUPTED = 2, 1, 130
_OUTPUT_FAILURES = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main() -> None:
    """Run ``kvfrag`` with the process's arguments. Exit codes: 0 done, 2 wrong input, 130 interrupted, 1 all else."""
    try:
        _prepare_output()
        code = _run()
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = _say("interrupted", INTERRUPTED)
    except OSError as error:
        code = _say_output_failed(error)
    sys.exit(code)


def _prepare_output() -> None:
    """Output that is closed goes nowhere, and a character that its encoding lacks is shown as '?'."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
        elif name == "stdout" and isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _run() -> int:
    # Imported here, so that an interrupt during the imports ends in one line too.
    from importlib.metadata import entry_points

    from typer.exceptions import TyperException

    from allocators.base import InputError
    from simulator.cli import app
    from simulator.options import StoppedError

    # A user's own allocator may lie in the current folder; what is installed goes before it.
    if "" not in sys.path:
        sys.path.append("")
    for command in entry_points(group="kvfrag.commands"):  # kvfrag gpu, and whoever else offers some
        app.add_typer(command.load(), name=command.name)
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
    except Exception as error:
        if os.environ.get("KVFRAG_TRACEBACK"):
            raise
        if isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT_FAILURES:
            raise
        from simulator.failures import told

        return _say(f"{told(error)}; KVFRAG_TRACEBACK=1 shows the way there", FAILED)
    if code == INTERRUPTED:  # Typer makes an exit code of it
        raise KeyboardInterrupt
    return code


def _say_output_failed(error: OSError) -> int:
    # Python would try to write what is left once more on its way out.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return FAILED  # whoever read it has left, and knows
    return _say(f"standard output cannot be written: {error.strerror}", FAILED)


def _say(message: str, code: int) -> int:
    print("kvfrag:", " ".join(message.split()), file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
