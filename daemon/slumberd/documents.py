"""Read YAML strictly, with the line and column of everything in it. Knows no models.

Stricter than YAML where YAML surprises: no anchors, aliases, tags or merge keys, no key twice, and
no plain word that two YAML readers would take for different things.
"""

from __future__ import annotations

import os
import reprlib
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias

import yaml

from slumberd.errors import ConfigurationError, Mistake
from slumberd.scalars import Scalar, plain, trap

MOST_BYTES = 256 * 1024
MOST_DEPTH = 20
MOST_EVENTS = 10_000

Trail = tuple[str | int, ...]
"""The keys and indexes that lead to a value, from the root."""

Value: TypeAlias = "Scalar | list[Value] | dict[str, Value]"
"""What YAML can say."""


class Place(NamedTuple):
    """A line and a column, both from 1."""

    line: int
    column: int


_NOWHERE = Place(0, 0)


@dataclass(frozen=True, slots=True)
class Document:
    """What one file says, and where.

    Attributes:
        file: As the operator named it.
        value: What it says; None when `readable` is False.
        readable: Whether the file could be read to its end.
        values: Where each value begins.
        keys: Where each key begins.
        mistakes: Against YAML, or our idea of it; a value named here is the text as it stands.
    """

    file: str
    value: Value
    readable: bool
    values: Mapping[Trail, Place]
    keys: Mapping[Trail, Place]
    mistakes: tuple[Mistake, ...]

    def mistake(
        self, trail: Trail, problem: str, *, at: Literal["key", "value"] = "value"
    ) -> Mistake:
        """Return a mistake at a value or its key; where there is none, at what would hold it."""
        place = (self.keys if at == "key" else self.values).get(trail)
        return Mistake(self.file, *(place or self.place(trail)), dotted(trail), problem)

    def at(self, trail: Trail) -> Value:
        """Return the value that a trail leads to; None when it leads nowhere."""
        value = self.value
        for step in trail:
            match value, step:
                case dict(), str():
                    value = value.get(step)
                case list(), int() if step < len(value):
                    value = value[step]
                case _:
                    return None
        return value

    def place(self, trail: Trail) -> Place:
        """Return where a value begins; where there is none, what would hold it."""
        while trail and trail not in self.values:
            trail = trail[:-1]
        return self.values.get(trail, Place(1, 1))


def dotted(trail: Trail) -> str:
    """Return a trail as a person writes it: ``rules[0].cadence.every``."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in trail)
    return (path if path.isprintable() else repr(path)[1:-1]).removeprefix(".")


def read_document(path: Path) -> Document:
    """Read one file. What is wrong with it stands in the document's mistakes."""
    reader = _Reader(str(path))
    try:
        value = reader.value_of(_text(path))
    except ConfigurationError as error:
        return reader.document(None, also=error.mistakes)
    return reader.document(value)


def _text(path: Path) -> str:
    content = _content(path)
    if len(content) > MOST_BYTES:
        raise _unreadable(path, f"is larger than {MOST_BYTES // 1024} KiB; split it")
    if b"\0" in content:
        raise _unreadable(path, "is no text file: it holds NUL bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _unreadable(path, "is not in UTF-8; save it as UTF-8", Place(line, 0)) from error


def _content(path: Path) -> bytes:
    try:
        # Without O_NONBLOCK, a FIFO would hold us until somebody writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _unreadable(path, "is no regular file")
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        problem = _REASONS.get(type(error), f"cannot be read: {error.strerror}")
        raise _unreadable(path, problem) from error


_REASONS: dict[type[OSError], str] = {
    FileNotFoundError: "does not exist",
    IsADirectoryError: "is a directory, not a file",
    PermissionError: "no permission to read it; check owner and mode",
}


def _unreadable(file: Path | str, problem: str, place: Place = _NOWHERE) -> ConfigurationError:
    return ConfigurationError([Mistake(str(file), *place, "", problem)])


class _Reader:
    """Builds the value of one file from YAML's events; goes on after a mistake where it can."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._values: dict[Trail, Place] = {}
        self._keys: dict[Trail, Place] = {}
        self._mistakes: list[Mistake] = []
        self._events: Iterator[yaml.Event] = iter(())

    def document(self, value: Value, *, also: Iterable[Mistake] = ()) -> Document:
        """Return what was read; `also` holds what ended the reading early."""
        ended = list(also)
        mistakes = (*self._mistakes, *ended)
        return Document(self._file, value, not ended, self._values, self._keys, mistakes)

    def value_of(self, text: str) -> Value:
        """Return the value that a text holds, None when it holds none.

        Raises:
            ConfigurationError: The text cannot be read to its end.
        """
        try:
            self._events = self._limited(yaml.parse(text, Loader=yaml.SafeLoader))
            return self._root()
        except yaml.reader.ReaderError as error:
            raise _unreadable(
                self._file, "holds a control character", _place_in(text, error.position)
            ) from error
        except yaml.MarkedYAMLError as error:
            place, problem = _explained(error)
            raise _unreadable(self._file, problem, place) from error

    def _limited(self, events: Iterable[yaml.Event]) -> Iterator[yaml.Event]:
        for number, event in enumerate(events):
            if number == MOST_EVENTS:
                raise self._ended(event, "the file holds too many values; split it")
            yield event

    def _root(self) -> Value:
        """Read what lies between the start and the end of the stream: one document, or none."""
        values: list[Value] = []
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent) and values:
                raise self._ended(event, "a second document begins; one a file is read")
            if isinstance(event, yaml.NodeEvent):
                values.append(self._value(event, ()))
        return values[0] if values else None

    def _value(self, event: yaml.Event, trail: Trail) -> Value:
        if len(trail) > MOST_DEPTH:
            raise self._ended(event, f"is nested deeper than {MOST_DEPTH} levels")
        self._values.setdefault(trail, _place(event))
        self._refuse_extras(event, trail)
        match event:
            case yaml.ScalarEvent():
                return self._scalar(event, trail)
            case yaml.SequenceStartEvent():
                return [self._value(item, (*trail, n)) for n, item in enumerate(self._items())]
            case yaml.MappingStartEvent():
                return self._mapping(trail)
            case _:
                self._add(event, trail, "aliases are not read; write the value out, or quote it")
                return None

    def _items(self) -> Iterator[yaml.Event]:
        """Yield the first events of what a list or mapping holds, up to its end."""
        for event in self._events:
            if isinstance(event, yaml.CollectionEndEvent):
                return
            yield event

    def _mapping(self, trail: Trail) -> dict[str, Value]:
        mapping: dict[str, Value] = {}
        for event in self._items():
            key = self._key(event, trail)
            self._keys.setdefault((*trail, key), _place(event))
            value = self._value(next(self._events), (*trail, key))
            mapping.setdefault(key, value)
        return mapping

    def _key(self, event: yaml.Event, parent: Trail) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise self._ended(event, "a key must be text")
        key = event.value
        trail = (*parent, key)
        self._refuse_extras(event, trail)
        if first := self._keys.get(trail):
            self._add(
                event, trail, f"key {key!r} is given twice; it first stands in line {first.line}"
            )
        elif event.implicit[0] and key == "<<":
            self._add(event, trail, "merge keys are not read; write the keys out")
        elif not isinstance(self._scalar(event, trail), str):
            self._add(event, trail, f"a key must be text; write '{key}' in quotes")
        return key

    def _refuse_extras(self, event: yaml.Event, trail: Trail) -> None:
        if not isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
            return
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._add(event, trail, f"tags are not read; leave out {tag!r}")
        if event.anchor is not None:
            self._add(event, trail, f"anchors are not read; leave out '&{event.anchor}'")

    def _scalar(self, event: yaml.ScalarEvent, trail: Trail) -> Scalar:
        text: str = event.value
        if not event.implicit[0]:
            return text
        if problem := trap(text):
            self._add(event, trail, f"{reprlib.repr(text)} {problem}")
            return text
        return plain(text)

    def _add(self, event: yaml.Event, trail: Trail, problem: str) -> None:
        self._mistakes.append(Mistake(self._file, *_place(event), dotted(trail), problem))

    def _ended(self, event: yaml.Event, problem: str) -> ConfigurationError:
        return _unreadable(self._file, problem, _place(event))


def _place(event: yaml.Event) -> Place:
    return _at(event.start_mark)


class _Mark(Protocol):
    """A place as YAML's parser has it, from 0."""

    line: int
    column: int


def _at(mark: _Mark | None) -> Place:
    return Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)


def _place_in(text: str, position: int) -> Place:
    before = text[:position]
    return Place(before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)


# What YAML's parser says, and what to do about it. The first that fits is taken.
_EXPLANATIONS: list[tuple[str, str]] = [
    ("scanning an alias", "a value that begins with '*' must be quoted, as \"*/5 * * * *\""),
    (r"character '\t'", "a tab stands where YAML wants spaces"),
    ("cannot start any token", "a value that begins with this character must be quoted"),
    (
        "mapping values are not allowed",
        "no ':' can stand here: quote the value, or mend the indentation",
    ),
    ("quoted scalar", "the quoted text that begins here is not well formed, or never ends"),
    ("flow sequence", "the '[' has no matching ']'; ',' goes between entries"),
    ("flow node", "a value, or the closing bracket, is missing here"),
    ("flow mapping", "the '{' has no matching '}'; ',' goes between entries"),
    ("could not find expected ':'", "a ':' is missing after a key"),
    ("parsing a block", "this does not fit here: mend the indentation, or quote the whole value"),
]


def _explained(error: yaml.MarkedYAMLError) -> tuple[Place, str]:
    said = f"{error.context or ''} {error.problem or ''}"
    words = next(
        (words for sign, words in _EXPLANATIONS if sign in said), f"not YAML: {error.problem}"
    )
    opened = "quoted scalar" in said or "flow" in said
    mark = (error.context_mark if opened else None) or error.problem_mark or error.context_mark
    return _at(mark), words
