"""The questions for language models, and their recorded answers, in the store of episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from slumberd.model.extraction import (
    ModelUsage,
    Questions,
    RecordedAnswer,
    RecordedSummary,
    SentRequest,
)
from slumberd.model.rule import ConsolidationRule
from slumberd.storage.engine import EpisodeEngine, Session
from slumberd.storage.episodes import recorded_answers
from slumberd.storage.episodes.windows import Reader


class AnswerStore:
    """The questions and answers in a store of episodes; implements ``AnswerLog``."""

    def __init__(
        self, engine: EpisodeEngine, reader: Callable[[ConsolidationRule], Reader]
    ) -> None:
        self._engine = engine
        self._reader = reader

    async def questions(
        self, rule: ConsolidationRule, *, after: int, limit: int, again: bool = False
    ) -> Questions:
        """Return what the language model of a rule is to be asked about a window of the log.

        Args:
            after: The number of the log row before the window.
            limit: At most this many log rows.
            again: Whether questions count whose recorded answer is ``refused`` or ``invalid``.

        Raises:
            FilterError: The rule's filter must not run, or ran over its budget.
            StoppedError: The store was stopped.
        """
        reader = self._reader(rule)
        return await self._engine.read(
            partial(reader.questions, after=after, limit=limit, again=again),
            cancelled=self._engine.halted.is_set,
        )

    async def record(
        self, answers: Sequence[RecordedAnswer], request: SentRequest | None = None
    ) -> None:
        """Record answers, and the request that brought them, in one transaction.

        Answers about deleted episodes are dropped, and so is a request with their words.
        """
        await self._engine.write(partial(recorded_answers.record, answers=answers, request=request))

    async def summaries(self, eids: Sequence[str]) -> dict[str, RecordedSummary]:
        """Return the recorded summaries of groups that begin with some episodes, by key."""
        return await self._engine.read(partial(recorded_answers.summaries, eids=eids))

    async def record_summary(self, summary: RecordedSummary) -> None:
        """Record a summary; nothing if its first episode was deleted meanwhile."""
        await self._engine.write(partial(recorded_answers.record_summary, summary=summary))

    async def spend(self, day: str, usage: ModelUsage) -> ModelUsage:
        """Add a cost to the sum of a day, as ``2026-03-09``; return the new sum."""
        return await self._engine.write(partial(_spend, day=day, usage=usage))

    async def spent(self, day: str) -> ModelUsage:
        """Return what the calls of a day cost."""
        return await self._engine.read(partial(recorded_answers.spent, day=day))

    async def remove_orphans(self) -> int:
        """Remove the answers about episodes that their host has deleted; return how many."""
        return await self._engine.write(recorded_answers.remove_orphans)


def _spend(session: Session, day: str, usage: ModelUsage) -> ModelUsage:
    recorded_answers.spend(session, day, usage)
    return recorded_answers.spent(session, day)
