"""``kvfrag`` and ``python -m simulator``: run the command line, and turn every failure into one line and an exit code."""

import os
import sys

INPUT_WRONG, FAILED, INTERRUPTED = 2, 1, 130


def main() -> None:
    """Run ``kvfrag`` with the process's arguments. Exit codes: 0 done, 2 wrong input, 1 anything else, 130 interrupted."""
    try:
        code = _run()
    except KeyboardInterrupt:
        code = _say("interrupted", INTERRUPTED)
    sys.exit(code)


def _run() -> int:
    # Imported here, so that an interrupt during the imports ends in one line too.
    from typer.exceptions import Abort, TyperException

    from allocators.base import InputError
    from simulator.cli import app

    try:
        return app(sys.argv[1:] or ["--help"], prog_name="kvfrag", standalone_mode=False) or 0
    except Abort:
        return _say("interrupted", INTERRUPTED)
    except TyperException as error:
        return _say(error.format_message(), INPUT_WRONG)
    except InputError as error:
        return _say(str(error), INPUT_WRONG)
    except BrokenPipeError:
        # Whoever read our output has left; Python would complain once more when it flushes on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if os.environ.get("KVFRAG_TRACEBACK"):
            raise
        return _say(f"internal error: {type(error).__name__}: {error} (KVFRAG_TRACEBACK=1 shows where)", FAILED)


def _say(message: str, code: int) -> int:
    print("kvfrag:", " ".join(message.split()), file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
