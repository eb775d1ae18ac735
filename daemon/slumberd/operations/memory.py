"""Run the operations on one user's memory: remember, recall, context, correct, explain."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Annotated, Any

import orjson
import structlog

from slumberd.capture.episodes import Capture, Captured
from slumberd.clock import Clock
from slumberd.config.rule_loader import RuleSet
from slumberd.consolidation.explanation import Explanation
from slumberd.errors import (
    ForgottenError,
    FutureInstantError,
    InputError,
    KeyReusedError,
    MemoryScopeError,
    NoInputError,
    RecordRefusedError,
    SecretRefusedError,
    UnreadableEpisodeError,
    UsageError,
    VersionConflictError,
)
from slumberd.model.episode import Episode, instant, speaker_of
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.pattern import Prefix
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import ScopeFilter
from slumberd.operations import example_values as values
from slumberd.operations import memory_forms as forms
from slumberd.operations.caller import Caller, Right
from slumberd.operations.change_report import is_of
from slumberd.operations.commit_signal import CommitSignal
from slumberd.operations.forms import PinForm, UnpinForm
from slumberd.operations.handlers import Answer
from slumberd.operations.new_episodes import (
    DEFAULT,
    SOURCE,
    episode_of,
    episode_of_turn,
    keep_instants,
    keep_turn,
    named_by,
)
from slumberd.operations.operation import Example, operation
from slumberd.operations.reads.episode_results import SOON, best_of
from slumberd.operations.reads.explainer import (
    ExplainedEpisode,
    explain_fact,
    read_newest,
    read_newest_of,
    read_outcome,
    read_results,
)
from slumberd.operations.reads.explanations import decision_document
from slumberd.operations.report import ContextText
from slumberd.operations.responses import fact_document
from slumberd.operations.stores import Stores
from slumberd.operations.transcript_counts import TranscriptCounts, TranscriptFile
from slumberd.operations.writes.changes import Operations
from slumberd.retrieval.searcher import Searcher
from slumberd.storage.episodes.writes import Change, cause_of, refused_among, refused_at

_COUNTS = {*TranscriptCounts._fields} - {"user", "agent", "at"}
_VERSION_CHARACTERS = 16

_MOST_AT_ONCE = 20_000
"""A longer episode is searched for secrets in a thread, so that it delays nobody."""

_log = structlog.get_logger("slumberd")


class MemoryOperations:
    """Runs requests on the memory of one user.

    Args:
        stores: The open stores.
        searcher: Finds episodes and facts.
        changes: Runs what changes the facts.
        rules: Returns the rules that may fire.
        clock: The time.
        future_tolerance_seconds: How far ahead of the clock a timestamp may be.
        commits: Tells when something was committed.
        capture: What is left out of new episodes.
        transcripts: Keeps how hooks read transcripts; None keeps nothing.
        paused: Returns the ids of the paused rules.
    """

    def __init__(  # noqa: PLR0913 # one for each part that it joins
        self,
        stores: Stores,
        searcher: Searcher,
        changes: Operations,
        *,
        rules: Callable[[], RuleSet],
        clock: Clock,
        future_tolerance_seconds: float,
        commits: CommitSignal,
        capture: Capture,
        transcripts: TranscriptFile | None = None,
        paused: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        self._memory, self._facts = stores.memory, stores.facts
        self._searcher = searcher
        self._changes = changes
        self._rules = rules
        self._clock = clock
        self._tolerance = timedelta(seconds=future_tolerance_seconds)
        self._commits = commits
        self._capture = capture
        self._transcripts = transcripts
        self._paused = paused
        self._turn = asyncio.Lock()

    @operation(
        right=Right.WRITE,
        idempotent=True,
        errors=(
            ForgottenError,
            FutureInstantError,
            InputError,
            KeyReusedError,
            MemoryScopeError,
            SecretRefusedError,
            UnreadableEpisodeError,
        ),
        example=Example(
            {
                "text": "I moved to Lisbon",
                "key": "turn 1",
                "triples": [{"subject": "ana", "predicate": "lives_in", "object": "Lisbon"}],
            },
            {"id": "key:ana/desk/turn 1", "state": "new", **values.WAITING},
        ),
    )
    async def remember(self, request: forms.RememberForm, caller: Caller) -> forms.Remembered:
        """Put an episode; it is on disk when the answer comes.

        Raises:
            ForgottenError: The scope was erased, and the episode is older.
            FutureInstantError: The request gives an instant that is still to come.
            KeyReusedError: The key was used for other content, and may not be.
            MemoryScopeError: The id belongs to another scope.
            SecretRefusedError: It holds secrets, and the configuration refuses them.
            UnreadableEpisodeError: Every rule would quarantine the episode.
        """
        scope = caller.scope(request.user, request.agent)
        try:
            [put] = await self._put([request], scope, request.session)
        except RecordRefusedError as refused:
            raise cause_of(refused) from None
        is_stored = put.state in ("new", "changed", "unchanged")
        if is_stored and request.seconds and Right.READ in caller.rights:
            return await self._add_results(put, scope, request.seconds)
        return self._say_at_once(put)

    def _say_at_once(self, put: forms.Remembered) -> forms.Remembered:
        """Return how an episode was put, with what is known of a new version without a read."""
        if put.state not in ("new", "changed"):
            return put
        readers = any(rule.enabled for rule in self._rules().of_episodes().rules)
        became, sentence = ("waiting", _NOT_READ_YET) if readers else ("skipped", forms.NO_RULE)
        return put.model_copy(update={"became": became, "sentence": sentence})

    async def _add_results(
        self, put: forms.Remembered, scope: ScopeFilter, seconds: float
    ) -> forms.Remembered:
        """Return how an episode was put, and what became of it under the rules that are due."""
        rules, found = await self._read_outcome(put.id, scope)
        described = await self._describe(put.id, rules, found)
        soon = {one.rule_id for one in described.results if one.became in SOON}
        if soon:
            rules, found = await self._wait(put.id, scope, seconds, among=soon)
            described = await self._describe(put.id, rules, found)
        kept = {name: getattr(described, name) for name in ("became", "sentence", "results")}
        return put.model_copy(update=kept)

    @operation(
        right=Right.WRITE,
        idempotent=True,
        errors=(MemoryScopeError, RecordRefusedError),
        example=Example(
            {
                "session": "s1",
                "episodes": [
                    {"text": "I moved to Lisbon", "key": "turn 1", "when": values.AT},
                    {"text": "Noted.", "key": "turn 2", "when": values.AT, "speaker": "assistant"},
                ],
            },
            {
                "episodes": [
                    {"id": "key:ana/desk/turn 1", "state": "new"},
                    {"id": "key:ana/desk/turn 2", "state": "new"},
                ]
            },
        ),
    )
    async def put_many(self, request: forms.PutManyForm, caller: Caller) -> forms.RememberedList:
        """Put at most 10,000 episodes in one transaction, all or none.

        Raises:
            RecordRefusedError: One of them is refused, as `remember` refuses it.
        """
        scope = caller.scope(request.user, request.agent)
        put = await self._put(request.episodes, scope, request.session)
        return forms.RememberedList(episodes=put)

    async def _put(
        self, requests: Sequence[forms.EpisodeForm], scope: ScopeFilter, session: str | None
    ) -> list[forms.Remembered]:
        """Put episodes in one transaction.

        Raises:
            RecordRefusedError: One of them is refused; its cause says why.
        """
        captured = await self._capture_all(self._episodes_of(requests, scope, session))
        kept = [place for place, one in enumerate(captured) if one.forget is None]
        with refused_among(kept):
            changes = await self._put_kept(
                [requests[place] for place in kept], [captured[place].episode for place in kept]
            )
        states = dict(zip(kept, changes, strict=True))
        put = [_remembered(one, states.get(place)) for place, one in enumerate(captured)]
        _log_captured(put)
        return put

    async def _put_kept(
        self, requests: Sequence[forms.EpisodeForm], episodes: list[Episode]
    ) -> list[Change]:
        """Put the episodes of requests, without those that are left out."""
        if all(named_by(request) is None for request in requests):
            return await self._memory.put_each(episodes, strict=True)
        async with self._turn:  # another request may put the same id
            known = await read_newest_of(self._memory, [episode.id for episode in episodes])
            episodes = keep_instants(requests, episodes, known)
            return await self._memory.put_each(episodes, strict=True)

    def _episodes_of(
        self, requests: Sequence[forms.EpisodeForm], scope: ScopeFilter, session: str | None
    ) -> list[Episode]:
        """Return the episodes of a request; without instants, each is later than the one before."""
        now, found = self._clock.now(), []
        for position, request in enumerate(requests):
            with refused_at(position):
                if request.when is not None and request.when > now + self._tolerance:
                    raise FutureInstantError("when", request.when)
                at = now + timedelta(microseconds=position)
                found.append(episode_of(request, scope, session, at))
        return found

    async def _capture_all(self, episodes: list[Episode]) -> list[Captured]:
        """Return what may be stored of new episodes: without secrets, and as the person asks."""
        if len(episodes) != 1 or len(episodes[0].model_dump_json()) > _MOST_AT_ONCE:
            return await asyncio.to_thread(self._capture_each, episodes)
        return self._capture_each(episodes)

    def _capture_each(self, episodes: list[Episode]) -> list[Captured]:
        found = []
        for position, episode in enumerate(episodes):
            with refused_at(position):
                found.append(self._capture.capture(episode))
        return found

    @operation(
        right=Right.WRITE,
        idempotent=True,
        errors=(
            ForgottenError,
            InputError,
            MemoryScopeError,
            SecretRefusedError,
            UnreadableEpisodeError,
        ),
        example=Example(
            {
                "session": "s1",
                "coding_agent": "codex",
                "transcript": "/home/ana/.codex/sessions/s1.jsonl",
                "agent_version": "0.153.0",
                "lines": 12,
                "person": 1,
                "assistant": 1,
                "unknown": {"event_msg weather": 1},
                "turn": {
                    "id": "t1",
                    "text": "I moved to Lisbon",
                    "session": "s1",
                    "speaker": "user",
                },
            },
            {"id": "t1", "state": "new", **values.WAITING},
        ),
    )
    async def transcript(
        self, request: forms.TranscriptForm, caller: Caller
    ) -> forms.TranscriptRead:
        """Put a turn of a coding agent's transcript, and record how the transcript was read.

        Raises:
            ForgottenError: The scope was erased, and the turn is older.
            MemoryScopeError: The id belongs to another scope.
            SecretRefusedError: It holds secrets, and the configuration refuses them.
            UnreadableEpisodeError: Every rule would quarantine the turn.
        """
        scope = caller.scope(request.user, request.agent)
        answer = forms.TranscriptRead()
        if request.turn is not None:
            try:
                put = await self._put_turn(request.turn, scope)
            except RecordRefusedError as refused:
                raise cause_of(refused) from None
            _log_captured([put])
            said = self._say_at_once(put).model_dump(exclude={"results"})
            answer = forms.TranscriptRead(**said)
        if self._transcripts is not None:
            counts = TranscriptCounts(
                user=scope.user,
                agent=scope.agent or DEFAULT,
                at=self._clock.now().timestamp(),
                **request.model_dump(include=_COUNTS),
            )
            self._transcripts.record(counts)
        return answer

    async def _put_turn(self, turn: forms.TurnForm, scope: ScopeFilter) -> forms.Remembered:
        """Put a turn; one that was taken back stays so unless the request says otherwise."""
        episode = episode_of_turn(turn, scope, self._clock.now())
        [captured] = await self._capture_all([episode])
        if captured.forget is not None:
            return _remembered(captured, None)
        async with self._turn:
            stored = await read_newest(self._memory, turn.id)
            if stored is not None and not scope.holds(stored):
                stored = None
            if turn.forgotten and stored is None:
                return _remembered(captured, None)
            kept = keep_turn(turn, captured.episode, stored)
            changes = [] if kept is None else await self._memory.put_each([kept], strict=True)
        return _remembered(captured, changes[0] if changes else "unchanged")

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError,),
        example=Example({"query": "Where does ana live?", "limit": 5}, {"hits": [values.HIT]}),
    )
    async def recall(self, request: forms.RecallForm, caller: Caller) -> forms.Hits:
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
        return forms.Hits(hits=hits)

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError,),
        example=Example(
            {"question": "Where does ana live?", "budget": 500},
            {"text": "> I moved to Lisbon", "items": [values.HIT], "tokens": 6, "budget": 500},
        ),
    )
    async def context(self, request: forms.ContextForm, caller: Caller) -> ContextText:
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
        return ContextText(
            text=found.text, items=[*found.items], tokens=found.tokens, budget=found.budget
        )

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError,),
        example=Example(
            {"limit": 1},
            {
                "episodes": [
                    {
                        "id": "e1",
                        "content": "I moved to Lisbon",
                        "timestamp": values.AT,
                        "source_node": "remember",
                        "speaker": "user",
                        "user": "ana",
                        "agent": "desk",
                        "session": "s1",
                        "metadata": {"speaker": "user"},
                    }
                ]
            },
        ),
    )
    async def episodes(self, request: forms.EpisodesForm, caller: Caller) -> forms.EpisodeList:
        """Return the latest episodes, newest first."""
        scope = caller.scope(
            request.user, request.agent, request.session, all_agents=request.all_agents
        )
        if request.id is not None:
            return forms.EpisodeList(episodes=await self._one(request.id, scope))
        found = await self._memory.recent(
            scope.user, request.session, scope.agent, limit=request.skip + request.limit
        )
        listed = [_known_episode(one) for one in found[request.skip :]]
        return forms.EpisodeList(episodes=listed)

    async def _one(self, id: str, scope: ScopeFilter) -> list[forms.KnownEpisode]:
        """Return an episode of a scope; nothing when the scope does not hold it."""
        stored = await read_newest(self._memory, id)
        if stored is None or stored.contested or not scope.holds(stored):
            return []
        return [
            forms.KnownEpisode(
                id=id,
                content=stored.content,
                timestamp=instant(stored.at),
                source_node=stored.source_node,
                speaker=stored.speaker,
                user=stored.user,
                agent=stored.agent,
                session=stored.session,
                metadata=stored.metadata,
            )
        ]

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError,),
        example=Example(
            {"predicate": "lives_in", "limit": 10}, {"facts": [values.FACT], "next": None}
        ),
    )
    async def facts(self, request: forms.FactsForm, caller: Caller) -> forms.FactPage:
        """Return a page of current facts, by id.

        Raises:
            UsageError: The request names both a subject and a prefix of subjects.
        """
        scope = caller.scope(request.user, request.agent, all_agents=request.all_agents)
        subject, prefix = request.subject, request.subject_prefix
        if subject is not None and prefix is not None:
            raise UsageError("facts: give a subject or a prefix of subjects; not both")
        pattern = FactPattern(
            user=scope.user,
            agent=scope.agent,
            id=request.id,
            subject=subject if prefix is None else Prefix(prefix),
            predicate=request.predicate,
            limit=request.limit,
            after=request.cursor,
        )
        found = await self._facts.query(
            pattern, valid_at=request.valid_at, believed_at=request.believed_at
        )
        full = len(found) == request.limit
        following = pattern.following(found[-1]).after if full else None
        return forms.FactPage(facts=[*map(_known, found)], next=following)

    @operation(
        right=Right.WRITE,
        errors=(MemoryScopeError, NoInputError, VersionConflictError),
        example=Example(
            {"fact": "e1", "object": "Porto", "reason": "it was Porto", "if_version": values.HASH},
            {"fact_ids": ["e1"], "firing_id": "@hand:3", "counts": {"update": 1}},
        ),
    )
    async def correct(self, request: forms.CorrectForm, caller: Caller) -> forms.Correction:
        """Assert the right value of a fact, or retract the fact.

        Raises:
            NoInputError: The scope has no such fact.
            UsageError: The request names no fact, or neither a value nor ``retract``.
            VersionConflictError: The fact is not what the author of the request saw.
        """
        scope = caller.scope(request.user, request.agent)
        if ("object" in request.model_fields_set) == request.retract:
            raise UsageError("correct: give the right object, or retract the fact; not both")
        facts = await self._facts_of(request, scope)
        if request.retract:
            return await self._retract(request, facts, scope, caller)
        return await self._assert(request, facts, scope, caller)

    async def _facts_of(self, request: forms.CorrectForm, scope: ScopeFilter) -> list[Fact]:
        """Return the current facts that a correction names."""
        named = request.subject is not None and request.predicate is not None
        if (request.fact is not None) == named:
            raise UsageError("correct: name a fact by its id, or by subject and predicate")
        pattern = FactPattern(
            user=scope.user,
            agent=scope.agent,
            id=request.fact,
            subject=request.subject,
            predicate=request.predicate,
        )
        found = await self._facts.query(pattern)
        if not found and (request.fact is not None or request.retract):
            raise NoInputError(request.fact or f"{request.subject} {request.predicate}", _UNKNOWN)
        versions = [version_of(fact) for fact in found]
        if request.if_version is not None and versions != [request.if_version]:
            raise VersionConflictError(request.fact or "the fact")
        return found

    async def _retract(
        self, request: forms.CorrectForm, facts: list[Fact], scope: ScopeFilter, caller: Caller
    ) -> forms.Correction:
        ids = [fact.id for fact in facts]
        form = UnpinForm(facts=ids, reason=request.reason, dry_run=request.dry_run)
        check = partial(self._facts_of, request, scope)
        answer = await self._changes.unpin(form, caller, check=check)
        return _correction(ids, answer)

    async def _assert(
        self, request: forms.CorrectForm, facts: list[Fact], scope: ScopeFilter, caller: Caller
    ) -> forms.Correction:
        known = facts[0] if request.fact is not None else None
        payload = known.payload if known else {}
        form = PinForm(
            user=scope.user,
            agent=known.agent if known else scope.agent or DEFAULT,
            subject=request.subject or str(payload.get("subject", "")),
            predicate=request.predicate or str(payload.get("predicate", "")),
            object=request.object,
            reason=request.reason,
            id=known.id if known else None,
            dry_run=request.dry_run,
        )
        # A firing, or another correction, may come first.
        check = partial(self._facts_of, request, scope)
        answer = await self._changes.pin(form, caller, check=check, only=known is None)
        return _correction([answer["fact_id"]], answer)

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError, NoInputError),
        example=Example(
            {"id": "e1"}, {"id": "e1", "kind": "fact", "explanation": {"id": "e1", "current": True}}
        ),
    )
    async def explain(
        self, request: forms.ExplainForm, caller: Caller
    ) -> Annotated[Answer, forms.Explained]:
        """Explain why a fact is current, or what became of an episode.

        Raises:
            NoInputError: The scope has neither a fact nor an episode of that id.
        """
        scope = caller.scope(request.user, request.agent, all_agents=request.all_agents)
        pattern = FactPattern(user=scope.user, agent=scope.agent, id=request.id)
        current = request.kind != "episode" and bool(await self._facts.query(pattern))
        kind = "fact" if current else request.kind or "episode"
        if kind == "fact":
            document = await self._explain_fact(request.id, scope, current=current)
        else:
            document = await self._explain_episode(request.id, scope)
        return {"id": request.id, "kind": kind, "explanation": _as_json(document)}

    async def _explain_fact(self, id: str, scope: ScopeFilter, *, current: bool) -> dict[str, Any]:
        """Explain a fact; one that is not current any more must always have been of the scope."""
        with _one_text(id):
            explained = await explain_fact(self._facts, self._memory, id, content=True, scope=scope)
        if not current and not _was_of(explained.explanation, scope):
            raise NoInputError(id, _NEITHER)
        return explained.document()

    async def _explain_episode(self, id: str, scope: ScopeFilter) -> dict[str, Any]:
        rules, outcome = await self._read_outcome(id, scope)
        results = await read_results(self._memory, self._facts, rules, outcome, self._paused())
        remedies = outcome.remedies(rules, self._clock.now() + self._tolerance)
        pairs = zip(outcome.decisions, remedies, strict=True)
        return {
            "id": id,
            "rules": [decision_document(*pair) for pair in pairs],
            "results": [result.document() for result in results],
        }

    async def _read_outcome(
        self, id: str, scope: ScopeFilter
    ) -> tuple[list[ConsolidationRule], ExplainedEpisode]:
        """Return the rules in force, and the outcome of an episode of a scope under each of them.

        Raises:
            NoInputError: The scope has no such episode.
        """
        rules = [*self._rules().of_episodes().rules]
        with _one_text(id):
            found = await read_outcome(self._memory, self._facts, rules, id)
        if not scope.holds(found.version):
            raise NoInputError(id, _NEITHER)
        return rules, found

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError, NoInputError),
        example=Example(
            {"id": "e1", "seconds": 5.0},
            {"id": "e1", "settled": True, "rules": [values.OUTCOME], **values.RESULT},
        ),
    )
    async def outcome(self, request: forms.OutcomeForm, caller: Caller) -> forms.Outcome:
        """Wait until every enabled rule has evaluated an episode; return what became of it.

        Raises:
            NoInputError: The scope has no such episode.
        """
        scope = caller.scope(request.user, request.agent, all_agents=request.all_agents)
        rules, found = await self._wait(request.id, scope, request.seconds)
        return await self._describe(request.id, rules, found)

    async def _wait(
        self, id: str, scope: ScopeFilter, seconds: float, among: Collection[str] | None = None
    ) -> tuple[list[ConsolidationRule], ExplainedEpisode]:
        """Wait until enabled rules have evaluated an episode; return the rules and its outcome.

        Args:
            id: The episode.
            scope: Its scope.
            seconds: The longest wait.
            among: The ids of the rules that are waited for; None for all.
        """
        committed = self._commits.next
        rules, found = await self._read_outcome(id, scope)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while _is_pending(found, rules, among):
                    await committed.wait()
                    committed = self._commits.next
                    rules, found = await self._read_outcome(id, scope)
        return rules, found

    async def _describe(
        self, id: str, rules: Sequence[ConsolidationRule], found: ExplainedEpisode
    ) -> forms.Outcome:
        results = await read_results(self._memory, self._facts, rules, found, self._paused())
        remedies = found.remedies(rules, self._clock.now() + self._tolerance)
        best = best_of(results)
        return forms.Outcome(
            id=id,
            settled=not _is_pending(found, rules),
            rules=[
                forms.RuleOutcome(
                    rule_id=decision.rule_id,
                    channel=decision.channel,
                    outcome=decision.outcome,
                    reason=decision.reason,
                    fact_id=decision.fact_id,
                    current=decision.is_current,
                    would_change=remedy,
                )
                for decision, remedy in zip(found.decisions, remedies, strict=True)
            ],
            **({"became": best.became, "sentence": best.sentence} if best else {}),
            results=results,
        )


_NOT_READ_YET = "waiting: no rule has read it yet; wait for its outcome to know what became of it"
_UNKNOWN = "nothing of that id is stored in this scope"
_NEITHER = "neither the episodes nor the ledger of this scope have it"


def _is_pending(
    found: ExplainedEpisode,
    rules: Sequence[ConsolidationRule],
    among: Collection[str] | None = None,
) -> bool:
    """Return whether an enabled rule has not evaluated the newest version of an episode.

    Args:
        found: The outcome of the episode.
        rules: The rules.
        among: Only the rules of these ids count; None for all.
    """
    enabled = {rule.id for rule in rules if rule.enabled and (among is None or rule.id in among)}
    return any(one.outcome == "pending" and one.rule_id in enabled for one in found.decisions)


@contextmanager
def _one_text(id: str) -> Iterator[None]:
    """Say of an id that nobody has what is said of another scope's."""
    try:
        yield
    except NoInputError:
        raise NoInputError(id, _NEITHER) from None


def _was_of(explanation: Explanation, scope: ScopeFilter) -> bool:
    """Return whether a fact was of a scope, and no other owner had its id or its key."""
    asserting = [found.row.record for found in explanation.assertions]
    others = [change.row.record for change in explanation.history]
    others += [row.record for row in explanation.replacing]
    # The owner of an erased row is not known; the row says nothing any more.
    named = [row for row in [*asserting, *others] if row.user]
    return any(is_of(row, scope) for row in asserting) and all(is_of(row, scope) for row in named)


def version_of(fact: Fact) -> str:
    """Return a text that changes whenever a fact changes."""
    document = orjson.dumps(_as_json(fact_document(fact)), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(document).hexdigest()[:_VERSION_CHARACTERS]


def _remembered(captured: Captured, change: Change | None) -> forms.Remembered:
    """Return how an episode was put; ``change`` is None when it is left out."""
    return forms.Remembered(
        id=captured.episode.id,
        state=change or "left_out",
        masked=captured.masked if change not in (None, "erased") else {},
        forget=captured.forget,
    )


def _log_captured(put: Sequence[forms.Remembered]) -> None:
    """Log how many secrets were masked, and which turns were left out."""
    masked: Counter[str] = Counter()
    for one in put:
        masked.update(one.masked)
        if one.forget is not None:
            _log.info("turn.left_out", interface=SOURCE, forget=one.forget)
    if masked:
        _log.info("secrets.masked", interface=SOURCE, masked=dict(masked))


def _known_episode(episode: Episode) -> forms.KnownEpisode:
    speaker = speaker_of(episode.source_node, episode.metadata)
    return forms.KnownEpisode(**episode.model_dump(), speaker=speaker)


def _known(fact: Fact) -> forms.KnownFact:
    return forms.KnownFact(**fact_document(fact), version=version_of(fact))


def _as_json(document: dict[str, Any]) -> Any:  # noqa: ANN401 # any JSON
    """Return a document of values that `orjson` writes, as it reads them again."""
    return orjson.loads(orjson.dumps(document, default=str))


def _correction(ids: list[str], answer: Answer) -> forms.Correction:
    return forms.Correction(fact_ids=ids, firing_id=answer["firing_id"], counts=answer["counts"])
