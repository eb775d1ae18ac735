"""Declare an operation once, on the method that does it; every interface repeats the declaration.

The control socket, HTTP, the Model Context Protocol and the reference pages are made from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from slumberd.model.errors import SlumberdError
from slumberd.operations.caller import Right
from slumberd.operations.forms import RequestForm, Result

F_co = TypeVar("F_co", bound=RequestForm, covariant=True)
M = TypeVar("M", bound=Callable[..., Awaitable[object]])

_MARK = "operation"
"""The attribute of a method that holds its declaration."""


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
    read_only: bool
    idempotent: bool
    errors: tuple[type[SlumberdError], ...]
    example: Example


def operation(
    *,
    right: Right,
    read_only: bool = False,
    idempotent: bool = False,
    errors: tuple[type[SlumberdError], ...] = (),
    example: Example,
) -> Callable[[M], M]:
    """Declare that a method is an operation: it takes a form and a caller, and returns an answer.

    The operation has the method's name, and the first line of its docstring as summary. The first
    annotation is the form. The answer is a model, or a dictionary or a value with `document()` that
    is annotated with the model of its JSON form.

    Args:
        right: What its caller needs.
        read_only: Whether it changes nothing.
        idempotent: Whether the same request again changes nothing more; true of each read.
        errors: The errors that it may raise, beside those of every operation.
        example: A request and its answer.
    """

    def declare(method: M) -> M:
        hints = get_type_hints(method, include_extras=True)
        declared = Operation(
            name=method.__name__,
            summary=(method.__doc__ or "").partition("\n")[0],
            form=next(iter(hints.values())),
            result=_model_of(hints["return"]),
            right=right,
            read_only=read_only,
            idempotent=read_only or idempotent,
            errors=errors,
            example=example,
        )
        setattr(method, _MARK, declared)
        return method

    return declare


def _model_of(answer: Any) -> type[Result]:  # noqa: ANN401 # any annotation
    model: type[Result] = get_args(answer)[1] if get_origin(answer) is Annotated else answer
    return model


def operations_of(kind: type) -> dict[str, Operation[RequestForm]]:
    """Return the operations that methods of a class, or of its bases, declare, by name."""
    members = [member for base in kind.__mro__ for member in vars(base).values()]
    found = [getattr(member, _MARK, None) for member in members]
    return {one.name: one for one in found if isinstance(one, Operation)}
