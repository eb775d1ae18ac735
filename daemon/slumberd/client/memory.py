"""The memory of one user, for asynchronous programs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ValidationError

from slumberd.client.transports import Transport, open_transport
from slumberd.model.errors import StoreError, UsageError
from slumberd.model.scope import ScopeFilter
from slumberd.operations.corrections import Correction
from slumberd.operations.episodes import EpisodeList, KnownEpisode
from slumberd.operations.facts import FactPage
from slumberd.operations.outcomes import Explained, Outcome
from slumberd.operations.puts import Remembered, RememberedList
from slumberd.operations.search import ContextText, Hits
from slumberd.operations.writes.erasures import Erasure
from slumberd.search.context import OfSuperseded
from slumberd.search.hits import KINDS, Hit, Kind


class Triple(NamedTuple):
    """One thing that an episode says.

    Attributes:
        subject: What it is about.
        predicate: What it says of it.
        object: The value; any JSON. None with the intent ``delete`` means every value.
        confidence: 0 to 1.
        intent: ``delete`` retracts the value; ``set`` makes it the only one, whatever the predicate
            holds. None, and ``add``, say that it holds; in a predicate of one value it replaces
            the older one.
    """

    subject: str
    predicate: str
    object: Any = None
    confidence: float = 1.0
    intent: Literal["add", "update", "delete", "set"] | None = None


def _triple_of(given: object) -> dict[str, Any]:
    """Return a triple as the request has it.

    Raises:
        UsageError: It is no triple.
    """
    if isinstance(given, Triple):
        return given._asdict()
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, list | tuple) and 3 <= len(given) <= len(Triple._fields):
        return Triple(*given)._asdict()
    raise UsageError(
        f"{given!r:.200} is no triple; write Triple(subject, predicate, object), a tuple of these,"
        " or a dictionary with these keys"
    )


def _listed(triples: object) -> list[Any]:
    """Return the triples of a call; a single triple, or a text, is no list of them.

    Raises:
        UsageError: They are no list.
    """
    if isinstance(triples, list | tuple) and not isinstance(triples, Triple):
        return [*triples]
    raise UsageError(f"triples is {triples!r:.200}; write a list of triples")


class _Missing:
    """The type of a value that was not given."""


_MISSING = _Missing()

WAIT_SECONDS = 30.0
"""How long `Memory.wait_for` waits, by default."""


class Memory:
    """The memory of one user and one agent; each call may name another user.

    Args:
        transport: Calls the operations.
        user: Whose memory it is; None when each call names a user, or a token does.
        agent: Which agent remembers and recalls.
        session: The conversation that new episodes belong to.

    Raises:
        MemoryScopeError: A part of the scope is malformed.
    """

    def __init__(self, transport: Transport, *, user: str | None, agent: str, session: str) -> None:
        ScopeFilter.of("anybody" if user is None else user, session, agent, operation="open")
        self._transport = transport
        self._user = user
        self._agent = agent
        self._session = session

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        where: str | Path,
        *,
        user: str | None = None,
        agent: str = "default",
        session: str = "default",
        token: str | None = None,
    ) -> AsyncIterator[Self]:
        """Open the memory of a user.

        With a directory, slumberd runs inside this program until the block ends: it fires the
        rules, and writes its log to ``slumberd.log`` there. A new directory gets a first rule.
        Several blocks of one process share a directory; the last one to end closes it.

        Args:
            where: A state directory; or ``unix:`` and the state directory of a running daemon; or
                ``http://`` or ``https://`` and the place of a daemon that serves HTTP; or
                ``postgresql://`` and the database of a running daemon, on any host.
            user: Whose memory it is; None when each call names a user, or the token does.
            agent: Which agent remembers and recalls.
            session: The conversation that new episodes belong to.
            token: What a daemon that serves HTTP knows the caller by.

        Raises:
            ConfigurationError: The configuration or the rules in the directory have mistakes.
            OtherSettingsError: The directory is open in this process, with other settings.
            StateDirectoryLockedError: A daemon runs there already; ``unix:`` reaches it.
            DatabaseHeldError: A daemon holds the database of the directory's configuration.
            MemoryScopeError: A part of the scope is malformed.
            UsageError: The address has another scheme, names no directory, or takes no token.
        """
        async with open_transport(where, token=token) as transport:
            yield cls(transport, user=user, agent=agent, session=session)

    def for_user(self, user: str, *, agent: str | None = None, session: str | None = None) -> Self:
        """Return the memory of another user, over the same connection.

        Args:
            user: Whose memory it is.
            agent: Which agent remembers and recalls; by default that of this memory.
            session: The conversation that new episodes belong to; by default that of this memory.

        Raises:
            MemoryScopeError: A part of the scope is malformed.
        """
        ScopeFilter.of(user, session, agent, operation="for_user")
        return type(self)(
            self._transport,
            user=user,
            agent=self._agent if agent is None else agent,
            session=self._session if session is None else session,
        )

    async def remember(  # noqa: PLR0913 # the fields of an episode
        self,
        text: str,
        *,
        triples: Sequence[Triple | tuple[str, str, Any] | Mapping[str, Any]] = (),
        when: datetime | date | str | None = None,
        key: str | None = None,
        id: str | None = None,
        session: str | None = None,
        speaker: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        seconds: float = 0.0,
        user: str | None = None,
    ) -> Remembered:
        """Put an episode; it is on disk when this returns.

        What is returned says in `became` and `sentence` what became of the episode. Rules read it
        later: give `seconds`, or call `wait_for`.

        Args:
            text: What happened.
            triples: What it says: triples, tuples of subject, predicate and object, or dictionaries
                with the keys of `Triple`. Values of one call stand side by side; a later value
                replaces them where the predicate holds one value.
            when: When it was said, as a datetime or ISO 8601 text; by default now. Without a time
                zone it is in the local one. Name a coming date in the text.
            key: A name of your own for the episode, which only this user and agent know. The same
                key, text, metadata and session again change nothing, whatever `when` says; other
                content is a new version.
            id: Its id, which no other user may have; prefer `key`. The same id and text again
                change nothing; another text is a new version. By default a new id.
            session: The conversation; by default that of the memory.
            speaker: Who said it, such as ``assistant``; by default what `metadata` say, else
                ``user``, the person whose memory it is.
            metadata: Any other keys; any JSON.
            seconds: The longest wait for what becomes of it, 0 to 60. No rule is waited for that is
                not due.
            user: Whose memory it is; by default that of this memory.

        Raises:
            KeyReusedError: The key belongs to an episode of another session.
            UsageError: One of `triples` has none of these forms.
            SlumberdError: The episode is refused; nothing is written.
        """
        fields = _fields_of_episode(
            text=text,
            triples=triples,
            when=when,
            key=key,
            id=id,
            session=self._session if session is None else session,
            speaker=speaker,
            metadata=_keys_of(metadata),
        )
        waits = {"seconds": seconds} if seconds else {}
        return _read(Remembered, await self._call("remember", user=user, **waits, **fields))

    async def put_many(
        self,
        episodes: Sequence[Mapping[str, Any]],
        *,
        session: str | None = None,
        user: str | None = None,
    ) -> list[Remembered]:
        """Put many episodes in one transaction: all, or none; on disk when this returns.

        Args:
            episodes: At most 10,000, each a dictionary with the arguments of `remember`.
            session: The conversation of those that name none; by default that of the memory.
            user: Whose memory it is; by default that of this memory.

        Returns:
            For each episode its id, and whether it is new; in their order.

        Raises:
            RecordRefusedError: An episode is refused; the error has its place in the list.
            UsageError: One of them is no such dictionary.
        """
        answer = await self._call(
            "put_many",
            user=user,
            session=self._session if session is None else session,
            episodes=[_fields_of_episode(**_given_episode(one)) for one in _many(episodes)],
        )
        return _read(RememberedList, answer).episodes

    async def recall(  # noqa: PLR0913 # what a search may be limited to
        self,
        query: str,
        *,
        kinds: Kind | Sequence[Kind] = KINDS,
        session: str | None = None,
        as_of: datetime | date | str | None = None,
        limit: int = 10,
        min_score: float = 0.0,
        all_agents: bool = False,
        user: str | None = None,
    ) -> list[Hit]:
        """Return the episodes and facts that answer a question, best first.

        Args:
            kinds: What is searched: ``fact``, ``episode``, or both.
            session: Only episodes of this session; by default all sessions, and facts.
            as_of: What was known at this instant; by default now.
            limit: At most this many, 1 to 1,000.
            min_score: The least score, 0 to 1.
            all_agents: Whether the memories of all agents of the user are read.
            user: Whose memory it is; by default that of this memory.
        """
        answer = await self._call(
            "recall",
            query=query,
            kinds=[*kinds] if isinstance(kinds, tuple | set | frozenset) else kinds,
            session=session,
            as_of=_text_of(as_of),
            limit=limit,
            min_score=min_score,
            all_agents=all_agents,
            user=user,
        )
        return _read(Hits, answer).hits

    async def context(  # noqa: PLR0913 # what a context may be limited to
        self,
        question: str,
        *,
        budget: int = 4_096,
        session: str | None = None,
        as_of: datetime | date | str | None = None,
        superseded: OfSuperseded = "mark",
        all_agents: bool = False,
        user: str | None = None,
    ) -> ContextText:
        """Return what an agent takes with it to answer a question, quoted as data.

        Args:
            budget: At most this many tokens.
            session: The conversation whose latest turns are taken; by default those of all.
            as_of: What was known at this instant; by default now.
            superseded: ``mark`` says at an episode what took the place of its claims; ``omit``
                also leaves out an episode none of whose claims is current.
            all_agents: Whether the memories of all agents of the user are read.
            user: Whose memory it is; by default that of this memory.
        """
        answer = await self._call(
            "context",
            question=question,
            budget=budget,
            session=session,
            as_of=_text_of(as_of),
            superseded=superseded,
            all_agents=all_agents,
            user=user,
        )
        return _read(ContextText, answer)

    async def episodes(
        self,
        *,
        session: str | None = None,
        limit: int = 20,
        skip: int = 0,
        all_agents: bool = False,
        user: str | None = None,
    ) -> list[KnownEpisode]:
        """Return the latest episodes, newest first.

        Args:
            session: Only those of this session.
            limit: At most this many, 1 to 1,000.
            skip: So many of the latest ones are left out, 0 to 1,000,000.
            all_agents: Whether the memories of all agents of the user are read.
            user: Whose memory it is; by default that of this memory.
        """
        answer = await self._call(
            "episodes",
            session=session,
            limit=limit,
            skip=skip,
            all_agents=all_agents,
            user=user,
        )
        return _read(EpisodeList, answer).episodes

    async def facts(  # noqa: PLR0913 # what a page may be limited to
        self,
        *,
        id: str | None = None,
        subject: str | None = None,
        subject_prefix: str | None = None,
        predicate: str | None = None,
        valid_at: datetime | date | str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        all_agents: bool = False,
        user: str | None = None,
    ) -> FactPage:
        """Return a page of current facts, by id.

        Args:
            id: Only this fact.
            subject: Only those about it.
            subject_prefix: Only those whose subject begins with this text.
            predicate: Only those with it.
            valid_at: What was true at this instant; by default now.
            limit: At most this many, 1 to 1,000.
            cursor: Where the page before ended, its ``next``.
            all_agents: Whether the memories of all agents of the user are read.
            user: Whose memory it is; by default that of this memory.
        """
        answer = await self._call(
            "facts",
            id=id,
            subject=subject,
            subject_prefix=subject_prefix,
            predicate=predicate,
            valid_at=_text_of(valid_at),
            limit=limit,
            cursor=cursor,
            all_agents=all_agents,
            user=user,
        )
        return _read(FactPage, answer)

    async def correct(  # noqa: PLR0913 # what names the fact, and what is right
        self,
        *,
        reason: str,
        fact: str | None = None,
        subject: str | None = None,
        predicate: str | None = None,
        object: Any = _MISSING,  # noqa: A002, ANN401 # any JSON
        retract: bool = False,
        if_version: str | None = None,
        user: str | None = None,
    ) -> Correction:
        """Assert the right value of a fact, or retract the fact.

        Args:
            reason: Why; the ledger keeps it.
            fact: The id of the fact; or give `subject` and `predicate`.
            subject: What it is about.
            predicate: What it says of it.
            object: The right value.
            retract: Whether there is no right value.
            if_version: The fact's ``version`` that the correction is about.
            user: Whose memory it is; by default that of this memory.

        Raises:
            SlumberdError: There is no such fact, it has changed since, or the call is unclear.
        """
        given = {} if isinstance(object, _Missing) else {"object": object}
        answer = await self._call(
            "correct",
            reason=reason,
            fact=fact,
            subject=subject,
            predicate=predicate,
            retract=retract,
            if_version=if_version,
            user=user,
            **given,
        )
        return _read(Correction, answer)

    async def forget(
        self,
        *,
        session: str | None = None,
        episode: str | None = None,
        fact: str | None = None,
        plan: str | None = None,
        user: str | None = None,
    ) -> Erasure:
        """Return what an erasure would erase; with its plan, erase it for good.

        Args:
            session: Only this session; by default everything of the user and the agent.
            episode: Only this episode, with all that came from it.
            fact: Only this fact: the episodes that say it, with all that came from them, and the
                manual edits that say it. The certificate names the other facts that go.
            plan: The ``plan`` of the answer to the first call.
            user: Whose memory it is; by default that of this memory.

        Raises:
            SlumberdError: Nothing of this is stored, or it has changed since the plan.
        """
        answer = await self._call(
            "forget",
            session=session,
            episode=episode,
            fact=fact,
            plan=plan,
            dry_run=plan is None,
            user=user,
        )
        named = plan or answer.get("plan")
        return _read(Erasure, {"done": plan is not None, "plan": named, "certificate": answer})

    async def explain(
        self, id: str, *, all_agents: bool = False, user: str | None = None
    ) -> Explained:
        """Return why a fact is current, or what became of an episode.

        Args:
            id: The fact or the episode.
            all_agents: Whether the memories of all agents of the user are read.
            user: Whose memory it is; by default that of this memory.

        Raises:
            SlumberdError: The scope has neither.
        """
        answer = await self._call("explain", id=id, all_agents=all_agents, user=user)
        return _read(Explained, answer)

    async def wait_for(
        self,
        id: str,
        *,
        seconds: float = WAIT_SECONDS,
        all_agents: bool = False,
        user: str | None = None,
    ) -> Outcome:
        """Wait until every enabled rule has evaluated an episode; return what became of it.

        Args:
            id: The episode.
            seconds: The longest wait, 0 to 60. Then the outcome is not ``settled``.
                Its `became` is one word, such as ``learned``, ``said_nothing`` or ``filtered``, and
                its `sentence` says the same for a person.
            all_agents: Whether the memories of all agents of the user are read.
            user: Whose memory it is; by default that of this memory.
        """
        answer = await self._call(
            "outcome", id=id, seconds=seconds, all_agents=all_agents, user=user
        )
        return _read(Outcome, answer)

    async def _call(self, operation: str, *, user: str | None, **request: Any) -> dict[str, Any]:
        """Return the answer to a request of a user: the given one, or that of the memory."""
        agent = None if request.get("all_agents") else self._agent
        named = self._user if user is None else user
        return await self._transport.call(operation, {"user": named, "agent": agent, **request})


Answered = TypeVar("Answered", bound=BaseModel)


def _read(form: type[Answered], answer: object) -> Answered:
    """Return the answer to a request in its form.

    Raises:
        StoreError: It has another form, as that of another server has.
    """
    try:
        return form.model_validate(answer)
    except ValidationError as error:
        raise StoreError(
            f"the answer {answer!r:.200} is none of slumberd; look whether the address names a"
            " daemon of this version"
        ) from error


def _many(episodes: object) -> Iterable[object]:
    """Return the episodes of a call; a single one, or a text, is no list of them.

    Raises:
        UsageError: They are no list.
    """
    if isinstance(episodes, Iterable) and not isinstance(episodes, str | bytes | Mapping):
        return episodes
    raise UsageError(f"episodes is {episodes!r:.200}; write a list of dictionaries")


def _given_episode(given: object) -> dict[str, Any]:
    """Return the arguments of `Memory.remember` that a dictionary holds.

    Raises:
        UsageError: It is no dictionary, or it has another key.
    """
    if (
        not isinstance(given, Mapping)
        or "text" not in given
        or not all(isinstance(name, str) for name in given)
    ):
        raise UsageError(
            f"{given!r:.200} is no episode; write a dictionary with the arguments of `remember`,"
            " at least 'text'"
        )
    return dict(given)


def _fields_of_episode(**given: Any) -> dict[str, Any]:
    """Return the fields of an episode as a request has them.

    Raises:
        UsageError: One of the triples has no form of a triple.
    """
    fields = {
        name: value
        for name, value in given.items()
        if value is not None or name in ("text", "triples")
    }
    if "triples" in fields:
        fields["triples"] = [_triple_of(triple) for triple in _listed(fields["triples"])]
    if "when" in fields:
        fields["when"] = _text_of(fields["when"])
    if "metadata" in fields:
        fields["metadata"] = _keys_of(fields["metadata"])
    return fields


def _text_of(at: datetime | date | str | None) -> str | None:
    """Return an instant as a request has it; one without a time zone is in the local one.

    Raises:
        UsageError: It is no instant.
    """
    if at is None:
        return None
    try:
        text = at if isinstance(at, str) else at.isoformat()
        return datetime.fromisoformat(text).astimezone().isoformat()
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise UsageError(
            f"{at!r:.200} is no instant; write a datetime, or ISO 8601 such as"
            " '2026-01-01T12:00:00+01:00'"
        ) from None


def _keys_of(metadata: object) -> dict[str, Any]:
    """Return the metadata of a call.

    Raises:
        UsageError: They have no keys.
    """
    if metadata is None:
        return {}
    if isinstance(metadata, Mapping):
        return dict(metadata)
    raise UsageError(f"metadata is {metadata!r:.200}; write a dictionary of keys and values")
