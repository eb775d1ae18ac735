"""Run an operation: check the caller's right, read the request by its form, and answer.

The result is a dictionary of JSON values.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import Any, TypeVar

from slumberd.config.validation import problems
from slumberd.config.yaml_reader import dotted_path
from slumberd.errors import UsageError
from slumberd.operations.caller import Caller
from slumberd.operations.forms import RequestForm, Result
from slumberd.operations.operation import Operation, operations_of
from slumberd.storage.replica_reads import allow_replica_reads

Answer = dict[str, Any]
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
    operation: Operation[F], run: Callable[[F, Caller], Awaitable[Result | Answer]]
) -> Handler:
    """Return a handler that reads a request by the operation's form.

    The form refuses an unknown key: a misspelled ``dry_run`` must not erase anything.

    Args:
        operation: The declaration of the operation.
        run: Runs it.

    Raises:
        NotAllowedError: By the handler; the caller has not the right.
        UsageError: By the handler; it lists every mistake of the request.
    """

    async def handle(request: dict[str, Any], caller: Caller) -> Answer:
        caller.require(operation.right)
        form = read_form(operation, request)
        with allow_replica_reads() if operation.read_only else nullcontext():
            answer = await run(form, caller)
        return answer.document() if isinstance(answer, Result) else answer

    return handle


def read_form(operation: Operation[F], request: Mapping[str, Any]) -> F:
    """Read a request by the form of its operation.

    Raises:
        UsageError: With every mistake of the request.
    """
    if found := problems(operation.form, request, strict=True, is_yaml=False):
        listed = (f"{dotted_path(each.trail)}: {each.text}".removeprefix(": ") for each in found)
        raise UsageError(f"{operation.name}: {'; '.join(listed)}")
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
            caller: Who calls.

        Raises:
            NotAllowedError: The caller has no right to the operation, or to the scope.
            UsageError: There is no such operation, or the request has mistakes.
            SlumberdError: The operation failed.
        """
        handler = self._handlers.get(name)
        if handler is None:
            raise UsageError(f"unknown operation {name!r}")
        return await handler(request, caller)
