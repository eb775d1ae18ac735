"""How far each rule has come, and the log with the ledger; kept in the file of facts."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from datetime import datetime

from slumberd.errors import StoreError
from slumberd.model.episode import microseconds
from slumberd.model.firing import Firing, Position
from slumberd.model.record import Record
from slumberd.sql_statements import statements
from slumberd.storage.facts.lifecycle import set_number
from slumberd.storage.facts.reads import FactReader, records
from slumberd.storage.ledger.batch import number
from slumberd.storage.ledger.promotion_feed import save_position
from slumberd.storage.sqlite.connection import transaction

_SQL = statements("ledger")

_EVERYTHING = 2**63 - 1


class WatermarkTable(FactReader):
    """Watermarks, served instants, successes, and up to which row log and sink were told."""

    _logged = 0

    async def begin(self, rule_id: str, at: Position, *, served: datetime) -> None:
        """Give a rule that was never seen its first watermark and served instant."""
        values = {
            "rule": rule_id,
            "seq": at.seq,
            "eid": at.eid,
            "served": microseconds(served),
        }
        await self._execute("first_watermark", values)

    async def rewind(self, rule_id: str, to: Position) -> None:
        """Move a watermark back, after memory.db was restored from a backup.

        The first rule to notice begins a new generation of the log: versions met from now on
        count as newer than all that were met before.
        """

        def work(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                self._fence(connection)
                values = {"rule": rule_id, "seq": to.seq, "eid": to.eid, "served": 0}
                connection.execute(_SQL["set_watermark"], values)
                connection.execute(_SQL["drop_held_batch"], {"rule": rule_id, "seq": _EVERYTHING})
                generations = connection.execute(_SQL["generations"]).fetchall()
                generation = generations[0][1] if generations else 0
                last = connection.execute(_SQL["last_generation"], (rule_id,)).fetchone()
                if last and last[0] == generation:
                    connection.execute(_SQL["add_generation"], (generation + 1, to.seq))

        await self._database.write(work)

    async def serve(
        self, rule_id: str, instant: datetime, *, succeeded_at: datetime | None = None
    ) -> None:
        """Record that a rule's cron instants are served up to an instant; never moves back.

        Args:
            rule_id: The rule.
            instant: The last one that is served.
            succeeded_at: When the firing for it began; None when there was none.
        """

        def work(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                self._fence(connection)
                values = {"rule": rule_id, "served": microseconds(instant)}
                connection.execute(_SQL["set_served"], values)
                if succeeded_at is not None:
                    succeed(connection, rule_id, succeeded_at)

        await self._database.write(work)

    async def unlogged(self, *, limit: int) -> list[Record]:
        """Return ledger rows whose log lines may not have been written, oldest first."""

        def work(connection: sqlite3.Connection) -> list[Record]:
            after = max(self._logged, number(connection, "logged"))
            return records(connection, after, limit)

        return await self._database.read(work)

    async def mark_logged(self, seq: int) -> None:
        """Remember that log lines up to a ledger row are written; kept with the next commit."""
        self._logged = max(self._logged, seq)

    async def save_published_position(self, reader: str, seq: int, refused: int) -> None:
        """Save a reader's position: the last row it passed, and the number of refused rows."""

        def work(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                self._fence(connection)
                save_position(connection, reader, seq, refused)

        await self._database.write(work)

    async def close(self) -> None:
        """Keep what is known of the log lines, and close the file; the next use opens it."""
        if self._logged:
            with suppress(StoreError):  # then these lines are written once more, and no harm done
                await self._database.write(self._keep_logged)
        await super().close()

    def _keep_logged(self, connection: sqlite3.Connection) -> None:
        with transaction(connection):
            self._fence(connection)
            logged = max(self._logged, number(connection, "logged"))
            set_number(connection, "logged", logged)

    def _move_watermark(self, connection: sqlite3.Connection, firing: Firing) -> None:
        values = {"rule": firing.rule_id, **firing.upto._asdict(), "served": 0}
        connection.execute(_SQL["set_watermark"], values)
        connection.execute(_SQL["drop_held_batch"], values)


def succeed(connection: sqlite3.Connection, rule_id: str, at: datetime) -> None:
    """Record when the last firing of a rule that went well began."""
    connection.execute(_SQL["set_success"], {"rule": rule_id, "at": microseconds(at)})
