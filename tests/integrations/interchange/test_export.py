"""An export of the episodes makes the same episodes, and the same facts, in another store."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slumberd.cli.commands.episodes import document
from slumberd.integrations.interchange.episode_lines import read_episode_lines
from slumberd.integrations.interchange.export import ExportScope, read_episodes, read_facts
from slumberd.model.episode import Episode
from slumberd.model.fact import FactPattern
from slumberd.storage.episodes.rows import episode_of
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import at, episode, rule, triple
from tests.support.fakes import FakeClock
from tests.support.firing import fire
from tests.support.sample_sizes import amount

pytestmark = [pytest.mark.integration, pytest.mark.sampled]

EVERYONE = ExportScope()
IDS = [f"e{number}" for number in range(8)]
CLAIMS = st.fixed_dictionaries(
    {},
    optional={
        "subject": st.sampled_from(["mira", "jonas"]),
        "predicate": st.sampled_from(["lives_in", "likes"]),
        "object": st.sampled_from(["tea", "Porto", 3, {"a": [1.5, None]}]),
        "intent": st.sampled_from(["add", "update", "delete", "noop", "wish"]),
        "replaces": st.sampled_from(IDS),
        "confidence": st.sampled_from([0.5, 1]),
        "note": st.text(max_size=5),
    },
)
METADATA = CLAIMS | st.builds(lambda triples: {"triples": triples}, st.lists(CLAIMS, max_size=3))


@st.composite
def histories(draw: st.DrawFn) -> list[list[Episode]]:
    """Draw batches of episodes; an id stays in its scope, and may get new versions."""
    scopes = {id: (draw(st.sampled_from("ab")), draw(st.sampled_from("xy"))) for id in IDS}
    made = st.builds(
        lambda id, seconds, metadata, text: episode(
            id,
            content=text,
            timestamp=at(seconds),
            user=scopes[id][0],
            agent=scopes[id][1],
            metadata=metadata,
        ),
        st.sampled_from(IDS),
        st.integers(0, 3) | st.floats(0, 1),
        METADATA,
        st.text(max_size=6),
    )
    return draw(st.lists(st.lists(made, max_size=6), min_size=1, max_size=3))


async def exported(
    memory: SQLiteMemoryStore, wanted: ExportScope, page: int = 1_000
) -> list[Episode]:
    """Return the exported episodes, after they were written and read as lines of JSON."""
    lines = [
        orjson.dumps(document(episode_of(version)))
        async for versions in read_episodes(memory, wanted, page=page)
        for version in versions
    ]
    records = read_episode_lines(io.BytesIO(b"\n".join(lines)))
    return [episode for record in records for episode in record.episodes]


async def contents(
    memory: SQLiteMemoryStore, facts: SQLiteFactStore
) -> tuple[dict[str, Episode], list[dict[str, Any]]]:
    episodes = [one for user in "ab" for one in await memory.recent(user, limit=1_000)]
    found = [fact.model_dump() for fact in await facts.query(FactPattern())]
    return {one.id: one for one in episodes}, found


class Stores:
    """Two new stores in a folder."""

    def __init__(self, folder: Path) -> None:
        clock = FakeClock()
        self.memory = SQLiteMemoryStore(
            folder / "memory.db", clock=clock, misspelled=lambda _: None
        )
        self.facts = SQLiteFactStore(folder / "facts.db", clock=clock)

    async def __aenter__(self) -> Stores:
        await self.memory.bootstrap()
        await self.facts.bootstrap()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.memory.close()
        await self.facts.close()


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    async with Stores(tmp_path) as opened:
        yield opened


@pytest.mark.slow
@given(history=histories(), page=st.integers(1, 5))
@settings(
    max_examples=amount(25, full=500),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
async def test_import_of_an_export_makes_the_same_episodes_and_facts(
    history: list[list[Episode]], page: int
) -> None:
    everything = rule()
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        async with Stores(Path(one)) as first, Stores(Path(other)) as second:
            for batch in history:
                await first.memory.put_many(batch)
            await fire(first.memory, first.facts, everything)

            await second.memory.put_many(await exported(first.memory, EVERYONE, page))
            await fire(second.memory, second.facts, everything)

            again = await second.memory.put_many(await exported(first.memory, EVERYONE, page))
            assert again.new == again.changed == 0
            assert await contents(second.memory, second.facts) == await contents(
                first.memory, first.facts
            )


async def test_episode_that_changes_between_two_pages_comes_again_in_its_new_version(
    stores: Stores,
) -> None:
    await stores.memory.put_many([episode("e1"), episode("e2"), episode("e3")])

    pages = []
    async for versions in read_episodes(stores.memory, EVERYONE, page=2):
        pages.append([(version.id, version.content) for version in versions])
        if len(pages) == 1:
            await stores.memory.put_many(
                [episode("e1", content="new"), episode("e3", content="new")]
            )

    assert pages == [
        [("e1", "content of e1"), ("e2", "content of e2")],
        [("e1", "new")],
        [("e3", "new")],
    ]


async def test_episode_that_was_logged_again_after_a_read_is_exported_once(stores: Stores) -> None:
    await stores.memory.put_many([episode("e1"), episode("e2")])
    await stores.memory.log_again_after_read({"e1": 0})
    await stores.memory.recent("alice", limit=9)
    await stores.memory.close()  # writes the read
    log = await stores.memory.newest()

    found = {page: await exported(stores.memory, EVERYONE, page) for page in (1, 2, 9)}

    assert log.seq == 3
    assert found == {page: [episode("e1"), episode("e2")] for page in found}


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        pytest.param(ExportScope(user="bob"), ["e2", "e3"], id="user"),
        pytest.param(ExportScope("bob", "cook"), ["e3"], id="user and agent"),
        pytest.param(ExportScope(agent="cook"), ["e3"], id="agent"),
        pytest.param(ExportScope(user="nobody"), [], id="nobody"),
    ],
)
async def test_export_of_a_scope_has_its_episodes_and_facts(
    stores: Stores, wanted: ExportScope, ids: Sequence[str]
) -> None:
    await stores.memory.put_many(
        [
            triple("e1", "a", "is", "x"),
            triple("e2", "a", "is", "x", user="bob"),
            triple("e3", "a", "is", "x", user="bob", agent="cook"),
        ]
    )
    await fire(stores.memory, stores.facts, rule())

    found = [fact.id async for page in read_facts(stores.facts, wanted, page=1) for fact, _ in page]

    assert [one.id for one in await exported(stores.memory, wanted)] == ids
    assert found == ids


async def test_exported_fact_names_its_sources_and_the_firings_that_promoted_it(
    stores: Stores,
) -> None:
    await stores.memory.put_many([triple("e1", "a", "is", "x")])
    await fire(stores.memory, stores.facts, rule("first"))
    await fire(stores.memory, stores.facts, rule("second"))

    [[(fact, explanation)]] = [page async for page in read_facts(stores.facts, EVERYONE)]

    assert fact.id == "e1"
    assert [source.id for source in explanation.sources] == ["e1"]
    assert {row.row.record.rule_id for row in explanation.assertions if row.counts} == {
        "first",
        "second",
    }
