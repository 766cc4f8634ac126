"""The estimate beside real start-ups of vLLM: each row's error, and that ``docs/limits.md`` has this table."""

from pathlib import Path

import pytest

from startups import ROWS, V0_ROWS, StartUp, table

LIMITS = (Path(__file__).parents[1] / "docs" / "limits.md").read_text("utf-8")

# Percent above the real pool: of total x utilisation - weights, and of the estimate.
ERRORS = {
    "1 Llama-3.1-8B": (9.6, 0.0),
    "2 Llama-3.3-70B-FP8": (17.0, 0.3),
    "3 gpt-oss-20b": (14.9, -0.2),
    "5 Qwen3-0.6B": (8.8, -0.1),
    "6 Qwen3-32B": (130.1, 0.2),
    "7 Qwen3-32B": (18.1, 0.2),
    "8 Mistral-Small-24B": (11.0, -6.7),
    "9 Llama-3.1-8B": (22.9, -3.3),
    "14 Gemma-3-4B": (8.0, 1.1),
    "19 Qwen3-8B": (11.2, -1.4),
    "21 gpt-oss-120b": (14.5, 1.8),
}


def name(row: StartUp) -> str:
    return f"{row.number} {row.model.name}"


@pytest.mark.parametrize("row", ROWS, ids=name)
def test_the_error_of_each_comparable_start_up(row: StartUp) -> None:
    errors = (round(row.error(row.naive_gib), 1), round(row.error(row.estimated_gib), 1))
    assert errors == ERRORS[name(row)]


def test_every_row_is_closer_than_the_naive_sum_and_all_but_one_within_four_percent() -> None:
    off = {name(row): abs(row.error(row.estimated_gib)) for row in ROWS}
    assert all(off[name(row)] < abs(row.error(row.naive_gib)) for row in ROWS)
    assert [row for row, percent in off.items() if percent > 4] == ["8 Mistral-Small-24B"]


def test_a_slot_is_what_the_logged_tokens_are_made_of() -> None:
    """Tokens and GiB of the same log: 184,832 tokens in 28.20 GiB, 18,418 blocks of 16 in 21.43 GiB (rows padded)."""
    by_number = {row.number: row for row in ROWS}
    assert abs(184_832 * by_number["8"].model.bytes_per_slot / 2**30 - 28.20) < 0.01
    assert abs(2_588 * 16 * by_number["9"].model.bytes_per_slot / 2**30 - 5.05) < 0.01


@pytest.mark.parametrize("rows", [ROWS, V0_ROWS], ids=["V1", "V0"])
def test_the_documented_table_is_this_one(rows: list[StartUp]) -> None:
    assert "\n".join(table(rows)) in LIMITS
