"""Search the episodes and facts of one scope, and choose what an agent takes with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar, cast

from slumberd.clock import Clock, SystemClock
from slumberd.model.arguments import (
    require_instant,
    require_iterable,
    require_text,
    require_whole_number,
)
from slumberd.model.episode import (
    FUTURE_TOLERANCE_SECONDS,
    microseconds,
)
from slumberd.model.errors import UsageError
from slumberd.model.fact import Fact, FactPattern, QuotedEpisode, SupersededByEpisode
from slumberd.model.feed import Deletion, FactPlace, FeedPlace, NumberedFact, NumberedVersion
from slumberd.model.scope import ScopeFilter
from slumberd.model.stages import MARKS
from slumberd.model.texts import AUTO
from slumberd.search.context import (
    OF_SUPERSEDED,
    Context,
    ContextBuilder,
    ContextParts,
    EstimatedTokens,
    OfSuperseded,
    TokenCounter,
)
from slumberd.search.embeddings import forget_vectors
from slumberd.search.episode_index import EpisodeIndex
from slumberd.search.fact_index import FactIndex
from slumberd.search.followed_scopes import (
    FEW_TEXTS,
    MemoryBound,
    SearchedEpisodes,
    SearchedFacts,
    UserThreads,
)
from slumberd.search.hits import KINDS, MOST_COMPARED, Hit, Kind, name_similar_turns
from slumberd.search.saved_indexes import SavedIndexes
from slumberd.search.saved_scopes import SavedScopes
from slumberd.search.scope_index import FoundText
from slumberd.search.terms import forget_words

MOST_BYTES = 256 * 2**20
"""About how much memory the indexes of a searcher take, by default."""

S = TypeVar("S")
T = TypeVar("T")

RecordedAt = Callable[[], Awaitable[datetime | None]]

MOST_RECALLED = 200
"""The most episodes that are recalled for a context, before the budget chooses among them."""

_LEAST_RECALLED = 10
_TOKENS_OF_A_LINE = 20
"""The least tokens of a quoted episode, about: they bound how many a budget can hold."""

RELEVANT = 0.2
"""A fact that answers less of the question than this is not taken into a context.

It is taken all the same when the question names its subject or its object.
"""


_MOST_FACTS = 20
_MOST_RECENT = 20


class Searcher:
    """Searches the episodes and facts of a scope.

    Only episodes and facts of the scope decide what is found, and in which order. The indexes live
    in memory. Each search first reads what any program has written or deleted since the last one.

    Args:
        facts: The facts; None searches episodes only, and knows no marks.
        language: The language of the texts, one of `texts.LANGUAGES`; `texts.AUTO` recognises
            it in each scope; None stems no word.
        vectors: Whether meanings count, too; needs the extra ``vectors``.
        tokens: Counts the tokens of a context.
        clock: The time. An episode whose instant is still to come is not found before.
        future_tolerance_seconds: How far ahead of the clock an instant may be.
        recorded_at: Returns the newest instant that the ledger recorded; None without a ledger.
            While the clock is behind it, one of both is wrong, and no episode is of the future.
        most_bytes: About how much memory the indexes may take.
        saved: Where the indexes are saved; None saves none.

    Raises:
        UsageError: The language is unknown.
        ExtraMissingError: The extra ``vectors`` is not installed.
    """

    def __init__(  # noqa: PLR0913 # one for each setting
        self,
        memory: SearchedEpisodes,
        facts: SearchedFacts | None = None,
        *,
        language: str | None = AUTO,
        vectors: bool = False,
        tokens: TokenCounter | None = None,
        clock: Clock | None = None,
        future_tolerance_seconds: float = FUTURE_TOLERANCE_SECONDS,
        recorded_at: RecordedAt | None = None,
        most_bytes: int = MOST_BYTES,
        saved: SavedIndexes | None = None,
    ) -> None:
        self._facts = facts
        self._clock = clock or SystemClock()
        self._tolerance = timedelta(seconds=future_tolerance_seconds)
        self._recorded_at = recorded_at
        self._has_vectors = vectors
        self._new_fact_index = partial(FactIndex, language=language, vectors=vectors)
        self._new_fact_index(ScopeFilter("", None, None))  # refuses an unknown language now
        self._new_episode_index = partial(EpisodeIndex, language=language, vectors=vectors)
        self._feed = memory.feed
        self._saved = saved
        self._threads = UserThreads()
        self._bound = MemoryBound(most_bytes, kinds=1 if facts is None else 2)
        self._episodes = SavedScopes[EpisodeIndex, NumberedVersion](
            memory.feed,
            self._new_episode_index,
            self._threads,
            self._bound,
            kind="episode",
            read_place=FeedPlace.of_saved,
            saved=saved,
            is_of_store=self._is_of_store,
        )
        self._followed_facts: SavedScopes[FactIndex, NumberedFact] | None = None
        if facts is not None:
            self._followed_facts = SavedScopes(
                facts.feed,
                self._new_fact_index,
                self._threads,
                self._bound,
                kind="fact",
                read_place=FactPlace.of_saved,
                saved=saved,
            )
        self._saving = asyncio.Lock()
        """An erasure waits for the copy of an index that is being written."""
        self._builder = ContextBuilder(tokens or EstimatedTokens())

    @property
    def memory(self) -> MemoryBound:
        """How much memory the indexes take, and may take."""
        return self._bound

    async def search(  # noqa: PLR0913 # the scope, and what is searched
        self,
        query: str,
        *,
        user: str,
        agent: str | None = None,
        session: str | None = None,
        kinds: Collection[Kind] = KINDS,
        as_of: datetime | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[Hit]:
        """Return the episodes and facts that answer a question best, best first.

        Args:
            user: Whose memory is searched.
            agent: Only what this agent knows; None for all agents.
            session: Only episodes of this session, and no facts; None for all.
            kinds: What is searched.
            as_of: Only episodes up to this instant, and what was true then; None for now.
            limit: At most this many, 1 or more.
            min_score: The least score. A score of 0 is never returned.

        Raises:
            MemoryScopeError: A part of the scope is malformed.
            UsageError: `query` is blank, `limit` is below 1, or a kind is unknown.
        """
        require_text("query", query)
        require_instant("as_of", as_of)
        if not query.strip():
            raise UsageError("the question is empty; write what to search, in any words")
        _check(limit, kinds)
        scope = ScopeFilter.of(user, session, agent)
        async with self._threads.turn(user):
            episodes = None
            if "episode" in kinds:
                facts, episodes = await self._indexes(scope, as_of)
            else:
                facts = await self._fact_index(scope, as_of)

            def find() -> list[Hit]:
                found: list[Hit] = []
                if episodes is not None:
                    found += episodes.find(
                        query, limit=limit, least=min_score, aliases=facts.aliases
                    )
                if "fact" in kinds and session is None:
                    found += facts.find(query, limit=limit, least=min_score)
                found.sort(key=lambda hit: (-hit.score, hit.kind != "fact", hit.id))
                return name_similar_turns(found[:limit])

            is_short = not self._has_vectors and len(facts) + len(episodes or ()) <= FEW_TEXTS
            hits = await self._threads.run(user, find, is_short=is_short)
        superseded = await self._superseded_of(hits, as_of)
        return [_noted(hit, superseded) for hit in hits]

    async def facts_about(
        self,
        question: str,
        *,
        user: str,
        agent: str | None = None,
        as_of: datetime | None = None,
        limit: int = 100,
    ) -> list[Hit]:
        """Return the facts whose subject, object or alias a question names in full, best first.

        A search also returns facts of which the question has only a part of a name.

        Args:
            question: The question. A name with one typing error counts as the name.
            user: Whose facts are read.
            agent: Only what this agent knows; None for all agents.
            as_of: What was true at this instant; None for now.
            limit: At most this many, 1 or more.

        Raises:
            MemoryScopeError: A part of the scope is malformed.
            UsageError: `limit` is below 1.
        """
        require_text("question", question)
        require_instant("as_of", as_of)
        _check(limit, KINDS)
        scope = ScopeFilter.of(user, None, agent)
        async with self._threads.turn(user):
            facts = await self._fact_index(scope, as_of)
            return await self._threads.run(user, partial(facts.find_named, question, limit=limit))

    async def context(  # noqa: PLR0913 # the scope, and what is quoted
        self,
        question: str,
        *,
        user: str,
        agent: str | None = None,
        session: str | None = None,
        budget: int = 4_096,
        as_of: datetime | None = None,
        superseded: OfSuperseded = "mark",
    ) -> Context:
        """Return what an agent takes with it to answer a question, within a budget of tokens.

        These are the facts that answer the question, the episodes that it recalls, each with the
        turn before it if that is short, and the latest turns. The facts come first, then the
        episodes in the order of time. An episode whose claims are not current any more says so.

        Args:
            user: Whose memory is read.
            agent: Only what this agent knows; None for all agents.
            session: The conversation whose latest turns are taken; None takes those of all.
            budget: At most this many tokens, as the token counter counts them.
            as_of: Only what was known at this instant; None for now.
            superseded: ``mark`` says at an episode what took the place of its claims; ``omit``
                also leaves out an episode none of whose claims is current.

        Raises:
            MemoryScopeError: A part of the scope is malformed.
            UsageError: `budget` is below 0, or `superseded` is unknown.
        """
        require_text("question", question)
        require_instant("as_of", as_of)
        require_whole_number("budget", budget)
        if budget < 0:
            raise UsageError(f"budget is {budget}; it must be at least 0")
        if superseded not in OF_SUPERSEDED:
            known = " and ".join(OF_SUPERSEDED)
            raise UsageError(f"superseded is {superseded!r}; the choices are {known}")
        scope = ScopeFilter.of(user, None, agent)
        async with self._threads.turn(user):
            facts, episodes = await self._indexes(scope, as_of)
            parts = await self._threads.run(
                user, partial(_choose_parts, question, episodes, facts, session, budget)
            )
        quoted = [*parts.recalled, *parts.before.values(), *parts.recent]
        found = await self._superseded_of(quoted, as_of)
        noted = _with_superseded(parts, found, omit=superseded == "omit")
        return await self._threads.run(user, partial(self._builder.build, noted, budget))

    async def profile(self, *, user: str, agent: str | None = None, budget: int = 1_024) -> Context:
        """Return the facts that an agent takes with it whatever it is asked, within a budget.

        The facts with the highest confidence come first, of equal ones the latest. Each has its
        confidence in place of a score.

        Args:
            user: Whose memory is read.
            agent: Only what this agent knows; None for all agents.
            budget: At most this many tokens, as the token counter counts them.

        Raises:
            MemoryScopeError: A part of the scope is malformed.
        """
        require_whole_number("budget", budget)
        scope = ScopeFilter.of(user, None, agent)
        async with self._threads.turn(user):
            facts = await self._fact_index(scope, None)
            hits = await self._threads.run(user, facts.by_standing)
        parts = ContextParts(facts=hits)
        return await self._threads.run(user, partial(self._builder.build, parts, budget))

    async def _is_of_store(self, index: EpisodeIndex, changed: frozenset[int]) -> bool:
        """Return whether the store has the newest episodes of an index that was loaded.

        A copy that took the place of a store, and was written again, may have a log that ends at
        the same episode with another text.

        Args:
            changed: The rows that changed after the index was saved.
        """
        rows = {row: id for row, id in index.newest_saved.items() if row not in changed}
        return index.has_all(rows, await self._feed.versions(rows))

    async def save(self) -> None:
        """Save the indexes of which much is not saved yet, or which have gone episodes."""
        saved = self._saved
        if saved is None:
            return
        kinds: list[SavedScopes[Any, Any] | None] = [self._episodes, self._followed_facts]
        scopes = [(kind, scope) for kind in kinds if kind for scope in kind.to_save()]
        for kind, scope in scopes:
            async with self._saving:
                await kind.save(saved, scope)
        if scopes:
            await asyncio.to_thread(saved.remove_oldest)

    async def remove_gone(self, deletions: Callable[[int], Awaitable[list[Deletion]]]) -> int:
        """Remove the saved indexes that hold deleted episodes, of whatever scope; return how many.

        Those that take too much, and what killed processes were writing, are removed, too.

        Args:
            deletions: Returns the deletions of episodes after a number.
        """
        if self._saved is None:
            return 0
        await asyncio.to_thread(self._saved.remove_unfinished)
        await asyncio.to_thread(self._saved.remove_oldest)
        known = await asyncio.to_thread(self._saved.find_deletions)
        found = await deletions(min(known.values())) if known else []
        if not found:
            return 0
        return await asyncio.to_thread(self._saved.remove_gone, known, found)

    async def forget(self, user: str) -> None:
        """Drop all that is kept in memory of a user's texts, once they are erased.

        Without this, the next search of each scope drops it.

        Args:
            user: Whose texts.
        """
        async with self._saving, self._threads.turn(user):
            await self._threads.run(user, self._forget_words)  # after what a cancelled search began
            self._episodes.drop(user)
            if self._followed_facts is not None:
                self._followed_facts.drop(user)

    def _forget_words(self) -> None:
        forget_words()
        if self._has_vectors:
            forget_vectors()

    async def _superseded_of(
        self, hits: Sequence[Hit], as_of: datetime | None
    ) -> SupersededByEpisode:
        """Return which claims of the episodes among some hits are not current any more."""
        quoted = {
            hit.id: QuotedEpisode(hit.id, hit.user, hit.agent, hit.text)
            for hit in hits
            if hit.kind == "episode"
        }
        if self._facts is None or not quoted:
            return {}
        return await self._facts.find_superseded([*quoted.values()], valid_at=as_of)

    async def _indexes(
        self, scope: ScopeFilter, as_of: datetime | None
    ) -> tuple[FactIndex, EpisodeIndex]:
        """Return the indexes of a scope, without what a mark hides and what is of the future."""
        facts, index = await _both(self._fact_index(scope, as_of), self._all_episodes(scope, as_of))
        hidden = facts.hidden
        if as_of is None and (future := await self._of_the_future(index)):
            hidden |= future
        if hidden is not index.hidden:
            await self._threads.run(scope.user, partial(index.hide, hidden))
        return facts, index

    async def _of_the_future(self, index: EpisodeIndex) -> frozenset[str]:
        """Return the episodes whose instant is still to come."""
        now = self._clock.now()
        last = microseconds(now + self._tolerance)
        if index.latest_at <= last:
            return frozenset()
        recorded = None if self._recorded_at is None else await self._recorded_at()
        if recorded is not None and recorded > now + self._tolerance:
            return frozenset()
        return index.ids_after(last)

    async def _all_episodes(self, scope: ScopeFilter, as_of: datetime | None) -> EpisodeIndex:
        if as_of is None:
            return await self._episodes.current(scope)
        reading = await self._feed.read_scope(scope)
        last = microseconds(as_of)
        versions = [one for one in reading.versions if one.version.at <= last]
        return await self._threads.run(scope.user, partial(self._episodes.make, scope, versions))

    async def _fact_index(self, scope: ScopeFilter, as_of: datetime | None) -> FactIndex:
        """Return the index of the facts of a user, or of one agent of it."""
        owner = ScopeFilter(scope.user, None, scope.agent)
        if self._facts is None or self._followed_facts is None:
            return self._new_fact_index(owner)
        if as_of is None:
            return await self._followed_facts.current(owner)
        found: list[Fact] = []
        for channel in (None, MARKS):
            pattern = FactPattern(user=scope.user, agent=scope.agent, channel=channel)
            found += await self._facts.query(pattern, valid_at=as_of)
        versions = [NumberedFact(fact.id, fact) for fact in found]
        return await self._threads.run(
            scope.user, partial(self._followed_facts.make, owner, versions)
        )


async def _both(one: Awaitable[S], other: Awaitable[T]) -> tuple[S, T]:
    """Return two results; when one fails, the other does not go on in the background.

    Raises:
        BaseException: The error of the first that failed.
    """
    found = await asyncio.gather(one, other, return_exceptions=True)
    for result in found:
        if isinstance(result, BaseException):
            raise result
    return cast("tuple[S, T]", found)


def _check(limit: int, kinds: Collection[Kind]) -> None:
    require_whole_number("limit", limit)
    require_iterable("kinds", (kinds,) if isinstance(kinds, str) else kinds)
    if limit < 1:
        raise UsageError(f"limit is {limit}; it must be at least 1")
    named = {kinds} if isinstance(kinds, str) else {*kinds}
    unknown = sorted(named - {*KINDS})
    if unknown:
        raise UsageError(f"kind {unknown[0]!r} is unknown; the kinds are {' and '.join(KINDS)}")


def _choose_parts(
    question: str, episodes: EpisodeIndex, facts: FactIndex, session: str | None, budget: int
) -> ContextParts:
    """Return what a context may hold."""
    most = min(_LEAST_RECALLED + budget // _TOKENS_OF_A_LINE, MOST_RECALLED)
    # A larger budget changes neither their scores nor their notes, so it never holds fewer of them.
    found = episodes.index.search(question, limit=MOST_RECALLED, aliases=facts.aliases)
    first = found[: max(most, MOST_COMPARED)]
    hits = [*map(episodes.hit, first)]
    recalled = name_similar_turns(hits)[:most]
    by_id = {hit.id: hit for hit in recalled}

    def hit_of(id: str) -> Hit:
        return by_id.get(id) or episodes.hit(FoundText(id, 0.0, 0.0))

    before = {
        hit.id: hit_of(id)
        for hit in recalled
        if (id := episodes.index.previous(hit.id)) is not None
        if episodes.is_short(id)
    }
    of_facts = facts.find(question, limit=_MOST_FACTS)
    named = {*facts.named_in(question, [hit.id for hit in of_facts])}
    return ContextParts(
        facts=[hit for hit in of_facts if hit.score >= RELEVANT or hit.id in named],
        recalled=recalled,
        before=before,
        recent=[hit_of(version.id) for version in episodes.newest(session, _MOST_RECENT)],
    )


def _with_superseded(
    parts: ContextParts, superseded: SupersededByEpisode, *, omit: bool
) -> ContextParts:
    """Return parts whose episodes say what took the place of their claims.

    Args:
        superseded: By episode, its claims that are not current any more.
        omit: Whether an episode none of whose claims is current is left out.
    """
    gone = {id for id, claims in superseded.items() if omit and claims.is_whole}
    return parts._replace(
        recalled=[_noted(hit, superseded) for hit in parts.recalled if hit.id not in gone],
        before={
            id: _noted(hit, superseded) for id, hit in parts.before.items() if hit.id not in gone
        },
        recent=[_noted(hit, superseded) for hit in parts.recent if hit.id not in gone],
    )


def _noted(hit: Hit, superseded: SupersededByEpisode) -> Hit:
    """Return an episode with its claims that are not current any more."""
    found = superseded.get(hit.id) if hit.kind == "episode" else None
    return hit if found is None else replace(hit, superseded=tuple(found.superseded))
