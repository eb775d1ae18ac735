"""The sandbox of when_filter under attack: each wall alone, and all findings of the fuzzer."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from slumberd.errors import FilterError
from slumberd.filters import sandbox as filter_sandbox
from slumberd.filters.checks import tokens_of
from slumberd.filters.sandbox import check_filter
from tests.fuzz.filter import FilterTarget
from tests.fuzz.targets import Finding, check_finds_nothing
from tests.support.fragments import BOMBS, LEGITIMATE, LONG, NOT_COMPILED, REFUSED

pytestmark = pytest.mark.unit

HOSTILE = [
    pytest.param(fragment, id=f"{family}: {fragment[:30]!r}")
    for family, fragments in REFUSED.items()
    for fragment in fragments
]
BROKEN = [
    pytest.param(fragment, id=f"{family}: {fragment[:30]!r}")
    for family, fragments in NOT_COMPILED.items()
    for fragment in fragments
]
HEAVY = (
    LONG,
    f"/user/{LONG}",
    f'{{"content": "{LONG}", "source_node": "{LONG}"}}',
    "2026-01-01T12:00:00+00:00",
    "{}",
)


@pytest.fixture(scope="module")
def target() -> Iterator[FilterTarget]:
    one = FilterTarget()
    yield one
    one.close()


@pytest.fixture(scope="module")
def context() -> Iterator[FilterTarget]:
    """Return a target that leaves the time to the lexer, whose bounds are what keeps it short."""
    one = FilterTarget(overrun=60)
    yield one
    one.close()


@pytest.fixture(scope="module")
def heavy() -> Iterator[FilterTarget]:
    one = FilterTarget([(f"{n}{HEAVY[0][:-1]}", *HEAVY[1:]) for n in range(8)])
    yield one
    one.close()


def test_there_are_fragments_enough_in_every_family() -> None:
    families = [*REFUSED.values(), *NOT_COMPILED.values()]

    assert min(map(len, families)) >= 5
    assert len({one for family in families for one in family}) >= 150
    assert len({one.fragment for one in LEGITIMATE}) >= 40


@pytest.mark.parametrize("fragment", HOSTILE)
def test_a_hostile_filter_is_refused_before_sqlite_sees_it(fragment: str) -> None:
    with pytest.raises(FilterError, match="rule 'r1': when_filter") as caught:
        tokens_of("r1", fragment)

    assert caught.value.rule_id == "r1"
    assert caught.value.position is not None or len(fragment) > 8_192


@pytest.mark.parametrize("fragment", BROKEN)
def test_a_broken_filter_of_known_words_is_refused_when_it_is_compiled(fragment: str) -> None:
    assert tokens_of("r1", fragment)

    with pytest.raises(FilterError, match="rule 'r1': when_filter"):
        check_filter("r1", fragment)


def check_touches_nothing_else(target: FilterTarget, fragment: str) -> None:
    """Judge rows by a fragment; the target raises `Finding` when the fragment reads anything else.

    SQLite may refuse it, or its driver, which takes no NUL, no surrogate and no second statement.
    """
    with suppress(FilterError, sqlite3.Warning, ValueError):
        target.judge(fragment)


@pytest.mark.parametrize("fragment", [*HOSTILE, *BROKEN])
def test_fragment_that_the_tokenizer_accepts_by_mistake_reads_only_its_rows(
    fragment: str, context: FilterTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter_sandbox, "tokens_of", lambda *_: [])

    check_touches_nothing_else(context, fragment)


@pytest.mark.parametrize("fragment", HOSTILE)
def test_checks_refuse_what_a_lax_authorizer_would_allow(
    fragment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter_sandbox, "_authorize", lambda *_: sqlite3.SQLITE_OK)

    with pytest.raises(FilterError):
        check_filter("r1", fragment)


@pytest.mark.parametrize("fragment", BOMBS, ids=[bomb[:30] for bomb in BOMBS])
def test_a_filter_that_takes_long_on_hostile_rows_is_stopped_at_its_budget(
    fragment: str, heavy: FilterTarget
) -> None:
    check_filter("r1", fragment)

    with pytest.raises(FilterError, match="ran over its budget"):
        heavy.judge(fragment)


# what fuzzing relies on


def test_the_corpus_and_the_seeds_of_the_fuzzer_still_find_nothing(target: FilterTarget) -> None:
    check_finds_nothing(target, "filter")


def test_the_oracle_sees_an_authorizer_that_is_too_lax(
    target: FilterTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter_sandbox, "tokens_of", lambda *_: [])
    monkeypatch.setattr(filter_sandbox, "_authorize", lambda *_: sqlite3.SQLITE_OK)

    with pytest.raises(Finding, match=r"the authorizer let pass .*'secrets', 'secret'"):
        target.run_once(b"EXISTS (SELECT secret FROM secrets)")


def test_the_oracle_sees_a_lexer_that_lets_parentheses_close(
    target: FilterTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter_sandbox, "tokens_of", lambda *_: [])

    with pytest.raises(Finding, match="more than one expression"):
        target.run_once(b"1) OR (1")


def test_oracle_finds_a_filter_whose_deadline_is_rarely_checked() -> None:
    small = [(f"e{n}", *HEAVY[1:]) for n in range(2, 8)]
    target = FilterTarget([("e0", *HEAVY[1:]), HEAVY, *small], steps=1_000_000)

    with closing(target), pytest.raises(Finding, match=r"with a budget of 0\.1 s"):
        target.judge(BOMBS[0])
