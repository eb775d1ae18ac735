"""Keep values as facts that are known by their subjects, all with one predicate."""

from __future__ import annotations

from typing import Any

from slumberd.client.memory import Memory
from slumberd.operations.facts import KnownFact
from slumberd.operations.forms import MOST


class NamedFacts:
    """The facts of one memory that have a certain predicate; each subject has one at most.

    Each change is a correction: the ledger keeps it with its reason, and can undo it.

    Args:
        predicate: The predicate; no rule may make it multi-valued.
    """

    def __init__(self, memory: Memory, predicate: str) -> None:
        self._memory = memory
        self._predicate = predicate

    async def get(self, subject: str) -> KnownFact | None:
        """Return the fact of a subject; None without one."""
        page = await self._memory.facts(subject=subject, predicate=self._predicate, limit=1)
        return next(iter(page.facts), None)

    async def under(self, prefix: str) -> list[KnownFact]:
        """Return all facts whose subject begins with a text, by id."""
        found: list[KnownFact] = []
        cursor: str | None = None
        while True:
            page = await self._memory.facts(
                subject_prefix=prefix, predicate=self._predicate, limit=MOST, cursor=cursor
            )
            found += page.facts
            cursor = page.next
            if cursor is None:
                return found

    async def put(
        self,
        subject: str,
        value: Any,  # noqa: ANN401 # any JSON
        *,
        reason: str,
        known: KnownFact | None = None,
    ) -> None:
        """Assert the value of a subject.

        Args:
            value: The value; any JSON.
            reason: Why; the ledger keeps it.
            known: The fact that the value is to replace, as it was read; it keeps its id. None
                replaces whatever the subject has now.

        Raises:
            NoInputError: The known fact was retracted since it was read.
            VersionConflictError: The known fact has changed since it was read.
        """
        named = self._names(subject, known)
        await self._memory.correct(object=value, reason=reason, **named)

    async def remove(self, subject: str, *, reason: str, known: KnownFact | None = None) -> None:
        """Retract the fact of a subject.

        Args:
            reason: Why; the ledger keeps it.
            known: The fact as it was read; None retracts whatever the subject has now.

        Raises:
            NoInputError: The subject has no fact any more.
            VersionConflictError: The known fact has changed since it was read.
        """
        named = self._names(subject, known)
        await self._memory.correct(retract=True, reason=reason, **named)

    def _names(self, subject: str, known: KnownFact | None) -> dict[str, Any]:
        if known is None:
            return {"subject": subject, "predicate": self._predicate}
        return {"fact": known.id, "if_version": known.version}
