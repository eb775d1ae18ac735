"""Each wall of the filter sandbox resists hostile filters and the findings of the fuzzer."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from slumberd.model.errors import FilterError
from slumberd.rules.filters import sandbox as filter_sandbox
from slumberd.rules.filters.checks import tokens_of
from slumberd.rules.filters.sandbox import check_filter
from tests.fuzz.filter import FilterTarget
from tests.fuzz.targets import Finding, check_finds_nothing
from tests.support.filter_fragments import BOMBS, LEGITIMATE, LONG, NOT_COMPILED, REFUSED

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
    target = FilterTarget()
    yield target
    target.close()


@pytest.fixture(scope="module")
def unlimited_target() -> Iterator[FilterTarget]:
    """Return a target with a long deadline, so that only the tokenizer limits the time."""
    target = FilterTarget(overrun=60)
    yield target
    target.close()


@pytest.fixture(scope="module")
def heavy() -> Iterator[FilterTarget]:
    target = FilterTarget([(f"{n}{HEAVY[0][:-1]}", *HEAVY[1:]) for n in range(8)])
    yield target
    target.close()


def test_every_family_has_enough_fragments() -> None:
    families = [*REFUSED.values(), *NOT_COMPILED.values()]

    assert min(map(len, families)) >= 5
    assert len({fragment for family in families for fragment in family}) >= 150
    assert len({case.fragment for case in LEGITIMATE}) >= 40


@pytest.mark.parametrize("fragment", HOSTILE)
def test_hostile_filter_is_refused_before_sqlite_reads_it(fragment: str) -> None:
    with pytest.raises(FilterError, match="rule 'r1': when_filter") as caught:
        tokens_of("r1", fragment)

    assert caught.value.rule_id == "r1"
    assert caught.value.position is not None or len(fragment) > 8_192


@pytest.mark.parametrize("fragment", BROKEN)
def test_invalid_filter_of_known_words_is_refused_when_sqlite_compiles_it(fragment: str) -> None:
    assert tokens_of("r1", fragment)

    with pytest.raises(FilterError, match="rule 'r1': when_filter"):
        check_filter("r1", fragment)


def check_reads_only_its_rows(target: FilterTarget, fragment: str) -> None:
    """Run a fragment; the target raises `Finding` when it reads anything but its rows.

    SQLite may refuse it, and so may its driver: for a NUL, a surrogate or a second statement.
    """
    with suppress(FilterError, sqlite3.Warning, ValueError):
        target.judge(fragment)


@pytest.mark.parametrize("fragment", [*HOSTILE, *BROKEN])
def test_fragment_that_the_tokenizer_accepts_by_mistake_reads_only_its_rows(
    fragment: str, unlimited_target: FilterTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter_sandbox, "tokens_of", lambda *_: [])

    check_reads_only_its_rows(unlimited_target, fragment)


@pytest.mark.slow
@pytest.mark.parametrize("fragment", HOSTILE)
def test_checks_refuse_what_a_lax_authorizer_would_allow(
    fragment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter_sandbox, "_authorize", lambda *_: sqlite3.SQLITE_OK)

    with pytest.raises(FilterError):
        check_filter("r1", fragment)


@pytest.mark.slow
@pytest.mark.parametrize("fragment", BOMBS, ids=[bomb[:30] for bomb in BOMBS])
def test_slow_filter_on_hostile_rows_stops_at_its_budget(
    fragment: str, heavy: FilterTarget
) -> None:
    check_filter("r1", fragment)

    with pytest.raises(FilterError, match="ran over its budget"):
        heavy.judge(fragment)


# the oracle of the fuzzer


@pytest.mark.slow
def test_corpus_and_seeds_of_the_fuzzer_have_no_finding(target: FilterTarget) -> None:
    check_finds_nothing(target, "filter")


def test_oracle_finds_an_authorizer_that_allows_too_much(
    target: FilterTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter_sandbox, "tokens_of", lambda *_: [])
    monkeypatch.setattr(filter_sandbox, "_authorize", lambda *_: sqlite3.SQLITE_OK)

    with pytest.raises(Finding, match=r"the authorizer let pass .*'secrets', 'secret'"):
        target.run_once(b"EXISTS (SELECT secret FROM secrets)")


def test_oracle_finds_a_tokenizer_that_accepts_unbalanced_parentheses(
    target: FilterTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter_sandbox, "tokens_of", lambda *_: [])

    with pytest.raises(Finding, match="more than one expression"):
        target.run_once(b"1) OR (1")


@pytest.mark.nightly
def test_oracle_finds_a_filter_whose_deadline_is_rarely_checked() -> None:
    small = [(f"e{n}", *HEAVY[1:]) for n in range(2, 8)]
    target = FilterTarget([("e0", *HEAVY[1:]), HEAVY, *small], steps=1_000_000)

    with closing(target), pytest.raises(Finding, match=r"with a budget of 0\.1 s"):
        target.judge(BOMBS[0])
