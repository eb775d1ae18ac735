"""Turn the items of a JSON document, or of JSON lines, into records, each on its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, BinaryIO

import orjson

from slumberd.interchange.json_documents import Item, read_items
from slumberd.interchange.records import Record
from slumberd.storage.strict_json import read_object

Convert = Callable[[str, dict[str, Any]], Record | None]
"""Returns the record of an object, given the key of its array; None for one that says nothing.

Raises `ValueError` for an object that is no record of its format. The caller sets line and path.
"""


def read_records(
    stream: BinaryIO,
    format: str,  # noqa: A002 # what it is
    keys: Collection[str],
    convert: Convert,
    secrets: Callable[[Any], Any],
) -> Iterator[Record]:
    """Yield the records of a file.

    Args:
        stream: The file, uncompressed.
        format: The name of its format.
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
    yield from (Record(line, incomplete=each) for each in incomplete)


def _record_of(item: Item, convert: Convert, secrets: Callable[[Any], Any]) -> Record | None:
    if item.problem:
        return Record(0, problem=item.problem)
    try:
        return convert(item.key, secrets(read_object(item.text)))
    except orjson.JSONDecodeError as error:
        line = item.line + error.lineno - 1
        return Record(0, problem=f"{error.msg}, in line {line} at column {error.colno}")
    except ValueError as error:
        return Record(0, problem=str(error))
