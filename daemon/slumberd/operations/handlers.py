"""Declare an operation once, on the method that does it, and run it for each interface.

The control socket, HTTP, the Model Context Protocol and the reference pages are made from the
declaration. A handler checks the caller's right, reads the request by its form, and answers.
The result is a dictionary of JSON values. A program may observe the calls of a handler, and another
host may pass on with a request who called it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Protocol, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError

from slumberd.model.errors import NotAllowedError, SlumberdError, UsageError
from slumberd.operations.caller import Caller, Right
from slumberd.operations.forms import RequestForm, Result
from slumberd.rules.validation import problems
from slumberd.rules.yaml_reader import dotted_path
from slumberd.storage.replica_reads import allow_replica_reads

F_co = TypeVar("F_co", bound=RequestForm, covariant=True)
M = TypeVar("M", bound=Callable[..., Awaitable[object]])

_MARK = "operation"
"""The attribute of a method that holds its declaration."""

_MOST_NAMED = 10
"""Mistakes of one request that are named: a request with 10,000 episodes may have as many."""


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


Answer = dict[str, Any]
"""What an interface gets: values of JSON, by the names of the answer's model."""


class HasDocument(Protocol):
    """An answer that a command reads as it is, and of which an interface gets the JSON form."""

    def document(self) -> Answer:
        """Return the JSON form."""
        ...


Handler = Callable[[dict[str, Any], Caller], Awaitable[Answer]]

F = TypeVar("F", bound=RequestForm)


def handlers_of(*targets: object) -> dict[str, Handler]:
    """Return a handler for each operation that methods of some objects declare, by name."""
    return {
        name: handler_of(declared, getattr(target, name))
        for target in targets
        for name, declared in operations_of(type(target)).items()
    }


def handler_of(
    operation: Operation[F], run: Callable[[F, Caller], Awaitable[HasDocument | Answer]]
) -> Handler:
    """Return a handler that reads a request by the operation's form.

    The form refuses an unknown key: a misspelled ``dry_run`` must not erase anything.

    Args:
        operation: The declaration of the operation.

    Raises:
        NotAllowedError: By the handler; the caller has not the right.
        UsageError: By the handler; it lists the mistakes of the request, 10 at most.
    """

    async def handle(request: dict[str, Any], caller: Caller) -> Answer:
        caller.require(operation.right)
        form = read_form(operation, request)
        with allow_replica_reads() if operation.read_only else nullcontext():
            answer = await run(form, caller)
        return answer if isinstance(answer, dict) else answer.document()

    return handle


def read_form(operation: Operation[F], request: Mapping[str, Any]) -> F:
    """Read a request by the form of its operation.

    Raises:
        UsageError: With the mistakes of the request, 10 at most.
    """
    # Of two problems, one may be an echo of the other, which is left out.
    found = problems(operation.form, request, strict=True, is_yaml=False, most=2 * _MOST_NAMED + 1)
    if found:
        listed = [
            f"{dotted_path(each.trail)}: {each.text}".removeprefix(": ")
            for each in found[:_MOST_NAMED]
        ]
        more = ["and more mistakes"] if len(found) > _MOST_NAMED else []
        raise UsageError(f"{operation.name}: {'; '.join(listed + more)}")
    return operation.form.model_validate(request, strict=True)


def refuse_other_shards(handlers: Mapping[str, Handler], own: int) -> dict[str, Handler]:
    """Return handlers of the daemon of one shard, which refuse a request that names another."""

    def guarded(handler: Handler) -> Handler:
        async def handle(request: dict[str, Any], caller: Caller) -> Answer:
            if (shard := request.get("shard")) not in (None, own):
                raise UsageError(f"shard: {shard!r:.40} is not here; this daemon has shard {own}")
            return await handler(request, caller)

        return handle

    return {name: guarded(handler) for name, handler in handlers.items()}


class Dispatcher:
    """Calls operations by name, for every interface.

    Args:
        handlers: The operations that run here, by name.
    """

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers

    @property
    def names(self) -> frozenset[str]:
        """The names of the operations that run here."""
        return frozenset(self._handlers)

    async def call(self, name: str, request: dict[str, Any], caller: Caller) -> Answer:
        """Run an operation, and return its answer.

        Args:
            name: The operation.
            request: Its fields.

        Raises:
            NotAllowedError: The caller has no right to the operation, or to the scope.
            UsageError: There is no such operation, or the request has mistakes.
            SlumberdError: The operation failed.
        """
        handler = self._handlers.get(name)
        if handler is None:
            raise UsageError(f"unknown operation {name!r}")
        return await handler(request, caller)


class CallObserver(Protocol):
    """Observes calls. It must not raise, and must not change request or answer."""

    def observe(
        self, name: str, request: Mapping[str, Any]
    ) -> AbstractContextManager[Callable[[Answer], None]]:
        """Return a block that encloses the call of an operation.

        The block yields what takes the answer. An error of the operation passes through the block.

        Args:
            name: The operation.
            request: Its fields; the operation has not checked them yet.
        """
        ...


def observe_calls(handlers: Mapping[str, Handler], observer: CallObserver) -> dict[str, Handler]:
    """Return handlers that let an observer observe each call."""
    return {name: _observed(name, handler, observer) for name, handler in handlers.items()}


def _observed(name: str, handler: Handler, observer: CallObserver) -> Handler:
    async def handle(request: dict[str, Any], caller: Caller) -> Answer:
        with observer.observe(name, request) as take:
            answer = await handler(request, caller)
            take(answer)
            return answer

    return handle


FIELD = "caller"
"""The field of a request that says who called."""


class ForwardedCaller(BaseModel):
    """Who called, as a request says it.

    Attributes:
        name: The name for the audit; None for the sender itself.
        user: The only user that it may name; None for any.
        agent: The only agent that it may name; None for any.
        rights: What it may do; None for all that the sender may do.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: str | None = None
    user: str | None = None
    agent: str | None = None
    rights: list[Right] | None = None


def forward(request: dict[str, Any], caller: Caller | None = None) -> dict[str, Any]:
    """Return a request that says who called it.

    Args:
        request: The fields of the request.
        caller: Who called; None for the sender itself.
    """
    if caller is None:
        return request
    passed = ForwardedCaller(
        name=caller.name, user=caller.user, agent=caller.agent, rights=sorted(caller.rights)
    )
    return {**request, FIELD: passed.model_dump(mode="json", exclude_none=True)}


def for_forwarded(handler: Handler) -> Handler:
    """Return a handler that calls another one for the caller that a request names.

    Raises:
        NotAllowedError: By the handler; the caller would have more than the sender.
        UsageError: By the handler; what the request says of the caller is malformed.
    """

    async def handle(request: dict[str, Any], sender: Caller) -> Answer:
        if FIELD not in request:
            return await handler(request, sender)
        fields = {name: value for name, value in request.items() if name != FIELD}
        return await handler(fields, _narrow(sender, _read(request[FIELD])))

    return handle


def _read(document: object) -> ForwardedCaller:
    try:
        return ForwardedCaller.model_validate(document)
    except ValidationError as error:
        raise UsageError(f"the caller of the request cannot be read: {error}") from error


def _narrow(sender: Caller, passed: ForwardedCaller) -> Caller:
    """Return the caller that a sender passes on, with at most what the sender may do."""
    for own, given in ((sender.user, passed.user), (sender.agent, passed.agent)):
        if own is not None and given not in (None, own):
            raise NotAllowedError(sender.name, "may not name another scope than its own")
    rights = sender.rights if passed.rights is None else sender.rights & {*passed.rights}
    return Caller(
        name=sender.name if passed.name is None else f"{passed.name} via {sender.name}",
        uid=sender.uid,
        pid=sender.pid,
        user=passed.user if sender.user is None else sender.user,
        agent=passed.agent if sender.agent is None else sender.agent,
        rights=frozenset(rights),
    )
