"""Record what language models answered about episodes, and what they were paid."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from slumberd.model.extraction import (
    AnswerStatus,
    Extracted,
    ModelUsage,
    RecordedAnswer,
    RecordedSummary,
    SentRequest,
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


def record(
    session: Session, answers: Sequence[RecordedAnswer], request: SentRequest | None = None
) -> None:
    """Record answers, and the request that brought them.

    An answer to the same question replaces the earlier one. An answer about an episode that was
    deleted meanwhile is not recorded, nor is a request that holds its words.

    Args:
        session: In a transaction.
        request: The request; None when nobody was asked.
    """
    if request is not None:
        _record_request(session, answers, request)
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


def _record_request(
    session: Session, answers: Sequence[RecordedAnswer], request: SentRequest
) -> None:
    keys = {answer.episode_id: answer.key for answer in answers}
    if session.rows("extractions.lost_turns", {"ids": [*keys, *request.shown]}):
        return
    id = hashlib.sha256(request.text.encode()).hexdigest()
    for eid in dict.fromkeys((*keys, *request.shown, *request.known)):
        key = keys.get(eid, "")
        if key:
            session.do("extractions.release_key", {"eid": eid, "key": key})
        row = {"eid": eid, "id": id, "scope_key": request.scope_key, "key": key}
        session.do("extractions.record_request", {**row, "request": request.text if key else ""})


def _encode(triple: Extracted) -> list[object]:
    stored = [*triple[:4], *triple.span, triple.by, triple.confidence]
    if triple.replaces:
        return [*stored, triple.object_words, triple.replaces]
    return [*stored, triple.object_words] if triple.object_words else stored


def _decode(stored: list[Any]) -> Extracted:
    subject, predicate, object_, intent, start, end, by, confidence, *more = stored
    words, replaces = map(tuple, (*more, (), ())[:2])
    given = (subject, predicate, object_, intent, (start, end), by, confidence, words, replaces)
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
    """Erase the answers and summaries of deleted episodes, and the texts of their requests.

    Returns:
        The number of the answers and summaries.
    """
    parameters = {"ids": [*eids]}
    session.do("extractions.blank_requests", parameters)
    names = ("extractions.erase", "extractions.erase_summaries")
    return sum(session.do(name, parameters) for name in names)


def erase_traces(session: Session, eids: Iterable[str]) -> int:
    """Erase what requests tell of episodes that are erased for good.

    An answer that cannot be read may repeat what its request showed, so its text goes, too. Other
    answers hold words of their own episode, and names of the turn before, as their facts do.

    Returns:
        The number of erased rows.
    """
    parameters = {"ids": [*eids]}
    session.do("extractions.blank_answers", parameters)
    session.do("extractions.blank_requests", parameters)
    return session.do("extractions.drop_sources", parameters)


def remove_orphans(session: Session) -> int:
    """Remove the answers and summaries of episodes that their host has deleted; return how many."""
    names = ("extractions.remove_orphans", "extractions.remove_orphaned_summaries")
    removed = sum(session.do(name) for name in names)
    session.do("extractions.remove_orphaned_requests")
    return removed
