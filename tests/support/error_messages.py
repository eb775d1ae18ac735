"""The message, the exit code and the fields of every error, built from sample arguments.

A test compares them with the table in `tests/errors.txt`. To write the table again, and see what
changed:

    python -m tests.support.error_messages && git diff tests/errors.txt
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slumberd import errors
from slumberd.errors import Mistake, SlumberdError

TABLE = Path(__file__).parents[1] / "errors.txt"

VALUES: dict[str, Any] = {
    "answered": [0, 2],
    "problems": {1: "no slumberd runs"},
    "at": 3,
    "cause": OSError("no"),
    "ours": 1,
    "current": 2,
    "count": 3,
    "rows": ["'e1'", "'e2'"],
    "versions": 3,
    "seconds": 1.5,
    "waited_seconds": 1.5,
    "scope": ("alice", None, None),
    "where": "postgresql://db.example.org:5432/slumberd",
    "limit": 2.5,
    "most_bytes": 1024,
    "spent": 3.0,
    "mistakes": [Mistake("a.yaml", 1, 2, "rules[0]", "is wrong")],
}
_FURTHER = {"position": 4, "exit_code": 69, "row": 5, "retry_seconds": 2.0, "further": ()}
"""Sample values of arguments that have a default."""


def classes() -> list[type[SlumberdError]]:
    """Return every class of errors."""
    found = {kind for kind in vars(errors).values() if inspect.isclass(kind)}
    return sorted(
        (kind for kind in found if issubclass(kind, SlumberdError)), key=lambda kind: kind.__name__
    )


def construct(
    kind: type[SlumberdError], *, with_all: bool = False
) -> tuple[SlumberdError, dict[str, object]]:
    """Return an error of a class, and its constructor's arguments: the needed ones, or all."""
    if kind.__init__ in (Exception.__init__, SlumberdError.__init__):
        return kind("it failed"), {}
    parameters = [*inspect.signature(kind.__init__).parameters.values()][1:]
    samples = VALUES | _FURTHER
    given = {
        parameter.name: samples.get(parameter.name, f"<{parameter.name}>")
        for parameter in parameters
        if with_all or parameter.default is parameter.empty
    }
    return kind(**given), given


def all_messages() -> list[str]:
    """Return a line for each class, with the needed arguments, and one with all, if it differs."""
    return [line for kind in classes() for line in dict.fromkeys(_lines_of(kind))]


def _lines_of(kind: type[SlumberdError]) -> Iterator[str]:
    for with_all in (False, True):
        error, _ = construct(kind, with_all=with_all)
        yield f"{kind.__name__} (exit {kind.exit_code}): {error.message!r} {error.context}"


def main() -> None:
    """Write the table again."""
    TABLE.write_text("\n".join(all_messages()) + "\n")


if __name__ == "__main__":
    main()
