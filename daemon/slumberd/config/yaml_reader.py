"""Read YAML strictly, with the line and column of everything in it. Knows no models.

Stricter than YAML where YAML surprises: no anchors, aliases, tags or merge keys, no key twice, and
no plain word that two YAML readers would take for different things.

What YAML's parser complains of, in words that say what to do about it.
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

from slumberd.config.file_access import Place, read_text, unreadable
from slumberd.config.yaml_scalars import Scalar, Span, plain, source_of, trap
from slumberd.errors import ConfigurationError, Mistake


class Complaint(NamedTuple):
    """What is wrong.

    Attributes:
        words: What is wrong, and what to write instead.
        at_its_start: Whether to mend it where the parser began on it, not where it gave up.
        unquoted: Whether a value lacks its quotes and nothing else; what follows can be read.
    """

    words: str
    at_its_start: bool = False
    unquoted: bool = False


# The first is taken whose sign the parser's own words hold.
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
    (r"character '\t'", Complaint("a tab stands where YAML wants spaces")),
    (
        "mapping values are not allowed",
        Complaint(
            "no ':' can stand here: quote the value, or mend the indentation here or in the line"
            " above"
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
        Complaint("this does not fit here: mend the indentation, or quote the whole value"),
    ),
)


def complaint(said: str) -> Complaint:
    """Return what to tell instead of the parser's own words."""
    known = (complaint for sign, complaint in _COMPLAINTS if sign in said)
    return next(known, Complaint(f"not YAML: {said.strip()}"))


MOST_DEPTH = 20
MOST_EVENTS = 10_000
MOST_MENDED = 20

# The parser in C takes a tenth of the time, which matters where there are a thousand files. What it
# refuses is read by the one in Python, whose complaints are known here. So is what the two take for
# different things, or place otherwise: '?' inside of words, lone tags, headers of blocks, values
# that are left out, documents with a start, tabs, line ends of Unicode.
_QUICK = getattr(yaml, "CSafeLoader", None)
_UNSURE = re.compile(
    r"[^\n -~\u00a1-\u2027\u2030-\ud7ff]"
    r"|\?|!(?!=)|(?:^|[:-]) *[|>]|:\s*[],}]|^---",
    re.MULTILINE,
)

Trail = tuple[str | int, ...]
"""The keys and indexes that lead to a value, from the root."""

Value: TypeAlias = "Scalar | list[Value] | dict[str, Value]"
"""What YAML can say."""


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
        traps: What is wrong with plain words that two readers take for different things.
        text: The file's, as far as it could be read.
        spans: The source of each scalar.
    """

    file: str
    value: Value
    readable: bool
    values: Mapping[Trail, Place]
    keys: Mapping[Trail, Place]
    mistakes: tuple[Mistake, ...]
    traps: Mapping[Place, str] = field(default_factory=dict)
    text: str = ""
    spans: Mapping[Trail, Span] = field(default_factory=dict)

    def mistake(
        self, trail: Trail, problem: str, *, at: Literal["key", "value"] = "value"
    ) -> Mistake:
        """Return a mistake at a value or its key; where there is none, at what would hold it."""
        place = (self.keys if at == "key" else self.values).get(trail)
        return Mistake(self.file, *(place or self.place(trail)), dotted(trail), problem)

    def within(self, trail: Trail, offset: int) -> Place | None:
        """Return where a character of a text stands in the file; None when it cannot be told."""
        value, span = self.at(trail), self.spans.get(trail)
        if span is None or not isinstance(value, str):
            return None
        source = source_of(self.text, span, value, offset)
        return None if source is None else place_in(self.text, source)

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


def read_document(
    path: Path, *, inside: Path | None = None, by_root: bool | None = None
) -> Document:
    """Read one file. What is wrong with it stands in the document's mistakes.

    Args:
        path: May be a link.
        inside: A directory, resolved, that the file must really lie in; None lets it lie anywhere.
        by_root: Whether root reads it, who must not obey everybody; None looks.
    """
    reader = _Reader(str(path))
    try:
        text, mistakes = read_text(path, inside=inside, by_root=by_root)
        reader.mistakes += mistakes
        value = reader.value_of(text)
    except ConfigurationError as error:
        return reader.document(None, also=error.mistakes)
    return reader.document(value)


class _Reader:
    """Builds the value of one file from YAML's events; goes on after a mistake where it can."""

    def __init__(self, file: str) -> None:
        self.mistakes: list[Mistake] = []
        self._file = file
        self._text = ""
        self._mended: dict[Place, str] = {}
        self._events: Iterator[yaml.Event] = iter(())
        self._begin()

    def _begin(self) -> None:
        self._values: dict[Trail, Place] = {}
        self._keys: dict[Trail, Place] = {}
        self._traps: dict[Place, str] = {}
        self._spans: dict[Trail, Span] = {}
        self._found: list[Mistake] = []

    def document(self, value: Value, *, also: Iterable[Mistake] = ()) -> Document:
        """Return what was read; `also` holds what ended the reading early."""
        ended = list(also)
        mistakes = (*self.mistakes, *self._found, *ended)
        return Document(
            self._file, value, not ended, self._values, self._keys, mistakes,
            self._traps, self._text, self._spans,
        )  # fmt: skip

    def value_of(self, text: str) -> Value:
        """Return the value that a text holds, None when it holds none.

        Raises:
            ConfigurationError: The text cannot be read to its end.
        """
        self._text = text
        if _QUICK is not None and not _UNSURE.search(text):
            with suppress(yaml.YAMLError):
                return self._read(text, _QUICK)
        while True:
            try:
                return self._read(text, yaml.SafeLoader)
            except yaml.reader.ReaderError as error:
                raise self._uncontrolled(error) from error
            except yaml.MarkedYAMLError as error:
                text = self._mend(text, error)

    def _read(self, text: str, loader: Any) -> Value:  # noqa: ANN401 # one of the parser's classes
        self._begin()
        self._events = self._limited(yaml.parse(text, Loader=loader))
        return self._root()

    def _mend(self, text: str, error: yaml.MarkedYAMLError) -> str:
        """Return the text with a letter where a value lacks its quotes, to find what else is wrong.

        Raises:
            ConfigurationError: It is another mistake, and nothing can be read beyond it.
        """
        said = complaint(f"{error.context or ''} {error.problem or ''}")
        mark = (error.context_mark if said.at_its_start else None) or error.problem_mark
        if not said.unquoted or mark is None or len(self._mended) == MOST_MENDED:
            raise unreadable(self._file, said.words, _at(mark)) from error
        self._mended[_at(mark)] = said.words
        return f"{text[: mark.index]}x{text[mark.index + 1 :]}"

    def _uncontrolled(self, error: yaml.reader.ReaderError) -> ConfigurationError:
        problem = f"holds the control character U+{error.character:04X}; leave it out"
        return unreadable(self._file, problem, place_in(self._text, error.position))

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
                raise self._ended(
                    event, "a second document begins here, and a file has one; leave out '---'"
                )
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
        """Yield the first events of what a list or mapping holds, up to its end."""
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
            raise self._ended(event, "a key must be text")
        key = event.value
        trail = (*parent, key)
        self._refuse_extras(event, trail)
        if key in before:
            first = self._keys[trail].line
            problem = f"key {key!r} is given twice; it first stands in line {first}: leave one out"
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
            said = f"{reprlib.repr(text)} {problem}"
            self._traps[_place(event)] = said
            self._add(event, trail, f"{said}; quote it")
            return text
        return plain(text)

    def _add(self, event: yaml.Event, trail: Trail, problem: str) -> None:
        self._found.append(Mistake(self._file, *_place(event), dotted(trail), problem))

    def _ended(self, event: yaml.Event, problem: str) -> ConfigurationError:
        return unreadable(self._file, problem, _place(event))


def _place(event: yaml.Event) -> Place:
    return _at(event.start_mark)


class _Mark(Protocol):
    """A place as YAML's parser has it, from 0."""

    line: int
    column: int


def _at(mark: _Mark | None) -> Place:
    return Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)


def place_in(text: str, position: int) -> Place:
    """Return the line and column of a character, from 0, of a text."""
    lines = _LINE_END.split(text[:position])
    return Place(len(lines), len(lines[-1]) + 1)


# What YAML's parser counts as the end of a line.
_LINE_END = re.compile("\r\n|[\r\n\x85\u2028\u2029]")


def _span(event: yaml.ScalarEvent) -> Span:
    start, end = event.start_mark, event.end_mark
    return Span(start.index if start else 0, end.index if end else 0, event.style or "")
