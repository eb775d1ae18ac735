"""Predicates that probably hold several objects at once."""

from __future__ import annotations

import pytest

from slumberd.consolidation.key_history import find_multi_valued_hints

pytestmark = pytest.mark.unit


def test_weights_of_episodes_are_no_hint() -> None:
    counts = [("alice/rag/weights/e1/reweighted", 5), ("alice/rag/marks/e1/duplicate_of", 3)]

    assert find_multi_valued_hints(counts) == []


def test_keys_without_a_subject_are_ignored() -> None:
    counts = [("alice/rag/facts//e1", 9), ("alice/rag/facts/alice/likes", 9)]

    found = find_multi_valued_hints(counts)

    assert [(hint.channel, hint.predicate) for hint in found] == [("facts", "likes")]
