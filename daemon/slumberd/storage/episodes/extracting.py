"""Add to versions the triples that a rule extracts from their text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from slumberd.consolidation.statements import states_nothing
from slumberd.extraction.turns import name_of_node, name_of_speaker
from slumberd.model.episode import EpisodeVersion, instant
from slumberd.model.extraction import (
    Extracted,
    Extraction,
    Failed,
    ModelSettings,
    Question,
    Turn,
    answer_key,
    answer_key_by_node,
    turn_of,
)
from slumberd.model.scope import ScopeFilter
from slumberd.storage.engine import Session
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

_Spoken = Callable[[EpisodeVersion], str | None]
"""Returns who spoke a version; None when nobody is known to have spoken."""


def _speaker_of(version: EpisodeVersion) -> str | None:
    return version.speaker


def _node_of(version: EpisodeVersion) -> str:
    return version.source_node


class Conversation(NamedTuple):
    """Where the turns of the versions lie, and who speaks them.

    Attributes:
        session: Of the episodes.
        decode: Decodes the turns before.
        person: The speakers whose words are those of the user.
    """

    session: Session
    decode: Decode
    person: Collection[str]

    def turn(self, version: EpisodeVersion) -> Turn:
        """Return what an extractor reads of a version."""
        return turn_of(version, self.person)

    def before(self, version: EpisodeVersion, spoken: _Spoken = _speaker_of) -> Turn | None:
        """Return the last earlier turn of another speaker in a version's session.

        Args:
            version: The version.
            spoken: Returns who spoke a version.
        """
        other = _find_previous(self, version, spoken)
        return None if other is None else self.turn(other)

    def with_own_last(self, version: EpisodeVersion) -> Turn:
        """Return what an extractor reads of a version, with the last turn of its speaker."""
        last = _find_previous(self, version, _speaker_of, own=True)
        return self.turn(version)._replace(own_last=None if last is None else self.turn(last))


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
    reads = extraction.reads_previous
    before = [conversation.before(one) if reads else None for one in chosen]
    if isinstance(extraction.extractor, ModelSettings):
        done = _add_recorded(conversation, chosen, before, extraction.digest, extraction.extractor)
    else:
        turn = conversation.with_own_last if extraction.reads_own else conversation.turn
        found = extraction.extractor.extract([*map(turn, chosen)], before)
        done = [_with_triples(*pair) for pair in zip(chosen, found, strict=True)]
    by_id = {version.id: version for version in done}
    return [by_id.get(version.id, version) for version in versions]


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
    found: list[Question] = []
    for version in versions:
        turn, before = conversation.turn(version), conversation.before(version)
        found.append(Question(answer_key(extraction.digest, turn, before), turn, before))
    return found


def _add_recorded(
    conversation: Conversation,
    versions: Sequence[EpisodeVersion],
    before: Sequence[Turn | None],
    digest: str,
    settings: ModelSettings,
) -> list[EpisodeVersion]:
    """Return versions with the triples of the recorded answers of a language model."""
    asked = [version for version in versions if len(version.content) >= settings.min_length]
    by_id = dict(zip((version.id for version in versions), before, strict=True))
    keys = {
        version.id: answer_key(digest, conversation.turn(version), by_id[version.id])
        for version in asked
    }
    found = recorded_answers.find(conversation.session, keys.values())
    answers = {id: found[key] for id, key in keys.items() if key in found}
    missing = [version for version in asked if version.id not in answers]
    answers |= _find_answers_by_node(conversation, missing, digest, settings)
    return [
        _with_answer(version, answers.get(version.id))
        if version.id in keys
        else _with_triples(version, [])
        for version in versions
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


def _find_previous(
    conversation: Conversation, version: EpisodeVersion, spoken: _Spoken, *, own: bool = False
) -> EpisodeVersion | None:
    """Return the last earlier version of another speaker, or of the same one, in the session."""
    if spoken(version) is None:
        return None
    scope = ScopeFilter(version.user, version.session, version.agent)
    found: list[EpisodeVersion | None] = []
    for limit in (FEW_TURNS, MOST_TURNS):
        lists = rows_before(conversation.session, scope, instant(version.at), limit=limit)
        found = [
            _last_of(map(partial(conversation.decode, 0), rows), version, scope, spoken, own=own)
            for rows in lists
        ]
        if all(last or len(rows) < limit for last, rows in zip(found, lists, strict=True)):
            break
    return max((one for one in found if one is not None), key=_place_of, default=None)


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
