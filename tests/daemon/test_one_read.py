"""Operations that read run in the process of a command, read-only, beyond the bounds of forms."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from slumberd.daemon.one_read import _OPEN, read_operation, read_pages, unbounded
from slumberd.daemon.tenure import StateLock
from slumberd.model.errors import NoInputError
from slumberd.operations.episodes import EpisodeReads, EpisodesForm
from slumberd.operations.facts import FactReads, FactsForm
from slumberd.operations.forms import MOST
from slumberd.operations.ledger import ChangesForm, LedgerReads, RecordPage
from slumberd.operations.registry import OPERATIONS
from tests.support.builders import at, triple
from tests.support.trial_installation import TrialInstallation, rule, rules

pytestmark = pytest.mark.integration


@pytest.fixture
def site(tmp_path: Path) -> TrialInstallation:
    site = TrialInstallation(tmp_path, rules(rule("all")))
    site.put(*(triple(f"e{n}", "ada", f"p{n}", n, timestamp=at(n)) for n in range(1, 4)))
    return site


def test_each_operation_that_runs_here_only_reads() -> None:
    assert {name for name in _OPEN if not OPERATIONS[name].read_only} == set()


def test_read_answers_beside_a_daemon_and_leaves_no_trace(site: TrialInstallation) -> None:
    site.fire()
    before = site.files()

    with StateLock(site.state):
        page = read_operation(site.settings, FactReads.facts, unbounded(FactsForm, limit=None))

    assert [fact.id for fact in page.facts] == ["e1", "e2", "e3"]
    assert site.files() == before


def test_one_read_may_be_larger_than_a_page(site: TrialInstallation) -> None:
    request = unbounded(EpisodesForm, user="alice", limit=MOST + 1)

    found = read_operation(site.settings, EpisodeReads.episodes, request)

    assert [episode.id for episode in found.episodes] == ["e3", "e2", "e1"]


def test_pages_follow_each_other_on_one_opening(site: TrialInstallation) -> None:
    site.fire()

    def following(page: RecordPage) -> ChangesForm | None:
        return ChangesForm(after=page.last, limit=2) if page.more else None

    async def read() -> list[list[int]]:
        pages = read_pages(site.settings, LedgerReads.changes, ChangesForm(limit=2), following)
        return [[row.seq for row in page.rows] async for page in pages]

    assert asyncio.run(read()) == [[1, 2], [3, 4], []]


def test_read_of_facts_says_what_makes_them(site: TrialInstallation) -> None:
    with pytest.raises(NoInputError, match="no rule has fired yet"):
        read_operation(site.settings, FactReads.facts, unbounded(FactsForm))
