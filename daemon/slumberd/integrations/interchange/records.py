"""The records of a file or folder: their lines, keys and scope, and remarks on them."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, BinaryIO, Literal, NamedTuple, get_args

import orjson

from slumberd.integrations.interchange.instants import (
    FILE,
    INSTANT_FROM,
    UPDATE,
    end_of,
    read_instant,
)
from slumberd.model.capture.episodes import SecretFilter
from slumberd.model.episode import Episode

DEFAULT = "default"
"""The agent, and the session, of a record that names none."""

ENDED = ":ended"
"""What the id of the episode that retracts another one adds to that of the other one."""


class ImportedRecord(NamedTuple):
    """One record of a file or folder.

    Attributes:
        line: The number of its first line, from 1.
        episodes: What it says; empty when it cannot be read.
        problem: Why it cannot be read; empty when it can.
        doubts: Probable mistakes in a record that can be read.
        path: Its file in a folder, or its place in a document, as ``results[3]``; empty for a line.
        until: When its claim ended; None when it did not, or when the format cannot tell.
        incomplete: What is not read: a file of the folder, or what a document says that it lacks.
            It has no episodes then. Empty otherwise.
    """

    line: int
    episodes: tuple[Episode, ...] = ()
    problem: str = ""
    doubts: tuple[str, ...] = ()
    path: str = ""
    until: datetime | None = None
    incomplete: str = ""


def place_of(line: int, path: str = "") -> str:
    """Return where a record is, for people."""
    return f"{path}, line {line}" if path else f"line {line}"


class GivenScope(NamedTuple):
    """The parts of the scope that the caller gives; they replace those of the records."""

    user: str | None = None
    agent: str | None = None
    session: str | None = None

    def of(self, user: str | None, agent: str | None, session: str | None) -> dict[str, str]:
        """Return the scope of a record that names some parts, by name of the part.

        Raises:
            ValueError: Neither the caller nor the record names a user.
        """
        found = self.user or user
        if not found:
            raise ValueError("the record names no user; give one with --user")
        return {
            "user": found,
            "agent": self.agent or agent or DEFAULT,
            "session": self.session or session or DEFAULT,
        }


class Defaults(NamedTuple):
    """What a reader knows besides the records.

    Attributes:
        scope: The parts of the scope that the caller gives.
        modified: When the file was modified; records without an instant get this one. None when
            that is not known.
        user_at: The place of the user in the namespace of a record, from 1; None when the
            namespace names no user.
        secrets: Masks, keeps or refuses the secrets of a record, before its id is made.
        latest: A later date in a name or heading is not the one on which a note was written; None
            for no such check.
    """

    scope: GivenScope = GivenScope()
    modified: datetime | None = None
    user_at: int | None = None
    secrets: SecretFilter = SecretFilter("keep")
    latest: datetime | None = None

    def dated(
        self, stated: datetime | None, updated: datetime | None = None
    ) -> tuple[datetime, dict[str, str]]:
        """Return the instant of a record, and the metadata that say where it comes from, if needed.

        Args:
            stated: When it was said; None when nobody says that.
            updated: When the record was updated; it counts when nothing else is known.

        Raises:
            ValueError: No instant is known, and the input has no time of its own.
        """
        if stated is not None:
            return stated, {}
        if updated is not None:
            return updated, {INSTANT_FROM: UPDATE}
        return self.instant(), {INSTANT_FROM: FILE}

    def instant(self) -> datetime:
        """Return the instant of a record that has none.

        Raises:
            ValueError: The input has no time of its own, such as a pipe.
        """
        if self.modified is None:
            raise ValueError("the record has no instant; name a file, whose time counts then")
        return self.modified


def made_id(format: str, scope: Mapping[str, str], *parts: str) -> str:  # noqa: A002 # what it is
    """Return the id of a record that has none: equal for equal parts in one scope."""
    named = orjson.dumps([scope["user"], scope["agent"], scope["session"], *parts])
    return f"{format}:{hashlib.blake2b(named, digest_size=16).hexdigest()}"


def text_in(record: Mapping[str, Any], key: str) -> str:
    """Return a text that a record must have.

    Raises:
        ValueError: The key is missing, or holds no text, or an empty one.
    """
    found = optional_text(record, key)
    if not found:
        raise ValueError(f"key {key!r} is {'empty' if key in record else 'missing'}")
    return found


def optional_text(record: Mapping[str, Any], key: str) -> str | None:
    """Return a text of a record; None when it has none.

    Raises:
        ValueError: The key holds something else.
    """
    found = record.get(key)
    if found is None or isinstance(found, str):
        return found
    raise ValueError(f"key {key!r} holds no text")


def objects_in(record: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects in an array of a record; none when the record has no such array.

    Raises:
        ValueError: The key holds something else.
    """
    found = record.get(key) or []
    if isinstance(found, list) and all(isinstance(item, dict) for item in found):
        return found
    raise ValueError(f"key {key!r} holds no array of objects")


def instant_in(record: Mapping[str, Any], *keys: str) -> datetime | None:
    """Return the instant of the first of some keys that has one; None when none has.

    Raises:
        ValueError: A value is no instant.
    """
    for key in keys:
        value = record.get(key)
        if value is not None and value != "":
            return read_key(key, value)
    return None


def read_key(
    key: str, value: object, read: Callable[[object], datetime] = read_instant
) -> datetime:
    """Return the instant that a key holds.

    Raises:
        ValueError: It holds none; the message names the key.
    """
    try:
        return read(value)
    except ValueError as error:
        raise ValueError(f"key {key!r}: {error}") from error


def end_in(record: Mapping[str, Any], *keys: str) -> datetime | None:
    """Return when a record ended, by the first of some keys that says it; None when none does.

    Raises:
        ValueError: A value is no instant.
    """
    for key in keys:
        if record.get(key):
            return read_key(key, record[key], end_of)
    return None


def retraction(asserted: Episode, at: datetime, own: str) -> Episode:
    """Return the episode that retracts another one, whose claim ended.

    Args:
        asserted: The other one.
        at: When its claim ended.
        own: The key of its metadata that keeps the record.
    """
    # What is left of the metadata lets it pass the filters that the other one passes.
    kept = without(asserted.metadata, [own, "triples", INSTANT_FROM])
    return asserted.model_copy(
        update={
            "id": f"{asserted.id}{ENDED}",
            "content": f"No longer: {asserted.content}",
            "timestamp": at,
            "metadata": {**kept, "intent": "delete", "replaces": asserted.id},
        }
    )


def with_end(
    asserted: Episode, record: Mapping[str, Any], keys: Sequence[str], own: str
) -> ImportedRecord:
    """Return the record of an episode, with its retraction if one of some keys says that it ended.

    An end that cannot be read is a doubt: the record counts as one that did not end.
    """
    try:
        until = end_in(record, *keys)
    except ValueError as error:
        return ImportedRecord(0, (asserted,), doubts=(f"{error}, so it counts as not ended",))
    if until is None:
        return ImportedRecord(0, (asserted,))
    # It was true, so it ends no sooner than it begins.
    end = asserted.timestamp if is_before(until, asserted.timestamp) else until
    return ImportedRecord(0, (asserted, retraction(asserted, end, own)), until=until)


def is_before(earlier: datetime, later: datetime) -> bool:
    """Return whether an instant lies before another; one without an offset is read as UTC."""
    return aware(earlier) < aware(later)


def aware(at: datetime) -> datetime:
    """Return an instant with an offset; one without is read as UTC."""
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def without(record: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Return what a record has besides some keys."""
    left_out = frozenset(keys)
    return {key: value for key, value in record.items() if key not in left_out}


def triples_in(episode: Episode) -> Iterator[Mapping[str, Any]]:
    """Yield the statements of an episode's metadata: its own, then those of ``triples``."""
    yield episode.metadata
    listed = episode.metadata.get("triples")
    yield from (one for one in listed if isinstance(one, dict)) if isinstance(listed, list) else ()


MOST_BYTES = 16 * 1024 * 1024
"""The longest line, and the longest record of a document."""

DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)
"""What reading compressed data raises when they end early, or are damaged."""


class NumberedLine(NamedTuple):
    """A line that is not empty.

    Attributes:
        number: Its number, from 1.
        text: Its bytes, without a byte order mark.
        problem: Why it cannot be read; empty when it can.
    """

    number: int
    text: bytes
    problem: str


def numbered_lines(
    stream: BinaryIO, most_bytes: int = MOST_BYTES, *, first: int = 1
) -> Iterator[NumberedLine]:
    """Yield the lines that are not empty; the last one reports compressed data that is damaged.

    Args:
        stream: The input, uncompressed.
        most_bytes: A longer line has a problem.
        first: The number of the first line.
    """
    number = first - 1
    try:
        for number, text in enumerate(_lines(stream, most_bytes), start=first):
            if not text.isspace():
                line = text.removeprefix(codecs.BOM_UTF8) if number == 1 else text
                yield NumberedLine(number, line, too_long(len(line), most_bytes))
    except DAMAGED as error:
        yield NumberedLine(number + 1, b"", damage(error))


def too_long(length: int, most_bytes: int) -> str:
    """Return that a record is too long; empty when it is not."""
    return f"is longer than {most_bytes // 1024**2} MiB" if length > most_bytes else ""


def damage(error: Exception) -> str:
    """Return what is wrong with compressed data."""
    return f"the compressed data ends early, or is damaged: {error}"


def _lines(stream: BinaryIO, most_bytes: int) -> Iterator[bytes]:
    """Yield lines; of a line that is too long, only its beginning, which is too long as well."""
    while text := stream.readline(most_bytes + 1):
        yield text
        while len(text) > most_bytes and not text.endswith(b"\n"):
            text = stream.readline(most_bytes + 1) or b"\n"


Remark = Literal["instant_of_file", "instant_of_update", "ended", "ended_only", "at_limit"]

SENTENCES: dict[Remark, tuple[str, str]] = {
    "instant_of_file": (
        "episode has only the time of its file",
        "episodes have only the time of their file",
    ),
    "instant_of_update": (
        "episode has only the time of an update",
        "episodes have only the time of an update",
    ),
    "ended": (
        "record has an end, at which it is retracted",
        "records have an end, at which they are retracted",
    ),
    "ended_only": ("record states only an end", "records state only an end"),
    "at_limit": (
        "input has as many records as its program returns by default, so there may be more",
        "inputs have as many records as their program returns by default, so there may be more",
    ),
}
"""What each remark says behind its count, of one and of several."""


class Remarks:
    """Counts the remarks on records."""

    def __init__(self) -> None:
        self.counts: Counter[Remark] = Counter()

    def watch(
        self, records: Iterable[ImportedRecord], limit: int | None = None
    ) -> Iterator[ImportedRecord]:
        """Yield records, and count the remarks on them.

        Args:
            limit: How many of them a program returns by default; None when it returns all.
        """
        count = 0
        is_told = False
        for record in records:
            for remark in _remarks_on(record):
                self.counts[remark] += 1
            is_told = is_told or bool(record.incomplete)
            count += not record.incomplete
            yield record
        if count == limit and not is_told:
            self.counts["at_limit"] += 1

    def by_name(self) -> dict[Remark, int]:
        """Return the counts of all remarks."""
        return {remark: self.counts[remark] for remark in get_args(Remark)}


def _remarks_on(record: ImportedRecord) -> Iterator[Remark]:
    for episode in record.episodes:
        source = episode.metadata.get(INSTANT_FROM)
        if source == FILE:
            yield "instant_of_file"
        elif source == UPDATE:
            yield "instant_of_update"
    if record.until is not None:
        yield "ended" if len(record.episodes) > 1 else "ended_only"
