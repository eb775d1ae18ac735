"""Turn the items of a JSON document of any size into records, with one in memory at a time.

A document is an array of records, an object that holds such arrays under known keys, or several of
these in sequence. A file of JSON lines has a record in each line.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import count
from typing import Any, BinaryIO, NamedTuple

import orjson

from slumberd.integrations.interchange.pages import Pages
from slumberd.integrations.interchange.records import (
    DAMAGED,
    MOST_BYTES,
    ImportedRecord,
    damage,
    numbered_lines,
    place_of,
    too_long,
)
from slumberd.model.errors import WrongFormatError
from slumberd.storage.strict_json import read_object

_CHUNK = 64 * 1024
_LONGEST_REMARK = 4 * 1024
"""No longer value of a document says something about the document itself."""

_MOST_REMARKS = 100
"""So many such values of a document are kept, at most."""

_SPACE = re.compile(rb"\s*")
# The first choice is a whole text; a quote that begins no whole text is the last one.
_STRUCTURE = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]]|"', re.DOTALL)
_SCALAR = re.compile(rb'[^\s,:{}\[\]"]+')


class RawRecord(NamedTuple):
    """A record that is not decoded.

    Attributes:
        line: The number of its first line, from 1.
        key: The key of its array; empty for an array of its own, and for a line.
        text: Its JSON.
        problem: Why it cannot be read; empty when it can.
        path: Its place in the document, as ``results[3]``; empty for a line.
    """

    line: int
    key: str
    text: bytes
    problem: str = ""
    path: str = ""


def read_items(
    stream: BinaryIO,
    format: str,  # noqa: A002 # what it is
    keys: Collection[str],
    *,
    most_bytes: int = MOST_BYTES,
    incomplete: list[str] | None = None,
) -> Iterator[RawRecord]:
    """Yield the records of a document, or of JSON lines.

    The last one reports where the document is malformed: nothing behind that place is read.

    Args:
        stream: The input, uncompressed.
        format: The name of its format, for the error.
        keys: The keys of an object under which it holds arrays of records.
        most_bytes: No record may be longer.
        incomplete: Takes what the documents themselves say that they lack.

    Raises:
        WrongFormatError: The input begins with something else.
    """
    try:
        number, line = _first_line(stream, most_bytes)
    except DAMAGED as error:
        yield RawRecord(1, "", b"", damage(error))
        return
    if _is_record(line, keys):
        yield RawRecord(number, "", line)
        for following in numbered_lines(stream, most_bytes, first=number + 1):
            yield RawRecord(following.number, "", following.text, following.problem)
        return
    document = _Document(stream, line, number, most_bytes)
    yield from _read_document(document, format, keys)
    if incomplete is not None:
        incomplete.extend(document.incomplete())


def _first_line(stream: BinaryIO, most_bytes: int) -> tuple[int, bytes]:
    """Return the number of the first line that is not empty, and the line, or its beginning."""
    number, line = 1, stream.readline(most_bytes).removeprefix(codecs.BOM_UTF8)
    while line.isspace():
        number, line = number + 1, stream.readline(most_bytes)
    return number, line


def _is_record(line: bytes, keys: Collection[str]) -> bool:
    try:
        found = orjson.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and not any(isinstance(found.get(key), list) for key in keys)


class _MalformedError(Exception):
    """The document is malformed; only used in this module."""


def _read_document(
    document: _Document,
    format: str,  # noqa: A002 # what it is
    keys: Collection[str],
) -> Iterator[RawRecord]:
    begun = False
    try:
        for item in document.items(keys):
            begun = True
            yield item
    except _MalformedError as error:
        if not begun:
            raise WrongFormatError(format, place_of(document.line), str(error)) from error
        yield RawRecord(document.line, "", b"", f"{error}; the rest is not read")
    except DAMAGED as error:
        yield RawRecord(document.line, "", b"", damage(error))


class _Document:
    """A document that is read from its begin to its end.

    Args:
        stream: Its bytes behind the first ones.
        start: Its first bytes.
        line: The number of its first line.
        most_bytes: No value of it may be longer.

    Attributes:
        line: The number of the line up to which it is read.
    """

    def __init__(self, stream: BinaryIO, start: bytes, line: int, most_bytes: int) -> None:
        self._stream = stream
        self.line = line
        self._most_bytes = most_bytes
        self._buffer = start
        self._at = 0
        self._pages = Pages()
        self._incomplete: list[str] = []

    def incomplete(self) -> list[str]:
        """Return what the documents that are read say that they lack."""
        return [*self._incomplete, *self._pages.end()]

    def items(self, keys: Collection[str]) -> Iterator[RawRecord]:
        """Yield the records of all arrays."""
        while sign := self._peek():
            if sign == b"[":
                yield from self._array("")
            elif sign == b"{":
                yield from self._object(keys)
            else:
                raise _MalformedError(f"{_shown(sign)} begins neither an array nor an object")

    def _array(self, key: str) -> Iterator[RawRecord]:
        self._take(b"[")
        if self._peek() == b"]":
            self._take(b"]")
            return
        for place in count():
            self._peek()
            line = self.line
            yield RawRecord(line, key, self._value(), path=f"{key}[{place}]")
            if self._take(b",]") == b"]":
                return

    def _object(self, keys: Collection[str]) -> Iterator[RawRecord]:
        self._take(b"{")
        found = False
        said: dict[str, Any] = {}
        counts: Counter[str] = Counter()
        while self._peek() == b'"':
            key = _decoded(self._value())
            self._take(b":")
            found = found or key in keys
            if key in keys and self._peek() == b"[":
                for item in self._array(key):
                    counts[key] += 1
                    yield item
            elif (value := self._value()) != b"null" and key in keys:
                raise _MalformedError(f"key {key!r} holds no array")
            elif len(value) <= _LONGEST_REMARK and len(said) < _MOST_REMARKS:
                said[key] = _remark(value)
            if self._take(b",}") == b"}":
                break
        else:
            self._take(b"}")
        if not found:
            raise _MalformedError(f"an object with {' or '.join(map(repr, keys))} is needed")
        self._incomplete.extend(self._pages.add(said, counts))

    def _take(self, signs: bytes) -> bytes:
        """Return the next sign, one of some, and go on behind it."""
        sign = self._peek()
        if not sign or sign not in signs:
            wanted = " or ".join(repr(chr(one)) for one in signs)
            raise _MalformedError(f"{wanted} is missing before {_shown(sign)}")
        self._at += 1
        return sign

    def _peek(self) -> bytes:
        """Return the next sign that is no space; empty at the end."""
        while True:
            found = _SPACE.match(self._buffer, self._at)
            end = found.end() if found else self._at
            self.line += self._buffer.count(b"\n", self._at, end)
            self._at = end
            if end < len(self._buffer):
                return self._buffer[end : end + 1]
            if not self._fill():
                return b""

    def _value(self) -> bytes:
        """Return the JSON of the next value, and go on behind it."""
        sign = self._peek()
        length = self._length_of_scalar() if sign not in b'{["' else self._length()
        if not length:
            raise _MalformedError(f"a value is missing before {_shown(sign)}")
        text = self._buffer[self._at : self._at + length]
        self._at += length
        self.line += text.count(b"\n")
        return text

    def _length_of_scalar(self) -> int:
        while True:
            found = _SCALAR.match(self._buffer, self._at)
            length = found.end() - self._at if found else 0
            if self._at + length < len(self._buffer) or not self._fill():
                return length

    def _length(self) -> int:
        """Return the length of a text, an array or an object."""
        length = depth = 0
        while True:
            found = _STRUCTURE.search(self._buffer, self._at + length)
            if found is None or found[0] == b'"':
                length = (found.start() if found else len(self._buffer)) - self._at
                self._fill_value()
                continue
            length = found.end() - self._at
            depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(found[0], 0)
            if depth <= 0:
                return length

    def _fill_value(self) -> None:
        """Read more of a value.

        Raises:
            _MalformedError: The input ends within the value, or the value is too long.
        """
        if problem := too_long(len(self._buffer) - self._at, self._most_bytes):
            raise _MalformedError(f"the record {problem}")
        if not self._fill():
            raise _MalformedError("the input ends within a value")

    def _fill(self) -> bool:
        """Read more, and drop what is behind; return whether there was more."""
        # As much again as there is: a long value is then searched a few times only.
        more = self._stream.read(max(_CHUNK, len(self._buffer) - self._at))
        self._buffer = self._buffer[self._at :] + (more or b"")
        self._at = 0
        return bool(more)


def _remark(text: bytes) -> Any:  # noqa: ANN401 # any JSON
    """Return a value that may say something about its document; None when it is malformed."""
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def _decoded(text: bytes) -> str:
    try:
        return str(orjson.loads(text))
    except ValueError as error:
        raise _MalformedError(f"{_shown(text)} is no key") from error


def _shown(text: bytes) -> str:
    return repr(text[:20].decode(errors="backslashreplace")) if text else "the end"


Convert = Callable[[str, dict[str, Any]], ImportedRecord | None]
"""Returns the record of an object, given the key of its array; None for one that says nothing.

Raises `ValueError` for an object that is no record of its format. The caller sets line and path.
"""


def read_records(
    stream: BinaryIO,
    format: str,  # noqa: A002 # what it is
    keys: Collection[str],
    convert: Convert,
    secrets: Callable[[Any], Any],
) -> Iterator[ImportedRecord]:
    """Yield the records of a file.

    Args:
        stream: The file, uncompressed.
        keys: The keys under which an object holds arrays of records.
        convert: Makes a record of each of them.
        secrets: Masks, keeps or refuses the secrets of each.

    Raises:
        WrongFormatError: The file begins with something else.
    """
    incomplete: list[str] = []
    line = 1
    for item in read_items(stream, format, keys, incomplete=incomplete):
        line = item.line
        found = _record_of(item, convert, secrets)
        if found is not None:
            yield found._replace(line=item.line, path=item.path)
    yield from (ImportedRecord(line, incomplete=each) for each in incomplete)


def _record_of(
    item: RawRecord, convert: Convert, secrets: Callable[[Any], Any]
) -> ImportedRecord | None:
    if item.problem:
        return ImportedRecord(0, problem=item.problem)
    try:
        return convert(item.key, secrets(read_object(item.text)))
    except orjson.JSONDecodeError as error:
        line = item.line + error.lineno - 1
        return ImportedRecord(0, problem=f"{error.msg}, in line {line} at column {error.colno}")
    except ValueError as error:
        return ImportedRecord(0, problem=str(error))
