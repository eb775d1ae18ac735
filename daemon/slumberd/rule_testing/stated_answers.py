"""Record in the stores of a test what its author says that language models answer."""

from __future__ import annotations

from collections.abc import Mapping

from slumberd.extraction.language_model import read_answer
from slumberd.language_models.budget import AnswerLog
from slumberd.model.extraction import ModelSettings, Question, RecordedAnswer
from slumberd.model.rule import ConsolidationRule

WINDOW_ROWS = 500
"""Rows of the log whose questions are answered in one transaction."""

NOTHING = '{"triples": []}'
"""The answer about an episode without an entry."""


async def record_answers(
    log: AnswerLog, rule: ConsolidationRule, answers: Mapping[str, str]
) -> None:
    """Answer every open question of a rule; nothing is sent.

    Args:
        log: Keeps the answers.
        rule: The rule. It may ask no language model.
        answers: The answers, as a language model writes them, by the id of the episode.
    """
    if rule.extract is None or rule.extract.asked is None:
        return
    _, settings = rule.extract.asked
    after = 0
    while (found := await log.questions(rule, after=after, limit=WINDOW_ROWS)).upto != after:
        after = found.upto
        await log.record([_answered(question, settings, answers) for question in found.questions])


def _answered(
    question: Question, settings: ModelSettings, answers: Mapping[str, str]
) -> RecordedAnswer:
    [found] = read_answer(answers.get(question.turn.id, NOTHING), settings, [question])
    return RecordedAnswer(
        key=question.key,
        episode_id=question.turn.id,
        model=settings.model,
        status="ok",
        triples=found.triples,
        dropped=found.dropped,
    )
