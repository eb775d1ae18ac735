"""Let a program observe each call of an operation, without the operations knowing of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer, Handler


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
