"""The precedence rule on every short history of a key; each history has its own user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any, NamedTuple

import pytest

from slumberd.consolidation.incoming import DeltaBatch, evaluate
from slumberd.model.episode import EpisodeVersion, microseconds
from slumberd.model.fact import FactPattern
from slumberd.model.firing import Firing, Position
from tests.support.builders import START, rule
from tests.support.oracle import claim_of, current_claims
from tests.support.providers import Provider

pytestmark = [pytest.mark.integration, pytest.mark.slow]

MULTI = {("facts", "likes")}


class Statement(NamedTuple):
    """A version of an episode: its id, its second, and its metadata about the key."""

    id: str
    at: int
    metadata: dict[str, Any]


def assertion(id: str, at: int, what: str) -> Statement:
    return Statement(id, at, {"object": what})


def retraction(at: int, *, what: str | None = None, name: str | None = None) -> Statement:
    metadata = {"intent": "delete", "object": what, "replaces": name and [name]}
    metadata = {key: value for key, value in metadata.items() if value is not None}
    return Statement(f"take {what or name or 'all'} at {at}", at, metadata)


STATEMENTS = [
    assertion("A", 1, "a"),
    assertion("B", 3, "b"),
    assertion("C", 5, "a"),
    assertion("A", 1, "b"),
    assertion("B", 6, "b"),
    Statement("A", 1, {"intent": "noop"}),
    Statement("D", 2, {"intent": "update", "replaces": ["B"], "object": "a"}),
    Statement("E", 4, {"intent": "update", "replaces": ["A"], "object": "b"}),
    retraction(2),
    retraction(4),
    retraction(2, what="a"),
    retraction(4, what="b"),
    retraction(2, name="B"),
    retraction(6, name="A"),
]
"""Every way to compete for a key: edits, retractions of a key, of an object, of an id."""

Story = Sequence[Statement]


def version(number: int, statement: Statement, seq: int, predicate: str) -> EpisodeVersion:
    metadata = {"subject": "s", "predicate": predicate} | statement.metadata
    if "replaces" in metadata:
        metadata["replaces"] = [f"{number}/{name}" for name in metadata["replaces"]]
    return EpisodeVersion(
        seq, f"{number}/{statement.id}", f"user {number}", "s", "rag",
        microseconds(START) + statement.at, "text", "node", metadata,
    )  # fmt: skip


def expected(stories: Sequence[Story], upto: int, predicate: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for number, story in enumerate(stories):
        current = {
            statement.id: version(number, statement, 0, predicate) for statement in story[:upto]
        }
        claims = [claim_of(vars_of(version), "facts", ("all",)) for version in current.values()]
        winners = current_claims([claim for claim in claims if claim], MULTI)
        found |= {id_: claim.object for id_, claim in winners.items()}
    return found


def vars_of(version: EpisodeVersion) -> dict[str, Any]:
    return version._asdict() | {"id": version.id}


def batches(stories: Sequence[Story], predicate: str) -> Iterator[tuple[int, list[EpisodeVersion]]]:
    """Yield the first statement of every story, then the second of every story, and so on."""
    seq = 0
    for upto in range(1, len(stories[0]) + 1):
        batch = []
        for number, story in enumerate(stories):
            seq += 1
            batch.append(version(number, story[upto - 1], seq, predicate))
        yield upto, batch


@pytest.mark.parametrize("predicate", ["is", "likes"])
@pytest.mark.parametrize(
    ("length", "every"), [(3, 1), pytest.param(4, 6, marks=pytest.mark.nightly)]
)
async def test_every_history_ends_with_the_facts_of_the_oracle(
    provider: Provider, predicate: str, length: int, every: int
) -> None:
    stories = list(permutations(STATEMENTS, length))[::every]
    async with provider.facts() as store:
        await store.bootstrap()
        await store.ledger.set_channels({"facts": frozenset({"likes"})}, at=START)
        after = Position()
        for upto, batch in batches(stories, predicate):
            firing = Firing(
                "all", "h", "every", START, after, Position(batch[-1].seq, batch[-1].id)
            )
            after = firing.upto
            await store.apply_deltas(DeltaBatch(firing, evaluate(batch, rule("all"))))
            facts = {
                fact.id: fact.payload.get("object") for fact in await store.query(FactPattern())
            }
            wanted = expected(stories, upto, predicate)
            wrong = {id_ for id_, _ in facts.items() ^ wanted.items()}
            numbers = sorted({int(id_.split("/")[0]) for id_ in wrong})[:5]
            assert not wrong, {number: stories[number][:upto] for number in numbers}
        _, _, broken = await store.verify()
        assert broken is None
