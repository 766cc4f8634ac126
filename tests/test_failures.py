"""What went wrong, in one line."""

from allocators.failures import told


def test_an_error_is_told_in_one_line_with_its_place() -> None:
    try:
        raise RuntimeError("two\nlines")
    except RuntimeError as error:
        assert told(error).startswith("RuntimeError: two lines (test_failures.py, line ")


def test_the_first_cause_is_what_is_told() -> None:
    try:
        try:
            raise KeyError("mine")
        except KeyError as cause:
            raise ValueError("a copy of it") from cause
    except ValueError as error:
        assert told(error).startswith("KeyError: 'mine' (test_failures.py, line ")
    assert told(ValueError("never raised")) == "ValueError: never raised"
