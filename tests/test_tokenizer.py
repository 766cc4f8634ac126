"""Tokenizers that are asked for: a tokenizer.json, made here by the library itself, and functions."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from allocators import InputError
from simulator.traces.text.token_counts import TokenCounter
from simulator.traces.text.tokenizer import token_counter
from simulator.traces.trace import Trace

TALK = [
    {"conversations": [{"from": "human", "value": "why is this"}, {"from": "gpt", "value": "it is"}]},
    {"conversations": [{"from": "human", "value": "is it"}, {"from": "gpt", "value": "is it is it why"}]},
]


@pytest.fixture(scope="module")
def tokenizer_json(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of words with a BOS before each text, which would cut texts to 2 tokens and fill them up to 9."""
    tokenizer: Any = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(["why is this", "it is"], trainers.WordLevelTrainer(special_tokens=["[UNK]", "<s>"]))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=9)
    path = tmp_path_factory.mktemp("model") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def test_a_tokenizer_json_counts_whole_texts_and_a_bos_for_prompts(tokenizer_json: Path) -> None:
    for given_as in (tokenizer_json, str(tokenizer_json), tokenizer_json.parent):
        counter = token_counter(given_as)
        assert (counter.prompt("why is this so, ü?"), counter.answer("why is this so, ü?")) == (8, 7)
        assert (counter.prompt(""), counter.answer("")) == (1, 0)
    assert list(counter.notes()) == [
        "tokens are those of tokenizer.json (texts: 4), and 1 special more for each prompt (such as BOS)"
    ]
    assert counter.answer("\ud800 is") == 2  # half a character, as JSON may hold it


def test_a_trace_of_texts_takes_a_tokenizer_json_a_path_or_a_function(tmp_path: Path, tokenizer_json: Path) -> None:
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(TALK))
    by_file = Trace.read(path, rate=1.0, count_tokens=tokenizer_json)
    assert (by_file.prompt_tokens.tolist(), by_file.output_tokens.tolist()) == ([4, 3], [2, 5])
    assert by_file.report is not None
    assert by_file.report.notes[0].startswith("tokens are those of tokenizer.json (texts: 4)")
    for by_function in (
        Trace.read(path, rate=1.0, count_tokens=len),
        Trace.read(path, rate=1.0, count_tokens="builtins.len"),
    ):
        assert (by_function.prompt_tokens.tolist(), by_function.output_tokens.tolist()) == ([11, 5], [5, 15])


def test_a_tokenizer_that_is_not_needed_is_told(tmp_path: Path, tokenizer_json: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n")
    trace = Trace.read(path, count_tokens=tokenizer_json)
    assert trace.report is not None
    assert trace.report.notes == ("the tokenizer was not used: the file says how many tokens there are",)


def test_what_is_a_counter_already_stays_one() -> None:
    counter = TokenCounter(len)
    assert token_counter(counter) is counter
    assert token_counter(None).answer("a b") == 2


@pytest.mark.parametrize(
    ("given_as", "message"),
    [
        ("none.json", "count_tokens(='none.json'): there is no file 'none.json'; it must be a tokenizer.json"),
        ("a/b", "count_tokens(='a/b'): there is no file 'a/b'; it must be a tokenizer.json"),
        (".", "count_tokens(='.'): there is no file 'tokenizer.json'; it must be a tokenizer.json"),
        ("word", "count_tokens(='word') must be a tokenizer.json, or package.module.function"),
        ("", "count_tokens(=''): there is no file 'tokenizer.json'; it must be a tokenizer.json"),
        (
            "no.where",
            "count_tokens(='no.where') must be a tokenizer.json, or package.module.function "
            "(no cannot be imported: No module named 'no')",
        ),
        (
            "sys.maxsize",
            "count_tokens(='sys.maxsize') must be a tokenizer.json, or package.module.function "
            "(sys has no function maxsize)",
        ),
        ("a\0b", "count_tokens(='a\\x00b') must be a tokenizer.json, or package.module.function"),
    ],
)
def test_what_is_no_tokenizer_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given_as: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        token_counter(given_as)
    assert str(caught.value) == message


def test_a_missing_library_is_told(tokenizer_json: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(InputError) as caught:
        token_counter(tokenizer_json, "--tokenizer")
    assert str(caught.value).endswith(" needs the tokenizers library: pip install 'kvfrag[tokenizer]'")
    assert str(caught.value).startswith("--tokenizer(=")


@given(st.data())
@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_broken_file_is_told_in_one_line(tokenizer_json: Path, data: st.DataObject) -> None:
    content = tokenizer_json.read_text()
    begin = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(begin, min(len(content), begin + 40)))
    broken = tokenizer_json.with_name("broken.json")
    broken.write_text(
        content[:begin] + data.draw(st.sampled_from(["", "null", "[", "-1", '"x"', "{}"])) + content[end:]
    )
    try:
        counter = token_counter(broken)
        counter.prompt("why is this")
    except InputError as error:
        assert len(str(error).splitlines()) == 1
        assert len(str(error)) < 700
