"""Compare log lines with the event catalogue, in the whole test suite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
import structlog
from jsonschema import Draft202012Validator

from slumberd.logs.event_catalogue import CATALOGUE
from slumberd.logs.lines import LineStream, json_line

LOGS = "*.log*"
"""What tests call the files that daemons and commands log to."""

_seen: set[object] = set()
_TS = "2026-01-01T00:00:00.000000Z"


def problems_of_lines(lines: Iterable[bytes]) -> list[str]:
    """Return what is wrong with lines of JSON; other lines are for people."""
    return [
        complaint for line in lines if line.startswith(b"{") for complaint in problems_of_line(line)
    ]


def problems_of_log_files(folder: Path) -> list[str]:
    """Return what is wrong with the log files below a folder, whichever process wrote them."""
    logs = [path for path in folder.rglob(LOGS) if path.is_file()]
    return problems_of_lines(
        line for path in logs for line in path.read_bytes().splitlines() if _is_whole(line)
    )


def _is_whole(line: bytes) -> bool:
    """Return whether a line is complete: a kill may leave half a line."""
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


def problems_of_line(line: bytes) -> list[str]:
    """Return what is wrong with one line of JSON."""
    event = orjson.loads(line)
    if event.get("event") not in CATALOGUE:
        return [f"no such event in the catalogue: {line!r}"]
    if (shape := _shape(event)) in _seen:
        return []
    found = [
        f"{error.message} in {line!r}" for error in _validator(event["event"]).iter_errors(event)
    ]
    if not found:
        _seen.add(shape)
    return found


def _shape(value: object, key: str = "") -> object:
    """Return what a schema of the catalogue can see of a value: types, and words that it lists."""
    match value:
        case dict():
            return tuple((name, _shape(item, name)) for name, item in value.items())
        case list():
            return frozenset(_shape(item) for item in value)
        case _ if key in {"event", "level", "kind", "truncated"}:
            return value
        case _:
            return type(value)


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(CATALOGUE[name].schema)


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Compare what this process logs in the block with the catalogue; yield the differences."""
    wrong: list[str] = []
    write = LineStream.write

    def watch(sink: LineStream, lines: bytes, *, must: bool = False) -> bool:
        wrong.extend(problems_of_lines(lines.splitlines()))
        return write(sink, lines, must=must)

    monkeypatch.setattr(LineStream, "write", watch)
    monkeypatch.setattr(structlog.testing.LogCapture, "__call__", _captured(wrong))
    structlog.configure(processors=[_checking(wrong), *structlog.get_config()["processors"]])
    yield wrong
    structlog.reset_defaults()


def _captured(wrong: list[str]) -> Callable[..., Any]:
    capture = structlog.testing.LogCapture.__call__
    check = _checking(wrong)

    def capturing(self: Any, logger: Any, method: str, event: MutableMapping[str, Any]) -> Any:
        check(logger, method, event)
        return capture(self, logger, method, event)

    return capturing


def _checking(wrong: list[str]) -> Callable[[Any, str, MutableMapping[str, Any]], Any]:
    def check(_: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        fields = {key: value for key, value in event.items() if key != "exc_info"}
        trace = {"exception": ""} if event.get("exc_info") else {}
        wrong.extend(
            problems_of_lines([json_line({"ts": _TS, "level": method, **fields, **trace})])
        )
        return event

    return check
