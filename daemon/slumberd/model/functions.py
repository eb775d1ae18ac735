"""Functions of the operator that rules name, and how a failure of one is described."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MOST_MESSAGE = 200
"""Characters of an exception's message that a description has at most."""


@dataclass(frozen=True, slots=True)
class RuleFunction:
    """A Python function that a rule names.

    Attributes:
        name: As rule files name it: ``python:package.module:function``.
        digest: Changes with the name, and with the file of the module.
        call: The function. It may raise anything.
    """

    name: str
    digest: str
    call: Callable[..., Any] = field(compare=False, repr=False)


def describe_exception(error: BaseException) -> str:
    """Return the class and the message of an exception on one line, the message cut."""
    try:
        message = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - an operator's exception may not even have a message
        message = ""
    cut = message if len(message) <= MOST_MESSAGE else f"{message[:MOST_MESSAGE]}..."
    return f"{type(error).__name__}: {cut}" if cut else type(error).__name__
