"""Keep what the stages of rules need to know of past episodes, in a file of the daemon's own.

The file follows the episode log and the ledger; it may be deleted at any time. A rule whose notes
are missing, damaged, or of another place of the stores looks at all episodes again.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import orjson

from slumberd.consolidation.protocols import Owner, StagePlace
from slumberd.model.errors import SchemaError, StageNotesError, StoreError
from slumberd.model.firing import Position
from slumberd.model.record import Checkpoint
from slumberd.model.stages import ComparedText, StagedEntry
from slumberd.sql_statements import statements
from slumberd.storage.sqlite.connection import connect, traceless
from slumberd.storage.sqlite.scrubbing import scrub
from slumberd.storage.sqlite.session import Pragmas, transaction, translate_errors

_SQL = statements("stage_file")
_TABLES = tuple(sql for name, sql in _SQL.items() if name.startswith("create_"))
_PRAGMAS = Pragmas()

VERSION = 5
"""The version of the file; it changes with the tables, and with what is kept in them."""


class StageFile:
    """The notes of all rules on the stores of one state directory.

    Args:
        path: The file; it is created when a rule first needs it.
        reading: A text that changes with the settings that say how episodes are read.
    """

    def __init__(self, path: Path, reading: str) -> None:
        self.path = path
        self._reading = reading

    def open(self, rule_id: str, *, writes: bool) -> RuleNotes:
        """Open the notes of a rule; damaged ones, and those of another version, are dropped.

        Args:
            writes: Whether they are written: then no other process writes them meanwhile.

        Raises:
            StoreError: The file cannot be opened, or `writes` is False and it does not exist.
        """
        try:
            return RuleNotes(self._connect(writes=writes), self, rule_id, writes=writes)
        except SchemaError:
            if not writes:
                raise
            self.delete()
            return RuleNotes(self._connect(writes=True), self, rule_id, writes=True)

    @property
    def reading(self) -> str:
        """A text that changes with the settings that say how episodes are read."""
        return self._reading

    def _connect(self, *, writes: bool) -> sqlite3.Connection:
        connection = connect(self.path, _PRAGMAS, access="write" if writes else "read")
        try:
            with translate_errors(self.path, _PRAGMAS):
                self._check(connection, writes=writes)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self, connection: sqlite3.Connection, *, writes: bool) -> None:
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if found not in (0, VERSION) or not (found or writes):
            raise SchemaError(str(self.path), "is of another version", "delete it")
        if not found:
            with transaction(connection):
                for sql in _TABLES:
                    connection.execute(sql)
                connection.execute(f"PRAGMA user_version = {VERSION:d}")

    def find_problem(self) -> str:
        """Return what is wrong with the file; empty when nothing is, or it does not exist."""
        if not self.path.exists():
            return ""
        try:
            return traceless(self.path, self._find_problem)
        except StoreError as error:
            return str(error)

    def _find_problem(self, how: str) -> str:
        with (
            translate_errors(self.path, _PRAGMAS),
            closing(connect(self.path, _PRAGMAS, access="read", how=how)) as connection,
        ):
            self._check(connection, writes=False)
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            (untraced,) = connection.execute(_SQL["untraced"]).fetchone()
            (unlisted,) = connection.execute(_SQL["unlisted"]).fetchone()
        if found != "ok":
            return f"is damaged: {found}"
        if untraced:
            return f"has {untraced} traces of unknown episodes"
        return f"has {unlisted} texts of unknown episodes" if unlisted else ""

    def delete(self) -> None:
        """Delete the file, and those that SQLite keeps beside it."""
        with translate_errors(self.path, _PRAGMAS):
            for suffix in ("", "-wal", "-shm", "-journal"):
                self.path.with_name(f"{self.path.name}{suffix}").unlink(missing_ok=True)

    def erase(self, user: str, eids: Collection[str]) -> int:
        """Remove all bytes about a user; return of how many episodes there were notes.

        Until `note_erasure` says otherwise, the next firing of each rule looks at all episodes.
        Where the bytes cannot be removed, the file is deleted.

        Args:
            eids: The ids of the episodes that are erased.

        Raises:
            StoreError: It cannot be deleted.
        """
        if not self.path.exists():
            self.delete()  # a log may be there without its file
            return 0
        count = 0
        try:
            with (
                closing(self._connect(writes=True)) as connection,
                translate_errors(self.path, _PRAGMAS),
            ):
                (count,) = connection.execute(_SQL["count_entries"], (user,)).fetchone()
                with transaction(connection):
                    for name in (
                        "erase_traces",
                        "erase_texts",
                        "erase_entries",
                        "erase_owners",
                        "blank_erasures",
                    ):
                        connection.execute(_SQL[name], (user,))
                    connection.execute(_SQL["blank_places"], (_listed(eids),))
                is_clean = scrub(connection).obstacle is None
        except StoreError:  # it is damaged, or the disk is full
            is_clean = False
        if not is_clean:
            self.delete()
        return count

    def note_erasure(self, number: int, chain: bytes, user: str | None) -> None:
        """Record that the notes follow an erasure: the next firings look at one user only.

        Args:
            number: The ledger row of the erasure.
            chain: Its chain hash.
            user: Whose episodes are looked at again; None when nothing is left of the user.

        Raises:
            StoreError: It cannot be written; then the next firings look at all episodes.
        """
        if not self.path.exists():
            return
        with (
            closing(self._connect(writes=True)) as connection,
            translate_errors(self.path, _PRAGMAS),
            transaction(connection),
        ):
            connection.execute(_SQL["add_erasure"], (number, chain, user))


class RuleNotes:
    """The notes of one rule, open."""

    def __init__(
        self, connection: sqlite3.Connection, file: StageFile, rule_id: str, *, writes: bool
    ) -> None:
        self._connection, self._file, self._rule_id = connection, file, rule_id
        self._writes = writes
        self._owners: dict[Owner, int] = {}
        try:
            with self._errors():
                connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            row = self._one("rule", (rule_id,))
            if row is None and writes:
                self._do("add_rule", (rule_id,))
                row = self._one("rule", (rule_id,))
        except BaseException:
            connection.close()
            raise
        self._number: int = row[0] if row else 0
        self._place = None if row is None or row[1] is None else _place_from(row[1:])

    @property
    def reading(self) -> str:
        """A text that changes with the settings that say how episodes are read."""
        return self._file.reading

    def place(self) -> StagePlace | None:
        """Return up to where the notes know the stores; None when there are none."""
        return self._place

    def clear(self) -> None:
        """Drop all that is kept for the rule, at once."""
        for what in ("traces", "texts", "entries", "owners", "erasures"):
            self._do(f"clear_{what}", (self._number,))
        self._do("set_place", (*[None] * 7, self._number))
        self._place = None
        self._owners.clear()
        with self._errors():
            self._connection.execute("COMMIT")
            self._connection.execute("BEGIN IMMEDIATE")

    def erasures(self) -> dict[int, tuple[bytes, str | None]]:
        """Return the erasures that the notes follow, by ledger row: its chain hash, and the user.

        The user is None when nothing was left of the user.
        """
        rows = self._rows("erasures", (self._number,))
        return {number: (chain, user) for number, chain, user in rows}

    def due(self, at: int) -> list[tuple[Owner, str]]:
        """Return the episodes that time may have changed by an instant, with their owners."""
        rows = self._rows("due", (self._number, at))
        return [((user, agent), eid) for user, agent, eid in rows]

    def owners_of(self, eids: Collection[str]) -> list[tuple[str, Owner]]:
        """Return those of the episodes that the notes have, with their owners."""
        rows = self._rows("owners_of", (_listed(eids), self._number))
        return [(eid, (user, agent)) for eid, user, agent in rows]

    def eids(self, owner: Owner) -> set[str]:
        """Return the ids of an owner's episodes."""
        return {eid for (eid,) in self._rows("eids", (self._owner(owner),))}

    def entries(self, owner: Owner, eids: Collection[str]) -> list[StagedEntry]:
        """Return what is kept of some episodes of an owner."""
        rows = self._rows("entries", (_listed(eids), self._owner(owner)))
        return [_entry_from(row) for row in rows]

    def traced(self, owner: Owner, traces: Collection[int]) -> list[tuple[int, str]]:
        """Return an owner's episodes that have one of the traces, with the trace."""
        return self._rows("traced", (_listed(traces), self._owner(owner)))

    def texts(self, owner: Owner, assertion: int) -> list[tuple[str, str, bytes]]:
        """Return an owner's episodes with one assertion, with their texts and vectors."""
        return self._rows("texts", (self._owner(owner), assertion))

    def archived(self, upto: int) -> list[str]:
        """Return the episodes that the rule archived by an instant."""
        return [eid for (eid,) in self._rows("archived", (self._number, upto))]

    def save(self, owner: Owner, entries: Sequence[StagedEntry], gone: Collection[str]) -> None:
        """Keep some episodes of an owner, instead of what was kept of them.

        Args:
            gone: The ids of those of which nothing is kept any more.
        """
        number = self._owner(owner)
        before = self.entries(owner, [*(entry.id for entry in entries), *gone])
        kept = {entry.id: entry for entry in before}
        changed = [entry for entry in entries if kept.get(entry.id) != entry]
        dropped = [(number, id) for id in gone if id in kept]
        if changed and not number:
            self._do("add_owner", (self._number, *owner))
            self._owners.pop(owner)
            number = self._owner(owner)
        new = {(number, trace, entry.id) for entry in changed for trace in entry.traces}
        old = {
            (number, trace, id)
            for id in [*(entry.id for entry in changed), *(id for _, id in dropped)]
            if id in kept
            for trace in kept[id].traces
        }
        self._do_each("drop_trace", sorted(old - new))
        self._do_each("put_trace", sorted(new - old))
        self._save_texts(number, [*changed, *(StagedEntry(id) for _, id in dropped)], kept)
        self._do_each("drop_entry", dropped)
        rows = [
            (
                number, one.id, self._number, one.due, one.kept, _packed(one), one.archived_at,
                None if one.compared is None else one.compared.assertion,
            )
            for one in changed
        ]  # fmt: skip
        self._do_each("put_entry", rows)

    def _save_texts(
        self, owner: int, entries: Sequence[StagedEntry], kept: Mapping[str, StagedEntry]
    ) -> None:
        """Keep what is compared of entries, instead of what was kept of them."""
        old = {one.id: kept[one.id].compared for one in entries if one.id in kept}
        changed = {one.id: one.compared for one in entries if old.get(one.id) != one.compared}
        before = [(id, old[id]) for id in changed if id in old]
        rows = [(owner, one.assertion, id) for id, one in before if one is not None]
        self._do_each("drop_text", rows)
        self._do_each(
            "put_text", [(owner, id, *one) for id, one in changed.items() if one is not None]
        )

    def finish(self, place: StagePlace) -> None:
        """Commit all that was saved, and up to where the notes know the stores."""
        position, ledger = place.position, place.ledger
        self._do(
            "set_place",
            (
                place.fingerprint, position.seq, position.eid, place.deletion, ledger.rows,
                ledger.head, place.at, self._number,
            ),
        )  # fmt: skip
        self._do("clear_erasures", (self._number,))
        with self._errors():
            self._connection.execute("COMMIT")
        self._place = place

    def close(self) -> None:
        """Close the notes; what is not committed is dropped."""
        self._connection.close()

    def _owner(self, owner: Owner) -> int:
        """Return the number of an owner; 0 when the notes have none of its episodes."""
        found = self._owners.get(owner)
        if found is None:
            row = self._one("owner", (self._number, *owner))
            found = self._owners[owner] = row[0] if row else 0
        return found

    def _one(self, name: str, values: Sequence[Any]) -> Any:  # noqa: ANN401 # as the columns are
        with self._errors():
            return self._connection.execute(_SQL[name], values).fetchone()

    def _rows(self, name: str, values: Sequence[Any]) -> list[Any]:
        with self._errors():
            return self._connection.execute(_SQL[name], values).fetchall()

    def _do(self, name: str, values: Sequence[Any]) -> None:
        with self._errors():
            self._connection.execute(_SQL[name], values)

    def _do_each(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._errors():
            self._connection.executemany(_SQL[name], rows)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors into slumberd's; a damaged file is deleted, unless it is only read."""
        try:
            with translate_errors(self._file.path, _PRAGMAS):
                yield
        except SchemaError as error:
            if self._writes:
                self._file.delete()
            where = str(self._file.path)
            raise StageNotesError(where, "is damaged", is_deleted=self._writes) from error


def _listed(values: Collection[Any]) -> str:
    return orjson.dumps([*values]).decode()


def _packed(entry: StagedEntry) -> bytes:
    return struct.pack(f"<{len(entry.traces)}q", *entry.traces)


def _entry_from(row: Sequence[Any]) -> StagedEntry:
    eid, due, kept, traces, archived_at, *compared = row
    found = struct.unpack(f"<{len(traces) // 8}q", traces)
    text = None if compared[0] is None else ComparedText(*compared)
    return StagedEntry(eid, due, kept, found, archived_at, text)


def _place_from(row: Sequence[Any]) -> StagePlace:
    fingerprint, seq, eid, deletion, number, chain, at = row
    return StagePlace(fingerprint, Position(seq, eid), deletion, Checkpoint(number, chain), at)
