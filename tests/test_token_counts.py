"""How many tokens a text has where no tokenizer says: its words, or its characters where it hardly has blanks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators import InputError
from simulator.traces.text.token_counts import TokenCounter

CHINESE = "大语言模型的键值缓存占用显存，因此需要分页。"
JAPANESE = "これはテストです。長い文章を書きます。"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("why is\nthis", 3),
        ("", 0),
        ("   ", 0),
        ("antidisestablishmentarianism", 1),
        ("안녕하세요 세계 여러분", 3),  # Korean has blanks
        (CHINESE, 22),
        ("好的", 2),
        (JAPANESE, 19),
        ("สวัสดีครับ", 10),
        (CHINESE * 20, 440),
        ("使用分页 KV 缓存管理显存", 12),  # mostly Chinese, with blanks around what is not
        ("the word 缓存 means cache", 5),
        ("x" * 360, 360),
        ("x" * 40 + " y", 2),
        ("x" * 80 + " y", 81),
    ],
)
def test_words_or_characters(text: str, tokens: int) -> None:
    counter = TokenCounter()
    assert counter.answer(text) == counter.prompt(text) == tokens


def test_an_answer_of_360_characters_is_not_one_token() -> None:
    assert TokenCounter().answer("答" * 360) == 360


def test_it_says_which_way_and_of_how_many_texts() -> None:
    counter = TokenCounter()
    assert (list(counter.notes()), counter.guesses) == ([], False)
    for text in ("a b", "c", CHINESE):
        counter.answer(text)
    assert list(counter.notes()) == [
        "for want of a tokenizer, tokens are words between blanks (texts: 2), characters in texts with hardly any "
        "blanks (texts: 1): --tokenizer tokenizer.json counts them"
    ]
    assert counter.guesses


def test_a_function_counts_and_special_tokens_are_the_prompts() -> None:
    counter = TokenCounter(len, "tokenizer.json", 2)
    assert list(counter.notes()) == ["the tokenizer was not used: the file says how many tokens there are"]
    assert (counter.prompt("abc"), counter.answer("abc")) == (5, 3)
    assert list(counter.notes()) == [
        "tokens are those of tokenizer.json (texts: 2), and 2 special more for each prompt (such as BOS)"
    ]
    assert not counter.guesses
    own = TokenCounter(len)
    own.answer("a")
    assert list(own.notes()) == []


@pytest.mark.parametrize("wrong", [lambda _: 1 // 0, lambda _: None, lambda _: 1.5, lambda _: "3"])
def test_a_function_that_fails_is_told(wrong: object) -> None:
    with pytest.raises(InputError, match="counting tokens failed: "):
        TokenCounter(wrong).prompt("a")  # type: ignore[arg-type]


@given(st.text())
def test_a_text_has_at_least_as_many_tokens_as_words_and_at_most_as_characters(text: str) -> None:
    assert len(text.split()) <= TokenCounter().answer(text) <= len(text)
