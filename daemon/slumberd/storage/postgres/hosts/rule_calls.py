"""Call a rule with ``every: N`` in all shards, when N episodes wait for it in all together."""

from __future__ import annotations

from functools import partial

from slumberd.storage.engine import Session
from slumberd.storage.postgres.engine import PostgresEpisodeEngine


class PostgresRuleCalls:
    """Counts what waits for a rule in all shards; implements ``RuleCalls``.

    Args:
        engine: The transactions of one shard's episodes.
    """

    def __init__(self, engine: PostgresEpisodeEngine) -> None:
        self._engine = engine

    async def is_called(self, rule_id: str, after: int) -> bool:
        """Return whether a rule is to read its shard beyond a place of the log."""
        called: bool = await self._engine.read(
            lambda session: session.value("calls.is_called", {"rule_id": rule_id, "after": after})
        )
        return called

    async def call(self, rule_id: str, count: int) -> bool:
        """Call a rule in all shards if enough waits for it; return whether it was called."""
        waiting = await self._engine.read(partial(_count_waiting, rule_id=rule_id, at_most=count))
        if waiting < count:
            return False
        await self._engine.put(partial(_call, rule_id=rule_id))
        self._engine.notify()
        return True


def _count_waiting(session: Session, rule_id: str, at_most: int) -> int:
    waiting: int = session.value("calls.waiting", {"rule_id": rule_id, "at_most": at_most})
    return waiting


def _call(session: Session, rule_id: str) -> None:
    session.do("calls.call", {"rule_id": rule_id})
