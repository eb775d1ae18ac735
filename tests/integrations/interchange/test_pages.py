"""A document that says that it is a part of an answer is found; a whole one is not suspected."""

from __future__ import annotations

from typing import Any

import pytest

from slumberd.integrations.interchange.pages import Pages

pytestmark = pytest.mark.unit


def lacks(*documents: tuple[dict[str, Any], int]) -> list[str]:
    """Return what documents in sequence lack, each with a number of records."""
    pages, found = Pages(), list[str]()
    for said, count in documents:
        found += pages.add(said, {"results": count})
    return [*found, *pages.end()]


@pytest.mark.parametrize(
    "said",
    [
        {"count": 250, "next": "https://mem.example/?page=2", "previous": None},
        {"next": "https://mem.example/?page=2"},
        {"total": 250},
        {"total": "250"},
        {"page": "1", "total_pages": "3"},
        {"page": "2", "total_pages": "2"},
        {"omitted": 3},
        {"remaining_records": 3},
        {"not_shown": 3},
        {"more": 3},
        {"totalCount": 250},
        {"total_results": 250},
        {"row_count": 2, "total_count": 250},
        {"total_memories": 250},
        {"total": {"value": 250, "relation": "eq"}},
        {"has_more": True},
        {"hasMore": True, "total": 2},
        {"next_cursor": "abc"},
        {"nextCursor": "abc"},
        {"nextPageToken": "abc"},
        {"next_page": 2},
        {"@odata.nextLink": "https://mem.example"},
        {"continuation_token": "abc"},
        {"response_metadata": {"next_cursor": "abc"}},
        {"pagination": {"has_next_page": True, "end": {"x": 1}}},
        {"pageInfo": {"hasNextPage": True, "endCursor": "abc"}},
        {"links": {"next": {"href": "https://mem.example"}}},
        {"links": [{"rel": "self", "href": "a"}, {"rel": "next", "href": "b"}]},
        {"page": 1, "total_pages": 3},
        {"current_page": 1, "last_page": 3},
        {"is_last_page": False},
        {"complete": False},
        {"truncated": True},
        {"limit": 2},
        {"meta": {"page_size": 2}},
        {"previous": "https://mem.example/?page=1", "next": None},
        {"page": 3, "total_pages": 3},
        {"offset": 100, "has_more": False},
    ],
    ids=str,
)
def test_page_of_several_is_found(said: dict[str, Any]) -> None:
    (problem,) = lacks((said, 2))

    assert problem.startswith("the document says that it is one page of several: ")


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"count": 2, "next": None, "previous": None},
        {"total": 2, "limit": 100, "offset": 0},
        {"total": 2, "limit": 2},
        {"has_more": False, "next_cursor": "abc", "limit": 2},
        {"next_cursor": "", "limit": 2},
        {"next": 0, "page": 1, "pages": 1},
        {"page": 0, "total_pages": 1},
        {"last": True, "cursor": "abc"},
        {"complete": True, "truncated": False},
        {"message": "next time more", "context": "x", "more_info": "https://mem.example"},
        {"start": 1735689600000, "size": 2, "_scroll_id": "abc", "total": {"value": 2}},
        {"usage": {"total_tokens": 900}, "version": 7},
        {"total": "2", "page": "1", "pages": "1", "start": "2025", "omitted": 0, "more": 0},
        {"rate_limit": {"remaining": 4_999}, "dropped": None},
        {"links": [{"rel": "self", "href": "a"}, "x"]},
    ],
    ids=str,
)
def test_whole_document_is_not_suspected(said: dict[str, Any]) -> None:
    assert lacks((said, 2)) == []


def test_all_pages_of_an_answer_lack_nothing() -> None:
    first = {"count": 3, "next": "b", "previous": None}
    second = {"count": 3, "next": "c", "previous": "a"}
    third = {"count": 3, "next": None, "previous": "b"}

    assert lacks((first, 1), (second, 1), (third, 1)) == []
    assert len(lacks((first, 1), (third, 1))) == 1
    assert len(lacks((first, 1), (second, 1))) == 1


def test_pages_by_cursor_lack_nothing_when_the_last_one_is_there() -> None:
    assert lacks(({"next_cursor": "b"}, 1), ({"next_cursor": None}, 1)) == []


def test_first_page_of_another_answer_does_not_complete_one() -> None:
    first = {"next": "b", "previous": None}

    assert len(lacks((first, 1), (first, 1))) == 2


def test_total_of_one_of_several_arrays_is_no_reason() -> None:
    for total, problems in ((3, 0), (4, 0), (9, 1)):
        pages = Pages()
        assert [*pages.add({"total": total}, {"results": 3, "relations": 1})] == []
        assert len([*pages.end()]) == problems
