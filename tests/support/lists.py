"""Turn a test of one entry into one test of a whole list, which names all that is wrong."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

Check = Callable[..., None]


def of_each(
    entries: Callable[[], Iterable[Any]], name: Callable[[Any], object] = str
) -> Callable[[Check], Check]:
    """Return a decorator that passes each entry to a test, as its first argument.

    The test fails once, and its message has a line for each entry that fails. It fails on an
    empty list, too.

    Args:
        entries: Returns the list; it is called when the test runs, not when it is collected.
        name: Names an entry in the message.
    """

    def decorate(check: Check) -> Check:
        @wraps(check)
        def test(**fixtures: Any) -> None:
            listed = [*entries()]
            wrong = [line for entry in listed for line in _wrong(check, entry, name, fixtures)]
            if wrong or not listed:
                raise AssertionError("\n".join(wrong) or "the list is empty")

        signature = inspect.signature(check)
        left = [*signature.parameters.values()][1:]
        vars(test)["__signature__"] = signature.replace(parameters=left)
        return test

    return decorate


def _wrong(
    check: Check, entry: Any, name: Callable[[Any], object], fixtures: dict[str, Any]
) -> list[str]:
    try:
        check(entry, **fixtures)
    except Exception as error:  # noqa: BLE001 # whatever it is, the entry fails
        return [f"{name(entry)}: {type(error).__name__}: {error}"]
    return []
