"""Keep how far each rule has read, and up to which ledger row the log lines are written."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from datetime import datetime

from slumberd.errors import StoreError
from slumberd.model.episode import instant as as_instant
from slumberd.model.episode import microseconds
from slumberd.model.firing import Firing, Position
from slumberd.model.record import Record
from slumberd.sql_statements import statements
from slumberd.storage.facts.lifecycle import FactFile, set_number
from slumberd.storage.facts.reads import records_after
from slumberd.storage.ledger.batch import number

_SQL = statements("ledger")

_EVERYTHING = 2**63 - 1


class WatermarkTable:
    """The watermark, served instant and last success of each rule; implements ``Watermarks``."""

    def __init__(self, file: FactFile) -> None:
        self._file = file
        self._logged = 0

    async def position(self, rule_id: str) -> Position | None:
        """Return the last position that a rule has read; None for an unknown rule."""
        row = await self._file.fetch_one("watermark", (rule_id,))
        return Position(*row) if row else None

    async def positions(self) -> dict[str, tuple[Position, datetime]]:
        """Return every rule's watermark, and the last cron instant that it has served."""
        return {
            rule: (Position(seq, eid), as_instant(served))
            for rule, seq, eid, served in await self._file.fetch_all("watermarks", ())
        }

    async def batch_ends(self, rule_id: str) -> list[Position]:
        """Return every position at which a batch of the rule ended, newest first."""
        return [Position(*row) for row in await self._file.fetch_all("batch_ends", (rule_id,))]

    async def served(self, rule_id: str) -> datetime | None:
        """Return the instant up to which a rule's cron instants are served."""
        row = await self._file.fetch_one("served", (rule_id,))
        return as_instant(row[0]) if row else None

    async def successes(self) -> dict[str, datetime]:
        """Return when each rule's last successful firing began."""
        found = await self._file.fetch_all("successes", ())
        return {rule: as_instant(at) for rule, at in found}

    async def begin(self, rule_id: str, at: Position, *, served: datetime) -> None:
        """Record the first watermark and served instant of a new rule."""
        first = {"rule": rule_id, **at._asdict(), "served": microseconds(served)}
        await self._file.write(lambda connection: _execute(connection, "first_watermark", first))

    async def rewind(self, rule_id: str, to: Position) -> None:
        """Move a rule's watermark back, after memory.db was restored from a backup.

        The first rule that notices begins a new generation of the log: the versions of the new
        generation count as newer than all versions before.
        """

        def work(connection: sqlite3.Connection) -> None:
            _set_watermark(connection, rule_id, to)
            connection.execute(_SQL["drop_held_batch"], {"rule": rule_id, "seq": _EVERYTHING})
            generations = connection.execute(_SQL["generations"]).fetchall()
            generation = generations[0][1] if generations else 0
            last = connection.execute(_SQL["last_generation"], (rule_id,)).fetchone()
            if last and last[0] == generation:
                connection.execute(_SQL["add_generation"], (generation + 1, to.seq))

        await self._file.write(work)

    async def serve(
        self, rule_id: str, instant: datetime, *, succeeded_at: datetime | None = None
    ) -> None:
        """Record that a rule's cron instants are served up to an instant; never move back.

        Args:
            rule_id: The rule.
            instant: The last cron instant that is served.
            succeeded_at: When the firing for it began; None when there was no firing.
        """

        def work(connection: sqlite3.Connection) -> None:
            _execute(connection, "set_served", {"rule": rule_id, "served": microseconds(instant)})
            if succeeded_at is not None:
                record_success(connection, rule_id, succeeded_at)

        await self._file.write(work)

    async def unlogged(self, *, limit: int) -> list[Record]:
        """Return ledger rows whose log lines may not have been written, oldest first."""
        return await self._file.read(
            lambda connection: records_after(connection, self._logged_in(connection), limit)
        )

    async def mark_logged(self, seq: int) -> None:
        """Record that the log lines up to a ledger row are written; saved with the next commit."""
        self._logged = max(self._logged, seq)

    async def save_logged(self) -> None:
        """Save up to which row the log lines are written, if the file can be written."""
        if self._logged:
            with suppress(StoreError):  # then the next start writes these lines again
                await self._file.write(self.save_logged_in)

    def save_logged_in(self, connection: sqlite3.Connection) -> None:
        """Save up to which row the log lines are written, in the caller's transaction."""
        set_number(connection, "logged", self._logged_in(connection))

    def advance(self, connection: sqlite3.Connection, firing: Firing) -> None:
        """Move a rule's watermark to the end of a batch, in the caller's transaction."""
        _set_watermark(connection, firing.rule_id, firing.upto)
        connection.execute(
            _SQL["drop_held_batch"], {"rule": firing.rule_id, "seq": firing.upto.seq}
        )

    def _logged_in(self, connection: sqlite3.Connection) -> int:
        return max(self._logged, number(connection, "logged"))


def record_success(connection: sqlite3.Connection, rule_id: str, at: datetime) -> None:
    """Record when the last successful firing of a rule began, in the caller's transaction."""
    _execute(connection, "set_success", {"rule": rule_id, "at": microseconds(at)})


def _set_watermark(connection: sqlite3.Connection, rule_id: str, to: Position) -> None:
    _execute(connection, "set_watermark", {"rule": rule_id, **to._asdict(), "served": 0})


def _execute(connection: sqlite3.Connection, statement: str, values: dict[str, object]) -> None:
    connection.execute(_SQL[statement], values)
