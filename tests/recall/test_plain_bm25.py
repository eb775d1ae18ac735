"""The baseline ranks as BM25 does, and keeps the users apart."""

from __future__ import annotations

import pytest

from tests.recall.engine import Line, Prompt
from tests.recall.plain_bm25 import PlainBM25, UserIndex
from tests.recall.samples import episode

pytestmark = [pytest.mark.unit, pytest.mark.slow]


def index(**texts: str) -> UserIndex:
    made = UserIndex()
    for id, text in texts.items():
        made.put(id, text)
    return made


def test_a_rare_word_counts_more_than_a_frequent_one() -> None:
    some = index(a="the cat sat", b="the dog sat", c="the cow sat")

    assert some.search("the dog", 3)[0] == "b"


def test_a_short_text_counts_more_than_a_long_one_with_the_same_word() -> None:
    some = index(long="tea and many other words that say nothing", short="tea")

    assert some.search("tea", 2) == ["short", "long"]


def test_case_and_repeated_words_of_the_query_do_not_matter() -> None:
    some = index(a="green tea", b="black coffee coffee")

    assert some.search("TEA tea tea coffee", 2) == some.search("tea coffee", 2)


def test_a_text_without_a_word_of_the_query_is_not_found() -> None:
    assert index(a="green tea").search("coffee", 10) == []


def test_a_replaced_text_is_found_by_its_new_words_only() -> None:
    some = index(a="green tea")

    some.put("a", "black coffee")

    assert some.search("tea", 1) == []
    assert some.search("coffee", 1) == ["a"]


def test_an_empty_index_finds_nothing() -> None:
    assert UserIndex().search("tea", 10) == []


def test_a_word_of_all_texts_still_finds_them() -> None:
    assert index(a="tea", b="tea", c="tea").search("tea", 2) == ["a", "b"]


async def test_the_baseline_searches_one_user_only() -> None:
    engine = PlainBM25()
    await engine.put([episode("a", "green tea", user="ann"), episode("b", "tea", user="ben")])

    assert await engine.search("ann", "tea", 10) == ["a"]
    assert await engine.context("ben", "tea", 4_096) == Prompt("tea", ["b"])


async def test_the_baseline_ranks_lines_and_has_no_ledger() -> None:
    engine = PlainBM25()
    await engine.put([episode("a", "tea tea tea"), episode("b", "tea, and a cup")])

    assert await engine.ranked("ann", "tea", 10) == [Line("a", 3), Line("b", 4)]
    assert await engine.ledger("ann") is None
