"""An episode whose own id ends in ``#`` and digits takes no id of another episode's facts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.consolidation.incoming import Erased, evaluate
from slumberd.consolidation.withdrawal import withdraw_former
from slumberd.model import scope
from slumberd.model.episode import Episode
from slumberd.model.fact import FactPattern
from slumberd.model.scope import channel_of, episode_id_of, fact_id_of, plain_fact_id
from slumberd.operations.caller import Caller
from slumberd.operations.quarantine import QuarantineForm
from slumberd.operations.writes.erasures import ForgetForm
from tests.support import oracle
from tests.support.builders import at, rule, triple, version
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

EVERYWHERE = rule("all", then_emits=["facts", "notes"])


def several(id: str, user: str, *objects: str, **overrides: Any) -> Episode:
    triples = [
        {"subject": f"{user} {n}", "predicate": "drinks", "object": one}
        for n, one in enumerate(objects, 1)
    ]
    return triple(
        id, "", "", "", user=user, **{"timestamp": at(1), **overrides},
        metadata={"triples": triples, "subject": None, "predicate": None, "object": None},
    )  # fmt: skip


@pytest.mark.unit
@pytest.mark.parametrize(
    ("channel", "episode", "part", "expected"),
    [
        ("facts", "e1", 0, "e1"),
        ("facts", "e1", 2, "e1#2"),
        ("notes", "e1", 2, "@notes/e1#2"),
        ("facts", "e1#2", 0, "@facts/e1#2"),
        ("facts", "e1#007", 0, "@facts/e1#007"),
        ("facts", "e1#2", 3, "@facts/e1#2#3"),
        ("facts", "e1#2#3", 0, "@facts/e1#2#3#0"),
        ("notes", "e1#2", 0, "@notes/e1#2#0"),
        ("facts", "@x#2", 0, "@facts/@x#2#0"),
        ("facts", "e1#x", 0, "e1#x"),
        ("facts", "e1#²", 0, "e1#²"),
        ("facts", "e1#2\n", 0, "e1#2\n"),
    ],
)
def test_fact_ids(channel: str, episode: str, part: int, expected: str) -> None:
    assert fact_id_of(channel, episode, part) == expected
    assert oracle.fact_id(channel, episode) + (f"#{part}" if part else "") == expected


@pytest.mark.unit
def test_no_two_claims_have_one_fact_id() -> None:
    ends = ["", "#", "#0", "#1", "#2", "#01", "#x"]
    stems = ["e", "@e", "@facts/e", "@notes/e", "/e", ""]
    names = {f"{stem}{one}{two}{three}" for stem in stems for one in ends for two in ends
             for three in ends} - {""}  # fmt: skip
    found: dict[str, tuple[str, str, int]] = {}
    for channel in ("facts", "notes"):
        for name in names:
            for part in range(3):
                claim = channel, name, part
                assert found.setdefault(fact_id_of(*claim), claim) == claim


@pytest.mark.unit
@given(
    st.sampled_from(["facts", "notes"]),
    st.text("e#012@/", min_size=1).filter(lambda id: not (id.startswith("@") and "/" in id)),
)
def test_the_episode_of_an_own_fact_is_read_back(channel: str, episode: str) -> None:
    fact_id = fact_id_of(channel, episode)

    assert channel_of(fact_id) == channel
    assert episode_id_of(fact_id) == episode


async def facts_of(home: OpenStores, user: str) -> dict[str, Any]:
    facts = await home.facts.query(FactPattern(user=user))
    return {fact.id: fact.payload["object"] for fact in facts}


ANNS = {"e1#1": "tea", "e1#2": "rum", "@notes/e1#1": "tea", "@notes/e1#2": "rum"}


@pytest.mark.integration
@pytest.mark.parametrize("id", ["e1#2", "e1#1", "@notes/e1#2", "@facts/e1#2"])
async def test_another_user_takes_no_id_of_a_later_triple(provider: Provider, id: str) -> None:
    async with open_stores(provider) as home:
        await home.put(several("e1", "ann", "tea"), triple(id, "bob", "drinks", "gin", user="bob"))
        await home.fire(EVERYWHERE)

        await home.put(several("e1", "ann", "tea", "rum", timestamp=at(2)))
        await home.fire(EVERYWHERE)

        assert await facts_of(home, "ann") == ANNS
        assert [*(await facts_of(home, "bob")).values()] == ["gin", "gin"]
        assert await home.facts.reads.quarantine() == []
        assert (await home.facts.verify())[2] is None


@pytest.mark.integration
async def test_a_name_means_the_episode_and_the_single_fact(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(
            several("e1", "ann", "tea", "rum"),
            triple("e1#2", "x", "is", "own", user="ann", timestamp=at(2)),
            triple("e1#1", "y", "is", "own", user="ann", timestamp=at(2)),
        )
        await home.fire()
        deletion = {"intent": "delete", "replaces": ["e1#2"]}
        await home.put(triple("d", "", "", "", user="ann", timestamp=at(3), metadata=deletion))
        await home.fire()

        assert await facts_of(home, "ann") == {"e1#1": "tea", "@facts/e1#1": "own"}


async def write_as_before(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, home: OpenStores
) -> None:
    """Let bob take the id of ann's second triple, as slumberd 0.2 did."""
    with monkeypatch.context() as older:
        older.setattr(scope, "_own_id", plain_fact_id)
        await home.put(
            several("e1", "ann", "tea"), triple("e1#2", "bob", "drinks", "gin", user="bob")
        )
        await home.fire(EVERYWHERE)
        await home.put(several("e1", "ann", "tea", "rum", timestamp=at(2)))
        await home.fire(EVERYWHERE)
    assert await facts_of(home, "bob") == {"e1#2": "gin", "@notes/e1#2": "gin"}
    assert await facts_of(home, "ann") == {"e1#1": "tea", "@notes/e1#1": "tea"}


NEW_IDS = {"@facts/e1#2": "ale", "@notes/e1#2#0": "ale"}


@pytest.mark.integration
@pytest.mark.parametrize("how", ["edit", "withdrawal", "backfill"])
async def test_facts_of_an_older_slumberd_get_the_new_ids_when_their_episode_is_evaluated(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async with open_stores(provider) as home:
        await write_as_before(provider, monkeypatch, home)
        assert (await home.facts.verify())[2] is None

        if how == "backfill":
            await home.consolidator.backfill(EVERYWHERE, at(60), by="me")
        else:
            meta = {} if how == "edit" else {"subject": None, "predicate": None, "intent": "noop"}
            edited = triple(
                "e1#2", "bob", "drinks", "ale", user="bob", timestamp=at(9), metadata=meta
            )
            await home.put(edited)
            await home.fire(EVERYWHERE)

        what = {"edit": "ale", "backfill": "gin"}.get(how)
        assert await facts_of(home, "bob") == (dict.fromkeys(NEW_IDS, what) if what else {})
        assert (await home.facts.verify())[2] is None
        operations = home.operations(EVERYWHERE, clock=FakeClock(at(70)))
        await operations.retry(QuarantineForm(rules=["all"]), Caller.of_user(1, 1))
        assert await facts_of(home, "ann") == ANNS
        assert (await home.facts.verify())[2] is None


@pytest.mark.integration
async def test_facts_of_an_older_slumberd_are_erased_with_their_user(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_stores(provider) as home:
        await write_as_before(provider, monkeypatch, home)
        operations = home.operations(EVERYWHERE, clock=FakeClock(at(70)))

        await operations.erasures.forget(ForgetForm(user="bob"), Caller.of_user(1, 1))

        assert await facts_of(home, "bob") == {}
        assert (await home.facts.verify())[2] is None


@pytest.mark.unit
def test_only_an_evaluated_version_withdraws_what_has_a_former_id() -> None:
    said = version("e1#2", metadata={"subject": "a", "predicate": "is", "object": 1})
    (claimed,) = evaluate([said], rule("all"))["facts"]
    (unmatched,) = evaluate([said._replace(matched=False)], rule("all"))["facts"]

    assert [one.fact_id for one in withdraw_former(claimed, "e1#2")] == ["e1#2"]
    assert [one.fact_id for one in withdraw_former(unmatched, "e1#2")] == ["e1#2"]
    assert withdraw_former(Erased(), "e1#2") == []
