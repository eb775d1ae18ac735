"""Trace operations on memory in programs that use OpenTelemetry, and load it in no other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from slumberd.operations.handlers import Answer, CallObserver

_API = "opentelemetry.trace"


class TracedCalls:
    """Makes spans of operations, from the moment on when the program has loaded OpenTelemetry.

    A program that has a tracer provider has loaded it. So slumberd need not load it, which takes
    time and is impossible where it is not installed.
    """

    def __init__(self) -> None:
        self._spans: CallObserver | None = None

    def observe(
        self, name: str, request: Mapping[str, Any]
    ) -> AbstractContextManager[Callable[[Answer], None]]:
        """Enclose the call of an operation in a span, if the program traces."""
        if self._spans is None and _API in sys.modules:
            from slumberd.observability.memory_spans import MemorySpans

            self._spans = MemorySpans()
        return nullcontext(_ignore) if self._spans is None else self._spans.observe(name, request)


def _ignore(_: Answer) -> None:
    pass
