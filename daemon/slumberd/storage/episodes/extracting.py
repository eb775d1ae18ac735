"""Add to versions the triples that a rule extracts from their text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from slumberd.consolidation.statements import states_nothing
from slumberd.model.episode import EpisodeVersion, instant
from slumberd.model.extraction import Extracted, Extraction, Failed, Turn, turn_of
from slumberd.model.scope import ScopeFilter
from slumberd.storage.engine import Row, Session
from slumberd.storage.episodes.recent import rows_before
from slumberd.storage.episodes.rows import EXTRACTION_FAILED

FEW_TURNS = 4
"""So many earlier turns are read first; usually they have one of another speaker."""

MOST_TURNS = 50
"""So many earlier turns are searched for the last one of another speaker."""

Decode = Callable[[int, Sequence[Any]], EpisodeVersion]
"""Decodes the columns of an episode; the number is that of its log row."""


def add_triples(
    session: Session, versions: Sequence[EpisodeVersion], extraction: Extraction, decode: Decode
) -> list[EpisodeVersion]:
    """Return versions; those that state nothing themselves get the triples of their text.

    A version that its host states a triple, ``triples`` or an intent for is returned unchanged. So
    are versions that the filter does not select, and those that cannot be read. A version whose
    text cannot be extracted gets a fault.
    """
    chosen = [
        version
        for version in versions
        if version.matched and not version.fault and states_nothing(version.metadata)
    ]
    reads = extraction.reads_previous
    before = [_find_previous(session, one, decode) if reads else None for one in chosen]
    found = extraction.extractor.extract([*map(turn_of, chosen)], before)
    by_id = {version.id: triples for version, triples in zip(chosen, found, strict=True)}
    return [
        _with_triples(version, by_id[version.id]) if version.id in by_id else version
        for version in versions
    ]


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
