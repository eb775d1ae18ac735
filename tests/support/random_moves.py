"""Random histories of two shards, with moves of their users."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from slumberd.consolidation.manual import (
    Assert,
    Declare,
    Edit,
    ManualAssertion,
    ManualBatch,
    Remove,
    Retract,
)
from slumberd.model.episode import Episode
from tests.support.builders import at, triple
from tests.support.two_shards import TwoShards, two_shards

USERS = ("alice", "bob", "Zoë/%", "日本")
STEPS = 24
MANY = {"facts": frozenset({"likes"})}


def histories(seed: int) -> Iterator[tuple[str, Any]]:
    """Yield steps: puts with edits and deletions, firings, manual edits, undos and moves."""
    chance = random.Random(seed)
    can_undo = True
    for _ in range(STEPS):
        user = chance.choice(USERS)
        match chance.choice(("put", "put", "put", "fire", "fire", "edit", "undo", "many", "move")):
            case "put":
                yield "put", [episode_of(chance, user) for _ in range(chance.randint(1, 4))]
            case "edit":
                kind = chance.choice(("retract", "assert", "declare", "remove"))
                yield "edit", (user, kind, episode_of(chance, user))
            case "move":
                can_undo = False  # the firings of moved users are read-only
                yield "move", user
            case "undo" if can_undo:
                yield "undo", chance.random()
            case "many":
                yield "many", chance.random() < 0.5
            case _:
                yield "fire", None
    yield "fire", None


def episode_of(chance: random.Random, user: str) -> Episode:
    """Return an episode of a user at one of a few instants: many are late, and most are edited."""
    number = chance.randint(1, 5)
    metadata: dict[str, Any] = {}
    intent = chance.choice((None, None, None, "update", "delete", "set", "?"))
    if intent:
        metadata["intent"] = intent
    if intent in ("update", "delete") and chance.random() < 0.6:
        metadata["replaces"] = [f"{user}-{chance.randint(1, 5)}"]
    if chance.random() < 0.2:
        metadata["triples"] = [
            {"subject": "s", "predicate": "likes", "object": chance.choice("ab")}
        ]
    return triple(
        f"{user}-{number}",
        "s",
        chance.choice(("likes", "lives in")),
        chance.choice("abc"),
        user=user,
        timestamp=at(chance.randint(0, 4)),
        metadata=metadata,
    )


def triple_of(episode: Episode) -> dict[str, Any]:
    """Return subject, predicate and object of an episode."""
    return {name: episode.metadata[name] for name in ("subject", "predicate", "object")}


async def check_moves(moved: str, stayed: str, seed: int) -> None:
    """Take the same steps in two databases, with moves in one of them, and compare the facts."""
    async with two_shards(moved) as one, two_shards(stayed) as other:
        shots: list[datetime] = []
        for what, value in histories(seed):
            for world in (one, other):
                world.clock.advance(60)
                if what != "move":
                    await take_step(world, what, value)
            if what == "move":
                await one.move(value)
                await one.check()
            shots.append(one.clock.now())
        await one.check()
        await compare(one, other, shots)


async def compare(one: TwoShards, other: TwoShards, shots: Sequence[datetime]) -> None:
    """Compare the facts of two databases now, and at instants of both clocks."""
    for user in USERS:
        assert await one.facts(user) == await other.facts(user)
        for believed_at in shots:
            then: dict[str, Any] = {"believed_at": believed_at}
            assert await one.facts(user, **then) == await other.facts(user, **then), then
        for second in range(5):
            then = {"valid_at": at(second), "believed_at": shots[len(shots) // 2]}
            assert await one.facts(user, **then) == await other.facts(user, **then), then
    for believed_at in shots:
        assert await one.all_facts(believed_at) == await other.all_facts(believed_at)


async def take_step(world: TwoShards, what: str, value: Any) -> None:
    """Take a step that is not a move."""
    match what:
        case "put":
            await world.put(*value)
        case "many":
            for shard in world.shards:
                await shard.facts.ledger.set_channels(MANY if value else {}, at=world.clock.now())
        case "edit":
            user, kind, episode = value
            asserted = ManualAssertion(
                f"pin-{episode.id}", user, "rag",
                {"user": user, "agent": "rag", **triple_of(episode)}, 1.0, [{"by": "p"}], {},
            )  # fmt: skip
            edits: dict[str, Edit] = {
                "retract": Retract((episode.id,), [{"by": "p"}]),
                "assert": Assert(asserted),
                "declare": Declare(asserted),
                "remove": Remove(asserted.fact_id),
            }
            await world.of(user).facts.apply_deltas(ManualBatch([edits[kind]], "p"))
        case "undo":
            for shard in world.shards:
                firings = world.rows(
                    "SELECT rule, n FROM "  # a number
                    f"slumberd_{shard.number}.slumberd_firings WHERE rule !~ '^@' ORDER BY n"
                )
                if firings:
                    rule_id, n = firings[int(value * len(firings))]
                    await shard.facts.ledger.undo(
                        f"{rule_id}@{n}", at=world.clock.now(), by="me", dry_run=False
                    )
        case _:
            await world.fire()
