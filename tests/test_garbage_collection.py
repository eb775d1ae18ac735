"""The pause of the garbage collection ends with its block, and only its own pause."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from slumberd.garbage_collection import collection_paused

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
