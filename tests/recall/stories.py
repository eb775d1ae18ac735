"""Read the stories of GateMem: people with rights, their turns, and the questions they ask."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import orjson

DOMAINS = ("medical", "office")

_START = datetime(2026, 1, 1, tzinfo=UTC)
_TURN = timedelta(minutes=3)


class Person(NamedTuple):
    """Somebody who speaks or asks in a story."""

    id: str
    role: str
    name: str


class Relationship(NamedTuple):
    """What ties a person to a project or a patient.

    Attributes:
        kind: Such as ``project_member`` or ``assigned_clinician``.
        person: The id of the person.
        topic: The id of the project or the patient; empty when it ties two colleagues.
    """

    kind: str
    person: str
    topic: str


class Turn(NamedTuple):
    """One turn of a story.

    Attributes:
        number: Its position, from 0.
        at: When it was said.
        speaker: The id of the speaker.
        role: The role of the speaker.
        text: What was said.
    """

    number: int
    at: datetime
    speaker: str
    role: str
    text: str


class Checkpoint(NamedTuple):
    """A question to the memory.

    Attributes:
        story: The id of the story.
        said: How many turns have been said.
        asker: The id of the person who asks.
        kind: ``utility``, ``privacy`` or ``safety``.
        text: The question.
        include: Expressions, each of which the context must contain.
        leaks: Expressions, none of which the context may contain.
    """

    story: str
    said: int
    asker: str
    kind: str
    text: str
    include: tuple[str, ...]
    leaks: tuple[str, ...]


class Story(NamedTuple):
    """A story with its checkpoints, in the order of their instants."""

    id: str
    domain: str
    people: dict[str, Person]
    relationships: tuple[Relationship, ...]
    turns: tuple[Turn, ...]
    checkpoints: tuple[Checkpoint, ...]

    def topics(self) -> dict[str, str]:
        """Return the name of each project, or of each patient, by its id; the main one first."""
        patients = {p.id: p.name for p in self.people.values() if p.role == "patient"}
        projects = dict.fromkeys(tie.topic for tie in self.relationships if tie.topic)
        names = {id: id.removeprefix("project_").replace("_", " ").title() for id in projects}
        return patients or names


def read_stories(folder: Path) -> list[Story]:
    """Read both domains of a directory."""
    return [story for domain in DOMAINS for story in _read(folder, domain)]


def _read(folder: Path, domain: str) -> Iterator[Story]:
    asked: dict[str, list[dict[str, Any]]] = {}
    for row in _lines(folder / f"{domain}.checkpoints.jsonl.gz"):
        asked.setdefault(row["episode_id"], []).append(row)
    for row in _lines(folder / f"{domain}.episodes.jsonl.gz"):
        yield story_of(row, asked.get(row["episode_id"], []))


def story_of(row: dict[str, Any], asked: list[dict[str, Any]]) -> Story:
    """Return a story, from a row of each of the two files."""
    people = [
        Person(one["principal_id"], one["role"], one["display_name"])
        for one in row["entities"]["principals"]
    ]
    numbers = {turn["turn_id"]: number for number, turn in enumerate(row["turns"])}
    checkpoints = [_checkpoint(one, numbers[one["as_of_turn_id"]] + 1) for one in asked]
    return Story(
        row["episode_id"],
        row["domain"],
        {person.id: person for person in people},
        tuple(_relationship(tie) for tie in row["entities"].get("relationships", [])),
        tuple(_turns(row["turns"])),
        tuple(sorted(checkpoints, key=lambda one: one.said)),
    )


def _relationship(tie: dict[str, str]) -> Relationship:
    person = tie.get("principal_id") or tie.get("clinician_id") or tie.get("family_id") or ""
    return Relationship(tie["type"], person, tie.get("project_id") or tie.get("patient_id") or "")


def _turns(rows: list[dict[str, Any]]) -> Iterator[Turn]:
    at = _START
    for number, row in enumerate(rows):
        given = row.get("timestamp")
        at = datetime.fromisoformat(given).replace(tzinfo=UTC) if given else at + _TURN
        speaker = row["speaker"]
        yield Turn(number, at, speaker["principal_id"], speaker["role"], row["text"])


def _checkpoint(row: dict[str, Any], count: int) -> Checkpoint:
    return Checkpoint(
        row["episode_id"],
        count,
        row["asker"]["principal_id"],
        row["query_type"],
        row["query_text"],
        tuple(row["judge_spec"].get("include") or ()),
        tuple(row.get("leak_targets") or ()),
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path) as file:
        for line in file:
            yield orjson.loads(line)
