"""How an event becomes a line: JSON for machines, short and escaped for people. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

MOST_BYTES = 8192
"""The longest line of JSON; journald breaks long lines into pieces that are none."""

Event = Mapping[str, Any]
"""With ``ts``, ``level`` and ``event``, then whatever it is about."""

CHECKPOINT = "ledger.checkpoint"
"""The event with the ledger's ``rows`` and ``head``."""

_ALWAYS = ("ts", "level", "event")
_WORD_BITS = 64
_OPTIONS = orjson.OPT_APPEND_NEWLINE
_TRUNCATED = {"truncated": True}


def timestamp(at: datetime) -> str:
    """Return an instant as every line has it: ISO 8601, UTC, microseconds."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def json_line(event: Event) -> bytes:
    """Return an event as JSON; values are cut, and it says so, where it would grow too long."""
    line = _dumped(event)
    return line if len(line) <= MOST_BYTES else _dumped(_shortened(event))


def _dumped(event: Event) -> bytes:
    try:
        return orjson.dumps(event, default=str, option=_OPTIONS)
    except TypeError:  # a lone surrogate, a number of over 64 bits, a key that is no text
        return orjson.dumps(_plain(event), option=_OPTIONS)


def _plain(value: object) -> object:
    """Return a value with what JSON does not know as text, and all else as it is."""
    match value:
        case None | bool() | float():
            return value
        case int():
            return value if value.bit_length() < _WORD_BITS else str(value)
        case list() | tuple():
            return [_plain(one) for one in value]
        case Mapping():
            return {printable(key): _plain(one) for key, one in value.items()}
        case _:
            return printable(value)


def _shortened(event: Event) -> Event:
    """Return an event with as much of each value as there is room for."""
    for most in (1024, 128, 32):
        short = {key: _cut(value, most) for key, value in event.items()} | _TRUNCATED
        if len(_dumped(short)) <= MOST_BYTES:
            return short
    return {key: _cut(event.get(key), 32) for key in ("ts", "level", "event")} | _TRUNCATED


def _cut(value: object, most: int) -> object:
    """Return a value when it is short, else the beginning of its text."""
    text = value if isinstance(value, str) else repr(value)
    return value if len(text) <= most else text[:most] + "\N{HORIZONTAL ELLIPSIS}"


def printable(value: object) -> str:
    """Return a value's text in one line, with whatever could move a cursor escaped."""
    text = value if isinstance(value, str) else repr(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


_COLORS = {"debug": "\33[2m", "info": "\33[32m", "warning": "\33[33m", "error": "\33[31m"}
_NO_COLOR = "\33[0m"


def event_of(line: bytes) -> Event | None:
    """Return the event of a line of a log; None when the line is not one that slumberd wrote."""
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    ours = isinstance(found, dict) and all(isinstance(found.get(key), str) for key in _ALWAYS)
    return found if ours else None


def readable_line(line: bytes, *, colors: bool) -> bytes:
    """Return a line of a log for a person to read, whatever is in it; it moves no cursor."""
    event = event_of(line)
    if event is not None:
        return console_line(event, colors=colors)
    return printable(line.decode(errors="backslashreplace").rstrip("\r\n")).encode() + b"\n"


def console_line(event: Event, *, colors: bool) -> bytes:
    """Return an event for a person to read; a traceback follows in lines of its own."""
    level = f"{printable(event['level']):<7}"
    if colors:
        level = _COLORS.get(event["level"], "") + level + _NO_COLOR
    said = printable(event["event"])
    words = "  ".join(_words(event))
    line = f"{printable(event['ts'][:19])}Z {level} {said:<18}  {words}".rstrip()
    return "\n".join([line, *_traceback(event), ""]).encode(errors="backslashreplace")


def _words(event: Event) -> Iterable[str]:
    render = _RENDERED.get(event["event"], _plain_words)
    if event.get("truncated"):
        return _plain_words(event)
    try:
        return render(event)
    except (AttributeError, KeyError, TypeError, ValueError):  # it is not as slumberd writes it
        return _plain_words(event)


def _plain_words(event: Event) -> list[str]:
    told = {*_ALWAYS, "exception"}
    return [f"{printable(k)}={_shown(value)}" for k, value in event.items() if k not in told]


def _shown(value: object) -> str:
    return printable(_cut(value, 1024))


def _delta_words(event: Event) -> list[str]:
    words = [
        _shown(event["kind"]),
        _shown(event["fact_id"] or ", ".join(event["source_episode_ids"])),
    ]
    if event["replaces"]:
        words.append(f"replaces {_shown(', '.join(event['replaces']))}")
    if event["reason"]:
        words.append(f"({_shown(event['reason'])})")
    return [*words, f"by {_shown(event['firing_id'])}"]


def _firing_words(event: Event) -> list[str]:
    channels = [f"{_shown(name)}: {_counted(one)}" for name, one in event["channels"].items()]
    return [_shown(event["firing_id"]), *channels, f"{event['seconds']:.3f} s"]


def _counted(counts: Mapping[str, int]) -> str:
    told = [f"{_shown(count)} {_shown(what)}" for what, count in counts.items() if count]
    return ", ".join(told) or "nothing read"


_RENDERED: Mapping[str, Callable[[Event], list[str]]] = {
    "delta.applied": _delta_words,
    "firing.completed": _firing_words,
}


def _traceback(event: Event) -> list[str]:
    return [f"  {printable(line)}" for line in str(event.get("exception") or "").splitlines()]
