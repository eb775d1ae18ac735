"""A published version of rules, as commands print it."""

from __future__ import annotations

import pytest

from slumberd.model.rule import PublishedRules
from tests.support.builders import at

pytestmark = pytest.mark.unit


def test_document_names_the_files_and_holds_no_text() -> None:
    published = PublishedRules(3, "abc", at(0), "alice", "", {"b.yaml": "rules: []", "a.yaml": ""})

    assert published.document() == {
        "version": 3,
        "rules_hash": "abc",
        "published_at": at(0).isoformat(),
        "by": "alice",
        "reason": None,
        "files": ["a.yaml", "b.yaml"],
    }
