"""Put episodes of one user: one, many, or a turn of a transcript."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal

import structlog
from pydantic import Field

from slumberd.clock import Clock
from slumberd.model.capture.episodes import Capture, Captured
from slumberd.model.episode import Episode
from slumberd.model.errors import (
    ForgottenError,
    FutureInstantError,
    InputError,
    KeyReusedError,
    MemoryScopeError,
    RecordRefusedError,
    SecretRefusedError,
    UnreadableEpisodeError,
)
from slumberd.model.scope import ScopeFilter
from slumberd.operations import example_values as values
from slumberd.operations.caller import Caller, Right
from slumberd.operations.episodes import newest_version, newest_versions
from slumberd.operations.forms import Name, Result, ScopedForm
from slumberd.operations.handlers import Example, operation
from slumberd.operations.new_episodes import (
    DEFAULT,
    SOURCE,
    EpisodeForm,
    RememberForm,
    TurnForm,
    episode_of,
    episode_of_turn,
    keep_instants,
    keep_turn,
    named_by,
)
from slumberd.operations.outcomes import Outcomes
from slumberd.operations.reads.episode_results import NO_RULE, SOON, Became, ResultOfRule
from slumberd.operations.transcript_counts import TranscriptCounts, TranscriptFile
from slumberd.rules.rule_loader import RuleSet
from slumberd.storage.episodes.store import EngineMemoryStore
from slumberd.storage.episodes.writes import Change, cause_of, refused_among, refused_at

_COUNTS = {*TranscriptCounts._fields} - {"user", "agent", "at"}

_MOST_AT_ONCE = 20_000
"""A longer episode is searched for secrets in a thread, so that it delays nobody."""

_log = structlog.get_logger("slumberd")


MOST_EPISODES = 10_000
"""The most episodes of one request."""


Count = Annotated[int, Field(ge=0, le=2**62)]


WAITING = {
    "became": "waiting",
    "sentence": "waiting: no rule has read it yet; wait for its outcome to know what became of it",
}


class TranscriptForm(ScopedForm):
    """The request ``transcript``: how a hook read a transcript, and one turn of it.

    Attributes:
        session: The conversation.
        coding_agent: The coding agent that wrote the transcript.
        agent_version: The agent's version; empty when the transcript does not say.
        transcript: The path of the transcript.
        lines: How many lines were read.
        person: How many turns of a person were found.
        assistant: How many turns of the agent were found.
        unknown: How many lines hold what the hook does not know, by its kind.
        turn: The turn that is put; None for none.
    """

    session: Name
    coding_agent: Name
    transcript: Annotated[str, Field(max_length=10_000)]
    agent_version: Annotated[str, Field(max_length=100)] = ""
    lines: Count = 0
    person: Count = 0
    assistant: Count = 0
    unknown: Annotated[dict[str, Count], Field(max_length=100, default_factory=dict)]
    turn: TurnForm | None = None


class PutManyForm(ScopedForm):
    """The request ``put_many``: new episodes of one user and agent, all or none.

    Attributes:
        session: The conversation of the episodes that name none; by default ``default``.
        episodes: The episodes, at most 10,000.
    """

    session: Name | None = None
    episodes: Annotated[list[EpisodeForm], Field(max_length=MOST_EPISODES)]


class Remembered(Result):
    """An episode that was put.

    Attributes:
        id: The episode.
        state: Whether it is new, a new version, or was there already; ``left_out`` when nothing is
            stored, because the person asks not to remember it; ``erased`` when nothing is stored,
            because it was erased by its id before.
        masked: How many secrets of each kind were masked in it; absent when there was none.
        forget: What the person asks to forget: this turn, or ``that``, the turn before too; absent
            for nothing.
        became: What became of it, in one word, as `Outcome.became`; absent when nothing is known.
        sentence: The same in a sentence.
        results: By rule and channel, as `Outcome.results`; absent unless the request waits.
    """

    id: str
    state: Literal["new", "changed", "unchanged", "erased", "left_out"]
    masked: dict[str, int] = {}  # noqa: RUF012 # pydantic copies it
    forget: Literal["this", "that"] | None = None
    became: Became | None = None
    sentence: str = ""
    results: list[ResultOfRule] = []  # noqa: RUF012 # pydantic copies it

    def document(self) -> dict[str, Any]:
        """Return the JSON form; what has nothing to say is left out."""
        stated = self.model_dump(mode="json", exclude_defaults=True)
        results = {"results": [one.document() for one in self.results]} if self.results else {}
        return {**stated, **results}


class TranscriptRead(Result):
    """How a turn of a transcript was put.

    Attributes:
        id: Its episode; None without a turn.
        state: As `Remembered.state`; None without a turn.
        masked: As `Remembered.masked`.
        forget: As `Remembered.forget`.
        became: As `Remembered.became`.
        sentence: As `Remembered.sentence`.
    """

    id: str | None = None
    state: Literal["new", "changed", "unchanged", "erased", "left_out"] | None = None
    masked: dict[str, int] = {}  # noqa: RUF012 # pydantic copies it
    forget: Literal["this", "that"] | None = None
    became: Became | None = None
    sentence: str = ""

    def document(self) -> dict[str, Any]:
        """Return the JSON form; masks and requests that are not there are left out."""
        stated = self.model_dump(mode="json", exclude_defaults=True)
        return {"id": self.id, "state": self.state, **stated}


class RememberedList(Result):
    """The episodes that were put, in the order of the request."""

    episodes: list[Remembered]

    def document(self) -> dict[str, Any]:
        """Return the JSON form, each episode as `Remembered` has it."""
        return {"episodes": [one.document() for one in self.episodes]}


class EpisodePuts:
    """Runs requests that put episodes of one user.

    Args:
        memory: The episodes.
        outcomes: Returns what became of episodes.
        rules: Returns the rules that may fire.
        tolerance: How far ahead of the clock a timestamp may be.
        capture: What is left out of new episodes.
        transcripts: Keeps how hooks read transcripts; None keeps nothing.
    """

    def __init__(  # noqa: PLR0913 # one for each part that it joins
        self,
        memory: EngineMemoryStore,
        outcomes: Outcomes,
        *,
        rules: Callable[[], RuleSet],
        clock: Clock,
        tolerance: timedelta,
        capture: Capture,
        transcripts: TranscriptFile | None = None,
    ) -> None:
        self._memory = memory
        self._outcomes = outcomes
        self._rules = rules
        self._clock = clock
        self._tolerance = tolerance
        self._capture = capture
        self._transcripts = transcripts
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
            {"id": "key:ana/desk/turn 1", "state": "new", **WAITING},
        ),
    )
    async def remember(self, request: RememberForm, caller: Caller) -> Remembered:
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

    def _say_at_once(self, put: Remembered) -> Remembered:
        """Return how an episode was put, with what is known of a new version without a read."""
        if put.state not in ("new", "changed"):
            return put
        readers = any(rule.enabled for rule in self._rules().of_episodes().rules)
        became, sentence = ("waiting", _NOT_READ_YET) if readers else ("skipped", NO_RULE)
        return put.model_copy(update={"became": became, "sentence": sentence})

    async def _add_results(self, put: Remembered, scope: ScopeFilter, seconds: float) -> Remembered:
        """Return how an episode was put, and what became of it under the rules that are due."""
        rules, found = await self._outcomes.read(put.id, scope)
        described = await self._outcomes.describe(put.id, rules, found)
        soon = {one.rule_id for one in described.results if one.became in SOON}
        if soon:
            rules, found = await self._outcomes.wait(put.id, scope, seconds, among=soon)
            described = await self._outcomes.describe(put.id, rules, found)
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
    async def put_many(self, request: PutManyForm, caller: Caller) -> RememberedList:
        """Put at most 10,000 episodes in one transaction, all or none.

        Raises:
            RecordRefusedError: One of them is refused, as `remember` refuses it.
        """
        scope = caller.scope(request.user, request.agent)
        put = await self._put(request.episodes, scope, request.session)
        return RememberedList(episodes=put)

    async def _put(
        self, requests: Sequence[EpisodeForm], scope: ScopeFilter, session: str | None
    ) -> list[Remembered]:
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
        self, requests: Sequence[EpisodeForm], episodes: list[Episode]
    ) -> list[Change]:
        """Put the episodes of requests, without those that are left out."""
        if all(named_by(request) is None for request in requests):
            return await self._memory.put_each(episodes, strict=True)
        async with self._turn:  # another request may put the same id
            known = await newest_versions(self._memory, [episode.id for episode in episodes])
            episodes = keep_instants(requests, episodes, known)
            return await self._memory.put_each(episodes, strict=True)

    def _episodes_of(
        self, requests: Sequence[EpisodeForm], scope: ScopeFilter, session: str | None
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
            {"id": "t1", "state": "new", **WAITING},
        ),
    )
    async def transcript(self, request: TranscriptForm, caller: Caller) -> TranscriptRead:
        """Put a turn of a coding agent's transcript, and record how the transcript was read.

        Raises:
            ForgottenError: The scope was erased, and the turn is older.
            MemoryScopeError: The id belongs to another scope.
            SecretRefusedError: It holds secrets, and the configuration refuses them.
            UnreadableEpisodeError: Every rule would quarantine the turn.
        """
        scope = caller.scope(request.user, request.agent)
        answer = TranscriptRead()
        if request.turn is not None:
            try:
                put = await self._put_turn(request.turn, scope)
            except RecordRefusedError as refused:
                raise cause_of(refused) from None
            _log_captured([put])
            said = self._say_at_once(put).model_dump(exclude={"results"})
            answer = TranscriptRead(**said)
        if self._transcripts is not None:
            counts = TranscriptCounts(
                user=scope.user,
                agent=scope.agent or DEFAULT,
                at=self._clock.now().timestamp(),
                **request.model_dump(include=_COUNTS),
            )
            self._transcripts.record(counts)
        return answer

    async def _put_turn(self, turn: TurnForm, scope: ScopeFilter) -> Remembered:
        """Put a turn; one that was taken back stays so unless the request says otherwise."""
        episode = episode_of_turn(turn, scope, self._clock.now())
        [captured] = await self._capture_all([episode])
        if captured.forget is not None:
            return _remembered(captured, None)
        async with self._turn:
            stored = await newest_version(self._memory, turn.id)
            if stored is not None and not scope.holds(stored):
                stored = None
            if turn.forgotten and stored is None:
                return _remembered(captured, None)
            kept = keep_turn(turn, captured.episode, stored)
            changes = [] if kept is None else await self._memory.put_each([kept], strict=True)
        return _remembered(captured, changes[0] if changes else "unchanged")


_NOT_READ_YET = "waiting: no rule has read it yet; wait for its outcome to know what became of it"


def _remembered(captured: Captured, change: Change | None) -> Remembered:
    """Return how an episode was put; ``change`` is None when it is left out."""
    return Remembered(
        id=captured.episode.id,
        state=change or "left_out",
        masked=captured.masked if change not in (None, "erased") else {},
        forget=captured.forget,
    )


def _log_captured(put: Sequence[Remembered]) -> None:
    """Log how many secrets were masked, and which turns were left out."""
    masked: Counter[str] = Counter()
    for one in put:
        masked.update(one.masked)
        if one.forget is not None:
            _log.info("turn.left_out", interface=SOURCE, forget=one.forget)
    if masked:
        _log.info("secrets.masked", interface=SOURCE, masked=dict(masked))
