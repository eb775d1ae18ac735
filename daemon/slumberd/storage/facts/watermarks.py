"""Keep how far each rule has read, and up to which ledger row the log lines are written."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from slumberd.errors import StoreError
from slumberd.model.episode import instant as as_instant
from slumberd.model.episode import microseconds
from slumberd.model.firing import Firing, Position
from slumberd.model.record import Record
from slumberd.storage.engine import Session
from slumberd.storage.facts.reads import records_after
from slumberd.storage.facts.transactions import FactTransactions
from slumberd.storage.ledger.batch import number

_EVERYTHING = 2**63 - 1


class WatermarkTable:
    """The watermark, served instant and last success of each rule; implements ``Watermarks``."""

    def __init__(self, transactions: FactTransactions) -> None:
        self._transactions = transactions
        self._logged = 0

    async def position(self, rule_id: str) -> Position | None:
        """Return the last position that a rule has read; None for an unknown rule."""
        row = await self._transactions.fetch_one("ledger.watermark", (rule_id,))
        return Position(*row) if row else None

    async def positions(self) -> dict[str, tuple[Position, datetime]]:
        """Return every rule's watermark, and the last cron instant that it has served."""
        return {
            rule: (Position(seq, eid), as_instant(served))
            for rule, seq, eid, served in await self._transactions.fetch_all("ledger.watermarks")
        }

    async def batch_ends(self, rule_id: str) -> list[Position]:
        """Return every position at which a batch of the rule ended, newest first."""
        return [
            Position(*row)
            for row in await self._transactions.fetch_all("ledger.batch_ends", (rule_id,))
        ]

    async def served(self, rule_id: str) -> datetime | None:
        """Return the instant up to which a rule's cron instants are served."""
        row = await self._transactions.fetch_one("ledger.served", (rule_id,))
        return as_instant(row[0]) if row else None

    async def successes(self) -> dict[str, datetime]:
        """Return when each rule's last successful firing began."""
        found = await self._transactions.fetch_all("ledger.successes")
        return {rule: as_instant(at) for rule, at in found}

    async def begin(self, rule_id: str, at: Position, *, served: datetime) -> None:
        """Record the first watermark and served instant of a new rule."""
        first = {"rule": rule_id, **at._asdict(), "served": microseconds(served)}
        await self._transactions.write(lambda session: session.do("ledger.first_watermark", first))

    async def rewind(self, rule_id: str, to: Position) -> None:
        """Move a rule's watermark back, after the episodes were restored from a backup.

        The first rule that notices begins a new generation of the log: the versions of the new
        generation count as newer than all versions before.
        """

        def work(session: Session) -> None:
            _set_watermark(session, rule_id, to)
            session.do("ledger.drop_held_batch", {"rule": rule_id, "seq": _EVERYTHING})
            generations = session.rows("ledger.generations")
            generation = generations[0][1] if generations else 0
            last = session.one("ledger.last_generation", (rule_id,))
            if last and last[0] == generation:
                session.do("ledger.add_generation", (generation + 1, to.seq))

        await self._transactions.write(work)

    async def serve(
        self, rule_id: str, instant: datetime, *, succeeded_at: datetime | None = None
    ) -> None:
        """Record that a rule's cron instants are served up to an instant; never move back.

        Args:
            rule_id: The rule.
            instant: The last cron instant that is served.
            succeeded_at: When the firing for it began; None when there was no firing.
        """

        def work(session: Session) -> None:
            served = {"rule": rule_id, "served": microseconds(instant)}
            session.do("ledger.set_served", served)
            if succeeded_at is not None:
                record_success(session, rule_id, succeeded_at)

        await self._transactions.write(work)

    async def correct_served(self, rule_id: str, now: datetime) -> None:
        """Move the served instant of a rule back to now; it was recorded by a wrong clock."""
        served = {"rule": rule_id, "served": microseconds(now)}
        await self._transactions.write(lambda session: session.do("ledger.correct_served", served))

    async def unlogged(self, *, limit: int) -> list[Record]:
        """Return ledger rows whose log lines may not have been written, oldest first."""
        return await self._transactions.read(
            lambda session: records_after(session, self._logged_in(session), limit)
        )

    async def mark_logged(self, seq: int) -> None:
        """Record that the log lines up to a ledger row are written; saved with the next commit."""
        self._logged = max(self._logged, seq)

    async def save_logged(self) -> None:
        """Save up to which row the log lines are written, if the file can be written."""
        if self._logged:
            with suppress(StoreError):  # then the next start writes these lines again
                await self._transactions.write(self.save_logged_in)

    def save_logged_in(self, session: Session) -> None:
        """Save up to which row the log lines are written, in the caller's transaction."""
        session.do("ledger.raise_number", {"name": "logged", "value": self._logged})

    def advance(self, session: Session, firing: Firing) -> None:
        """Move a rule's watermark to the end of a batch, in the caller's transaction."""
        _set_watermark(session, firing.rule_id, firing.upto)
        session.do("ledger.drop_held_batch", {"rule": firing.rule_id, "seq": firing.upto.seq})

    def _logged_in(self, session: Session) -> int:
        return max(self._logged, number(session, "logged"))


def record_success(session: Session, rule_id: str, at: datetime) -> None:
    """Record when the last successful firing of a rule began, in the caller's transaction."""
    session.do("ledger.set_success", {"rule": rule_id, "at": microseconds(at)})


def _set_watermark(session: Session, rule_id: str, to: Position) -> None:
    session.do("ledger.set_watermark", {"rule": rule_id, **to._asdict(), "served": 0})
