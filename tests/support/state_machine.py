"""A state machine on real files, and an oracle that gets the same steps.

Of the stores, the oracle reads the episode log, and the firings that a crash left behind. It never
reads evaluations, watermarks or current facts.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.firing import FireRequest
from slumberd.model.episode import Episode, EpisodeVersion, instant, microseconds
from slumberd.model.errors import ForgottenError
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import Scope, ScopeFilter
from slumberd.storage.episodes.rows import encode
from slumberd.storage.sqlite import connection as sqlite_connection
from slumberd.storage.sqlite import database
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.consolidation import test_precedence_by_oracle as by_oracle
from tests.support.builders import START, at
from tests.support.fakes import FakeClock, FakeDeltaLog

Tagged = tuple[str, Callable[[int], bool]]

FILTERS: dict[str, Tagged] = {
    "every tag": ("", lambda tag: True),
    "some tags": ("source_node <> 'tag 0'", lambda tag: tag > 0),
    "other tags": ("source_node <> 'tag 2'", lambda tag: tag < 2),
}
BATCH = 2
FORGOTTEN_UP_TO = microseconds(START) + 10
FILES = ("memory.db", "facts.db")


class Crashes:
    """Copies all files when a statement begins, as a kill at that moment leaves them.

    A kill loses what the process has not yet written to its files, and nothing else.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._left: int | None = None
        self._folders = (Path(), Path())

    def arm(self, folder: Path, copy: Path, statements: int) -> None:
        """Copy a folder when so many statements have been executed."""
        self._folders, self._left = (folder, copy), statements

    def disarm(self) -> None:
        """Copy it now if it was not copied, and never after this."""
        with self._lock:
            if self._left is not None:
                self._copy()

    def tick(self, _: str) -> None:
        """Count a statement that begins, on any connection."""
        with self._lock:
            if self._left is None:
                return
            self._left -= 1
            if self._left <= 0:
                self._copy()

    def _copy(self) -> None:
        folder, copy = self._folders
        for name in FILES:
            for file in (folder / name, folder / f"{name}-wal"):
                if file.exists():
                    shutil.copyfile(file, copy / file.name)
        self._left = None


@dataclass
class FilesAndOracle(by_oracle.StoreAndOracle):
    """The oracle beside stores whose episodes lie in a real file."""

    folder: Path = Path()
    filters: dict[str, str] = field(default_factory=dict)

    def logged(self) -> list[tuple[int, str, bool]]:
        """Return the log: number, id, and whether the episode still exists."""
        with closing(sqlite3.connect(self.folder / "memory.db")) as connection:
            return connection.execute(
                "SELECT seq, eid, EXISTS (SELECT 1 FROM episodes WHERE id = eid)"
                " FROM slumberd_episode_log ORDER BY seq"
            ).fetchall()

    def ledgered(self) -> list[tuple[int, str, int]]:
        """Return the firings of the ledger: number, rule, and the last log number read."""
        with closing(sqlite3.connect(self.folder / "facts.db")) as connection:
            return connection.execute(
                "SELECT n, rule, upto_seq FROM slumberd_firings ORDER BY n"
            ).fetchall()

    def record_firing(self, name: str, upto: int, firing_id: str) -> None:
        """Record that a firing of a rule evaluated the episodes up to a log number."""
        after = self.read.get(name, 0)
        newest = {eid: seq for seq, eid, there in self.logged() if there}
        window = {eid: seq for eid, seq in newest.items() if after < seq <= upto}
        _, matches = FILTERS[self.filters[name]]
        versions = [self._version(eid, seq, matches) for eid, seq in window.items()]
        self.read[name] = max(upto, after)
        self.firings.append(firing_id)
        self._remember(firing_id, by_oracle.RULES[name][0], versions)

    def _version(self, eid: str, seq: int, matches: Any) -> EpisodeVersion:
        found = super()._version(eid, seq, matches)
        return found._replace(matched=True) if self.episodes[eid].get("broken") else found


def episode_of(fields: dict[str, Any]) -> Episode:
    return Episode(
        id=fields["id"], content="text", timestamp=instant(fields["at"]), user=fields["user"],
        source_node=f"tag {fields['tag']}", agent=fields["agent"],
        session=by_oracle.session_of(fields["id"]), metadata=fields["metadata"],
    )  # fmt: skip


class Machine(RuleBasedStateMachine):
    """All events of a memory and its facts, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self._temporary = tempfile.TemporaryDirectory()
        self._runner = asyncio.Runner()
        self._crashes = Crashes()
        self._patch = pytest.MonkeyPatch()
        self._copies = 0
        self.world = FilesAndOracle(None, filters=dict.fromkeys(by_oracle.RULES, "every tag"))  # type: ignore[arg-type]
        self._patch.setattr(database, "connect", self._connected)
        self._open(Path(self._temporary.name) / "0")

    def teardown(self) -> None:
        """Fire every rule to the end of the log; then replay the ledger and compare."""
        try:
            for name in by_oracle.RULES:
                self._fire(name)
            self.compare()
            again = self._run(self.world.store.replay(self.world.folder / "again.db"))
            assert again.differing == 0, again
        finally:
            self._patch.undo()
            self._run(self._close())
            self._runner.close()
            self._temporary.cleanup()

    def _connected(self, *arguments: Any, **more: Any) -> sqlite3.Connection:
        connection = sqlite_connection.connect(*arguments, **more)
        connection.set_trace_callback(self._crashes.tick)
        return connection

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(coroutine)

    def _open(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.clock = FakeClock(at(100))
        self.memory = SQLiteMemoryStore(folder / "memory.db")
        self.world.folder = folder
        self.world.store = self._facts(folder)
        self._run(self._begin())

    def _facts(self, folder: Path) -> SQLiteFactStore:
        return SQLiteFactStore(
            folder / "facts.db", lineage_depth=by_oracle.DEPTH, clock=by_oracle.AdvancingClock(),
            synchronous="normal",
        )  # fmt: skip

    async def _begin(self) -> None:
        await self.memory.bootstrap()
        await self.world.store.bootstrap()
        await self.world.store.transactions.take_over()
        several = by_oracle.CHANNELS if self.world.multi else {}
        await self.world.store.ledger.set_channels(several, at=START)

    async def _close(self) -> None:
        await self.memory.close()
        await self.world.store.close()

    # events

    @rule(fields=by_oracle.episodes())
    def put(self, fields: dict[str, Any]) -> None:
        """Put an episode, or another version of it."""
        self._put_and_record(fields)

    def _put_and_record(self, fields: dict[str, Any]) -> None:
        before = len(self.world.logged())
        with suppress(ForgottenError):
            self._run(self._put(fields))
            self.world.episodes[fields["id"]] = fields
        assert len(self.world.logged()) - before in (0, 1)

    async def _put(self, fields: dict[str, Any]) -> None:
        episode = episode_of(fields)
        await self.memory.put(
            episode, user=episode.user, session=episode.session, agent=episode.agent
        )

    @rule(fields=by_oracle.episodes(), broken=st.booleans())
    def insert(self, fields: dict[str, Any], *, broken: bool) -> None:
        """Let another program write a row, perhaps one that cannot be read."""
        episode = episode_of(fields)
        row = encode(episode, Scope(episode.user, episode.session, episode.agent), operation="put")
        if broken:
            row = row._replace(metadata=b'{"subject":')
        self._execute("INSERT OR REPLACE INTO episodes VALUES (?, ?, ?, ?, ?)", row)
        malformed = {"intent": "?"} if broken else fields["metadata"]
        self.world.episodes[fields["id"]] = fields | {"metadata": malformed, "broken": broken}

    @rule(eid=st.sampled_from(by_oracle.IDS))
    def delete(self, eid: str) -> None:
        """Let another program delete a row: pruning is no retraction."""
        self._execute("DELETE FROM episodes WHERE id = ?", (eid,))

    @rule()
    def vacuum(self) -> None:
        """Let another program write the file anew."""
        self._execute("VACUUM", ())

    def _execute(self, sql: str, values: tuple[Any, ...]) -> None:
        path = self.world.folder / "memory.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(sql, values)

    @rule(name=st.sampled_from(list(by_oracle.RULES)))
    def fire(self, name: str) -> None:
        """Fire a rule until nothing is pending."""
        self._fire(name)

    def _fire(self, name: str) -> None:
        known = len(self.world.ledgered())
        self._run(self._consolidate(name))
        self._record_new_firings(name, known)
        last = max((seq for seq, _, _ in self.world.logged()), default=0)
        assert self.world.read.get(name, 0) == last, "the rule did not read to the end of the log"

    async def _consolidate(self, name: str) -> None:
        self.clock.advance(1)
        store, log = self.world.store, FakeDeltaLog()
        consolidator = Consolidator(self.memory, store, log, self.clock, batch=BATCH)
        await consolidator.fire(FireRequest(self._rule(name), "every", self.clock.now()))

    def _rule(self, name: str) -> ConsolidationRule:
        when_filter, _ = FILTERS[self.world.filters[name]]
        return by_oracle.RULES[name][0].model_copy(update={"when_filter": when_filter})

    def _record_new_firings(self, name: str, known: int) -> None:
        """Record in the oracle the firings that are new in the ledger."""
        for number, rule_id, upto in self.world.ledgered()[known:]:
            if rule_id == by_oracle.RULES[name][0].id:
                self.world.record_firing(name, upto, f"{rule_id}@{number}")

    @rule(name=st.sampled_from(list(by_oracle.RULES)), to=st.sampled_from(list(FILTERS)))
    def reload(self, name: str, to: str) -> None:
        """Give a rule another filter, for its next firings."""
        self.world.filters[name] = to

    @rule(several=st.booleans())
    def change_channels(self, *, several: bool) -> None:
        """Let predicates hold several objects, or no longer."""
        self._run(by_oracle.change_channels(self.world, several=several))

    @rule(id_=by_oracle.PINNABLE, what=st.sampled_from("ab"))
    def correct(self, id_: str, what: str) -> None:
        """Correct a fact as a person."""
        self._run(by_oracle.correct(self.world, id_, what))

    @rule(
        how=st.sampled_from(["declare", "write_row"]),
        id_=by_oracle.PINNABLE,
        what=st.sampled_from("ab"),
        at=st.integers(0, 5),
    )
    def declare(self, how: str, id_: str, what: str, at: int) -> None:
        """Pin a fact through the library, or as another program does."""
        self._run(by_oracle.DIRECT[how](self.world, id_, what, at))

    @rule(how=st.sampled_from(["retract", "remove", "delete_row"]), id_=by_oracle.ANY_ID)
    def take_out(self, how: str, id_: str) -> None:
        """Retract a fact as a person, or remove it as a program."""
        self._run(by_oracle.DIRECT[how](self.world, id_))

    @precondition(lambda self: self.world.firings)
    @rule(which=st.integers(1, 6))
    def undo(self, which: int) -> None:
        """Undo a firing, a manual edit or an undo."""
        if len(self.world.firings) >= which:
            self._run(self.world.undo(self.world.firings[-which]))

    @rule()
    def forget(self) -> None:
        """Erase a session, with its episodes."""
        self._run(self._forget())

    async def _forget(self) -> None:
        scope = ScopeFilter("alice", by_oracle.FORGETTABLE, None)
        stored = (await self.memory.episodes_in(scope)).eids
        known = (await self.world.store.erasures.episodes_in(scope)).eids
        eids = known.union(stored)
        await self.world.forget(eids)
        await self.memory.forget(scope, eids, moment=FORGOTTEN_UP_TO)

    @rule(eid=st.sampled_from(by_oracle.IDS))
    def forget_episode(self, eid: str) -> None:
        """Erase one episode by its id."""
        self._run(self._forget_episode(eid))

    async def _forget_episode(self, eid: str) -> None:
        await self.world.forget_episode(eid)
        scope = by_oracle.scope_of(eid)
        await self.memory.forget(scope, [eid], moment=None)

    # crashes

    @rule(fields=by_oracle.episodes(), after=st.integers(1, 25))
    def crash_in_put(self, fields: dict[str, Any], after: int) -> None:
        """Crash while an episode is put; the file decides whether it was put."""
        before = len(self.world.logged())
        with suppress(ForgottenError):
            self._crash(self._put(fields), after)
        if len(self.world.logged()) > before:
            self.world.episodes[fields["id"]] = fields

    @rule(name=st.sampled_from(list(by_oracle.RULES)), after=st.integers(1, 120))
    def crash_in_firing(self, name: str, after: int) -> None:
        """Crash in a firing; only the batches that are in the ledger are done."""
        known = len(self.world.ledgered())
        self._crash(self._consolidate(name), after)
        self._record_new_firings(name, known)

    @precondition(lambda self: self.world.firings)
    @rule(which=st.integers(1, 6), after=st.integers(1, 60))
    def crash_in_undo(self, which: int, after: int) -> None:
        """Crash while a firing is undone."""
        if len(self.world.firings) < which:
            return
        known, undone = len(self.world.ledgered()), self.world.firings[-which]
        when = self.clock.now()
        self._crash(self.world.store.ledger.undo(undone, at=when, by="me", dry_run=False), after)
        for number, rule_id, _ in self.world.ledgered()[known:]:
            self.world.undone[f"{rule_id}@{number}"] = undone
            self.world.firings.append(f"{rule_id}@{number}")

    @rule()
    def restart(self) -> None:
        """Close the stores and open them again."""
        self._run(self._close())
        self._open(self.world.folder)

    def _crash(self, work: Coroutine[Any, Any, Any], after: int) -> None:
        """Run some work; go on with the files as they were after so many statements."""
        self._copies += 1
        copy = Path(self._temporary.name) / str(self._copies)
        copy.mkdir()
        self._crashes.arm(self.world.folder, copy, after)
        try:
            self._run(work)
        finally:
            self._crashes.disarm()
            self._run(self._close())
            shutil.rmtree(self.world.folder)
            self._open(copy)

    # invariants

    @invariant()
    def compare(self) -> None:
        """Facts are those of the oracle, and the ledger verifies."""
        self._run(by_oracle.check_equals_oracle(self.world))
