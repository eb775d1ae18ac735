"""What a list of extractions finds, compared with an oracle of a few lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st

from slumberd.consolidation.extraction.function import FunctionExtractor
from slumberd.model.extraction import Extracted, Extraction, Turn
from slumberd.model.rule import RuleFunction
from slumberd.rules.pattern_loader import combined_extraction
from slumberd.storage.episodes.extracting import Conversation, add_triples
from tests.support.builders import version

Reading = list[int] | Literal["broken"]
"""The numbers that one entry finds in a text; or that it cannot read the text."""

READINGS = st.one_of(st.just("broken"), st.lists(st.integers(0, 3), max_size=3))


def entry(place: int, readings: Sequence[Reading]) -> Extraction:
    """Return an extraction that reads the texts ``0``, ``1`` and so on as given."""

    def find(turn: Turn, _: Turn | None) -> list[Extracted]:
        found = readings[int(turn.content)]
        if found == "broken":
            raise ValueError(str(place))
        return [Extracted("ann", "has", number, "add", (0, 0)) for number in found]

    function = RuleFunction(f"python:tests:entry{place}", "d", find)
    return Extraction(function.name, str(place), FunctionExtractor(function))


def expected(readings: Sequence[Reading], *, unites: bool) -> Reading:
    """Return what a list finds in one text, by the words of the documentation."""
    if unites:
        whole = [found for found in readings if found != "broken"]
        if len(whole) < len(readings):
            return "broken"
        return list(dict.fromkeys(number for found in whole for number in found))
    for found in readings:
        if found:
            return found if found == "broken" else list(dict.fromkeys(found))
    return []


@given(
    st.integers(1, 4).flatmap(
        lambda texts: st.lists(
            st.lists(READINGS, min_size=texts, max_size=texts), min_size=1, max_size=4
        )
    ),
    st.booleans(),
)
def test_list_finds_what_its_way_says(entries: list[list[Reading]], unites: bool) -> None:
    parts = [entry(place, readings) for place, readings in enumerate(entries)]
    texts = range(len(entries[0]))
    given_versions = [version(f"e{n}", content=str(n), metadata={}) for n in texts]
    nowhere: Any = None

    found = add_triples(
        Conversation(nowhere, nowhere, ("user",)),
        given_versions,
        combined_extraction(parts, unites=unites),
    )

    for n, one in zip(texts, found, strict=True):
        wanted = expected([readings[n] for readings in entries], unites=unites)
        if wanted == "broken":
            assert one.fault.startswith("extraction_failed: ")
            assert "triples" not in one.metadata
        else:
            assert [triple["object"] for triple in one.metadata["triples"]] == wanted
            assert (one.fault, one.unrecorded) == ("", False)
