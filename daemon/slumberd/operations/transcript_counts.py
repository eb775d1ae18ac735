"""Keep how hooks read the transcripts of coding agents: what they found, and what they do not know.

A file beside the databases holds the latest counts of each transcript. A daemon cannot look at the
cursors of the hooks: they belong to the people who run coding agents.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from slumberd.file_modes import create_file
from slumberd.model.errors import StoreError

FILE = "transcripts.json"
MOST_TRANSCRIPTS = 500
"""So many transcripts are kept; the one that was read longest ago goes first."""

_MOST_BYTES = 8 * 1024 * 1024
_GROWTH = 1.1
"""Counts of lines alone are written again when they grew by this factor."""


class TranscriptCounts(NamedTuple):
    """How hooks read one transcript.

    Attributes:
        user: Whose memory it was put into.
        agent: Which agent's memory that is.
        coding_agent: The coding agent that wrote it.
        agent_version: The agent's version; empty when unknown.
        transcript: Its path.
        at: When it was read last, in seconds since 1970.
        lines: How many lines were read.
        person: How many turns of a person were found.
        assistant: How many turns of the agent were found.
        unknown: How many lines hold what the hook does not know, by its kind.
    """

    user: str
    agent: str
    coding_agent: str
    agent_version: str
    session: str
    transcript: str
    at: float
    lines: int
    person: int
    assistant: int
    unknown: Mapping[str, int]

    @property
    def name(self) -> tuple[str, ...]:
        """What tells it from the others."""
        return self.user, self.agent, self.coding_agent, self.transcript


def read_transcript_counts(directory: Path) -> list[TranscriptCounts]:
    """Return the latest counts in a state directory, the oldest first; none of a damaged file."""
    try:
        with (directory / FILE).open("rb") as file:
            found = orjson.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError):
        return []
    entries = found.get("transcripts") if isinstance(found, dict) else None
    return [*filter(None, map(_counts_in, entries if isinstance(entries, list) else []))]


def _counts_in(entry: object) -> TranscriptCounts | None:
    if not isinstance(entry, dict) or entry.keys() != {*TranscriptCounts._fields}:
        return None
    counts = TranscriptCounts(**entry)
    numbers = (counts.at, counts.lines, counts.person, counts.assistant)
    is_whole = all(isinstance(number, int | float) for number in numbers)
    if not is_whole or not isinstance(counts.unknown, dict):
        return None
    return counts if all(isinstance(count, int) for count in counts.unknown.values()) else None


class TranscriptFile:
    """The file of the latest counts, which one process writes.

    Args:
        directory: The state directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fresh = (directory / FILE).with_suffix(".new")
        self._known: dict[tuple[str, ...], TranscriptCounts] = {}
        self._stamp: tuple[int, ...] = ()

    def record(self, counts: TranscriptCounts) -> None:
        """Keep the latest counts of a transcript.

        Raises:
            StoreError: The file cannot be written.
        """
        known = self._read()
        before = known.get(counts.name)
        if before is not None and not _differs(before, counts):
            return
        known.pop(counts.name, None)
        known[counts.name] = counts
        while len(known) > MOST_TRANSCRIPTS:
            del known[next(iter(known))]
        self._write(known.values())

    async def forget(self, user: str) -> None:
        """Remove the counts of a user, what cannot be read, and what a killed process was writing.

        Raises:
            StoreError: The file cannot be written.
        """
        known = self._read()
        if self._stamp_of_file() or self._fresh.exists():
            self._known = {name: one for name, one in known.items() if one.user != user}
            self._write(self._known.values())

    def _read(self) -> dict[tuple[str, ...], TranscriptCounts]:
        # Each shard of a database has an object of its own, and all write the same file.
        if self._stamp != (now := self._stamp_of_file()) or not now:
            found = read_transcript_counts(self._directory)
            self._known, self._stamp = {counts.name: counts for counts in found}, now
        return self._known

    def _stamp_of_file(self) -> tuple[int, ...]:
        try:
            found = (self._directory / FILE).stat()
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _write(self, counts: Iterable[TranscriptCounts]) -> None:
        entries: Sequence[dict[str, Any]] = [one._asdict() for one in counts]
        file = self._directory / FILE
        self._stamp = ()  # after an error the file is read again
        try:
            self._fresh.unlink(missing_ok=True)
            with os.fdopen(create_file(self._fresh, os.O_WRONLY), "wb") as writing:
                writing.write(orjson.dumps({"transcripts": entries}) + b"\n")
            self._fresh.replace(file)
        except OSError as error:
            raise StoreError(f"{str(file)!r} cannot be written: {error.strerror}") from error
        self._stamp = self._stamp_of_file()


def _differs(before: TranscriptCounts, now: TranscriptCounts) -> bool:
    """Return whether counts say something else than those before."""
    return (
        before.unknown != now.unknown
        or before.agent_version != now.agent_version
        or bool(before.person) != bool(now.person)
        or bool(before.assistant) != bool(now.assistant)
        or now.lines < before.lines
        or now.lines > before.lines * _GROWTH
    )
