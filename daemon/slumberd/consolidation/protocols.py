"""What the use case and the face ask of the world: Protocols only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from slumberd.consolidation.incoming import Candidate
from slumberd.model.episode import EpisodeVersion
from slumberd.model.firing import Firing, Held, Position, Window
from slumberd.model.record import Checkpoint, Outcome, Record
from slumberd.model.rule import ConsolidationRule
from slumberd.model.salience import Access
from slumberd.model.spelling import Misspelling


class EpisodeLog(Protocol):
    """The windowed view of a memory store that the daemon consolidates."""

    async def newest(self) -> Position:
        """Return the last place of the log; the start when it is empty."""
        ...

    async def episode_at(self, seq: int) -> str | None:
        """Return the episode id of one log row; None when there is no such row."""
        ...

    async def pending(self, after: int, *, at_most: int) -> int:
        """Count the log rows above a place; counting ends at `at_most`."""
        ...

    async def select(
        self, rule: ConsolidationRule, *, after: Position, limit: int, upto: int | None = None
    ) -> Window:
        """Read at most `limit` log rows above a place, none above `upto`, in one snapshot.

        An episode that was logged again because somebody read it, and lies otherwise outside of
        the stretch, has the number that it had, and says so.

        Raises:
            FilterError: The rule's filter must not run, or ran over its budget.
        """
        ...

    async def reread(
        self, rule: ConsolidationRule, eids: Sequence[str], *, upto: int
    ) -> list[EpisodeVersion]:
        """Read some episodes again; those that changed after a log row are left out.

        Raises:
            FilterError: The rule's filter must not run, or ran over its budget.
        """
        ...

    async def accesses(self, eids: Sequence[str]) -> dict[str, Access]:
        """Return how some episodes were read; those that never were are left out."""
        ...

    async def hold(self, seen: Mapping[str, int]) -> None:
        """Log some episodes again, for every rule, once somebody reads them.

        Args:
            seen: By episode, how many reads are known of; it is logged at once after one more.
        """
        ...

    async def harden(self) -> None:
        """Let all that was read so far survive a power cut, whoever wrote it."""
        ...

    async def changed(self) -> bool:
        """Say whether any connection committed since the last call; True at the first."""
        ...


class Ledger(Protocol):
    """The side of a fact store that consolidation writes to."""

    async def watermark(self, rule_id: str) -> Position | None:
        """Return how far a rule has read; None for a rule that was never seen."""
        ...

    async def marks(self, rule_id: str) -> list[Position]:
        """Return every place at which a batch of the rule ended, newest first."""
        ...

    async def rewind(self, rule_id: str, to: Position) -> None:
        """Move a watermark back, after memory.db was restored from a backup."""
        ...

    async def begin(self, rule_id: str, at: Position, *, served: datetime) -> None:
        """Give a rule that was never seen its first watermark and served instant."""
        ...

    async def served(self, rule_id: str) -> datetime | None:
        """Return the instant up to which a rule's cron instants are served."""
        ...

    async def serve(
        self, rule_id: str, instant: datetime, *, succeeded_at: datetime | None = None
    ) -> None:
        """Record that a rule's cron instants are served up to an instant; never moves back.

        Args:
            rule_id: The rule.
            instant: The last one that is served.
            succeeded_at: When the firing for it began; None when there was none.
        """
        ...

    async def commit(
        self,
        firing: Firing,
        met: Mapping[str, Sequence[Candidate]],
        *,
        decided: Callable[[], None] | None = None,
        late: Callable[[], bool] | None = None,
    ) -> Outcome:
        """Settle what a rule met: facts, ledger, quarantine, watermark in one transaction.

        Args:
            firing: Its ``upto`` becomes the rule's watermark.
            met: By channel, in any order.
            decided: Called, in any thread, when all is decided and only SQLite has work left.
            late: Asked often, in any thread, whether to give up; None never does.

        Raises:
            StoppedError: It was `late`; nothing is written.
            SupersededError: Another daemon has taken over, or the store was replaced; nothing is
                written.
        """
        ...

    async def held(self) -> Mapping[str, Held]:
        """Return the batches that wait for a person, or may go on now, by rule."""
        ...

    async def quarantined_of(self, rule_id: str) -> list[str]:
        """Return the ids of the episodes that are quarantined for a rule, in order."""
        ...

    async def channels_of(self, rule_id: str) -> set[str]:
        """Return the channels that a rule ever emitted into."""
        ...

    async def promoted_by(self, rule_id: str, fact_ids: Sequence[str]) -> set[str]:
        """Return those of some fact ids under which a rule ever promoted something."""
        ...

    async def rehearse(self, firing: Firing, met: Mapping[str, Sequence[Candidate]]) -> Outcome:
        """Settle as `commit` does, say what came of it, and write nothing."""
        ...

    async def rest(self) -> None:
        """Bring the file into its everyday order after a backlog; does nothing after none."""
        ...

    def leave(self) -> None:
        """Let the file be closed as it is, in the middle of a backlog; its next start tidies up."""
        ...

    async def unlogged(self, *, limit: int) -> list[Record]:
        """Return ledger rows whose log lines may not have been written, oldest first."""
        ...

    async def mark_logged(self, seq: int) -> None:
        """Remember that the log lines up to a ledger row are written."""
        ...

    async def head(self) -> Checkpoint:
        """Return how far the ledger reaches, as committed, and its chain hash there."""
        ...


class DeltaLog(Protocol):
    """Where every committed delta leaves a line."""

    def applied(self, records: Sequence[Record]) -> None:
        """Write one ``delta.applied`` line for each record, in order.

        Raises:
            TimeoutError: Nobody reads; the records are to be given again later.
            OSError: They cannot be written.
        """
        ...

    def completed(self, outcome: Outcome) -> None:
        """Write the ``firing.completed`` line of one batch."""
        ...

    def misspelled(self, found: Sequence[Misspelling]) -> None:
        """Write one ``metadata.misspelled`` line for each key that is probably misspelled."""
        ...

    def checkpointed(self, head: Checkpoint) -> None:
        """Write a ``ledger.checkpoint`` line: how far the ledger reaches, and its hash there."""
        ...


class Logs(Protocol):
    """Where log lines go, before the key is known by which they hash users and agents."""

    def keyed(self, key: bytes) -> DeltaLog:
        """Return the log of deltas that hashes users and agents with a key, where it hashes them.

        Args:
            key: Of the hashes; empty where lines do not hash.
        """
        ...


class CountedLogs(Logs, Protocol):
    """Where everything leaves its lines, and what of it was lost."""

    @property
    def dropped(self) -> int:
        """How many lines were lost, none of them of a delta, because nobody read."""
        ...
