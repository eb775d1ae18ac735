"""Read YAML strictly, with the line and column of each key and value. Knows no models.

The reader refuses anchors, aliases, tags, merge keys, repeated keys, and plain words that YAML
readers interpret differently. It describes the parser's errors with their remedies.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import yaml

from slumberd.model.errors import ConfigurationError, Mistake
from slumberd.rules.file_access import Place, read_text, unreadable_error
from slumberd.rules.yaml_scalars import Scalar, SourceSpan, plain, source_of, trap

# The line ends of the YAML parser.
_LINE_END = re.compile("\r\n|[\r\n\x85\u2028\u2029]")


class Complaint(NamedTuple):
    """An error of the parser in plain words.

    Attributes:
        words: The problem and its remedy.
        at_its_start: Whether the mistake is where the parser began a value, not where it stopped.
        unquoted: Whether only the quotes of a value are missing, so that reading can continue.
    """

    words: str
    at_its_start: bool = False
    unquoted: bool = False


# The first entry applies whose text the parser's message contains.
_COMPLAINTS = (
    (
        "scanning an alias",
        Complaint(
            "a value that begins with '*' must be quoted; a cron expression as \"*/5 * * * *\"",
            at_its_start=True,
            unquoted=True,
        ),
    ),
    (
        "character '@'",
        Complaint("a value that begins with '@' must be quoted, as \"@daily\"", unquoted=True),
    ),
    (
        "character '%'",
        Complaint("a value that begins with '%' must be quoted", unquoted=True),
    ),
    (
        "character '`'",
        Complaint("a value that begins with '`' must be quoted", unquoted=True),
    ),
    (r"character '\t'", Complaint("YAML needs spaces here, not a tab")),
    (
        "mapping values are not allowed",
        Complaint(
            "no ':' is allowed here: quote the value, or correct the indentation here or in the"
            " line above"
        ),
    ),
    (
        "quoted scalar",
        Complaint(
            "the quoted text that begins here is not well formed, or never ends", at_its_start=True
        ),
    ),
    (
        "flow sequence",
        Complaint("the '[' has no matching ']'; ',' goes between entries", at_its_start=True),
    ),
    (
        "flow node",
        Complaint("a value, or the closing bracket, is missing here", at_its_start=True),
    ),
    (
        "flow mapping",
        Complaint("the '{' has no matching '}'; ',' goes between entries", at_its_start=True),
    ),
    (
        "could not find expected ':'",
        Complaint("a ':' and a space are missing after this key", at_its_start=True),
    ),
    (
        "parsing a block",
        Complaint("this does not fit here: correct the indentation, or quote the whole value"),
    ),
)

MOST_DEPTH = 20
MOST_EVENTS = 10_000
MOST_MENDED = 20

# The parser in C takes a tenth of the time, which matters for a thousand files. The one in Python
# reads what the C parser refuses, because `_COMPLAINTS` knows its messages. It also reads texts
# that the two parse or locate differently: '?' inside of words, lone tags, headers of blocks,
# omitted values, documents with a start, tabs, line ends of Unicode.
_QUICK = getattr(yaml, "CSafeLoader", None)
_AMBIGUOUS = re.compile(
    r"[^\n -~\u00a1-\u2027\u2030-\ud7ff]"
    r"|\?|!(?!=)|(?:^|[:-]) *[|>]|:\s*[],}]|^---",
    re.MULTILINE,
)

Trail = tuple[str | int, ...]
"""The keys and indexes that lead to a value, from the root."""

Value: TypeAlias = "Scalar | list[Value] | dict[str, Value]"
"""A value of a YAML document."""


def complaint(message: str) -> Complaint:
    """Return the plain words for a message of the parser."""
    known = (complaint for text, complaint in _COMPLAINTS if text in message)
    return next(known, Complaint(f"not YAML: {message.strip()}"))


@dataclass(frozen=True, slots=True)
class Document:
    """The content of one file, with the place of each key and value.

    Attributes:
        file: The path of the file, as the operator named it.
        value: The content; None when `readable` is False.
        readable: Whether the file could be read to its end.
        values: The place where each value begins.
        keys: The place where each key begins.
        mistakes: The mistakes in the YAML; `value` has the source text of a scalar with a mistake.
        traps: The problems of plain words that YAML readers interpret differently, by place.
        text: The text of the file, as far as it could be read.
        spans: The place of each scalar in `text`.
    """

    file: str
    value: Value
    readable: bool
    values: Mapping[Trail, Place]
    keys: Mapping[Trail, Place]
    mistakes: tuple[Mistake, ...]
    traps: Mapping[Place, str] = field(default_factory=dict)
    text: str = ""
    spans: Mapping[Trail, SourceSpan] = field(default_factory=dict)

    def mistake(
        self, trail: Trail, problem: str, *, at: Literal["key", "value"] = "value"
    ) -> Mistake:
        """Return a mistake at a value or its key; for a missing value, at its container."""
        place = (self.keys if at == "key" else self.values).get(trail)
        return Mistake(self.file, *(place or self.place(trail)), dotted_path(trail), problem)

    def within(self, trail: Trail, offset: int) -> Place | None:
        """Return the place in the file of a character of a text; None when it is unknown."""
        value, span = self.at(trail), self.spans.get(trail)
        if span is None or not isinstance(value, str):
            return None
        source = source_of(self.text, span, value, offset)
        return None if source is None else place_in(self.text, source)

    def at(self, trail: Trail) -> Value:
        """Return the value at a trail; None when there is no value."""
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
        """Return where a value begins; for a missing value, where its container begins."""
        while trail and trail not in self.values:
            trail = trail[:-1]
        return self.values.get(trail, Place(1, 1))


def dotted_path(trail: Trail) -> str:
    """Return a trail as text, such as ``rules[0].cadence.every``."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in trail)
    return (path if path.isprintable() else repr(path)[1:-1]).removeprefix(".")


def read_document(
    path: Path, *, inside: Path | None = None, by_root: bool | None = None, quick: bool = True
) -> Document:
    """Read one file. The mistakes of the document list its problems.

    Args:
        path: The file, or a link to it.
        inside: A resolved directory that must contain the real file; None allows any place.
        by_root: Whether root reads the file. For root, a file that everybody can write is a
            mistake. None asks the process.
        quick: Whether the parser in C reads unambiguous texts, if it is installed.
    """
    reader = _Reader(str(path), _QUICK if quick else None)
    try:
        text, mistakes = read_text(path, inside=inside, by_root=by_root)
        reader.mistakes += mistakes
        value = reader.value_of(text)
    except ConfigurationError as error:
        return reader.document(None, also=error.mistakes)
    return reader.document(value)


def read_document_text(text: str, file: str) -> Document:
    """Read the text of a file that is not on this disk, such as one of a database.

    Args:
        file: The name of the file in messages.
    """
    reader = _Reader(file, _QUICK)
    try:
        return reader.document(reader.value_of(text))
    except ConfigurationError as error:
        return reader.document(None, also=error.mistakes)


class _Reader:
    """Builds the value of one file from YAML events; continues after a mistake if possible."""

    def __init__(self, file: str, quick: Any) -> None:  # noqa: ANN401 # a class of the parser
        self.mistakes: list[Mistake] = []
        self._file = file
        self._quick = quick
        self._text = ""
        self._mended: dict[Place, str] = {}
        self._events: Iterator[yaml.Event] = iter(())
        self._reset()

    def _reset(self) -> None:
        self._values: dict[Trail, Place] = {}
        self._keys: dict[Trail, Place] = {}
        self._traps: dict[Place, str] = {}
        self._spans: dict[Trail, SourceSpan] = {}
        self._found: list[Mistake] = []

    def document(self, value: Value, *, also: Iterable[Mistake] = ()) -> Document:
        """Return the document; `also` has the mistakes that ended the reading early."""
        ended = list(also)
        mistakes = (*self.mistakes, *self._found, *ended)
        return Document(
            self._file, value, not ended, self._values, self._keys, mistakes,
            self._traps, self._text, self._spans,
        )  # fmt: skip

    def value_of(self, text: str) -> Value:
        """Return the value of a text; None when it has none.

        Raises:
            ConfigurationError: The text cannot be read to its end.
        """
        self._text = text
        if self._quick is not None and not _AMBIGUOUS.search(text):
            with suppress(yaml.YAMLError):
                return self._read(text, self._quick)
        while True:
            try:
                return self._read(text, yaml.SafeLoader)
            except yaml.reader.ReaderError as error:
                raise self._control_character(error) from error
            except yaml.MarkedYAMLError as error:
                text = self._mend(text, error)

    def _read(self, text: str, loader: Any) -> Value:  # noqa: ANN401 # one of the parser's classes
        self._reset()
        self._events = self._limit_events(yaml.parse(text, Loader=loader))
        return self._root()

    def _mend(self, text: str, error: yaml.MarkedYAMLError) -> str:
        """Return the text with a letter where quotes are missing, to find the mistakes after it.

        Raises:
            ConfigurationError: It is another mistake, and the rest cannot be read.
        """
        found = complaint(f"{error.context or ''} {error.problem or ''}")
        mark = (error.context_mark if found.at_its_start else None) or error.problem_mark
        if not found.unquoted or mark is None or len(self._mended) == MOST_MENDED:
            raise unreadable_error(self._file, found.words, _at(mark)) from error
        self._mended[_at(mark)] = found.words
        return f"{text[: mark.index]}x{text[mark.index + 1 :]}"

    def _control_character(self, error: yaml.reader.ReaderError) -> ConfigurationError:
        problem = f"contains the control character U+{error.character:04X}; leave it out"
        return unreadable_error(self._file, problem, place_in(self._text, error.position))

    def _limit_events(self, events: Iterable[yaml.Event]) -> Iterator[yaml.Event]:
        for number, event in enumerate(events):
            if number == MOST_EVENTS:
                raise self._error_at(event, "the file has too many values; split it")
            yield event

    def _root(self) -> Value:
        """Read the stream, which has at most one document."""
        values: list[Value] = []
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent) and values:
                raise self._error_at(
                    event, "a second document begins here, but a file has only one; leave out '---'"
                )
            if isinstance(event, yaml.NodeEvent):
                values.append(self._value(event, ()))
        return values[0] if values else None

    def _value(self, event: yaml.Event, trail: Trail) -> Value:
        if len(trail) > MOST_DEPTH:
            raise self._error_at(event, f"is nested deeper than {MOST_DEPTH} levels")
        self._values.setdefault(trail, _place(event))
        self._refuse_extras(event, trail)
        match event:
            case yaml.ScalarEvent():
                self._spans.setdefault(trail, _span(event))
                return self._scalar(event, trail)
            case yaml.SequenceStartEvent():
                return [self._value(item, (*trail, n)) for n, item in enumerate(self._items())]
            case yaml.MappingStartEvent():
                return self._mapping(trail)
            case _:
                self._add(event, trail, "aliases are not read; write the value out, or quote it")
                return None

    def _items(self) -> Iterator[yaml.Event]:
        """Yield the first event of each entry of a list or mapping, up to its end."""
        for event in self._events:
            if isinstance(event, yaml.CollectionEndEvent):
                return
            yield event

    def _mapping(self, trail: Trail) -> dict[str, Value]:
        mapping: dict[str, Value] = {}
        for event in self._items():
            key = self._key(event, trail, mapping)
            self._keys.setdefault((*trail, key), _place(event))
            value = self._value(next(self._events), (*trail, key))
            mapping.setdefault(key, value)
        return mapping

    def _key(self, event: yaml.Event, parent: Trail, before: Mapping[str, Value]) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise self._error_at(event, "a key must be text")
        key = event.value
        trail = (*parent, key)
        self._refuse_extras(event, trail)
        if key in before:
            first = self._keys[trail].line
            problem = f"key {key!r} is given twice, first in line {first}; leave one of them out"
            self._add(event, trail, problem)
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
        if self._mended and (unquoted := self._mended.get(_place(event))):
            self._add(event, trail, unquoted)
            return text
        if not event.implicit[0]:
            return text
        if problem := trap(text):
            problem = f"{reprlib.repr(text)} {problem}"
            self._traps[_place(event)] = problem
            self._add(event, trail, f"{problem}; quote it")
            return text
        return plain(text)

    def _add(self, event: yaml.Event, trail: Trail, problem: str) -> None:
        self._found.append(Mistake(self._file, *_place(event), dotted_path(trail), problem))

    def _error_at(self, event: yaml.Event, problem: str) -> ConfigurationError:
        return unreadable_error(self._file, problem, _place(event))


def _place(event: yaml.Event) -> Place:
    return _at(event.start_mark)


class _Mark(Protocol):
    """A place as the YAML parser counts it, from 0."""

    line: int
    column: int


def _at(mark: _Mark | None) -> Place:
    return Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)


def place_in(text: str, position: int) -> Place:
    """Return the line and column, from 1, of the character at a position, from 0."""
    lines = _LINE_END.split(text[:position])
    return Place(len(lines), len(lines[-1]) + 1)


def _span(event: yaml.ScalarEvent) -> SourceSpan:
    start, end = event.start_mark, event.end_mark
    return SourceSpan(start.index if start else 0, end.index if end else 0, event.style or "")
