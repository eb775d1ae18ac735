"""Send lists to PostgreSQL as arrays in its binary format.

The driver writes a list as text, element by element, and the server parses it. For a batch of
thousands of rows that costs both sides more than the rows themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, NamedTuple

import psycopg
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format

_HEADER = Struct("!5i")
_EMPTY = Struct("!3i")
_LENGTH = Struct("!i").pack
_BIGINT = Struct("!iq").pack
_FLOAT = Struct("!id").pack
_NULL = _LENGTH(-1)


class _Texts(list[str | None]):
    """A parameter of type ``text[]``."""


class _ByteStrings(list[bytes | None]):
    """A parameter of type ``bytea[]``."""


class _Integers(list[int | None]):
    """A parameter of type ``bigint[]``."""


class _Floats(list[float | None]):
    """A parameter of type ``double precision[]``."""


def _write_texts(values: Sequence[str | None]) -> list[bytes]:
    encoded = [None if value is None else value.encode() for value in values]
    if b"\0" in b"".join(filter(None, encoded)):
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return _write_byte_strings(encoded)


def _write_byte_strings(values: Sequence[bytes | None]) -> list[bytes]:
    parts: list[bytes] = []
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts += (_LENGTH(len(value)), value)
    return parts


def _write_integers(values: Sequence[int | None]) -> list[bytes]:
    return [_NULL if value is None else _BIGINT(8, value) for value in values]


def _write_floats(values: Sequence[float | None]) -> list[bytes]:
    return [_NULL if value is None else _FLOAT(8, value) for value in values]


class _ArrayType(NamedTuple):
    """A type of array.

    Attributes:
        parameter: The class of its parameters.
        oid: The number of the type in every PostgreSQL.
        element_oid: The number of its elements' type.
        write: Returns the elements as bytes.
    """

    parameter: type[list[Any]]
    oid: int
    element_oid: int
    write: Callable[[Sequence[Any]], list[bytes]]


_TYPES = {
    "text": _ArrayType(_Texts, 1009, 25, _write_texts),
    "bytea": _ArrayType(_ByteStrings, 1001, 17, _write_byte_strings),
    "bigint": _ArrayType(_Integers, 1016, 20, _write_integers),
    "double precision": _ArrayType(_Floats, 1022, 701, _write_floats),
}
ELEMENT_TYPES = tuple(_TYPES)
"""The types of elements that `array_of` knows, as a statement writes them."""


def array_of(element_type: str, values: Sequence[Any]) -> list[Any]:
    """Return a list that a connection with `register_arrays` sends as an array.

    Args:
        element_type: One of `ELEMENT_TYPES`.
        values: The elements; None is a null.
    """
    return _TYPES[element_type].parameter(values)


def register_arrays(connection: psycopg.Connection[Any]) -> None:
    """Let a connection send the lists of `array_of`."""
    for array_type in _TYPES.values():
        connection.adapters.register_dumper(array_type.parameter, _dumper_of(array_type))


def _dumper_of(array_type: _ArrayType) -> type[Dumper]:
    class ArrayDumper(Dumper):
        format = Format.BINARY
        oid = array_type.oid

        def dump(self, obj: Sequence[Any]) -> Buffer:
            if not obj:
                return _EMPTY.pack(0, 0, array_type.element_oid)
            has_null = int(None in obj)
            header = _HEADER.pack(1, has_null, array_type.element_oid, len(obj), 1)
            return b"".join([header, *array_type.write(obj)])

    return ArrayDumper
