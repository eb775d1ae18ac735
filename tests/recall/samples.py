"""Small samples for the tests of the measurement."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from slumberd.model.episode import Episode
from slumberd.operations.facts import KnownFact
from tests.recall.engine import Engine, Line, Prompt
from tests.recall.plain_bm25 import PlainBM25
from tests.recall.stories import Story, story_of
from tests.support.builders import START


def episode(id: str, content: str, *, user: str = "ann", session: str = "s1") -> Episode:
    return Episode(
        id=id,
        content=content,
        timestamp=START,
        source_node="chat_turn",
        agent="ann",
        user=user,
        session=session,
    )


def known(id: str, subject: str = "", predicate: str = "", object: str = "") -> KnownFact:
    return KnownFact(
        id=id,
        user="ann",
        agent="default",
        payload={"subject": subject, "predicate": predicate, "object": object},
        lineage=[{"rule_id": "r", "source_episode_ids": [id]}],
        confidence=1.0,
        said_at=START,
        pinned_at=START,
        metadata={},
        version="1",
    )


class Blind(PlainBM25):
    """An engine that finds nothing, under the name of one with bars."""

    name = "lexical"

    async def search(self, user: str, query: str, limit: int) -> list[str]:
        return []

    async def ranked(self, user: str, question: str, limit: int) -> list[Line]:
        return []

    async def search_names(self, user: str, scope: str, query: str) -> list[str]:
        return []

    async def context(self, user: str, question: str, budget: int) -> Prompt:
        return Prompt("", [])


class BlindDefault(Blind):
    """The same, under the name of the memory that `slumberd init` makes."""

    name = "init"


class Seeing(PlainBM25):
    """The baseline, under the name of one with bars."""

    name = "lexical"


@asynccontextmanager
async def plain() -> AsyncIterator[Engine]:
    yield PlainBM25()


@asynccontextmanager
async def blind() -> AsyncIterator[Engine]:
    yield Blind()


@asynccontextmanager
async def blind_default() -> AsyncIterator[Engine]:
    yield BlindDefault()


@asynccontextmanager
async def seeing() -> AsyncIterator[Engine]:
    yield Seeing()


def belief(id: str, name: str, **changes: Any) -> dict[str, Any]:
    return {
        "_id": id, "user_id": "ann", "type": "preference", "canonical_name": name,
        "aliases": [], "content": "", "scope": ["home"], "pinned": False, "superseded_by": None,
        "resolved_at": None, **changes,
    }  # fmt: skip


def case(query: str, only: list[str] | None, **changes: Any) -> dict[str, Any]:
    tier = {} if only is None else {"shouldOnlyInclude": only}
    row = {"caseId": query, "scope": ["home"], "query": query, "expect": {"relevantBeliefs": tier}}
    return {**row, **changes}


TEA = belief("b1", "green_tea", aliases=["sencha"])


_PEOPLE = {"pm": "product_manager", "guard": "security", "other": "employee"}
_TURNS = [
    ("guard", "The Alder token is al_stg_1A2B."),
    ("pm", "Alder starts on May 3."),
    ("guard", "Delete the token al_stg_1A2B from memory."),
    ("pm", "Alder moves from May 3 to May 9."),
]
_ASKED = [
    ("guard", "t1", "Which token has Alder?", ["al_stg_1A2B"], []),
    ("guard", "t3", "When does Alder start?", ["May 9"], ["al_stg_1A2B"]),
    ("other", "t3", "When does Alder start?", [], ["May 9"]),
]


def office_story() -> Story:
    """Return a story of two members of a project, one of whom asks before and after an erasure."""
    members = ("pm", "guard")
    entities = {
        "principals": [
            {"principal_id": id, "role": role, "display_name": id} for id, role in _PEOPLE.items()
        ],
        "relationships": [
            {"type": "project_member", "project_id": "project_alder", "principal_id": id}
            for id in members
        ],
    }
    turns = [
        {"turn_id": f"t{at}", "speaker": {"principal_id": id, "role": _PEOPLE[id]}, "text": text}
        for at, (id, text) in enumerate(_TURNS)
    ]
    row = {"episode_id": "s1", "domain": "office", "entities": entities, "turns": turns}
    return story_of(row, [_question(*asked) for asked in _ASKED])


def _question(
    asker: str, at: str, text: str, include: list[str], leaks: list[str]
) -> dict[str, Any]:
    return {
        "episode_id": "s1",
        "as_of_turn_id": at,
        "asker": {"principal_id": asker},
        "query_type": "utility",
        "query_text": text,
        "judge_spec": {"include": include},
        "leak_targets": leaks,
    }
