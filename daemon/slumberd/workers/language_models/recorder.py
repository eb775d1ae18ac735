"""Ask a language model about turns, check its answers, and record them.

A turn is asked about at most twice: with other turns of its session and then alone, or alone and
then with the problem of the first answer. After that its answer is recorded as invalid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, Protocol

import orjson

from slumberd.clock import Clock
from slumberd.consolidation.extraction.language_model import (
    Message,
    Supported,
    answer_schema,
    messages_for,
    read_answer,
)
from slumberd.consolidation.stages.summary import SUMMARY_SCHEMA, read_summary, summary_messages
from slumberd.model.episode import microseconds
from slumberd.model.errors import InvalidAnswerError
from slumberd.model.extraction import (
    AnswerStatus,
    Extracted,
    ModelSettings,
    ModelSummariser,
    Question,
    RecordedAnswer,
    RecordedSummary,
    SentRequest,
    ShownFact,
    SummaryQuestion,
    Turn,
)
from slumberd.model.scope import Scope
from slumberd.workers.language_models.budget import AnswerLog, Spending

CUT = "it was cut before its end; raise 'max_tokens' in 'parameters'"
"""The problem of an answer that the model has not ended."""

TOO_LONG = "the text is too long for the model"
"""The problem of a request that exceeds the context of the model."""

REFUSED = "the model refuses to answer"
"""The problem of an answer that is a refusal."""

MOST_ATTEMPTS = 2
"""How often a model is asked for one summary."""

MAX_ANSWER = 20_000
"""So many characters of an answer that cannot be read are recorded."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request to a language model.

    Attributes:
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


@dataclass(slots=True)
class Recording:
    """What was asked and recorded.

    Attributes:
        calls: The requests.
        statuses: How many turns have an answer of each status.
        triples: How many triples count.
        dropped: How many triples do not count.
        tokens_in: The tokens of the requests.
        tokens_out: The tokens of the answers.
    """

    calls: int = 0
    statuses: Counter[AnswerStatus] = field(default_factory=Counter)
    triples: int = 0
    dropped: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def add_all(self, other: Recording) -> None:
        """Add the counts of another recording."""
        self.calls += other.calls
        self.statuses += other.statuses
        self.triples += other.triples
        self.dropped += other.dropped
        self.tokens_in += other.tokens_in
        self.tokens_out += other.tokens_out

    def add(self, answers: Sequence[RecordedAnswer]) -> None:
        """Add recorded answers."""
        for answer in answers:
            self.statuses[answer.status] += 1
            self.triples += len(answer.triples)
            self.dropped += answer.dropped


class _Failed(NamedTuple):
    """An answer that does not count.

    Attributes:
        status: Whether it is refused or invalid.
        problem: Why.
        text: The answer.
    """

    status: AnswerStatus
    problem: str
    text: str


class _Call(NamedTuple):
    """What one request is about.

    Attributes:
        settings: What is asked.
        group: The turns, of one user, agent and session.
        facts: The facts that are shown.
        stops: How often the recorder was stopped before.
        found: Called with each turn that has an answer, and its triples.
    """

    settings: ModelSettings
    group: Sequence[Question]
    facts: Sequence[ShownFact]
    stops: int
    found: Callable[[Turn, Sequence[Extracted]], None]


FindFacts = Callable[[Sequence[Question]], Awaitable[Sequence[ShownFact]]]
"""Finds the current facts of the user and agent of some turns that the turns may take back."""


class AnswerRecorder:
    """Asks a language model, and records what it answers.

    Attributes:
        stops: How often `stop` was called.

    Args:
        spending: Counts the calls.
    """

    def __init__(
        self, answers: AnswerLog, model: LanguageModel, spending: Spending, clock: Clock
    ) -> None:
        self._answers = answers
        self._model = model
        self._spending = spending
        self._clock = clock
        self.stops = 0

    def stop(self) -> None:
        """End what runs: its texts may have been erased meanwhile.

        No further call follows, and an answer that comes afterwards is not recorded.
        """
        self.stops += 1

    async def record(
        self,
        settings: ModelSettings,
        questions: Sequence[Question],
        recording: Recording,
        find_facts: FindFacts,
        found: Callable[[Turn, Sequence[Extracted]], None] = lambda *_: None,
    ) -> None:
        """Ask about some turns, and record the answers, one request after the other.

        Args:
            settings: What is asked.
            questions: In any order; those of one session in the order of the session.
            recording: Counts what was done, up to an error, too.
            find_facts: Finds the facts that a request shows.
            found: Called with each turn that has an answer, and its triples.

        Raises:
            BudgetSpentError: The budget of the day is spent; earlier answers are recorded.
            ModelUnavailableError: There is no answer now; earlier answers are recorded.
            ModelRequestError: The request is not accepted; earlier answers are recorded.
        """
        stops = self.stops
        for group in _groups(questions, settings.turns_per_call):
            if self.stops != stops:
                return
            facts = await find_facts(group) if settings.may_retract else []
            call = _Call(settings, group, facts, stops, found)
            result, sent = await self._ask(call, recording)
            if not isinstance(result, _Failed):
                await self._keep(call, self._read(call, result, 1), sent, recording)
            elif len(group) > 1:
                for question in group:
                    await self._repair(call._replace(group=[question]), None, recording)
            elif result.status == "refused":
                await self._keep(call, [self._failed(call, result, 1)], sent, recording)
            else:
                await self._repair(call, result, recording)

    async def _repair(self, call: _Call, failed: _Failed | None, recording: Recording) -> None:
        """Ask a second time about a turn, alone, and record whatever comes."""
        if self.stops != call.stops:
            return
        result, sent = await self._ask(call, recording, failed)
        if isinstance(result, _Failed):
            await self._keep(call, [self._failed(call, result, 2)], sent, recording)
        else:
            await self._keep(call, self._read(call, result, 2), sent, recording)

    async def summarise(
        self, model: ModelSummariser, question: SummaryQuestion, recording: Recording
    ) -> None:
        """Let a model write a summary, and record it; a summary that exists is not written again.

        Args:
            model: What is asked.
            question: The turns.
            recording: Counts what was done, up to an error, too.

        Raises:
            BudgetSpentError: The budget of the day is spent.
            ModelUnavailableError: There is no answer now.
            ModelRequestError: The request is not accepted.
        """
        first = question.turns[0].id
        if question.key in await self._answers.summaries([first]):
            return
        text, failed, attempts = "", _Failed("invalid", "", ""), 0
        while not text and failed.status == "invalid" and attempts < MOST_ATTEMPTS:
            attempts += 1
            answer = await self._complete(
                ChatRequest(
                    model.model,
                    summary_messages(model, question, failed.problem, failed.text),
                    SUMMARY_SCHEMA,
                    model.parameters,
                ),
                recording,
            )
            text, failed = _check_summary(answer, question.max_tokens)
        status: AnswerStatus = "ok" if text else failed.status
        await self._answers.record_summary(
            RecordedSummary(
                key=question.key,
                episode_id=first,
                model=model.model,
                status=status,
                text=text,
                problem=failed.problem,
                attempts=attempts,
                at=microseconds(self._clock.now()),
            )
        )
        recording.statuses[status] += 1

    async def _ask(
        self, call: _Call, recording: Recording, failed: _Failed | None = None
    ) -> tuple[list[Supported] | _Failed, ChatRequest]:
        problem, text = ("", "") if failed is None else (failed.problem, failed.text)
        settings, group, facts, *_ = call
        request = ChatRequest(
            settings.model,
            messages_for(settings, group, facts, problem=problem, answer=text),
            answer_schema(settings, len(group), len(facts)),
            settings.parameters,
        )
        return _check(await self._complete(request, recording), call), request

    async def _complete(self, request: ChatRequest, recording: Recording) -> ChatAnswer:
        """Make one call within the budget, and count it."""
        await self._spending.begin_call()
        recording.calls += 1
        answer = await self._model.complete(request)
        recording.tokens_in += answer.tokens_in
        recording.tokens_out += answer.tokens_out
        await self._spending.end_call(answer.tokens_in, answer.tokens_out)
        return answer

    def _read(self, call: _Call, found: Sequence[Supported], attempts: int) -> list[RecordedAnswer]:
        at = microseconds(self._clock.now())
        return [
            RecordedAnswer(
                key=question.key,
                episode_id=question.turn.id,
                model=call.settings.model,
                status="ok",
                triples=supported.triples,
                dropped=supported.dropped,
                attempts=attempts,
                at=at,
            )
            for question, supported in zip(call.group, found, strict=True)
        ]

    def _failed(self, call: _Call, failed: _Failed, attempts: int) -> RecordedAnswer:
        [question] = call.group
        return RecordedAnswer(
            key=question.key,
            episode_id=question.turn.id,
            model=call.settings.model,
            status=failed.status,
            problem=failed.problem,
            answer=failed.text[:MAX_ANSWER],
            attempts=attempts,
            at=microseconds(self._clock.now()),
        )

    async def _keep(
        self,
        call: _Call,
        answers: Sequence[RecordedAnswer],
        request: ChatRequest,
        recording: Recording,
    ) -> None:
        """Record answers, unless something was erased meanwhile: they may hold words of it."""
        if self.stops == call.stops:
            await self._answers.record(answers, _sent(call, request))
            recording.add(answers)
            for question, answer in zip(call.group, answers, strict=True):
                call.found(question.turn, answer.triples)


def _sent(call: _Call, request: ChatRequest) -> SentRequest:
    turn = call.group[0].turn
    return SentRequest(
        orjson.dumps(asdict(request)).decode(),
        Scope(turn.user, turn.session, turn.agent).key,
        tuple(one.before.id for one in call.group if one.before is not None),
        tuple(source for fact in call.facts for source in fact.sources),
    )


def _check(answer: ChatAnswer, call: _Call) -> list[Supported] | _Failed:
    """Return what counts of an answer, or why it cannot be read."""
    if problem := _problem_of(answer):
        return problem
    try:
        return read_answer(answer.text, call.settings, call.group, call.facts)
    except InvalidAnswerError as error:
        return _Failed("invalid", error.problem, answer.text)


def _problem_of(answer: ChatAnswer) -> _Failed | None:
    """Return why an answer of any form does not count; None when its form decides."""
    if answer.refused:
        return _Failed("refused", REFUSED, answer.text)
    if answer.too_long:
        return _Failed("invalid", TOO_LONG, "")
    return None if answer.complete else _Failed("invalid", CUT, answer.text)


def _check_summary(answer: ChatAnswer, max_tokens: int) -> tuple[str, _Failed]:
    """Return the summary in an answer, or an empty text and why there is none."""
    if problem := _problem_of(answer):
        return "", problem
    try:
        return read_summary(answer.text, max_tokens), _Failed("invalid", "", "")
    except InvalidAnswerError as error:
        return "", _Failed("invalid", error.problem, answer.text)


def _groups(questions: Sequence[Question], most: int) -> list[list[Question]]:
    """Return the questions in groups of one user, agent and session, in time order."""
    found: list[list[Question]] = []
    for _, group in groupby(sorted(questions, key=_session_of), key=_session_of):
        whole = [*group]
        found += [whole[first : first + most] for first in range(0, len(whole), most)]
    return sorted(found, key=lambda some: (some[0].turn.at, some[0].turn.id))


def _session_of(question: Question) -> tuple[str, str, str]:
    turn = question.turn
    return turn.user, turn.agent, turn.session
