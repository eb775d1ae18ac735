"""A rule resumes where it stopped, or where a restored log and the ledger last agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from slumberd.consolidation.firing import is_in_log, resume_rule
from slumberd.model.firing import START, Position
from tests.support.builders import START as NOON
from tests.support.builders import at, rule, triple
from tests.support.fakes import FakeEpisodeLog
from tests.support.open_stores import open_stores

pytestmark = pytest.mark.integration


async def test_rule_resumes_where_it_stopped_and_a_new_one_where_it_begins(
    tmp_path: Path,
) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(triple("e1", "ada", "likes", "tea"))
        await home.fire()
        stores = home.memory, home.facts.watermarks

        known = await resume_rule(*stores, rule("all"), NOON)
        new = await resume_rule(*stores, rule("new"), NOON)
        late = await resume_rule(*stores, rule("late", start="now"), at(5))

        assert (known, new, late) == (Position(1, "e1"), START, Position(1, "e1"))
        assert await home.facts.watermarks.position("late") == late


@pytest.mark.parametrize(
    ("kept", "resumes"),
    [pytest.param(1, Position(1, "e1"), id="some"), pytest.param(0, START, id="none")],
)
async def test_rule_steps_back_to_what_a_restored_log_still_has(
    tmp_path: Path, kept: int, resumes: Position
) -> None:
    async with open_stores(tmp_path) as home:
        for id in ("e1", "e2"):
            await home.put(triple(id, "ada", "likes", id))
            await home.fire()
        log = FakeEpisodeLog(*["e1"][:kept], "other", "another")

        found = await resume_rule(log, home.facts.watermarks, rule("all"), NOON)

        assert found == resumes
        assert await home.facts.watermarks.position("all") == resumes
        assert await is_in_log(log, resumes)
