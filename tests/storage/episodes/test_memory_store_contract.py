"""The contract of every memory store: the calls of the specification."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel
from structlog.testing import capture_logs

from slumberd.consolidation.protocols import EpisodeLog
from slumberd.model.delta import AddDelta, UpdateDelta
from slumberd.model.episode import Episode
from slumberd.model.errors import (
    ConsolidationRuleError,
    FilterError,
    InputError,
    MemoryScopeError,
    MigrationNotSupported,
    RecordRefusedError,
    StoppedError,
    UnreadableEpisodeError,
)
from slumberd.model.firing import START as BEGINNING
from slumberd.model.firing import Position
from slumberd.model.rule import ConsolidationRule
from slumberd.model.store_status import MigrationPlan
from slumberd.storage.episodes.store import EngineMemoryStore
from slumberd.storage.episodes.writes import PutCounts
from slumberd.storage.protocols import MemoryStore
from tests.support.builders import START, at, episode, rule, triple
from tests.support.fakes import FakeClock
from tests.support.providers import Provider
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration


@pytest.fixture
async def memory(provider: Provider) -> AsyncIterator[EngineMemoryStore]:
    async with provider.memory(clock=FakeClock()) as store:
        await store.bootstrap()
        yield store


async def put(memory: MemoryStore, *episodes: Episode) -> None:
    for given_episode in episodes:
        await memory.put(
            given_episode,
            user=given_episode.user,
            session=given_episode.session,
            agent=given_episode.agent,
        )


async def ids(memory: MemoryStore, *scope: str | None, limit: int = 100) -> list[str]:
    return [found_episode.id for found_episode in await memory.recent(*scope, limit=limit)]  # type: ignore[arg-type] # as callers do


async def versions(memory: EpisodeLog) -> list[tuple[int, str, str]]:
    window = await memory.select(rule(), after=BEGINNING, limit=100)
    return [(version.seq, version.id, version.content) for version in window.versions]


async def test_store_implements_the_protocol_of_a_memory_store(memory: EngineMemoryStore) -> None:
    assert isinstance(memory, MemoryStore)


def test_methods_have_the_parameters_of_the_protocol_and_are_coroutine_functions(
    memory: EngineMemoryStore,
) -> None:
    for name, method in inspect.getmembers(MemoryStore, inspect.iscoroutinefunction):
        ours = getattr(type(memory), name)
        assert inspect.iscoroutinefunction(ours)
        required, accepted = (
            inspect.signature(method).parameters,
            inspect.signature(ours).parameters,
        )
        assert list(accepted)[: len(required)] == list(required)
        extensions = list(accepted.values())[len(required) :]
        assert all(extension.kind is extension.KEYWORD_ONLY for extension in extensions)
        assert all(extension.default is not extension.empty for extension in extensions)


async def test_recent_returns_an_episode_equal_to_the_one_put(memory: EngineMemoryStore) -> None:
    original = episode(metadata={"subject": "é", "n": [1, 2.5, None, True, {"x": "y"}]})

    await put(memory, original)

    assert await memory.recent("alice", "s1", "rag", limit=1) == [original]


async def test_the_same_episode_again_changes_nothing(memory: EngineMemoryStore) -> None:
    await put(memory, episode(), episode())

    assert await memory.newest() == Position(1, "e1")


async def test_same_id_with_other_content_is_a_new_version(
    memory: EngineMemoryStore,
) -> None:
    await put(memory, episode(), episode("e2"), episode(content="corrected"))

    assert await versions(memory) == [(2, "e2", "content of e2"), (3, "e1", "corrected")]
    assert await memory.newest() == Position(3, "e1")


@pytest.mark.parametrize(
    "change", [{"metadata": {"a": 1}}, {"timestamp": at(1)}, {"source_node": "x"}]
)
async def test_a_change_of_any_field_is_a_new_version(
    memory: EngineMemoryStore, change: dict[str, Any]
) -> None:
    await put(memory, episode(), episode(**change))

    assert (await memory.newest()).seq == 2
    assert await memory.recent("alice", limit=2) == [episode(**change)]


async def test_the_same_instant_in_another_zone_is_the_same_episode(
    memory: EngineMemoryStore,
) -> None:
    await put(memory, episode(), episode(timestamp=START.astimezone(timezone(timedelta(hours=9)))))

    assert (await memory.newest()).seq == 1


async def test_metadata_with_true_instead_of_1_is_a_new_version(
    memory: EngineMemoryStore,
) -> None:
    await put(memory, episode(metadata={"a": 1}), episode(metadata={"a": True}))

    assert (await memory.newest()).seq == 2


@pytest.mark.parametrize("other", [{"user": "bob"}, {"session": "s2"}, {"agent": "planner"}])
async def test_an_id_of_another_scope_is_refused_and_nothing_is_written(
    memory: EngineMemoryStore, other: dict[str, str]
) -> None:
    await put(memory, episode())

    with pytest.raises(MemoryScopeError, match="belongs to another scope"):
        await put(memory, episode(content="mine now", **other))

    assert await memory.recent("alice", limit=9) == [episode()]
    assert (await memory.newest()).seq == 1


@pytest.mark.parametrize("id", ["key:bob/rag/k", "key:alice/planner/k", "key:alice", "key:"])
async def test_an_id_of_another_owner_s_key_is_refused_and_nothing_is_written(
    memory: EngineMemoryStore, id: str
) -> None:
    own = episode("key:alice/rag/k")
    await put(memory, own)

    with pytest.raises(MemoryScopeError, match="a key of another user or agent"):
        await put(memory, episode(id))

    assert await memory.recent("alice", limit=9) == [own]


async def test_each_of_many_episodes_has_its_change_in_their_order(
    memory: EngineMemoryStore,
) -> None:
    await put(memory, episode("e1"))
    many = [episode("e2"), episode("e1"), episode("e2", content="x"), episode("e2", content="x")]

    changes = await memory.put_each(many)

    assert changes == ["new", "unchanged", "changed", "unchanged"]


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        pytest.param({"user": "bob", "id": "e1"}, MemoryScopeError, id="a taken id"),
        pytest.param({"id": ""}, InputError, id="no id"),
        pytest.param({"metadata": {"intent": "shout"}}, UnreadableEpisodeError, id="unreadable"),
    ],
)
async def test_one_refused_episode_of_many_is_named_by_its_place(
    memory: EngineMemoryStore, wrong: dict[str, Any], cause: type[Exception]
) -> None:
    await put(memory, episode("e1"))
    refused = episode(**{"id": "e4", **wrong})

    with pytest.raises(RecordRefusedError) as caught:
        await memory.put_each([episode("e2"), refused, episode("e3")], strict=True)

    assert caught.value.position == 1
    assert isinstance(caught.value.__cause__, cause)
    assert await memory.recent("alice", limit=9) == [episode("e1")]


async def test_a_scope_that_contradicts_the_episode_is_refused(memory: EngineMemoryStore) -> None:
    with pytest.raises(MemoryScopeError, match="says that it belongs to"):
        await memory.put(episode(user="bob"), user="alice", session="s1", agent="rag")

    assert (await memory.newest()) == BEGINNING


@pytest.mark.parametrize("user", ["", "a\nb", "\ud800"])
async def test_invalid_scope_is_refused(memory: EngineMemoryStore, user: str) -> None:
    invalid = Episode.model_construct(**(episode().model_dump() | {"user": user}))

    with pytest.raises(MemoryScopeError):
        await put(memory, invalid)


async def test_concurrent_puts_are_all_written_and_only_the_bad_one_fails(
    memory: EngineMemoryStore,
) -> None:
    await put(memory, episode("taken", user="bob"))
    good = [episode(f"e{n}") for n in range(50)]

    outcomes = await asyncio.gather(
        *(put(memory, item) for item in [*good[:25], episode("taken"), *good[25:]]),
        return_exceptions=True,
    )

    assert [type(outcome) for outcome in outcomes if outcome is not None] == [MemoryScopeError]
    assert sorted(await ids(memory, "alice")) == sorted(item.id for item in good)


async def test_concurrent_puts_of_one_id_from_two_scopes_have_one_winner(
    memory: EngineMemoryStore,
) -> None:
    outcomes = await asyncio.gather(
        put(memory, episode()), put(memory, episode(user="bob")), return_exceptions=True
    )

    assert [type(outcome) for outcome in outcomes] == [type(None), MemoryScopeError]


async def test_cancelled_put_does_not_affect_another_put(memory: EngineMemoryStore) -> None:
    tasks = [asyncio.ensure_future(put(memory, episode(f"e{n}"))) for n in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()

    outcomes = await asyncio.gather(*tasks, return_exceptions=True)

    assert [outcome for outcome in outcomes[1::2] if outcome is not None] == []
    assert {f"e{n}" for n in range(1, 20, 2)} <= set(await ids(memory, "alice"))
    await put(memory, episode("after"))


def test_one_store_serves_several_event_loops(provider: Provider) -> None:
    memory = provider.memory()

    for n in range(3):
        asyncio.run(asyncio.wait_for(put(memory, episode(f"e{n}")), timeout=PATIENCE_SECONDS))

    assert asyncio.run(ids(memory, "alice")) == ["e2", "e1", "e0"]
    asyncio.run(memory.close())


async def test_a_closed_store_opens_again(memory: EngineMemoryStore) -> None:
    await put(memory, episode())
    await memory.close()

    assert await ids(memory, "alice") == ["e1"]


async def test_put_many_counts_episodes_by_outcome(memory: EngineMemoryStore) -> None:
    await put(memory, episode("e1"), episode("e2"))
    many = [
        episode("e1"),
        episode("e2", content="x"),
        episode("e3", user="bob"),
        episode("e3", user="bob", content="x"),
    ]

    assert await memory.put_many(many) == PutCounts(new=1, changed=2, unchanged=1)
    assert await ids(memory, "bob") == ["e3"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bad", "error"),
    [
        pytest.param(episode("e1", user="bob"), MemoryScopeError, id="another's id"),
        pytest.param(episode("e9", user=""), MemoryScopeError, id="no user"),
        pytest.param(episode("e9", metadata={"x": float("nan")}), InputError, id="nan"),
    ],
)
async def test_put_many_writes_all_episodes_or_none(
    memory: EngineMemoryStore, bad: Episode, error: type[Exception]
) -> None:
    await put(memory, episode("e1"))

    with pytest.raises(error):
        await memory.put_many([*(episode(f"x{n}") for n in range(1500)), bad])

    assert await ids(memory, "alice") == ["e1"]


async def test_put_many_keeps_the_last_of_two_episodes_with_one_id(
    memory: EngineMemoryStore,
) -> None:
    counts = await memory.put_many([episode("e1"), episode("e2"), episode("e1", content="x")])

    assert counts == PutCounts(new=2, changed=1)
    assert await versions(memory) == [(2, "e2", "content of e2"), (3, "e1", "x")]


async def test_put_many_accepts_no_episode(memory: EngineMemoryStore) -> None:
    assert await memory.put_many([]) == PutCounts()


async def test_recent_reads_more_when_a_part_of_the_scope_is_omitted(
    memory: EngineMemoryStore,
) -> None:
    await put(
        memory,
        episode("a", timestamp=at(1)),
        episode("b", timestamp=at(2), session="s2"),
        episode("c", timestamp=at(3), agent="planner"),
        episode("d", timestamp=at(4), user="bob"),
    )

    assert await ids(memory, "alice", "s1", "rag") == ["a"]
    assert await ids(memory, "alice", "s1") == ["c", "a"]
    assert await ids(memory, "alice", None, "rag") == ["b", "a"]
    assert await ids(memory, "alice") == ["c", "b", "a"]
    assert await ids(memory, "carol") == []


async def test_recent_returns_the_newest_first_then_the_last_id(
    memory: EngineMemoryStore,
) -> None:
    await put(
        memory,
        episode("b"),
        episode("a"),
        episode("c"),
        episode("z", timestamp=at(-1)),
        episode("0", timestamp=at(0.000001)),
    )

    assert await ids(memory, "alice") == ["0", "c", "b", "a", "z"]
    assert await ids(memory, "alice", limit=2) == ["0", "c"]
    assert await ids(memory, "alice", "s1", limit=2) == ["0", "c"]
    assert await ids(memory, "alice", "s1", "rag", limit=2) == ["0", "c"]


@pytest.mark.parametrize(
    "user", ["Alice", "ALICE", "alic", "alice2", "%", "a_ice", "alice/", "\u0430lice"]
)
async def test_other_spelling_of_a_user_reads_no_episode(
    memory: EngineMemoryStore, user: str
) -> None:
    await put(memory, episode())

    assert await ids(memory, user) == []
    assert await ids(memory, user, "s1") == []
    assert await ids(memory, user, None, "rag") == []


async def test_a_slash_in_an_id_injects_nothing_into_another_scope(
    memory: EngineMemoryStore,
) -> None:
    await put(memory, episode(user="alice/session/x/agent/y"))

    assert await ids(memory, "alice") == []
    assert await ids(memory, "alice/session/x/agent/y") == ["e1"]


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_limit_below_one_is_refused(memory: EngineMemoryStore, limit: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        await memory.recent("alice", limit=limit)


@pytest.mark.parametrize("scope", [("",), ("alice", ""), ("alice", None, "a\nb")])
async def test_read_of_an_invalid_scope_is_refused(
    memory: EngineMemoryStore, scope: tuple[str, ...]
) -> None:
    with pytest.raises(MemoryScopeError):
        await ids(memory, *scope)


async def test_very_long_user_is_read_unchanged(memory: EngineMemoryStore) -> None:
    await put(memory, episode(user="u" * 50_001))

    assert await ids(memory, "u" * 50_001) == ["e1"]


async def test_consolidation_is_cumulative(memory: EngineMemoryStore) -> None:
    counts = []
    for n in range(3):
        await put(memory, episode(f"e{n}"))
        counts.append(len(await memory.consolidate(rule())))

    assert counts == [1, 2, 3]


async def test_consolidation_follows_instants_and_returns_provenance(
    memory: EngineMemoryStore,
) -> None:
    await put(
        memory,
        triple("late", "alice", "likes", "tea", timestamp=at(1)),
        triple("early", "alice", "likes", "coffee", metadata={"confidence": 0.5}),
    )

    first, second = await memory.consolidate(rule("r1"))

    assert isinstance(first, AddDelta)
    assert (first.source_episode_ids, first.confidence) == (["early"], 0.5)
    assert isinstance(second, UpdateDelta)
    assert (second.replaces, second.rule_id, second.promotion_ts) == (["early"], "r1", START)


async def test_consolidation_applies_the_filter_of_the_rule(memory: EngineMemoryStore) -> None:
    await put(memory, triple("a", "alice", "likes", "tea"), triple("b", "alice", "hates", "tea"))

    deltas = await memory.consolidate(rule(when_filter="predicate = 'likes'"))

    assert [delta.source_episode_ids for delta in deltas] == [["a"]]


async def test_consolidation_leaves_out_malformed_episodes_with_one_warning(
    memory: EngineMemoryStore,
) -> None:
    await put(
        memory,
        episode("bad", metadata={"intent": "remember"}),
        episode("good"),
        episode("odd", metadata={"intent": "delete", "replaces": {}}),
    )

    with capture_logs() as lines:
        [delta] = await memory.consolidate(rule("r1"))

    assert delta.source_episode_ids == ["good"]
    assert lines == [
        {
            "event": "episodes.left_out",
            "log_level": "warning",
            "rule_id": "r1",
            "reasons": {"intent_unknown": 1, "replaces_malformed": 1},
            "episode_ids": ["bad", "odd"],
        }
    ]


async def test_stopped_store_ends_its_pass(memory: EngineMemoryStore) -> None:
    await put(memory, episode())

    memory.stop()

    with pytest.raises(StoppedError):
        await memory.consolidate(rule())


async def test_forbidden_filter_is_not_run(memory: EngineMemoryStore) -> None:
    with pytest.raises(FilterError):
        await memory.consolidate(rule(when_filter="1; DROP TABLE episodes"))


async def test_health_counts_the_episodes(memory: EngineMemoryStore) -> None:
    await put(memory, episode("a"), episode("b"))

    health = await memory.health()

    assert (health.ok, health.version, health.fragment_count, health.lock_state) == (
        True,
        1,
        2,
        "free",
    )
    assert health.warnings == []


def plan(**operation: Any) -> MigrationPlan:
    usual = {"op": "add_column", "table": "episodes", "column": "note", "nullable": True}
    return MigrationPlan(target_version=2, operations=[usual | operation])


async def test_a_migration_adds_its_column_once_and_is_recorded(memory: EngineMemoryStore) -> None:
    await put(memory, episode())

    await memory.migrate(plan())
    await memory.migrate(plan())

    assert (await memory.health()).version == 2
    await put(memory, episode("e2"))
    assert await ids(memory, "alice") == ["e2", "e1"]


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        pytest.param({"op": "drop_column"}, "v1-add-column-only", id="another operation"),
        pytest.param({"nullable": False}, "non-nullable-add", id="not nullable"),
        pytest.param({"column": ""}, "missing-fields", id="no column"),
        pytest.param({"table": 5}, "missing-fields", id="a table that is no text"),
        pytest.param({"table": "elsewhere"}, "unknown table 'elsewhere'", id="table"),
        pytest.param({"type": "TEXT NOT NULL"}, "unusable type 'TEXT NOT NULL'", id="type"),
        pytest.param({"type": "TEXT); DROP"}, "unusable type 'TEXT); DROP'", id="injection"),
    ],
)
async def test_migration_with_an_unsupported_step_is_refused_whole(
    memory: EngineMemoryStore, operation: dict[str, Any], reason: str
) -> None:
    good = plan(column="first").operations

    with pytest.raises(MigrationNotSupported) as caught:
        await memory.migrate(
            MigrationPlan(target_version=2, operations=good + plan(**operation).operations)
        )

    assert caught.value.reason == reason
    assert (await memory.health()).version == 1


async def test_a_column_may_have_any_name(memory: EngineMemoryStore) -> None:
    await memory.migrate(plan(column='od"d; name'))

    assert (await memory.health()).version == 2


async def test_recent_returns_timestamps_in_utc(memory: EngineMemoryStore) -> None:
    local = datetime(2026, 1, 1, 17, tzinfo=timezone(timedelta(hours=5)))
    await put(memory, episode(timestamp=local))

    [found] = await memory.recent("alice", limit=1)

    assert (found.timestamp, found.timestamp.tzinfo) == (local, UTC)


@pytest.mark.parametrize(
    ("metadata", "reason", "detail"),
    [
        pytest.param({"intent": "updte"}, "intent_unknown", "'updte'", id="intent"),
        pytest.param(
            {"intent": "update", "replaces": [7]}, "replaces_malformed", "list of", id="replaces"
        ),
        pytest.param({"intent": "delete"}, "delete_of_nothing", "names no id", id="delete"),
    ],
)
async def test_a_strict_put_refuses_what_every_rule_would_quarantine(
    memory: EngineMemoryStore, metadata: dict[str, Any], reason: str, detail: str
) -> None:
    bad = episode("bad", metadata=metadata)

    with pytest.raises(UnreadableEpisodeError, match=detail) as refused:
        await memory.put(bad, user="alice", session="s1", agent="rag", strict=True)
    with pytest.raises(UnreadableEpisodeError, match=detail) as many:
        await memory.put_many([episode("good"), bad], strict=True)

    assert await ids(memory, "alice") == []
    assert (refused.value.episode_id, refused.value.reason) == ("bad", reason)
    assert (many.value.episode_id, many.value.reason) == ("bad", reason)


async def test_a_put_that_is_not_strict_takes_what_every_rule_would_quarantine(
    memory: EngineMemoryStore,
) -> None:
    await put(memory, episode("bad", metadata={"intent": "updte"}))

    assert await ids(memory, "alice") == ["bad"]


async def test_a_strict_put_takes_what_a_rule_can_read(memory: EngineMemoryStore) -> None:
    update = triple("e1", "alice", "likes", "tea", metadata={"intent": "update", "replaces": "e0"})

    await memory.put(update, user="alice", session="s1", agent="rag", strict=True)
    await memory.put_many([episode("e2")], strict=True)

    assert await ids(memory, "alice") == ["e2", "e1"]


async def test_a_put_logs_each_misspelled_key_of_metadata_once(
    memory: EngineMemoryStore,
) -> None:
    with capture_logs() as caught:
        await put(memory, episode("e1", metadata={"predicat": "likes", "topic": "tea"}))
        await memory.put_many(
            [
                episode("e2", metadata={"predicat": "likes"}),
                episode("e3", metadata={"Subject": "alice"}),
            ]
        )

    assert [(line["event"], line["key"], line["meant"], line["episode_id"]) for line in caught] == [
        ("metadata.misspelled", "predicat", "predicate", "e1"),
        ("metadata.misspelled", "Subject", "subject", "e3"),
    ]
    assert await ids(memory, "alice") == ["e3", "e2", "e1"]


class HostRule(BaseModel):
    """A rule class of a host, with the four keys of the specification and nothing else."""

    id: str
    cadence: dict[str, Any]
    when_filter: str
    then_emits: list[str]


async def test_rule_of_a_host_s_own_class_is_consolidated(memory: EngineMemoryStore) -> None:
    await memory.put_many([
        episode("e1", metadata={"subject": "s", "predicate": "likes", "object": "tea"}),
        episode("e2", metadata={"intent": "noop"}),
    ])  # fmt: skip
    host = HostRule(id="r1", cadence={"every": 1}, when_filter="", then_emits=["facts"])

    found = await memory.consolidate(host)  # type: ignore[call-overload] # no subclass of ours

    own = ConsolidationRule.model_validate(host.model_dump())
    assert found == await memory.consolidate(own)
    assert [delta.kind for delta in found] == ["add", "noop"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        pytest.param(SimpleNamespace(id="r1"), "cadence is missing", id="a key less"),
        pytest.param(
            HostRule(id="", cadence={"every": 1}, when_filter="", then_emits=[]), "id: ", id="no id"
        ),
    ],
)
async def test_malformed_rule_of_a_host_is_an_error_of_the_rule(
    memory: EngineMemoryStore, given: Any, problem: str
) -> None:
    with pytest.raises(ConsolidationRuleError, match=problem):
        await memory.consolidate(given)
