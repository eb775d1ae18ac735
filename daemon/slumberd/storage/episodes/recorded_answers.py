"""Record what language models answered about episodes, and what they were paid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from slumberd.model.extraction import (
    AnswerStatus,
    Extracted,
    ModelUsage,
    RecordedAnswer,
    RecordedSummary,
)
from slumberd.storage.engine import Session


class Recorded(NamedTuple):
    """The part of a recorded answer that a firing reads.

    Attributes:
        status: Whether the answer can be read.
        triples: The triples that count.
        problem: Why the answer cannot be read; else empty.
    """

    status: AnswerStatus
    triples: list[Extracted]
    problem: str


def find(session: Session, keys: Iterable[str]) -> dict[str, Recorded]:
    """Return the recorded answers to some questions, by key; the others are left out."""
    rows = session.rows("extractions.recorded", {"keys": [*keys]})
    return {
        key: Recorded(status, [*map(_decode, orjson.loads(triples))], problem)
        for key, status, triples, problem in rows
    }


def record(session: Session, answers: Sequence[RecordedAnswer]) -> None:
    """Record answers; an answer to the same question replaces the earlier one.

    An answer about an episode that was deleted meanwhile is not recorded.
    """
    for answer in answers:
        session.do(
            "extractions.record",
            {
                "key": answer.key,
                "eid": answer.episode_id,
                "model": answer.model,
                "status": answer.status,
                "triples": orjson.dumps([*map(_encode, answer.triples)]).decode(),
                "dropped": answer.dropped,
                "problem": answer.problem,
                "answer": answer.answer,
                "attempts": answer.attempts,
                "at": answer.at,
            },
        )


def _encode(triple: Extracted) -> list[object]:
    stored = [*triple[:4], *triple.span, triple.by, triple.confidence]
    return [*stored, triple.object_words] if triple.object_words else stored


def _decode(stored: list[Any]) -> Extracted:
    subject, predicate, object_, intent, start, end, by, confidence, *words = stored
    given = (subject, predicate, object_, intent, (start, end), by, confidence, tuple(*words), ())
    return Extracted._make(given)


def summaries(session: Session, eids: Iterable[str]) -> dict[str, RecordedSummary]:
    """Return the recorded summaries of groups that begin with some episodes, by key."""
    rows = session.rows("extractions.summaries", {"ids": [*eids]})
    return {row[0]: RecordedSummary(*row) for row in rows}


def record_summary(session: Session, summary: RecordedSummary) -> None:
    """Record a summary; nothing if its first episode was deleted meanwhile."""
    session.do("extractions.record_summary", summary._asdict())


def spend(session: Session, day: str, usage: ModelUsage) -> None:
    """Add what calls of a model cost to the sum of a day."""
    session.do("extractions.spend", {"day": day, **usage._asdict()})


def spent(session: Session, day: str) -> ModelUsage:
    """Return what the calls of a day cost."""
    row = session.one("extractions.spent", (day,))
    return ModelUsage() if row is None else ModelUsage(*row)


def erase(session: Session, eids: Iterable[str]) -> int:
    """Erase the answers and summaries of erased episodes; return the number of erased rows."""
    parameters = {"ids": [*eids]}
    names = ("extractions.erase", "extractions.erase_summaries")
    return sum(session.do(name, parameters) for name in names)


def remove_orphans(session: Session) -> int:
    """Remove the answers and summaries of episodes that their host has deleted; return how many."""
    names = ("extractions.remove_orphans", "extractions.remove_orphaned_summaries")
    return sum(session.do(name) for name in names)
