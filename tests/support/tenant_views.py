"""The view that one tenant has of a state directory, without what all tenants share."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import orjson

from slumberd.cli.commands.episodes import document as episode_document
from slumberd.logs.lines import timestamp
from slumberd.model.errors import NoInputError
from slumberd.model.fact import FactPattern
from slumberd.model.firing import Record
from slumberd.model.pattern import Glob, Matches, OneOf, Prefix
from slumberd.model.scope import fact_id_of
from slumberd.operations.reads.explanations import ExplainedFact, decision_document, would_change
from slumberd.operations.responses import fact_document
from slumberd.search.searcher import Searcher
from tests.support.builders import at
from tests.support.cli_runner import called
from tests.support.hostile_tenant import MINE, MUCH, RULES, TenantHistory

View = dict[str, Any]

_KEYS = ("id", "cadence", "when_filter", "then_emits")
CHANNELS = ("facts", "notes")
IDS = [*(fact_id_of(channel, eid) for channel in CHANNELS for eid in MINE), "p1"]
"""Every fact id that the tenant can have."""

NUMBERED = re.compile(r"(?P<rule>@?[a-z]+)@(?P<number>\d+)|@/(?P<manual>\d+)")
"""Ids that contain a number of the ledger: those of firings and of manual retractions."""


async def current_view(world: TenantHistory) -> View:
    """Return a tenant's episodes and facts, which do not depend on where batches are cut."""
    found = {"recent": await _recent(world), "facts": await _facts(world)}
    return {**found, "search": await _search(world)}


async def everything(world: TenantHistory) -> View:
    """Return all that a tenant sees, with numbers of the ledger replaced by their order."""
    seen = {
        **await current_view(world),
        "why": {id: await _why(world, id) for id in IDS},
        "why_not": {eid: await _why_not(world, eid) for eid in MINE},
        "audit": await _audit(world),
        "quarantine": await _quarantine(world),
        "answers": world.answers,
    }
    return normalised(seen)


async def printed(world: TenantHistory) -> View:
    """Return the output of the commands for a tenant, as JSON."""
    rules = [rule.model_dump(include=set(_KEYS)) for rule in RULES]
    file = world.folder / "rules.d" / "rules.yaml"
    file.parent.mkdir()
    file.write_bytes(orjson.dumps({"rules": rules}))  # JSON is YAML
    return normalised(
        {" ".join(words): await _run_command(world, *words) for words in _commands(world)}
    )


def _commands(world: TenantHistory) -> Iterator[tuple[str, ...]]:
    user, agent = world.story.tenant
    yield from [("recent", user, "--agent", agent), ("facts", "--user", user, "--agent", agent)]
    yield ("facts", "--user", user, "--agent", agent, "--valid-at", at(2).isoformat())
    yield ("search", "s likes b", "--user", user, "--agent", agent)
    yield from [("why-not", "--", id) for id in MINE]
    for id in IDS:
        yield from [("why", "--content", "--", id), ("audit", "ls", "--fact", id)]


async def _run_command(world: TenantHistory, *words: str) -> list[Any]:
    place = ("--json", "--state-dir", str(world.folder))
    where = words.index("--") if "--" in words else len(words)
    done = await asyncio.to_thread(called, *words[:where], *place, *words[where:])
    return [done.returncode, done.stderr, *map(orjson.loads, done.stdout.splitlines())]


async def _recent(world: TenantHistory) -> list[Any]:
    tenant, recent = world.story.tenant, world.state_directory.stores.memory.recent
    scopes: list[tuple[str | None, str | None]] = [
        (None, tenant.agent),
        ("s1", tenant.agent),
        ("s/2", tenant.agent),
    ]
    if tenant.user != world.story.other.user:
        scopes += [(None, None), ("s1", None)]
    return [
        [episode_document(found) for found in await recent(tenant.user, *scope, limit=limit)]
        for scope in scopes
        for limit in (1, MUCH)
    ]


async def _search(world: TenantHistory) -> list[Any]:
    """Search for words of all tenants, and take a context."""
    tenant = world.story.tenant._asdict()
    searcher = Searcher(world.state_directory.stores.memory, world.facts)
    hits = await searcher.search("s likes a b content of episode", **tenant, limit=MUCH)
    context = await searcher.context("What does s like? a or b?", **tenant)
    return [[hit.to_dict() for hit in hits], context.text]


async def _facts(world: TenantHistory) -> list[Any]:
    """Search by every part of a fact, now and as of earlier instants."""
    tenant = world.story.tenant._asdict()
    searches: list[dict[str, Any]] = [
        {},
        {"subject": "s"},
        {"predicate": "likes"},
        {"subject": "s", "object": "b"},
    ]
    searches += [
        {"subject": Prefix("")},
        {"object": Glob("*")},
        {"id": Matches(".*")},
        {"object": OneOf("a", "b", None)},
        {"order": "pinned_at", "descending": True, "limit": 3},
        {"limit": 2},
        {"channel": "marks"},
    ]
    found = [await world.facts.query(FactPattern(**tenant, **search)) for search in searches]
    found += [await world.facts.query(FactPattern(**tenant), **then) for then in _instants(world)]
    return [[fact_document(fact) for fact in facts] for facts in found]


def _instants(world: TenantHistory) -> Iterator[dict[str, datetime]]:
    now = world.state_directory.clock.now()
    yield {"valid_at": at(2)}
    yield {"valid_at": now, "believed_at": now}
    for steps in range(1, len(world.story.steps), 2):
        yield {"believed_at": at(3600 + 60 * steps)}


async def _why(world: TenantHistory, fact_id: str) -> Any:
    try:
        explanation = await world.facts.why(fact_id)
    except NoInputError as error:
        return str(error)
    wanted = [source.id for source in explanation.sources]
    versions = await world.state_directory.stores.memory.reread(RULES[0], wanted, upto=MUCH)
    return ExplainedFact(
        explanation, {version.id: version for version in versions}, content=True
    ).document()


async def _why_not(world: TenantHistory, eid: str) -> list[Any]:
    memory = world.state_directory.stores.memory
    newest = {rule.id: await memory.reread(rule, [eid], upto=MUCH) for rule in RULES}
    versions = {rule_id: found[0] for rule_id, found in newest.items() if found}
    decisions = await world.facts.reads.decisions_of(eid, RULES, versions)
    rules = {rule.id: rule for rule in RULES}
    return [
        decision_document(
            decision, would_change(decision, rules[decision.rule_id], in_memory=bool(versions))
        )
        for decision in decisions
    ]


async def _audit(world: TenantHistory) -> list[Any]:
    """Return the rows of the ledger that concern the tenant's facts or episodes."""
    records = await world.facts.reads.records(limit=MUCH)
    return [
        {**record._asdict(), "at": timestamp(record.at)} for record in records if _is_mine(record)
    ]


def _is_mine(record: Record) -> bool:
    return record.fact_id in IDS or not set(IDS).isdisjoint(record.replaces)


async def _quarantine(world: TenantHistory) -> list[Any]:
    return [row for row in await world.facts.reads.quarantine() if row["episode_id"] in MINE]


def normalised(seen: View) -> View:
    """Replace every number of the ledger, which all tenants share, by its order in this view.

    Of a run's id, which is at random, only its presence is left.
    """
    places = {number: place for place, number in enumerate(sorted(set(_numbers(seen))))}
    return _replaced(seen, places)  # type: ignore[no-any-return] # a view stays one


def _numbers(value: Any) -> Iterator[int]:
    match value:
        case dict():
            for name, item in value.items():
                yield from [item] if name == "seq" else _numbers(item)
        case list() | tuple():
            for item in value:
                yield from _numbers(item)
        case str():
            found = NUMBERED.finditer(value)
            yield from (int(id["number"] or id["manual"]) for id in found)
        case _:
            pass


def _replaced(value: Any, places: dict[int, int]) -> Any:
    match value:
        case dict():
            return {name: _replaced_field(name, item, places) for name, item in value.items()}
        case list() | tuple():
            return [_replaced(item, places) for item in value]
        case str():
            return NUMBERED.sub(lambda found: _placed(found, places), value)
        case _:
            return value


def _replaced_field(name: str, value: Any, places: dict[int, int]) -> Any:
    match name:
        case "seq":
            return places[value]
        case "run":
            return bool(value)
        case _:
            return _replaced(value, places)


def _placed(found: re.Match[str], places: dict[int, int]) -> str:
    number = places[int(found["number"] or found["manual"])]
    return f"{found['rule']}@{number}" if found["rule"] else f"@/{number}"
