"""Read episodes from JSON lines, the form that `slumberd export` writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

import orjson
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from slumberd.integrations.interchange.instants import read_instant
from slumberd.integrations.interchange.records import (
    MOST_BYTES,
    GivenScope,
    ImportedRecord,
    NumberedLine,
    numbered_lines,
)
from slumberd.model.capture.episodes import SecretFilter
from slumberd.model.episode import Episode, misspelled_keys
from slumberd.rules.validation import format_value, suggestion
from slumberd.storage.strict_json import read_object


def read_episode_lines(
    stream: BinaryIO,
    scope: GivenScope | None = None,
    *,
    most_bytes: int = MOST_BYTES,
    secrets: SecretFilter | None = None,
) -> Iterator[ImportedRecord]:
    """Yield a record for each line that is not empty.

    The last one reports compressed data that is damaged.

    Args:
        stream: The input, uncompressed.
        scope: The parts of the scope that replace those of the lines; None replaces none.
        most_bytes: A longer line is a bad line.
        secrets: Masks, keeps or refuses the secrets of an episode; None keeps them.
    """
    parts = scope._asdict() if scope else {}
    given = {part: value for part, value in parts.items() if value is not None}
    for line in numbered_lines(stream, most_bytes):
        record = _read_line(line, secrets or SecretFilter("keep"))
        yield _in_scope(record, given) if given else record


def _in_scope(record: ImportedRecord, given: dict[str, str]) -> ImportedRecord:
    episodes = tuple(episode.model_copy(update=given) for episode in record.episodes)
    return record._replace(episodes=episodes)


def _read_line(line: NumberedLine, secrets: SecretFilter) -> ImportedRecord:
    number, text, problem = line
    if problem:
        return ImportedRecord(number, problem=problem)
    try:
        episode = _episode_of(text)
        read_object(text)
        episode = secrets.episode(episode)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        return ImportedRecord(number, problem="; ".join(map(_message_of, details)))
    except ValueError as error:
        return ImportedRecord(number, problem=str(error))
    return ImportedRecord(number, (episode,), doubts=tuple(_doubts(episode)))


def _episode_of(text: bytes) -> Episode:
    """Return the episode of a line; its timestamp may have a form that other programs write.

    Raises:
        ValueError: The line is no episode.
    """
    try:
        return Episode.model_validate_json(text)
    except ValidationError as error:
        if [details["loc"] for details in error.errors()] != [("timestamp",)]:
            raise
        found = read_object(text)
        with suppress(ValueError):
            found["timestamp"] = read_instant(found["timestamp"])
        return Episode.model_validate_json(orjson.dumps(found))


def _doubts(episode: Episode) -> Iterator[str]:
    for key, meant in misspelled_keys(episode.metadata):
        yield f"metadata key {key!r} is not read; did you mean {meant!r}?"


def _message_of(details: ErrorDetails) -> str:
    place = ".".join(str(step) for step in details["loc"])
    match details["type"]:
        case "json_invalid":
            return details["msg"].replace(" at line 1 column", " at column")
        case "missing":
            return f"key {place!r} is missing"
        case "model_type":
            return "the line is not a JSON object"
        case "extra_forbidden":
            return f"unknown key {format_value(place)}; {suggestion(place, Episode.model_fields)}"
        case _:
            return f"{place}: {details['msg']}"
