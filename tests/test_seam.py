"""A question is answered by the type of what it is asked of; a record is mutable, and of whole numbers."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from allocators import seam


class Cat(NamedTuple):
    name: str


class Dog(NamedTuple):
    name: str


@pytest.fixture
def speak(monkeypatch: pytest.MonkeyPatch) -> Any:
    for table in ("QUESTIONS", "RULES"):
        monkeypatch.setattr(seam, table, [])
    monkeypatch.setattr(seam, "ANSWERS", {})

    @seam.question
    def speak(animal: object, times: int) -> str:  # type: ignore[empty-body]
        """What an animal says."""

    @seam.answer(speak, Cat)
    def _meow(cat: Cat, times: int) -> str:
        return f"{cat.name}: " + "meow" * times

    @seam.answer(speak, Dog)
    def _bark(dog: Dog, times: int) -> str:
        return f"{dog.name}: " + "woof" * times

    return speak


def test_the_type_of_what_is_asked_has_the_answer(speak: Any) -> None:
    assert (speak(Cat("Tom"), 2), speak(Dog("Rex"), 1)) == ("Tom: meowmeow", "Rex: woof")
    assert (speak.__name__, speak.__doc__) == ("speak", "What an animal says.")
    assert [speak] == seam.QUESTIONS


def test_what_nobody_answers_for_is_an_error(speak: Any) -> None:
    with pytest.raises(KeyError):
        speak("a fish", 1)


def test_a_record_is_changed_in_place_wherever_it_was_handed() -> None:
    now = seam.record(free=2**62, head=0)
    same = now
    same.free -= 1
    now.head = 7
    assert (int(now.free), int(same.head)) == (2**62 - 1, 7)
    assert now.dtype.names == ("free", "head") and now.free.dtype == np.int64
