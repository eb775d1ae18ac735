"""Hold what an index knows of numbered texts in arrays, and turn these into bytes and back."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import orjson

if TYPE_CHECKING:
    from typing_extensions import Buffer
else:
    Buffer = Any

Parts = Mapping[str, memoryview]
"""The parts of a saved index, by name."""

SavedParts = dict[str, Buffer | Callable[[], Buffer]]
"""The parts of an index that is to be saved, by name: bytes, or what makes them.

A change of the index changes none of them, so they can be written while the index is used.
"""

VECTOR_ROWS = "vector_rows"
"""The largest part of a saved index: a kilobyte for each text. Who loads it checks it."""

T = TypeVar("T", bound=Hashable)


def read_array(code: str, part: memoryview) -> array[Any]:
    """Return an array of numbers.

    Raises:
        ValueError: The part has another length.
    """
    found: array[Any] = array(code)
    found.frombytes(part)
    return found


def read_json(part: memoryview) -> Any:  # noqa: ANN401 # any JSON
    """Return a value.

    Raises:
        ValueError: The part is no JSON.
    """
    return orjson.loads(part)


class Interned(Generic[T]):
    """Numbers a few values that many texts share. A value that no text has any more is forgotten.

    Args:
        values: The values by number; None for one that is free.
        uses: How many texts have each.
    """

    def __init__(self, values: Iterable[T | None] = (), uses: Iterable[int] = ()) -> None:
        self.values: list[T | None] = [*values]
        self.uses = array("I", uses)
        self._numbers = {value: n for n, value in enumerate(self.values) if value is not None}

    def add(self, value: T) -> int:
        """Count one more text with a value; return the number of the value."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
            self.uses.append(1)
        else:
            self.uses[number] += 1
        return number

    def remove(self, number: int) -> None:
        """Count one text less with a value."""
        self.uses[number] -= 1
        if not self.uses[number]:
            del self._numbers[self[number]]
            self.values[number] = None

    def __getitem__(self, number: int) -> T:
        value = self.values[number]
        assert value is not None  # noqa: S101 # a text has it
        return value

    def used(self) -> Iterable[T]:
        """Return the values that texts have."""
        return self._numbers.keys()
