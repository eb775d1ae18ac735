"""What the recorder of answers needs: a language model, and a store of questions and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from slumberd.extraction.model_prompt import Message
from slumberd.model.extraction import (
    ModelUsage,
    Questions,
    RecordedAnswer,
    RecordedSummary,
    SentRequest,
)
from slumberd.model.rule import ConsolidationRule


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request to a language model.

    Attributes:
        model: The name of the model.
        messages: The chat so far.
        schema: The JSON Schema of the answer.
        parameters: Further keys of the request.
    """

    model: str
    messages: Sequence[Message]
    schema: Mapping[str, Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The answer to one request.

    Attributes:
        text: The answer; what the model says when it refuses.
        refused: Whether the model refuses to answer.
        complete: Whether the model has ended the answer itself; else it is cut.
        too_long: Whether the request is too long for the model; then there is no answer.
        tokens_in: The tokens of the request.
        tokens_out: The tokens of the answer.
    """

    text: str
    refused: bool = False
    complete: bool = True
    too_long: bool = False
    tokens_in: int = 0
    tokens_out: int = 0


class LanguageModel(Protocol):
    """Answers requests."""

    async def complete(self, request: ChatRequest) -> ChatAnswer:
        """Return the answer to a request; ask once only.

        Raises:
            ModelUnavailableError: There is no answer now.
            ModelRequestError: The request is not accepted; it would not be accepted again.
        """
        ...


class AnswerLog(Protocol):
    """The questions about episodes, and the recorded answers."""

    async def questions(
        self, rule: ConsolidationRule, *, after: int, limit: int, again: bool = False
    ) -> Questions:
        """Return what the language model of a rule is to be asked about a window of the log.

        Args:
            rule: The rule.
            after: The number of the log row before the window.
            limit: At most this many log rows.
            again: Whether questions count whose recorded answer is ``refused`` or ``invalid``.

        Raises:
            FilterError: The rule's filter must not run, or ran over its budget.
            StoppedError: The store was stopped.
        """
        ...

    async def record(
        self, answers: Sequence[RecordedAnswer], request: SentRequest | None = None
    ) -> None:
        """Record answers, and the request that brought them, in one transaction.

        Answers about deleted episodes are dropped, and so is a request with their words.
        """
        ...

    async def summaries(self, eids: Sequence[str]) -> dict[str, RecordedSummary]:
        """Return the recorded summaries of groups that begin with some episodes, by key."""
        ...

    async def record_summary(self, summary: RecordedSummary) -> None:
        """Record a summary; nothing if its first episode was deleted meanwhile."""
        ...

    async def spend(self, day: str, usage: ModelUsage) -> ModelUsage:
        """Add a cost to the sum of a day, as ``2026-03-09``; return the new sum."""
        ...

    async def spent(self, day: str) -> ModelUsage:
        """Return what the calls of a day cost."""
        ...

    async def remove_orphans(self) -> int:
        """Remove the answers about episodes that their host has deleted; return how many."""
        ...
