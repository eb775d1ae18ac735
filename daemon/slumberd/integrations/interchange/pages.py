"""Find out whether a document says of itself that it is a part: one page of several."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

_DEEPEST = 3
_DIGITS = 16
_LARGEST_OFFSET = 10**9
"""A larger number under ``start`` or ``from`` is an instant."""

_PLACE = "(page|cursor|token|link|url|uri|href|offset|start|key|marker|id)*"
_RECORDS = "(records?|results?|items?|elements?|hits?|rows?|matches|memory|memories|edges?|facts?)"
_NEXT = re.compile(f".*next{_PLACE}|cursor|continuation{_PLACE}")
_BEFORE = re.compile(f"prev(ious)?{_PLACE}")
_MORE = re.compile(r"(has|is|are)?(more|next(page)?|truncated|partial|incomplete|cut|cutoff)\w*")
_LEFT = re.compile(
    f"more|omitted|not(shown|returned)|(remaining|omitted|dropped|truncated)(count|{_RECORDS})"
)
_LAST = re.compile(r"(is|has)?(last(page)?|complete|done|finished|exhausted|end(reached)?)")
_TOTAL = re.compile(
    f"total|count|hits|numfound|total(count|number|size|found|available|{_RECORDS}|nodes|entities"
    f"|relations)(count)?|{_RECORDS}(total|count)|num(ber)?(of)?{_RECORDS}"
)
_PAGE = re.compile(r"(current)?page(number|no|num|index)?")
_PAGES = re.compile(r"(total|num(ber)?(of)?)?pages|lastpage|pages?(count|total)|totalpagecount")
_OFFSET = re.compile(r"offset|skip(ped)?|start(index|at)?|from")
_LIMIT = re.compile(r"limit|(page|batch)(limit|size)|perpage|topk|max(results|items|records)")

_Said = tuple[str, str, Any]
"""The plain name of a key, the key, and its value."""

_NOTHING = frozenset({"", "null", "none", "false"})


class _Page(NamedTuple):
    """What a document says about its place among others.

    Attributes:
        more: The key that says that more follow; empty when none does.
        before: The key that says that others come before; empty when none does.
        first: Whether it says that none comes before.
        total: How many records there are in all; None when it does not say that.
        limit: How many records it may hold; None when it does not say that, or says that it is
            complete.
    """

    more: str = ""
    before: str = ""
    first: bool = False
    total: int | None = None
    limit: int | None = None


class Pages:
    """Follows the documents of an input, and says which records they say are elsewhere.

    Documents in sequence are pages of one answer, until one of them is a first page.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._page: _Page | None = None
        self._first: _Page | None = None

    def add(self, said: Mapping[str, Any], counts: Mapping[str, int]) -> Iterator[str]:
        """Take the next document; yield what is missing before it, if it begins another answer.

        Args:
            said: Its values that are no records, by key.
            counts: How many records each of its arrays holds, by key.
        """
        page = _page_of(said)
        if self._page is not None and (page.first or not self._lacks()):
            yield from self.end()
        self._first = self._first or page
        self._page = page
        self._counts.update(counts)

    def end(self) -> Iterator[str]:
        """Yield what is missing from the last answer."""
        if self._page is not None:
            problems = [self._problem_before(), self._lacks()]
            yield from (
                f"the document says that it is one page of several: {each}"
                for each in problems
                if each
            )
        self._counts.clear()
        self._page = self._first = None

    def _problem_before(self) -> str:
        before = self._first.before if self._first else ""
        return f"by its key {before!r}, others come before it; put them, too" if before else ""

    def _lacks(self) -> str:
        """Return what is missing after the newest page; empty when nothing is."""
        page, held = self._page or _Page(), self._counts.total()
        if page.total is not None and self._is_short_of(page.total):
            return f"it holds {held:,} of {page.total:,} records; put the others, too"
        if page.more:
            return f"by its key {page.more!r}, more follow it; put them, too"
        if page.limit is not None and page.total is None and held and held == page.limit:
            return f"it holds {held:,} records, as many as its limit; raise the limit"
        return ""

    def _is_short_of(self, total: int) -> bool:
        # The number may be that of one array of several, or of all together.
        return total > max(self._counts.values(), default=0) and total != self._counts.total()


def _page_of(said: Mapping[str, Any]) -> _Page:
    found = [*_flat(said)]
    is_all = any(
        (_MORE.fullmatch(name) and value is False) or (_LAST.fullmatch(name) and value is True)
        for name, _, value in found
    )
    ends = is_all or any(_NEXT.fullmatch(name) for name, _, _ in found)
    before = _key_before(found)
    return _Page(
        more=_key_of_more(found, is_all=is_all),
        before=before,
        first=not before and _is_first(found),
        total=_largest(_TOTAL, found),
        limit=None if ends else _largest(_LIMIT, found),
    )


def _key_of_more(found: Sequence[_Said], *, is_all: bool) -> str:
    """Return the key that says that more follow; empty when none does."""
    more = _first_key(_MORE, found, lambda value: value is True)
    more = more or _first_key(_LAST, found, lambda value: value is False)
    more = more or _first_key(_LEFT, found, lambda value: (_number_in(value) or 0) > 0)
    if more or is_all:
        return more
    page, pages = _largest(_PAGE, found), _largest(_PAGES, found)
    # Some count pages from 0: their only page is number 0 of 1.
    is_short = page is not None and pages is not None and 0 < page < pages
    return _first_key(_NEXT, found, _is_given) or (
        _first_key(_PAGE, found, lambda value: _number_in(value) is not None) if is_short else ""
    )


def _key_before(found: Sequence[_Said]) -> str:
    """Return the key that says that others come before; empty when none does."""
    return (
        _first_key(_BEFORE, found, _is_given)
        or _first_key(_PAGE, found, lambda value: (_number_in(value) or 0) > 1)
        or _first_key(
            _OFFSET, found, lambda value: isinstance(value, int) and 0 < value < _LARGEST_OFFSET
        )
    )


def _is_first(found: Sequence[_Said]) -> bool:
    numbers = _largest(_PAGE, found), _largest(_OFFSET, found)
    return numbers[0] == 1 or numbers[1] == 0 or any(_BEFORE.fullmatch(one[0]) for one in found)


def _flat(said: Mapping[str, Any], above: str = "", depth: int = 0) -> Iterator[_Said]:
    """Yield the values of a document, of any depth, each with its plain name and its key."""
    for key, value in said.items():
        name = re.sub(r"[^a-z]", "", key.lower().removeprefix("x-"))
        if name in ("value", "href", "url"):  # as in {"total": {"value": 250}}
            name = above or name
        yield name, key, value
        if isinstance(value, dict) and depth < _DEEPEST:
            yield from _flat(value, name, depth + 1)
        if isinstance(value, list) and depth < _DEEPEST:
            for each in value:
                if isinstance(each, dict) and isinstance(each.get("rel"), str):
                    yield from _flat({each["rel"]: each}, name, depth + 1)


def _first_key(
    pattern: re.Pattern[str], found: Sequence[_Said], is_said: Callable[[Any], bool]
) -> str:
    return next(
        (key for name, key, value in found if pattern.fullmatch(name) and is_said(value)), ""
    )


def _largest(pattern: re.Pattern[str], found: Sequence[_Said]) -> int | None:
    """Return a number; of several the largest, since the others count this page."""
    numbers = (_number_in(value) for name, _, value in found if pattern.fullmatch(name))
    return max((number for number in numbers if number is not None), default=None)


def _number_in(value: object) -> int | None:
    """Return a number, which may be written as a text of digits; None for any other value."""
    if isinstance(value, str) and value.isdecimal() and len(value) < _DIGITS:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_given(value: object) -> bool:
    """Return whether a value names another page."""
    match value:
        case bool():
            return value
        case str():
            return value.strip().lower() not in _NOTHING
        case dict():
            return any(map(_is_given, value.values()))
        case int():
            return value > 0
        case _:
            return False
