"""Find what answers a question: search, and the text that an agent takes with it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from slumberd.model.construct import construct
from slumberd.model.errors import MemoryScopeError
from slumberd.operations.caller import Caller, Right
from slumberd.operations.example_values import AT
from slumberd.operations.forms import (
    Instant,
    Limit,
    LongText,
    Name,
    ReadForm,
    Result,
    singular_kind,
)
from slumberd.operations.handlers import Example, operation
from slumberd.search.context import Context, OfSuperseded
from slumberd.search.hits import KINDS, Hit, Kind
from slumberd.search.searcher import Searcher

HIT: dict[str, Any] = {
    "id": "e1",
    "kind": "episode",
    "score": 0.71,
    "lexical": 0.71,
    "vector": None,
    "text": "I moved to Lisbon",
    "at": AT,
    "user": "ana",
    "agent": "desk",
    "session": "s1",
    "speaker": "user",
    "trust": "said",
    "confidence": None,
    "sources": [],
    "superseded": [],
    "similar_later": [],
}


class ProfileForm(ReadForm):
    """The request ``profile``: a budget in tokens.

    Attributes:
        budget: At most this many tokens.
    """

    budget: Annotated[int, Field(ge=0, le=1_000_000)] = 1_024


class ContextText(Result):
    """What an agent takes with it.

    Attributes:
        text: The items, quoted one a line; empty when nothing fits.
        items: The same: the facts, best first, then the episodes, oldest first.
        tokens: How many tokens the text has.
        budget: How many it might have.
    """

    text: str
    items: list[Hit]
    tokens: int
    budget: int


def _list_of_kinds(value: object) -> object:
    """Return kinds as a list; a single one may stand without it."""
    return (
        [singular_kind(one) for one in value] if isinstance(value, list) else [singular_kind(value)]
    )


class RecallForm(ReadForm):
    """The request ``recall``: a question.

    Attributes:
        query: The question, in any words.
        kinds: What is searched; by default both.
        session: Only episodes of this session, and no facts.
        as_of: Only episodes up to this instant, and what was true then; by default now.
        limit: At most this many.
        min_score: The least score, 0 to 1.
    """

    query: LongText
    kinds: Annotated[
        list[Kind],
        BeforeValidator(_list_of_kinds),
        Field(min_length=1, default_factory=lambda: [*KINDS]),
    ]
    session: Name | None = None
    as_of: Instant | None = None
    limit: Limit = 10
    min_score: Annotated[float, Field(ge=0, le=1)] = 0.0


class ContextForm(ReadForm):
    """The request ``context``: a question, and a budget in tokens.

    Attributes:
        question: The question that is to be answered.
        budget: At most this many tokens.
        session: The conversation whose latest turns are taken; by default those of all.
        as_of: Only what was known at this instant; by default now.
        superseded: ``mark`` says at an episode what took the place of its claims; ``omit`` also
            leaves out an episode none of whose claims is current.
    """

    question: LongText
    budget: Annotated[int, Field(ge=0, le=1_000_000)] = 4_096
    session: Name | None = None
    as_of: Instant | None = None
    superseded: OfSuperseded = "mark"


class Hits(Result):
    """The answer to a question, best first."""

    hits: list[Hit]


class Search:
    """Runs requests that find episodes and facts.

    Args:
        searcher: Finds them.
    """

    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError,),
        example=Example({"query": "Where does ana live?", "limit": 5}, {"hits": [HIT]}),
    )
    async def recall(self, request: RecallForm, caller: Caller) -> Hits:
        """Find the episodes and facts that answer a question, best first."""
        scope = caller.scope(request.user, request.agent, all_agents=request.all_agents)
        hits = await self._searcher.search(
            request.query,
            user=scope.user,
            agent=scope.agent,
            session=request.session,
            kinds=request.kinds,
            as_of=request.as_of,
            limit=request.limit,
            min_score=request.min_score,
        )
        return construct(Hits, {"hits": hits})

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError,),
        example=Example(
            {"question": "Where does ana live?", "budget": 500},
            {"text": "> I moved to Lisbon", "items": [HIT], "tokens": 6, "budget": 500},
        ),
    )
    async def context(self, request: ContextForm, caller: Caller) -> ContextText:
        """Return what an agent takes with it to answer a question, quoted as data."""
        scope = caller.scope(request.user, request.agent, all_agents=request.all_agents)
        found = await self._searcher.context(
            request.question,
            user=scope.user,
            agent=scope.agent,
            session=request.session,
            budget=request.budget,
            as_of=request.as_of,
            superseded=request.superseded,
        )
        return _text_of(found)

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError,),
        example=Example(
            {"budget": 500},
            {"text": "> ana lives in Lisbon", "items": [HIT], "tokens": 7, "budget": 500},
        ),
    )
    async def profile(self, request: ProfileForm, caller: Caller) -> ContextText:
        """Return the facts that an agent takes with it whatever it is asked, quoted as data."""
        scope = caller.scope(request.user, request.agent, all_agents=request.all_agents)
        found = await self._searcher.profile(
            user=scope.user, agent=scope.agent, budget=request.budget
        )
        return _text_of(found)


def _text_of(found: Context) -> ContextText:
    parts = {"text": found.text, "items": [*found.items]}
    return construct(ContextText, {**parts, "tokens": found.tokens, "budget": found.budget})
