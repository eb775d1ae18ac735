"""Read, move and delete the episodes of one user and agent, for the program that keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from slumberd.model.episode import Episode, EpisodeVersion, NaiveTimestamps
from slumberd.model.errors import MemoryScopeError
from slumberd.model.scope import Scope, ScopeFilter, ScopeMismatch, scope_of
from slumberd.storage.engine import EpisodeEngine, Session
from slumberd.storage.episodes import access_tracking, recorded_answers
from slumberd.storage.episodes.access_tracking import AccessRecorder
from slumberd.storage.episodes.erasure import find_scope
from slumberd.storage.episodes.recent import recall
from slumberd.storage.episodes.rows import Row, decode, encode, scope_in
from slumberd.storage.episodes.writes import Change, log_erased, write


class OwnedEpisodes:
    """The episodes of one user and agent at a time.

    A deleted episode is gone as if its host had deleted the row: the log keeps its number, and
    facts that it promoted stay. `EngineMemoryStore.forget` erases all traces of a scope instead.

    Args:
        reads: Records the reads of episodes.
        mismatch: Which of scope key and content names the owner of a row.
        naive: The zone of a stored timestamp without an offset.
    """

    def __init__(
        self,
        engine: EpisodeEngine,
        reads: AccessRecorder,
        mismatch: ScopeMismatch,
        naive: NaiveTimestamps,
    ) -> None:
        self._engine = engine
        self._reads = reads
        self._mismatch = mismatch
        self._naive = naive

    async def newest(self, user: str, agent: str, *, limit: int) -> list[Episode]:
        """Return the latest episodes, newest first, without recording that they were read.

        Raises:
            MemoryScopeError: The user or the agent is malformed.
        """
        scope = ScopeFilter.of(user, None, agent)
        return await self._engine.read(
            partial(recall, scope=scope, limit=limit, mismatch=self._mismatch, naive=self._naive)
        )

    async def users(self, agent: str) -> list[str]:
        """Return the users that have episodes of an agent, sorted."""
        rows = await self._engine.read(lambda session: session.rows("erased_content.scope_keys"))
        scopes = [scope_of(key) for (key,) in rows if type(key) is str]
        return sorted({scope.user for scope in scopes if scope and scope.agent == agent})

    def record_reads(self, eids: Sequence[str], at: int) -> None:
        """Record that episodes were read, in a running event loop; they are written later.

        Args:
            at: When, microseconds since 1970 UTC.
        """
        self._reads.note([*eids], at)

    async def move(self, episode: Episode) -> None:
        """Write an episode; it replaces the one of its id in any session of its user and agent.

        Nothing is written of an episode that was erased by its id.

        Raises:
            MemoryScopeError: The id belongs to another user or agent; nothing is written.
            InputError: A value of the episode would not come back equal.
        """
        changes = await self._engine.write(partial(self._move, episode))
        self._engine.notify()
        if erased := changes.count("erased"):
            log_erased(erased)

    def _move(self, episode: Episode, session: Session) -> list[Change]:
        scope = Scope(episode.user, episode.session, episode.agent)
        row = encode(episode, scope, operation="move", naive=self._naive)
        self._delete(ScopeFilter(episode.user, None, episode.agent), [episode.id], session)
        return write(session, [row], self._naive)

    async def replace(
        self,
        user: str,
        agent: str,
        old: Sequence[Sequence[str]],
        unchanged: Callable[[EpisodeVersion], bool],
        new: Sequence[Episode],
    ) -> bool:
        """Delete episodes of a user and agent and write others, in one transaction.

        Args:
            user: The user.
            agent: The agent.
            old: What goes: for each episode the ids that it may have.
            unchanged: Says whether a stored episode is the one that goes.
            new: What is written.

        Returns:
            False, and nothing is written, when an episode of `old` is not there, or is changed.

        Raises:
            MemoryScopeError: An id of `new` belongs to another scope, or was erased.
            InputError: A value of an episode would not come back equal.
        """
        scope = ScopeFilter(user, None, agent)
        done = await self._engine.write(partial(self._replace, scope, old, unchanged, new))
        self._engine.notify()
        return done

    def _replace(
        self,
        scope: ScopeFilter,
        old: Sequence[Sequence[str]],
        unchanged: Callable[[EpisodeVersion], bool],
        new: Sequence[Episode],
        session: Session,
    ) -> bool:
        eids = [eid for ids in old for eid in ids]
        found: dict[str, int] = {}
        for rowid, *row in session.rows("erased_scopes.episodes_of", {"eids": eids}):
            version = decode(0, row, mismatch=self._mismatch, naive=self._naive)
            if not version.fault and scope.holds(version) and unchanged(version):
                found[version.id] = rowid
        if not all(any(eid in found for eid in ids) for ids in old):
            return False
        rows = [self._row(episode) for episode in new]
        written = {row.id for row in rows}
        gone = {eid: rowid for eid, rowid in found.items() if eid not in written}
        self._drop(session, [*gone.values()], [*gone])
        if "erased" in write(session, rows, self._naive):
            problem = "an episode that was erased by its id cannot be written again"
            raise MemoryScopeError((scope.user, scope.session, scope.agent), "put", problem)
        return True

    def _row(self, episode: Episode) -> Row:
        scope = Scope(episode.user, episode.session, episode.agent)
        return encode(episode, scope, operation="put", naive=self._naive)

    async def delete(self, user: str, agent: str, eids: Sequence[str]) -> list[str]:
        """Delete those of the episodes that belong to a user and agent; return their ids."""
        scope = ScopeFilter(user, None, agent)
        return await self._engine.write(partial(self._delete, scope, eids))

    async def delete_all(self, user: str, agent: str) -> list[str]:
        """Delete all readable episodes of a user and agent; return their ids."""
        return await self._engine.write(partial(self._delete_all, ScopeFilter(user, None, agent)))

    def _delete_all(self, scope: ScopeFilter, session: Session) -> list[str]:
        found = find_scope(session, scope, self._mismatch, self._naive)
        return self._drop(session, found.rowids, found.eids)

    def _delete(self, scope: ScopeFilter, eids: Sequence[str], session: Session) -> list[str]:
        rows = [
            (rowid, str(row[0]))
            for rowid, *row in session.rows("erased_scopes.episodes_of", {"eids": [*eids]})
            if scope.holds(scope_in(row, mismatch=self._mismatch)[0])
        ]
        return self._drop(session, [rowid for rowid, _ in rows], [eid for _, eid in rows])

    def _drop(self, session: Session, rowids: Sequence[int], eids: Sequence[str]) -> list[str]:
        session.do("erased_scopes.drop_episodes", {"rowids": [*rowids]})
        access_tracking.erase(session, eids)
        recorded_answers.erase(session, eids)
        return [*eids]


Revise = Callable[[Mapping[str, EpisodeVersion]], Sequence[Episode]]
"""Returns the episodes to write, for the readable ones that the store has, by id."""


def write_revision(session: Session, ids: Iterable[str], revise: Revise) -> list[Episode]:
    """Write what a function makes of some episodes; return what was written.

    Args:
        session: In a transaction, so that no other writer comes between.
        ids: The ids of the episodes.
        revise: The function; its error rolls the transaction back.

    Raises:
        MemoryScopeError: A scope is malformed, or an id belongs to another scope.
        InputError: A value of an episode would not come back equal.
    """
    found = (session.one("episodes.by_id", (id,)) for id in ids)
    stored = (decode(0, row, mismatch="quarantine") for row in found if row is not None)
    episodes = [*revise({version.id: version for version in stored if not version.fault})]
    write(session, [_row(episode) for episode in episodes])
    return episodes


def _row(episode: Episode) -> Row:
    scope = Scope(episode.user, episode.session, episode.agent)
    return encode(episode, scope, operation="put")
