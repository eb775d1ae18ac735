"""Keys of metadata that are probably misspelled."""

from __future__ import annotations

import pytest

from slumberd.model.episode import READ_KEYS, Misspelling, misspelled_keys, misspellings_in
from tests.support.builders import version

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        pytest.param("Subject", "subject", id="a capital"),
        pytest.param("PREDICATE", "predicate", id="capitals"),
        pytest.param("predicat", "predicate", id="a letter is missing at the end"),
        pytest.param("redicate", "predicate", id="a letter is missing at the beginning"),
        pytest.param("objects", "object", id="a letter too many"),
        pytest.param("confidance", "confidence", id="another letter"),
        pytest.param("inetnt", "intent", id="two letters are swapped"),
        pytest.param("repalces", "replaces", id="two letters in the middle are swapped"),
        pytest.param(" subject", "subject", id="a space"),
        pytest.param("object:", "object", id="a colon"),
    ],
)
def test_key_with_a_typing_error_is_reported_with_the_intended_key(key: str, meant: str) -> None:
    assert list(misspelled_keys({key: "x"})) == [(key, meant)]


@pytest.mark.parametrize(
    "key",
    [
        *sorted(READ_KEYS), "topic", "content", "project", "subject_id", "objective", "reject",
        "confident", "", "x", "s" * 10_000, "subject" * 10,
    ],
)  # fmt: skip
def test_a_key_of_the_host_is_not_reported(key: str) -> None:
    assert list(misspelled_keys({key: "x"})) == []


def test_key_is_not_reported_beside_the_key_that_it_resembles() -> None:
    assert list(misspelled_keys({"object": "tea", "objects": ["tea", "milk"]})) == []


def test_misspelled_key_of_a_triple_is_found_once_for_each_episode() -> None:
    triples = [{"subjet": "ada"}, {"subjet": "bob"}, 7]
    versions = [version(id, metadata={"triples": triples}) for id in ("e1", "e2")]

    found = misspellings_in(versions)

    assert found == [Misspelling("subjet", "subject", "e1", 2)]
