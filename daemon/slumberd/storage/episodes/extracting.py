"""Add to versions the triples that a rule extracts from their text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from slumberd.consolidation.statements import states_nothing
from slumberd.model.episode import EpisodeVersion, instant
from slumberd.model.extraction import (
    Extracted,
    Extraction,
    Failed,
    ModelSettings,
    Question,
    Turn,
    answer_key,
    turn_of,
)
from slumberd.model.scope import ScopeFilter
from slumberd.storage.engine import Row, Session
from slumberd.storage.episodes import recorded_answers
from slumberd.storage.episodes.recent import rows_before
from slumberd.storage.episodes.recorded_answers import Recorded
from slumberd.storage.episodes.rows import EXTRACTION_FAILED

FEW_TURNS = 4
"""So many earlier turns are read first; usually they have one of another speaker."""

MOST_TURNS = 50
"""So many earlier turns are searched for the last one of another speaker."""

_UNANSWERED = "answer_"
"""The beginning of a fault: a language model gave no answer that can be read."""

Decode = Callable[[int, Sequence[Any]], EpisodeVersion]
"""Decodes the columns of an episode; the number is that of its log row."""


def add_triples(
    session: Session, versions: Sequence[EpisodeVersion], extraction: Extraction, decode: Decode
) -> list[EpisodeVersion]:
    """Return versions; those that state nothing themselves get the triples of their text.

    A version that its host states a triple, ``triples`` or an intent for is returned unchanged. So
    are versions that the filter does not select, and those that cannot be read. A version whose
    answer of a language model is not recorded yet is marked as unrecorded. One whose text cannot be
    extracted gets a fault.
    """
    chosen = [
        version
        for version in versions
        if version.matched and not version.fault and states_nothing(version.metadata)
    ]
    reads = extraction.reads_previous
    before = [_find_previous(session, one, decode) if reads else None for one in chosen]
    if isinstance(extraction.extractor, ModelSettings):
        least = extraction.extractor.min_length
        done = _add_recorded(session, chosen, before, extraction.digest, least)
    else:
        found = extraction.extractor.extract([*map(turn_of, chosen)], before)
        done = [_with_triples(*pair) for pair in zip(chosen, found, strict=True)]
    by_id = {version.id: version for version in done}
    return [by_id.get(version.id, version) for version in versions]


def is_unanswered(version: EpisodeVersion) -> bool:
    """Return whether a language model gave no answer about a version that can be read."""
    return version.fault.startswith(_UNANSWERED)


def find_questions(
    session: Session, versions: Sequence[EpisodeVersion], extraction: Extraction, decode: Decode
) -> list[Question]:
    """Return the questions of versions, in their order.

    Args:
        session: Of the episodes.
        versions: As `add_triples` returns them, and unrecorded or unanswered.
        extraction: Asks a language model.
        decode: Decodes the turns before.
    """
    found: list[Question] = []
    for version in versions:
        turn, before = turn_of(version), _find_previous(session, version, decode)
        found.append(Question(answer_key(extraction.digest, turn, before), turn, before))
    return found


def _add_recorded(
    session: Session,
    versions: Sequence[EpisodeVersion],
    before: Sequence[Turn | None],
    digest: str,
    least: int,
) -> list[EpisodeVersion]:
    """Return versions with the triples of the recorded answers of a language model."""
    keys = [
        answer_key(digest, turn_of(version), turn)
        for version, turn in zip(versions, before, strict=True)
    ]
    found = recorded_answers.find(session, keys)
    return [
        _with_triples(version, [])
        if len(version.content) < least
        else _with_answer(version, found.get(key))
        for version, key in zip(versions, keys, strict=True)
    ]


def _with_answer(version: EpisodeVersion, answer: Recorded | None) -> EpisodeVersion:
    if answer is None:
        return version._replace(unrecorded=True)
    if answer.status == "ok":
        return _with_triples(version, answer.triples)
    return version._replace(fault=f"{_UNANSWERED}{answer.status}: {answer.problem}")


def _with_triples(version: EpisodeVersion, found: Sequence[Extracted] | Failed) -> EpisodeVersion:
    if isinstance(found, Failed):
        return version._replace(fault=f"{EXTRACTION_FAILED}: {found.reason}")
    triples = [*map(_document_of, found)]
    return version._replace(metadata={**version.metadata, "triples": triples})


def _document_of(triple: Extracted) -> dict[str, Any]:
    return {
        "subject": triple.subject,
        "predicate": triple.predicate,
        "object": triple.object,
        "intent": triple.intent,
        "confidence": triple.confidence,
        "extracted": {"by": triple.by, "span": [*triple.span]},
    }


def _find_previous(session: Session, version: EpisodeVersion, decode: Decode) -> Turn | None:
    """Return the last earlier turn of another speaker in a version's session."""
    scope = ScopeFilter(version.user, version.session, version.agent)
    found: list[EpisodeVersion | None] = []
    for limit in (FEW_TURNS, MOST_TURNS):
        lists = rows_before(session, scope, instant(version.at), limit=limit)
        found = [_last_of_another(rows, version, scope, decode) for rows in lists]
        if all(last or len(rows) < limit for last, rows in zip(found, lists, strict=True)):
            break
    last = max((one for one in found if one is not None), key=_place_of, default=None)
    return None if last is None else turn_of(last)


def _last_of_another(
    rows: Sequence[Row], version: EpisodeVersion, scope: ScopeFilter, decode: Decode
) -> EpisodeVersion | None:
    """Return the last of some readable episodes of another speaker before a version."""
    earlier = (decode(0, row) for row in rows)
    return max(
        (
            other
            for other in earlier
            if other.source_node != version.source_node and not other.fault and scope.holds(other)
            if _place_of(other) < _place_of(version)
        ),
        key=_place_of,
        default=None,
    )


def _place_of(version: EpisodeVersion) -> tuple[int, str]:
    return version.at, version.id
