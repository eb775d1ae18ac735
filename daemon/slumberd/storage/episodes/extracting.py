"""Add to versions the triples that a rule extracts from their text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from slumberd.consolidation.claim import statements_of, states_nothing
from slumberd.consolidation.extraction.turns import arrange, name_of_node, name_of_speaker
from slumberd.model.episode import EpisodeVersion, instant
from slumberd.model.extraction import (
    Extracted,
    Extraction,
    Failed,
    ModelSettings,
    Question,
    Several,
    ShownFact,
    Stated,
    Turn,
    answer_key,
    answer_key_by_node,
    turn_of,
)
from slumberd.model.scope import ScopeFilter
from slumberd.storage.engine import Session
from slumberd.storage.episodes import recorded_answers
from slumberd.storage.episodes.recent import Row, RowsBefore
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

_Spoken = Callable[[EpisodeVersion], str | None]
"""Returns who spoke a version; None when nobody is known to have spoken."""


def _speaker_of(version: EpisodeVersion) -> str | None:
    return version.speaker


def _node_of(version: EpisodeVersion) -> str:
    return version.source_node


class Conversation:
    """Where the turns of the versions lie, and who speaks them.

    Args:
        session: Of the episodes, in one snapshot.
        decode: Decodes the turns before.
        person: The speakers whose words are those of the user.
    """

    def __init__(self, session: Session, decode: Decode, person: Collection[str]) -> None:
        self.session = session
        self._decode = decode
        self._person = person
        self._scopes: dict[ScopeFilter, RowsBefore] = {}
        self._decoded: dict[str, tuple[Row, EpisodeVersion]] = {}

    def turn(self, version: EpisodeVersion) -> Turn:
        """Return what an extractor reads of a version."""
        return turn_of(version, self._person)

    def expect(self, versions: Iterable[EpisodeVersion]) -> None:
        """Read the turns before some versions together, as soon as one is asked for.

        Args:
            versions: All versions whose turns before will be asked for.
        """
        by_scope: defaultdict[ScopeFilter, list[int]] = defaultdict(list)
        for version in versions:
            by_scope[_scope_of(version)].append(version.at)
        for scope, ats in by_scope.items():
            self._scopes[scope] = RowsBefore(self.session, scope, instant(max(ats)), len(ats))

    def before(self, version: EpisodeVersion, spoken: _Spoken = _speaker_of) -> Turn | None:
        """Return the last earlier turn of another speaker in a version's session.

        Args:
            spoken: Returns who spoke a version.
        """
        other = self._find_previous(version, spoken)
        return None if other is None else self.turn(other)

    def with_own_last(self, version: EpisodeVersion) -> Turn:
        """Return what an extractor reads of a version, with the last turn of its speaker."""
        last = self._find_previous(version, _speaker_of, own=True)
        return self.turn(version)._replace(own_last=None if last is None else self.turn(last))

    def _find_previous(
        self, version: EpisodeVersion, spoken: _Spoken, *, own: bool = False
    ) -> EpisodeVersion | None:
        """Return the last earlier version of another speaker, or the same one, in the session."""
        if spoken(version) is None:
            return None
        scope, at = _scope_of(version), instant(version.at)
        found: list[EpisodeVersion | None] = []
        for limit in (FEW_TURNS, MOST_TURNS):
            lists = self._scopes[scope].upto(at, limit=limit)
            found = [
                _last_of(map(self._version_of, rows), version, scope, spoken, own=own)
                for rows in lists
            ]
            if all(last or len(rows) < limit for last, rows in zip(found, lists, strict=True)):
                break
        return max((one for one in found if one is not None), key=_place_of, default=None)

    def _version_of(self, row: Row) -> EpisodeVersion:
        """Decode a row, once for all versions after it."""
        known = self._decoded.get(row[0])
        if known is None or known[0] != row:
            known = self._decoded[row[0]] = row, self._decode(0, row)
        return known[1]


def _scope_of(version: EpisodeVersion) -> ScopeFilter:
    return ScopeFilter(version.user, version.session, version.agent)


@dataclass(frozen=True, slots=True)
class _Unread:
    """Why an extraction has not read a version.

    Attributes:
        fault: Why the version goes into quarantine; empty when it waits for a language model.
    """

    fault: str = ""


_Outcome = Sequence[Extracted] | _Unread
"""What an extraction finds in a version."""


def add_triples(
    conversation: Conversation, versions: Sequence[EpisodeVersion], extraction: Extraction
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
    conversation.expect(chosen)
    reads = extraction.reads_previous
    read = [_Read(one, conversation.before(one) if reads else None) for one in chosen]
    outcomes = _extract(conversation, read, extraction)
    by_id = {one.id: _with_outcome(one, out) for one, out in zip(chosen, outcomes, strict=True)}
    return [by_id.get(version.id, version) for version in versions]


class _Read(NamedTuple):
    """A version, and the turn before it."""

    version: EpisodeVersion
    before: Turn | None


def _extract(
    conversation: Conversation, read: Sequence[_Read], extraction: Extraction
) -> list[_Outcome]:
    """Return what an extraction finds in versions, in their order."""
    match extraction.extractor:
        case Several() as several if several.unites:
            each = [_extract(conversation, read, part) for part in several.parts]
            return [*map(_unite, zip(*each, strict=True))]
        case Several() as several:
            return _extract_first(conversation, read, several.parts)
        case ModelSettings() as settings:
            return _find_recorded(conversation, read, extraction, settings)
        case extractor:
            turn_of = conversation.with_own_last if extraction.reads_own else conversation.turn
            turns = [turn_of(one.version) for one in read]
            found = extractor.extract(turns, [one.before for one in read])
            return [*map(_outcome_of, found)]


def _outcome_of(found: Sequence[Extracted] | Failed) -> _Outcome:
    return _Unread(f"{EXTRACTION_FAILED}: {found.reason}") if isinstance(found, Failed) else found


def _unite(outcomes: Sequence[_Outcome]) -> _Outcome:
    """Return the triples of all extractions of a version: whole, or nothing of it."""
    unread = [one for one in outcomes if isinstance(one, _Unread)]
    if unread:
        return next((one for one in unread if one.fault), unread[0])
    return arrange(triple for one in outcomes if not isinstance(one, _Unread) for triple in one)


def _extract_first(
    conversation: Conversation, read: Sequence[_Read], parts: Iterable[Extraction]
) -> list[_Outcome]:
    """Return what the first extraction finds that finds a triple, for each version.

    An extraction that has not read a version decides about it, too: later ones wait for it.
    """
    found: list[_Outcome] = [()] * len(read)
    for part in parts:
        left = [n for n, one in enumerate(found) if not isinstance(one, _Unread) and not one]
        outcomes = _extract(conversation, [read[n] for n in left], part)
        for n, outcome in zip(left, outcomes, strict=True):
            found[n] = outcome
    return found


def is_unanswered(version: EpisodeVersion) -> bool:
    """Return whether a language model gave no answer about a version that can be read."""
    return version.fault.startswith(_UNANSWERED)


def find_questions(
    conversation: Conversation, versions: Sequence[EpisodeVersion], extraction: Extraction
) -> list[Question]:
    """Return the questions of versions, in their order.

    Args:
        conversation: Has the turns before.
        versions: As `add_triples` returns them, and unrecorded or unanswered.
        extraction: Asks a language model.
    """
    if extraction.asked is None:
        return []
    digest, _ = extraction.asked
    conversation.expect(versions)
    found: list[Question] = []
    for version in versions:
        turn, before = conversation.turn(version), conversation.before(version)
        found.append(Question(answer_key(digest, turn, before), turn, before))
    return found


def find_stated(versions: Iterable[EpisodeVersion]) -> list[Stated]:
    """Return what readable versions assert that the filter selects, in their order.

    Args:
        versions: As `add_triples` returns them.
    """
    return [
        Stated(one.user, one.agent, ShownFact(name, *said, one.at, (one.id,)))
        for one in versions
        if one.matched and not one.fault and not one.unrecorded
        for name, metadata in _parts_of(one)
        if (said := _asserted(metadata)) is not None
    ]


def _parts_of(version: EpisodeVersion) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the names of the statements of a version, and their metadata."""
    for part in statements_of(version):
        yield f"{version.id}#{part.part}" if part.part else version.id, part.metadata


def _asserted(metadata: Mapping[str, Any]) -> tuple[str, str, Any] | None:
    """Return subject, predicate and object of an assertion; None for another statement."""
    subject, predicate = metadata.get("subject"), metadata.get("predicate")
    asserts = metadata.get("intent") in (None, "add", "update", "set")
    if asserts and isinstance(subject, str) and isinstance(predicate, str):
        return subject, predicate, metadata.get("object")
    return None


def _find_recorded(
    conversation: Conversation,
    read: Sequence[_Read],
    extraction: Extraction,
    settings: ModelSettings,
) -> list[_Outcome]:
    """Return the triples of the recorded answers of a language model."""
    asked = [one for one in read if len(one.version.content) >= settings.min_length]
    keys = {
        one.version.id: answer_key(extraction.digest, conversation.turn(one.version), one.before)
        for one in asked
    }
    found = recorded_answers.find(conversation.session, keys.values())
    answers = {id: found[key] for id, key in keys.items() if key in found}
    missing = [one.version for one in asked if one.version.id not in answers]
    older = extraction.digest_of_0_2_0
    answers |= _find_answers_by_node(conversation, missing, older, settings)
    return [
        _answered(answers.get(one.version.id)) if one.version.id in keys else () for one in read
    ]


def _find_answers_by_node(
    conversation: Conversation,
    versions: Sequence[EpisodeVersion],
    digest: str,
    settings: ModelSettings,
) -> dict[str, Recorded]:
    """Return the answers that slumberd 0.2.0 recorded about versions, by the id of the episode.

    There the ``source_node`` spoke. A subject with its name gets the name of who speaks now.
    """
    keys: dict[str, str] = {}
    names: dict[str, dict[str, str]] = {}
    for version in versions:
        turn, before = conversation.turn(version), conversation.before(version, _node_of)
        keys[version.id] = answer_key_by_node(digest, turn, before)
        names[version.id] = {
            name_of_node(each, settings.speakers): name_of_speaker(each, settings.speakers)
            for each in (before, turn)
            if each is not None
        }
    found = recorded_answers.find(conversation.session, keys.values()) if keys else {}
    return {
        id: found[key]._replace(triples=_renamed(found[key].triples, names[id]))
        for id, key in keys.items()
        if key in found
    }


def _renamed(triples: Iterable[Extracted], names: Mapping[str, str]) -> list[Extracted]:
    """Return triples with other names of their subjects, without those of nobody known."""
    named = (one._replace(subject=names.get(one.subject, one.subject)) for one in triples)
    return [one for one in named if one.subject]


def _answered(answer: Recorded | None) -> _Outcome:
    if answer is None:
        return _Unread()
    if answer.status == "ok":
        return answer.triples
    return _Unread(f"{_UNANSWERED}{answer.status}: {answer.problem}")


def _with_outcome(version: EpisodeVersion, found: _Outcome) -> EpisodeVersion:
    if isinstance(found, _Unread):
        return version._replace(fault=found.fault, unrecorded=not found.fault)
    triples = [*map(_document_of, found)]
    return version._replace(metadata={**version.metadata, "triples": triples})


def _document_of(triple: Extracted) -> dict[str, Any]:
    document: dict[str, Any] = {
        "subject": triple.subject,
        "predicate": triple.predicate,
        "object": triple.object,
        "intent": triple.intent,
        "confidence": triple.confidence,
        "extracted": {"by": triple.by, "span": [*triple.span]},
    }
    if triple.object_words:
        document["object_words"] = [*triple.object_words]
    if triple.replaces:
        document["replaces"] = [*triple.replaces]
    return document


def _last_of(
    earlier: Iterable[EpisodeVersion],
    version: EpisodeVersion,
    scope: ScopeFilter,
    spoken: _Spoken,
    *,
    own: bool,
) -> EpisodeVersion | None:
    """Return the last readable episode of another known speaker, or of the same one, before."""
    return max(
        (
            other
            for other in earlier
            if not other.fault and not other.withdrawn and scope.holds(other)
            if _place_of(other) < _place_of(version)
            if spoken(other) is not None and (spoken(other) == spoken(version)) is own
        ),
        key=_place_of,
        default=None,
    )


def _place_of(version: EpisodeVersion) -> tuple[int, str]:
    return version.at, version.id
