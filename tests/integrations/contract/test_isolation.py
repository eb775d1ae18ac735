"""What is found in one namespace does not depend on any other namespace."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.contract import EpisodeMemoryStore, MemoryRecord
from tests.support.fakes import FakeClock
from tests.support.record_stores import ask, record
from tests.support.sample_sizes import amount

pytestmark = [pytest.mark.integration, pytest.mark.sampled, pytest.mark.slow]

WORDS = ("tea", "milk", "zebra", "café", "東京", "")
MARKS = (None, True, 1, "x")


class Step(NamedTuple):
    """A write of one namespace.

    Attributes:
        number: The namespace.
        id: The item id.
        text: The content.
        mark: The value of a key of metadata.
    """

    number: int
    id: str
    text: str
    mark: object


TEXTS = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
STEPS = st.lists(
    st.builds(Step, st.integers(0, 1), st.sampled_from("abc"), TEXTS, st.sampled_from(MARKS)),
    max_size=12,
)
NAMES = st.lists(
    st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=6)
    | st.sampled_from(["a/b", "a%2Fb", "default", "anon", "a", "A", "é", "e\u0301", "_", "%"]),
    min_size=2,
    max_size=2,
    unique_by=lambda name: name.strip() or "default",
)


@contextmanager
def new_store() -> Iterator[EpisodeMemoryStore]:
    with (
        tempfile.TemporaryDirectory() as folder,
        EpisodeMemoryStore(Path(folder, "memory.db"), clock=FakeClock()) as store,
    ):
        yield store


def run(steps: Sequence[Step], names: Sequence[str]) -> list[list[MemoryRecord]]:
    """Write in the order of the steps; return what each question finds in the first namespace."""
    found = []
    with new_store() as store:
        for step in steps:
            one = record(step.text, step.id, mark=step.mark)
            store.write([one], namespace=names[step.number])
            if step.number == 0:
                found.append(store.search(ask(step.text, namespace=names[0], top_k=2)))
        for word in WORDS:
            found.append(store.search(ask(f"{word} tea", namespace=names[0], top_k=9)))
            filters = {"mark": True}
            query = ask(word, namespace=names[0], metadata_filters=filters)
            found.append(store.search(query))
    return found


@given(STEPS, NAMES)
@settings(max_examples=amount(25, full=500))
def test_results_of_a_namespace_are_equal_with_and_without_another(
    steps: list[Step], names: list[str]
) -> None:
    alone = [step for step in steps if step.number == 0]

    assert run(steps, names) == run(alone, names)
