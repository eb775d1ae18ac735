"""The contract of a fact store: manual edits, deltas, patterns, and one transaction for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from slumberd.consolidation.incoming import DeltaBatch, evaluate
from slumberd.model.delta import AddDelta, DeleteDelta, NoopDelta, UpdateDelta
from slumberd.model.errors import (
    ConsolidationRuleError,
    FactConflictError,
    InputError,
    MigrationNotSupported,
    UsageError,
)
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import Firing, Position
from slumberd.model.pattern import Equals, Glob, Matches, OneOf, Prefix
from slumberd.model.store_status import MigrationPlan
from slumberd.storage.facts.store import EngineFactStore
from slumberd.storage.protocols import FactStore
from tests.support.builders import START, at, rule, version
from tests.support.fakes import FakeClock
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

EVERYTHING = FactPattern()


def fact(id: str = "f1", **overrides: Any) -> Fact:
    fields: dict[str, Any] = {
        "user": "alice",
        "agent": "rag",
        "payload": {"subject": "alice", "predicate": "drinks", "object": "tea"},
        "lineage": [{"kind": "manual", "source_id": "me"}],
        "confidence": 0.9,
        "pinned_at": START,
    }
    return Fact(id=id, **(fields | overrides))


def payload(id: str | None, what: str = "tea", **overrides: Any) -> dict[str, Any]:
    body = {"user": "alice", "agent": "rag", "subject": "alice", "predicate": "drinks"}
    return body | {"object": what} | ({"id": id} if id else {}) | overrides


def provenance(**overrides: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "source_episode_ids": ["e1"],
        "promotion_ts": START,
        "rule_id": "r",
        "confidence": 1.0,
    }
    return fields | overrides


def add(id: str | None = "e1", what: str = "tea", **overrides: Any) -> AddDelta:
    body = overrides.pop("fact_payload", payload(id, what))
    return AddDelta(kind="add", fact_payload=body, **provenance(**overrides))


def update(id: str, what: str, *replaces: str, **overrides: Any) -> UpdateDelta:
    body = overrides.pop("fact_payload", payload(id, what))
    return UpdateDelta(
        kind="update", fact_payload=body, replaces=list(replaces), **provenance(**overrides)
    )


def delete(*replaces: str, **overrides: Any) -> DeleteDelta:
    return DeleteDelta(kind="delete", replaces=list(replaces), **provenance(**overrides))


@pytest.fixture
async def store(provider: Provider) -> AsyncIterator[EngineFactStore]:
    async with provider.facts(clock=FakeClock()) as opened:
        await opened.bootstrap()
        yield opened
        _, _, broken = await opened.verify()
        assert broken is None


async def ids(store: EngineFactStore, **pattern: Any) -> list[str]:
    return [found.id for found in await store.query(FactPattern(**pattern))]


async def promote(store: EngineFactStore, *versions: Any, seq: int = 1) -> None:
    """Let a rule promote versions of episodes."""
    fired = rule("all")
    upto = Position(seq, versions[-1].id)
    await store.apply_deltas(
        DeltaBatch(Firing("all", "h", "every", START, Position(), upto), evaluate(versions, fired))
    )


def test_store_implements_the_protocol(provider: Provider) -> None:
    store = provider.facts()

    assert isinstance(store, FactStore)
    assert all(
        asyncio.iscoroutinefunction(getattr(store, name))
        for name in ("bootstrap", "health", "migrate", "pin", "query", "unpin", "apply_delta")
    )


async def test_query_returns_a_pinned_fact_unchanged(store: EngineFactStore) -> None:
    given = fact(metadata={"by": ["me"]}, lineage=[{"a": 1}, {"replaces": "x"}])
    await store.pin(given)

    (found,) = await store.query(EVERYTHING)

    assert found == given


async def test_pin_replaces_the_fact_with_its_id(store: EngineFactStore) -> None:
    await store.pin(fact())
    await store.pin(fact(payload={"anything": "else"}))

    (found,) = await store.query(EVERYTHING)

    assert found.payload == {"anything": "else"}


async def correct(store: EngineFactStore, given: Fact) -> None:
    await store.correct(given, by="me", reason="it is so")


async def test_a_correction_replaces_the_fact_of_its_key(store: EngineFactStore) -> None:
    await promote(store, version("e1", metadata=payload(None, "coffee"), timestamp=at(99_999)))

    await correct(store, fact("mine"))

    assert await ids(store) == ["mine"]


async def test_correction_records_its_author_and_reason(store: EngineFactStore) -> None:
    await store.correct(fact("mine"), by="ann", reason="she corrected it")

    (found,) = await store.query(EVERYTHING)
    assert found.lineage[-1]["by"] == "ann"
    assert found.lineage[-1]["reason"] == "she corrected it"


@pytest.mark.parametrize(("by", "reason"), [("", "why"), ("who", " ")])
async def test_correction_without_author_or_reason_is_refused(
    store: EngineFactStore, by: str, reason: str
) -> None:
    with pytest.raises(ValueError, match="name the author and the reason"):
        await store.correct(fact("mine"), by=by, reason=reason)
    with pytest.raises(ValueError, match="name the author and the reason"):
        await store.retract("mine", by=by, reason=reason)

    assert await store.reads.ledger_rows() == 0


async def test_a_pinned_fact_competes_with_no_other(store: EngineFactStore) -> None:
    await promote(store, version("e1", metadata=payload(None, "coffee")))

    for what in ("tea", "milk", "water"):
        await store.pin(fact(what, payload=payload(what, what)))
    await promote(
        store, version("e2", seq=2, metadata=payload(None, "juice"), timestamp=at(9)), seq=2
    )

    assert await ids(store) == ["e2", "milk", "tea", "water"]


async def test_pin_of_the_fact_of_another_user_changes_no_other_fact(
    store: EngineFactStore,
) -> None:
    await store.pin(fact("alices"))

    await store.pin(fact("bobs", user="bob"))

    assert await ids(store) == ["alices", "bobs"]


async def test_unpinned_fact_can_be_pinned_again(store: EngineFactStore) -> None:
    await store.pin(fact())
    await store.unpin("f1")

    await store.pin(fact())

    assert await store.query(EVERYTHING) == [fact()]


async def test_retracted_pin_returns_only_with_a_later_instant(
    store: EngineFactStore,
) -> None:
    await store.pin(fact())
    await store.retract("f1", by="me", reason="it is wrong")

    await store.pin(fact())
    assert await ids(store) == []
    await store.pin(fact(pinned_at=at(99)))

    assert await ids(store) == ["f1"]


@pytest.mark.parametrize(
    ("seconds", "left"),
    [pytest.param(99, [], id="later"), pytest.param(-1, ["f1"], id="earlier")],
)
async def test_a_delete_by_key_covers_the_older_pinned_facts_of_that_key(
    store: EngineFactStore, seconds: int, left: list[str]
) -> None:
    await store.pin(fact())
    metadata = {"subject": "alice", "predicate": "drinks", "intent": "delete"}

    await promote(store, version("e1", metadata=metadata, timestamp=at(seconds)))

    assert await ids(store) == left


async def test_an_older_pin_that_arrives_after_a_delete_by_key_is_covered(
    store: EngineFactStore,
) -> None:
    metadata = {"subject": "alice", "predicate": "drinks", "intent": "delete"}
    await promote(store, version("e1", metadata=metadata, timestamp=at(9)))
    await promote(
        store, version("e2", seq=2, metadata=payload(None, "milk"), timestamp=at(99)), seq=2
    )

    await store.pin(fact())

    assert await ids(store) == ["e2"]


async def test_a_delete_of_another_object_leaves_a_pinned_fact(store: EngineFactStore) -> None:
    metadata = {"subject": "alice", "predicate": "drinks", "object": "rum", "intent": "delete"}
    await promote(store, version("e1", metadata=metadata, timestamp=at(9)))

    await store.pin(fact())

    assert await ids(store) == ["f1"]


async def test_an_episode_that_names_a_pinned_fact_replaces_it(store: EngineFactStore) -> None:
    await store.pin(fact())
    metadata = payload(None, "milk") | {"intent": "update", "replaces": ["f1"]}

    await promote(store, version("e1", metadata=metadata, timestamp=at(9)))

    (found,) = await store.query(EVERYTHING)
    assert found.id == "e1"
    assert found.lineage[1] == {"replaces": "f1", "source_episode_ids": []}


async def test_a_pin_over_a_promoted_fact_is_a_manual_edit_of_it(store: EngineFactStore) -> None:
    await promote(store, version("e1", metadata=payload(None, "coffee")))
    await store.pin(fact("e1"))

    await promote(
        store, version("e2", seq=2, metadata=payload(None, "milk"), timestamp=at(9)), seq=2
    )

    assert await ids(store) == ["e2"]


async def test_only_a_newer_episode_changes_a_correction(store: EngineFactStore) -> None:
    await correct(store, fact("mine"))
    await promote(store, version("old", seq=1, metadata=payload(None, "milk"), timestamp=at(-9)))
    assert await ids(store) == ["mine"]

    await promote(
        store, version("new", seq=2, metadata=payload(None, "water"), timestamp=at(9)), seq=2
    )

    assert await ids(store) == ["new"]


async def test_edit_of_its_episode_does_not_restore_an_unpinned_fact(
    store: EngineFactStore,
) -> None:
    await promote(store, version("e1", metadata=payload(None, "tea")))
    await store.unpin("e1")

    await promote(
        store, version("e1", seq=2, metadata=payload(None, "tea"), content="edited"), seq=2
    )

    assert await ids(store) == []


async def test_older_episode_does_not_restore_an_unpinned_fact_when_its_own_is_emptied(
    store: EngineFactStore,
) -> None:
    await promote(store, version("older", metadata=payload(None, "tea")))
    await promote(
        store, version("e1", seq=2, metadata=payload(None, "tea"), timestamp=at(1)), seq=2
    )
    await store.unpin("e1")

    await promote(store, version("e1", seq=3, metadata={"intent": "noop"}, timestamp=at(1)), seq=3)

    assert await ids(store) == []


async def test_unpin_of_a_fact_that_is_not_current_records_nothing(store: EngineFactStore) -> None:
    await store.unpin("absent")

    assert await store.reads.records() == []


@pytest.mark.parametrize("levels", [254, 10_000])
async def test_a_pin_that_is_nested_too_deep_is_refused(
    store: EngineFactStore, levels: int
) -> None:
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]

    with pytest.raises(InputError, match="'f1' is nested deeper than 100 levels"):
        await store.pin(fact("f1", payload={"object": nested}))

    assert await store.reads.ledger_rows() == 0


async def test_a_pin_without_lineage_is_refused(store: EngineFactStore) -> None:
    with pytest.raises(ValueError, match="lineage"):
        await store.pin(fact(lineage=[]))


@pytest.mark.parametrize("confidence", [float("nan"), float("inf"), -0.1, 1.1])
async def test_a_confidence_outside_its_bounds_is_refused(
    store: EngineFactStore, confidence: float
) -> None:
    with pytest.raises(ValueError, match="confidence"):
        await store.pin(fact(confidence=confidence))
    with pytest.raises(ValueError, match="confidence"):
        await store.apply_delta(add(confidence=confidence))


@pytest.mark.parametrize("other", [{"user": "bob"}, {"agent": "other"}])
async def test_an_id_that_another_scope_holds_is_refused(
    store: EngineFactStore, other: dict[str, str]
) -> None:
    await store.pin(fact())

    with pytest.raises(FactConflictError, match="f1"):
        await store.pin(fact(**other))

    (stored,) = await store.query(EVERYTHING)
    assert (stored.user, stored.agent) == ("alice", "rag")


async def test_episode_whose_fact_id_is_pinned_in_another_scope_is_quarantined(
    store: EngineFactStore,
) -> None:
    await store.pin(fact("e1", user="bob"))

    await promote(store, version("e1", metadata=payload(None, "tea")))

    (entry,) = await store.reads.quarantine()
    assert (entry["episode_id"], entry["reason"]) == ("e1", "id_taken")
    assert [found.user for found in await store.query(EVERYTHING)] == ["bob"]


async def test_add_delta_pins_with_its_provenance(store: EngineFactStore) -> None:
    await store.apply_delta(add("e1", confidence=0.5))

    (found,) = await store.query(EVERYTHING)

    assert (found.id, found.user, found.agent, found.confidence) == ("e1", "alice", "rag", 0.5)
    assert found.lineage == [
        {"rule_id": "r", "source_episode_ids": ["e1"], "promotion_ts": START.isoformat()}
    ]


async def test_update_delta_replaces_facts_and_names_them(store: EngineFactStore) -> None:
    await store.apply_delta(add("e1"))

    await store.apply_delta(update("e2", "coffee", "e1", source_episode_ids=["e2"]))

    (found,) = await store.query(EVERYTHING)
    assert found.id == "e2"
    assert [entry.get("replaces") for entry in found.lineage] == [None, "e1"]


async def test_delete_delta_removes_every_id_that_it_names(store: EngineFactStore) -> None:
    await store.pin(fact("f1", payload={"a": 1}))
    await store.pin(fact("f2", payload={"a": 2}, user="bob"))
    await store.pin(fact("f3", payload={"a": 3}))

    await store.apply_delta(delete("f1", "f2", "unknown"))

    assert await ids(store) == ["f3"]


async def test_noop_delta_is_recorded_and_changes_no_fact(store: EngineFactStore) -> None:
    await store.apply_delta(NoopDelta(kind="noop", **provenance()))

    assert await ids(store) == []
    assert [record.kind for record in await store.reads.records()] == ["firing", "noop"]


async def test_a_delta_applied_twice_is_applied_once(store: EngineFactStore) -> None:
    await store.apply_delta(add("e1"))
    await store.apply_delta(update("e2", "coffee", "e1"))
    rows = len(await store.reads.records())

    for again in (add("e1", promotion_ts=at(5)), update("e2", "coffee", "e1")):
        await store.apply_delta(again)

    assert await ids(store) == ["e2"]
    assert len(await store.reads.records()) == rows


async def test_payload_without_an_id_always_gets_the_same_id(store: EngineFactStore) -> None:
    for _ in range(2):
        await store.apply_delta(add(None))

    assert len(await ids(store)) == 1


async def test_a_delta_cannot_replace_another_users_fact(store: EngineFactStore) -> None:
    await store.pin(fact("bobs", user="bob"))

    with pytest.raises(FactConflictError, match="bobs"):
        await store.apply_delta(update("e1", "coffee", "bobs"))

    assert await ids(store) == ["bobs"]


async def test_unknown_id_is_ignored_unless_strict(store: EngineFactStore) -> None:
    await store.apply_delta(update("e1", "tea", "never-was"))

    with pytest.raises(FactConflictError, match="never-was"):
        await store.apply_delta(delete("never-was"), strict=True)

    assert await ids(store) == ["e1"]


@pytest.mark.parametrize(
    ("broken", "violation"),
    [
        pytest.param(add(source_episode_ids=[]), "source_episode_ids must be non-empty", id="why"),
        pytest.param(add(rule_id=""), "rule_id must be non-empty", id="who"),
        pytest.param(delete(), "replaces must be non-empty", id="what"),
    ],
)
async def test_a_delta_without_provenance_is_refused_before_anything_is_written(
    store: EngineFactStore, broken: AddDelta | DeleteDelta, violation: str
) -> None:
    with pytest.raises(ConsolidationRuleError, match=violation) as refused:
        await store.apply_delta(broken)

    assert isinstance(refused.value, ValueError)
    assert refused.value.delta_type == broken.kind
    assert await store.reads.records() == []


class ForeignDelta:
    """A delta of another program: an object with the specified attributes."""

    def __init__(self, **fields: object) -> None:
        vars(self).update(fields)


def other_delta(**fields: object) -> Any:
    return ForeignDelta(**(provenance() | fields))


async def test_deltas_of_other_classes_are_applied_by_their_kind(
    store: EngineFactStore,
) -> None:
    await store.apply_delta(other_delta(kind="add", fact_payload=payload("e1")))
    await store.apply_delta(
        other_delta(kind="update", replaces=["e1"], fact_payload=payload("e2", "coffee"))
    )
    await store.apply_delta(other_delta(kind="noop"))
    stood = await ids(store)
    await store.apply_delta(other_delta(kind="delete", replaces=["e2"]))

    assert stood == ["e2"]
    assert await ids(store) == []
    kinds = [record.kind for record in await store.reads.records() if record.kind != "firing"]
    assert kinds == ["add", "update", "noop", "delete"]


@pytest.mark.parametrize(
    ("broken", "violation"),
    [
        pytest.param(None, "is no delta", id="nothing"),
        pytest.param("add", "is no delta", id="a text"),
        pytest.param({"kind": "add"}, "a mapping is no delta; give TypeAdapter", id="a mapping"),
        pytest.param(other_delta(kind="remove"), "'kind' is 'remove', not one of add", id="kind"),
        pytest.param(other_delta(kind=["add"]), "is no delta", id="kind of another type"),
        pytest.param(other_delta(kind="add"), "fact_payload: field required", id="no payload"),
        pytest.param(other_delta(kind="delete"), "replaces: field required", id="no replaces"),
        pytest.param(
            other_delta(kind="add", fact_payload={}, rule_id=""),
            "rule_id must be non-empty",
            id="who",
        ),
    ],
)
async def test_object_that_is_not_a_delta_is_refused_and_nothing_is_written(
    store: EngineFactStore, broken: Any, violation: str
) -> None:
    with pytest.raises(ConsolidationRuleError, match=violation):
        await store.apply_delta(broken)

    assert await store.reads.records() == []


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        pytest.param({}, ["f1", "f2", "f3"], id="everything"),
        pytest.param({"user": "alice"}, ["f1", "f2"], id="user"),
        pytest.param({"agent": "other"}, ["f2"], id="agent"),
        pytest.param({"subject": "s"}, ["f1", "f3"], id="subject"),
        pytest.param({"predicate": "p"}, ["f1", "f2"], id="predicate"),
        pytest.param({"object": "5"}, ["f2"], id="object is text"),
        pytest.param({"user": "alice", "subject": "s"}, ["f1"], id="two slots"),
        pytest.param({"user": "Alice"}, [], id="case counts"),
        pytest.param({"user": "%"}, [], id="no wildcard"),
    ],
)
async def test_pattern_finds_equal_values(
    store: EngineFactStore, pattern: dict[str, str], expected: list[str]
) -> None:
    await store.pin(fact("f1", payload={"subject": "s", "predicate": "p", "object": 5}))
    await store.pin(
        fact("f2", agent="other", payload={"subject": "t", "predicate": "p", "object": "5"})
    )
    await store.pin(fact("f3", user="bob", payload={"subject": "s"}))

    assert await ids(store, **pattern) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        pytest.param({"id": "f2"}, ["f2"], id="id"),
        pytest.param({"id": OneOf("f3", "f1", "f9")}, ["f1", "f3"], id="any of some ids"),
        pytest.param({"user": Prefix("ali")}, ["f1", "f2"], id="prefix"),
        pytest.param({"user": Prefix("%")}, [], id="prefix without wildcard"),
        pytest.param({"subject": Glob("?")}, ["f1", "f2", "f3"], id="glob"),
        pytest.param({"subject": Glob("S")}, [], id="glob whose case counts"),
        pytest.param({"agent": Matches("o.*")}, ["f2"], id="regular expression"),
        pytest.param({"agent": Matches("the")}, [], id="regular expression of a part"),
        pytest.param({"object": Equals(5)}, ["f1"], id="number"),
        pytest.param({"object": Equals(5.0)}, [], id="another number"),
        pytest.param({"object": Equals("5")}, ["f2"], id="text of a number"),
        pytest.param({"object": Equals(None)}, ["f3"], id="nothing"),
        pytest.param({"object": OneOf(None, 5)}, ["f1", "f3"], id="nothing or a number"),
        pytest.param({"object": Equals({"b": 1, "a": [True]})}, ["@n/f4"], id="keys in any order"),
        pytest.param({"object": Equals({"b": 1, "a": [1]})}, [], id="true is not 1"),
        pytest.param({"channel": "n"}, ["@n/f4"], id="channel"),
        pytest.param({"channel": "facts"}, ["f1", "f2", "f3"], id="usual channel"),
        pytest.param({"min_confidence": 0.5}, ["f2", "f3"], id="confidence or more"),
        pytest.param({"max_confidence": 0.5}, ["@n/f4", "f1", "f2"], id="confidence or less"),
        pytest.param({"pinned_until": START}, [], id="before"),
        pytest.param({"pinned_since": START, "limit": 1}, ["@n/f4"], id="since, and a limit"),
        pytest.param(
            {"order": "confidence", "descending": True}, ["f3", "f2", "f1", "@n/f4"], id="order"
        ),
        pytest.param(
            {"user": "alice", "subject": Glob("*"), "order": "pinned_at", "limit": 2},
            ["f1", "f2"],
            id="all at once",
        ),
    ],
)
async def test_pattern_finds_matching_values(
    store: EngineFactStore, pattern: dict[str, Any], expected: list[str]
) -> None:
    body = {"subject": "s", "predicate": "p"}
    await store.pin(fact("f1", payload=body | {"object": 5}, confidence=0.2))
    await store.pin(
        fact("f2", agent="other", payload=body | {"subject": "t", "object": "5"}, confidence=0.5)
    )
    await store.pin(fact("f3", user="bob", payload=body, confidence=0.7))
    many = {"subject": "many", "predicate": "p", "object": {"a": [True], "b": 1}}
    await store.pin(fact("@n/f4", user="bob", payload=many, confidence=0.2))

    assert await ids(store, **pattern) == expected


async def test_pages_contain_every_fact_once(store: EngineFactStore) -> None:
    for name in "fedcba":
        await store.pin(fact(name, payload={"of": name}, agent=f"agent {name < 'c'}"))

    pattern, seen = FactPattern(user="alice", limit=2, descending=True), []
    while page := await store.query(pattern):
        seen += [found.id for found in page]
        pattern = pattern.following(page[-1])

    assert seen == list("fedcba")


async def test_pattern_of_invalid_unicode_is_a_usage_error(store: EngineFactStore) -> None:
    with pytest.raises(UsageError, match=r"no caf\\udce9.* is no valid Unicode"):
        await ids(store, subject="no caf\udce9")


async def test_two_clocks_distinguish_what_was_valid_from_what_was_believed(
    store: EngineFactStore,
) -> None:
    first = version("e1", seq=1, metadata=payload(None, "tea"), timestamp=at(0))
    late = version("e2", seq=2, metadata=payload(None, "coffee"), timestamp=at(10))
    early, then = START + timedelta(days=1), START + timedelta(days=2)
    fired = rule("all")
    for read, moment in ((first, early), (late, then)):
        firing = Firing("all", "h", "every", moment, Position(), Position(read.seq, read.id))
        await store.apply_deltas(DeltaBatch(firing, evaluate([read], fired)))

    async def ids_at(**clocks: Any) -> list[str]:
        return [found.id for found in await store.query(EVERYTHING, **clocks)]

    assert await ids_at(valid_at=at(5)) == ["e1"]
    assert await ids_at(valid_at=at(10)) == ["e2"]
    assert await ids_at(valid_at=at(-1)) == []
    assert await ids_at(believed_at=early) == ["e1"]
    assert await ids_at(believed_at=then) == ["e2"]
    assert await ids_at(believed_at=early, valid_at=at(10)) == ["e1"]
    assert await ids_at(believed_at=at(0)) == []


@pytest.mark.cases(1)
@pytest.mark.slow
async def test_reader_never_misses_the_fact(store: EngineFactStore) -> None:
    await store.pin(fact("f0"))
    seen: list[int] = []
    done = asyncio.Event()

    async def read() -> None:
        while not done.is_set():
            seen.append(len(await store.query(EVERYTHING)))

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        for number in range(1, 60):
            await store.apply_delta(update(f"f{number}", f"cup {number}", f"f{number - 1}"))
        done.set()

    assert set(seen) == {1}


def test_one_store_serves_several_event_loops(provider: Provider) -> None:
    store = provider.facts()

    async def pin(name: str) -> None:
        await store.bootstrap()
        await asyncio.gather(*(store.pin(fact(f"{name}{n}", payload={})) for n in range(5)))

    asyncio.run(pin("a"))
    asyncio.run(pin("b"))

    assert len(asyncio.run(store.query(EVERYTHING))) == 10
    asyncio.run(store.close())


async def test_instants_that_are_recorded_never_decrease(provider: Provider) -> None:
    clock = FakeClock()
    async with provider.facts(clock=clock) as store:
        await store.bootstrap()
        await store.pin(fact("f1", payload={}))
        clock.set(START - timedelta(days=1))

        await store.pin(fact("f2", payload={}))

        moments = [record.at for record in await store.reads.records()]
        assert moments == sorted(moments)


async def test_plan_of_nullable_columns_is_applied(store: EngineFactStore) -> None:
    column = {"op": "add_column", "table": "facts", "column": "note", "nullable": True}
    await store.migrate(MigrationPlan(target_version=2, operations=[column]))
    await store.pin(fact())

    assert await ids(store) == ["f1"]
    assert (await store.health()).version == 2


async def test_any_other_plan_is_refused(store: EngineFactStore) -> None:
    plan = MigrationPlan(target_version=2, operations=[{"op": "drop_table", "table": "facts"}])

    with pytest.raises(MigrationNotSupported) as refused:
        await store.migrate(plan)

    assert refused.value.reason == "v1-add-column-only"
    assert (await store.health()).version == 1


async def test_health_counts_facts_and_never_raises(provider: Provider, missing: Provider) -> None:
    store, absent = provider.facts(), missing.facts()
    unusable = await absent.health()
    await store.bootstrap()
    await store.pin(fact())
    sound = await store.health()
    await store.close()

    assert not unusable.ok
    assert (sound.ok, sound.fragment_count, sound.lock_state) == (True, 1, "free")


async def test_episode_id_that_another_user_reuses_is_quarantined(
    store: EngineFactStore,
) -> None:
    await promote(store, version("e1", metadata=payload(None, "tea")))

    stolen = version("e1", seq=2, user="mallory", metadata=payload(None, "poison"))
    await promote(store, stolen, seq=2)

    (stored,) = await store.query(EVERYTHING)
    assert (stored.user, stored.payload["object"]) == ("alice", "tea")
    (entry,) = await store.reads.quarantine()
    assert entry["reason"] == "id_taken"


async def test_repaired_episode_leaves_the_quarantine(store: EngineFactStore) -> None:
    await promote(store, version("e1", metadata={"intent": "?"}))
    assert await store.reads.count_quarantined() == {"all": 1}

    await promote(store, version("e1", seq=2, metadata=payload(None, "tea")), seq=2)

    assert await store.reads.count_quarantined() == {}
    assert await ids(store) == ["e1"]


async def test_unreadable_edit_withdraws_the_claim_of_the_episode(
    store: EngineFactStore,
) -> None:
    await promote(store, version("e0", seq=1, metadata=payload(None, "milk"), timestamp=at(-5)))
    await promote(store, version("e1", seq=2, metadata=payload(None, "tea")), seq=2)

    await promote(store, version("e1", seq=3, metadata={"intent": "?"}), seq=3)

    assert await ids(store) == ["e0"]
    kinds = [
        (record.kind, record.fact_id, record.replaces) for record in await store.reads.records()
    ]
    assert kinds[-2:] == [("quarantine", "e1", ("e1",)), ("add", "e0", ())]


async def test_version_that_is_evaluated_again_is_known(store: EngineFactStore) -> None:
    read = version("e1", metadata=payload(None, "tea"))
    await promote(store, read)

    await promote(store, read)

    last = (await store.reads.records())[-1]
    assert (last.kind, last.reason) == ("noop", "known")
    assert await ids(store) == ["e1"]


async def test_delete_of_a_whole_multi_valued_key_covers_a_late_object(
    store: EngineFactStore,
) -> None:
    await store.ledger.set_channels({"facts": frozenset({"drinks"})}, at=START)
    deletion = payload(None) | {"intent": "delete", "object": None}
    await promote(store, version("all", seq=1, metadata=deletion, timestamp=at(5)))

    await promote(
        store, version("late", seq=2, metadata=payload(None, "milk"), timestamp=at(1)), seq=2
    )
    await promote(
        store, version("new", seq=3, metadata=payload(None, "tea"), timestamp=at(9)), seq=3
    )

    assert await ids(store) == ["new"]
