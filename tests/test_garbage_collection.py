"""The pause of the garbage collection ends with its block; large values are freed in portions."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Sized
from contextlib import ExitStack

import pytest

from slumberd.garbage_collection import PORTION, collection_paused, free_in_portions

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    gc.enable()


def test_collection_is_paused_during_the_block_also_after_an_error() -> None:
    seen = []

    def fail() -> None:
        with collection_paused():
            seen.append(gc.isenabled())
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert [*seen, gc.isenabled()] == [False, True]


def test_pause_of_the_caller_stays() -> None:
    gc.disable()

    with collection_paused():
        pass

    assert not gc.isenabled()


def test_collection_goes_on_when_a_pause_ends_while_the_next_one_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, disable = ExitStack(), gc.disable
    first.enter_context(collection_paused())

    def end_the_first() -> None:  # as another thread does
        monkeypatch.setattr(gc, "disable", disable)
        first.close()
        disable()

    monkeypatch.setattr(gc, "disable", end_the_first)
    with collection_paused():
        assert not gc.isenabled()

    assert gc.isenabled()


class Freed:
    """Notes how long its container is when it is freed."""

    def __init__(self, container: Sized, seen: Counter[int]) -> None:
        self._container = container
        self._seen = seen

    def __del__(self) -> None:
        self._seen[len(self._container)] += 1


def test_lists_and_dictionaries_are_freed_in_portions() -> None:
    listed: list[Freed] = []
    keyed: dict[int, Freed] = {}
    from_list, from_dict = Counter[int](), Counter[int]()
    for number in range(2 * PORTION + 1):
        listed.append(Freed(listed, from_list))
        keyed[number] = Freed(keyed, from_dict)

    free_in_portions(listed, (1, 2), keyed)

    assert listed == [] and keyed == {}
    assert from_list.total() == from_dict.total() == 2 * PORTION + 1
    assert max(from_list.values()) == PORTION
    assert max(from_dict.values()) == 1
