"""Find what is wrong among the records of a file, without any store.

The audit keeps hashes and places of what it has seen, and no text. Hashes have 64 bits: among ten
million records, two different texts share one with a probability of 0.000003.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import orjson

from slumberd.integrations.interchange.records import ImportedRecord, triples_in
from slumberd.model.episode import Episode, microseconds

FindingKind = Literal[
    "unreadable",
    "incomplete",
    "quarantined",
    "doubt",
    "duplicate_text",
    "duplicate_triple",
    "contradiction",
    "id_in_two_scopes",
    "text_of_two_users",
    "future",
]
"""What is wrong. Duplicates and contradictions are within one user and agent."""

_MOST_CHARACTERS = 80
_FOREVER = 2**63

Place = tuple[int, str]
"""The line of a record, and its path."""


class RecordFinding(NamedTuple):
    """Something that is wrong with one record, or with two.

    Attributes:
        kind: What is wrong.
        earlier: The earlier record that it does not agree with; None when there is only one.
        user: The user of the record; empty for one without an episode.
        agent: The agent of the record; empty for one without an episode.
        detail: The text, triple, id or instant in question, or what is wrong with the record.
    """

    kind: FindingKind
    place: Place
    earlier: Place | None
    user: str
    agent: str
    detail: str


class EpisodeRefusal(NamedTuple):
    """Why an episode is not taken as it is.

    Attributes:
        kind: Whether an import would refuse it, or every rule would quarantine it.
    """

    kind: Literal["unreadable", "quarantined"]
    reason: str


class _Held(NamedTuple):
    """A statement that was seen.

    Attributes:
        object: The hash of its object.
        start: Since when it holds, microseconds since 1970 UTC.
        end: Since when it holds no longer.
        place: Its record.
    """

    object: int
    start: int
    end: int
    place: Place

    def overlaps(self, other: _Held) -> bool:
        """Return whether both hold at some moment."""
        return self.start < other.end and other.start < self.end

    def covers(self, other: _Held) -> bool:
        """Return whether it says all that another one says."""
        return self.object == other.object and self.start <= other.start and self.end >= other.end


class Auditor:
    """Finds what is wrong, one record after the other.

    Args:
        lasting: Whether a statement holds until its record says that it ended. Otherwise the next
            statement of its subject and predicate ends it: two contradict each other only if they
            are of the same instant.
        multi_valued: The predicates that may have several objects at once.
        latest: The last instant that is not still to come; None for no such check.
        refusal: Returns why an import would refuse an episode, or why every rule would quarantine
            it; None for one that is right.
    """

    def __init__(
        self,
        *,
        lasting: bool = False,
        multi_valued: Collection[str] = (),
        latest: datetime | None = None,
        refusal: Callable[[Episode], EpisodeRefusal | None] = lambda _: None,
    ) -> None:
        self._lasting = lasting
        self._latest = latest
        self._refusal = refusal
        self._multi_valued = frozenset(multi_valued)
        self._texts: dict[int, Place] = {}
        self._text_users: dict[int, tuple[int, Place]] = {}
        self._ids: dict[int, tuple[int, Place]] = {}
        self._triples: dict[int, list[_Held]] = {}
        self._held: dict[int, list[_Held]] = {}

    def check(self, record: ImportedRecord) -> Iterator[RecordFinding]:
        """Yield what is wrong with a record, and remember the record.

        Retractions are not compared.
        """
        place = (record.line, record.path)
        if record.problem:
            yield RecordFinding("unreadable", place, None, "", "", record.problem)
        if record.incomplete:
            yield RecordFinding("incomplete", place, None, "", "", record.incomplete)
        for doubt in record.doubts:
            first = record.episodes[0] if record.episodes else None
            yield RecordFinding(
                "doubt", place, None, first.user if first else "", first.agent if first else "",
                doubt,
            )  # fmt: skip
        for episode in record.episodes:
            if refusal := self._refusal(episode):
                yield _finding(refusal.kind, episode, place, None, refusal.reason)
            latest = self._latest
            if latest is not None and _microseconds(episode.timestamp) > microseconds(latest):
                yield _finding("future", episode, place, None, episode.timestamp.isoformat())
            if episode.metadata.get("intent") != "delete":
                yield from self._check_episode(episode, place, record.until)

    def _check_episode(
        self, episode: Episode, place: Place, until: datetime | None
    ) -> Iterator[RecordFinding]:
        yield from self._check_text(episode, place)
        yield from self._check_id(episode, place)
        for triple in triples_in(episode):
            slots = [triple.get(slot) for slot in ("subject", "predicate", "object")]
            if triple.get("intent") not in ("delete", "noop") and all(map(_is_stated, slots)):
                yield from self._check_triple(episode, slots, place, until)

    def _check_text(self, episode: Episode, place: Place) -> Iterator[RecordFinding]:
        text = episode.content.strip()
        detail = text[:_MOST_CHARACTERS]
        earlier = self._texts.setdefault(_hash(episode.user, episode.agent, text), place)
        if earlier is not place:
            yield _finding("duplicate_text", episode, place, earlier, detail)
        ours = _hash(episode.user)
        theirs, earlier = self._text_users.setdefault(_hash(text), (ours, place))
        if ours != theirs:
            yield _finding("text_of_two_users", episode, place, earlier, detail)

    def _check_id(self, episode: Episode, place: Place) -> Iterator[RecordFinding]:
        ours = _hash(episode.user, episode.agent, episode.session)
        theirs, earlier = self._ids.setdefault(_hash(episode.id), (ours, place))
        if ours != theirs:
            yield _finding("id_in_two_scopes", episode, place, earlier, episode.id)

    def _check_triple(
        self, episode: Episode, slots: list[Any], place: Place, until: datetime | None
    ) -> Iterator[RecordFinding]:
        subject, predicate, stated = slots
        detail = _words(slots)[: 2 * _MOST_CHARACTERS]
        owner = (episode.user, episode.agent, subject, predicate)
        start, end = 0, _FOREVER
        if self._lasting:
            start = _microseconds(episode.timestamp)
            end = _microseconds(until) if until else _FOREVER
        held = _Held(_hash(stated), start, end, place)
        earlier = _add(self._triples, _hash(*owner, stated), held, same=True)
        if earlier is not None:
            yield _finding("duplicate_triple", episode, place, earlier, detail)
        if isinstance(predicate, str) and predicate in self._multi_valued:
            return
        at = () if self._lasting else (_microseconds(episode.timestamp),)
        earlier = _add(self._held, _hash(*owner, *at), held, same=False)
        if earlier is not None:
            yield _finding("contradiction", episode, place, earlier, detail)


def _add(seen: dict[int, list[_Held]], key: int, held: _Held, *, same: bool) -> Place | None:
    """Remember a statement; return the place of one with the same or another object beside it."""
    others = seen.setdefault(key, [])
    found = next(
        (
            other.place
            for other in others
            if (other.object == held.object) is same and other.overlaps(held)
        ),
        None,
    )
    if not any(other.covers(held) for other in others):
        others.append(held)
    return found


def _finding(
    kind: FindingKind, episode: Episode, place: Place, earlier: Place | None, detail: str
) -> RecordFinding:
    return RecordFinding(kind, place, earlier, episode.user, episode.agent, detail)


def _is_stated(value: object) -> bool:
    return value is not None and value != ""


def _words(slots: list[Any]) -> str:
    texts = (slot if isinstance(slot, str) else orjson.dumps(slot).decode() for slot in slots)
    return " ".join(texts)


def _microseconds(at: datetime) -> int:
    return microseconds(at if at.tzinfo else at.replace(tzinfo=UTC))


def _hash(*parts: object) -> int:
    encoded = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest())


def document_of(finding: RecordFinding) -> Mapping[str, Any]:
    """Return the JSON form of a finding; ``path`` is left out when it is empty."""
    line, path = finding.place
    earlier = finding.earlier or (None, "")
    return {
        "finding": finding.kind,
        "line": line,
        **({"path": path} if path else {}),
        "earlier_line": earlier[0],
        **({"earlier_path": earlier[1]} if path else {}),
        "user": finding.user,
        "agent": finding.agent,
        "detail": finding.detail,
    }
