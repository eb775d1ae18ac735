"""What one operation is: the words, the forms and the promises that every interface repeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from slumberd.errors import SlumberdError
from slumberd.operations.caller import Right
from slumberd.operations.forms import RequestForm
from slumberd.operations.memory_forms import Result

F_co = TypeVar("F_co", bound=RequestForm, covariant=True)


@dataclass(frozen=True, slots=True)
class Example:
    """A request of an operation, and an answer to it.

    Attributes:
        request: The fields of the request.
        answer: The fields of the answer.
    """

    request: Mapping[str, Any]
    answer: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[F_co]):
    """One operation, as every interface offers it.

    Attributes:
        name: Its name in requests.
        summary: What it does, in one sentence.
        form: The form of its requests.
        result: The model of its answers.
        right: What its caller needs.
        read_only: Whether it changes nothing.
        idempotent: Whether the same request again changes nothing more.
        errors: The errors that it may raise, beside those of every operation.
        example: A request and its answer.
    """

    name: str
    summary: str
    form: type[F_co]
    result: type[Result]
    right: Right
    read_only: bool = False
    idempotent: bool = False
    errors: tuple[type[SlumberdError], ...] = ()
    example: Example
