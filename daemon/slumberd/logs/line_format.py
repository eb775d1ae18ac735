"""Render events as lines: JSON for programs, escaped text for people. Writes nothing."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

MOST_BYTES = 8192
"""The longest line of JSON; journald splits longer lines."""

Event = Mapping[str, Any]
"""The fields of a line: ``ts``, ``level`` and ``event``, then those of the event."""

Render = Callable[[Event], bytes]
"""Renders an event as a line."""

CHECKPOINT = "ledger.checkpoint"
"""The event with the ledger's ``rows`` and ``head``."""

_ALWAYS = ("ts", "level", "event")
_WORD_BITS = 64
_OPTIONS = orjson.OPT_APPEND_NEWLINE
_TRUNCATED = {"truncated": True}


def timestamp(at: datetime) -> str:
    """Return an instant as text: ISO 8601, UTC, with microseconds."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def json_line(event: Event) -> bytes:
    """Return an event as JSON; in a long line the values are cut, and ``truncated`` is true."""
    line = _dump(event)
    return line if len(line) <= MOST_BYTES else _dump(_shorten(event))


def _dump(event: Event) -> bytes:
    try:
        return orjson.dumps(event, default=str, option=_OPTIONS)
    except TypeError:  # a lone surrogate, a number of over 64 bits, a key that is no text
        return orjson.dumps(_plain(event), option=_OPTIONS)


def _plain(value: object) -> object:
    """Return a value in which text replaces whatever JSON cannot express."""
    match value:
        case None | bool() | float():
            return value
        case int():
            return value if value.bit_length() < _WORD_BITS else str(value)
        case list() | tuple():
            return [_plain(item) for item in value]
        case Mapping():
            return {printable(key): _plain(item) for key, item in value.items()}
        case _:
            return printable(value)


def _shorten(event: Event) -> Event:
    """Return an event whose values are cut until its line is short enough."""
    for most in (1024, 128, 32):
        short = {key: _cut(value, most) for key, value in event.items()} | _TRUNCATED
        if len(_dump(short)) <= MOST_BYTES:
            return short
    return {key: _cut(event.get(key), 32) for key in ("ts", "level", "event")} | _TRUNCATED


def _cut(value: object, most: int) -> object:
    """Return a short value as it is, and the beginning of the text of a long one."""
    text = value if isinstance(value, str) else repr(value)
    return value if len(text) <= most else text[:most] + "\N{HORIZONTAL ELLIPSIS}"


def printable(value: object) -> str:
    """Return the text of a value in one line; control characters are escaped."""
    text = value if isinstance(value, str) else repr(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


_COLORS = {"debug": "\33[2m", "info": "\33[32m", "warning": "\33[33m", "error": "\33[31m"}
_NO_COLOR = "\33[0m"


_HASH_DIGITS = 16


def hash_name(key: bytes, name: str) -> str | None:
    """Return the hash of a user or agent in a line: empty for an empty name, None without a key."""
    if not key or not name:
        return None if name else ""
    return hmac.digest(key, name.encode(errors="surrogatepass"), "sha256").hex()[:_HASH_DIGITS]


def event_of(line: bytes) -> Event | None:
    """Return the event of a line of a log; None when slumberd did not write the line."""
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    is_event = isinstance(event, dict) and all(isinstance(event.get(key), str) for key in _ALWAYS)
    return event if is_event else None


def readable_line(line: bytes, *, colors: bool) -> bytes:
    """Return any line of a log as text for a person, with control characters escaped."""
    event = event_of(line)
    if event is not None:
        return console_line(event, colors=colors)
    return printable(line.decode(errors="backslashreplace").rstrip("\r\n")).encode() + b"\n"


def console_line(event: Event, *, colors: bool) -> bytes:
    """Return an event as text for a person; a traceback follows in lines of its own."""
    level = f"{printable(event['level']):<7}"
    if colors:
        level = _COLORS.get(event["level"], "") + level + _NO_COLOR
    name = printable(event["event"])
    words = "  ".join(_words(event))
    line = f"{printable(event['ts'][:19])}Z {level} {name:<18}  {words}".rstrip()
    return "\n".join([line, *_traceback(event), ""]).encode(errors="backslashreplace")


def _words(event: Event) -> Iterable[str]:
    render = _WORDS.get(event["event"], _plain_words)
    if event.get("truncated"):
        return _plain_words(event)
    try:
        return render(event)
    except (AttributeError, KeyError, TypeError, ValueError):  # another program wrote the line
        return _plain_words(event)


def _plain_words(event: Event) -> list[str]:
    shown = {*_ALWAYS, "exception"}
    return [f"{printable(key)}={_show(event[key])}" for key in event if key not in shown]


def _show(value: object) -> str:
    return printable(_cut(value, 1024))


def _delta_words(event: Event) -> list[str]:
    words = [
        _show(event["kind"]),
        _show(event["fact_id"] or ", ".join(event["source_episode_ids"])),
    ]
    if event["replaces"] and event["replaces"] != [event["fact_id"]]:
        words.append(f"replaces {_show(', '.join(event['replaces']))}")
    if event["reason"]:
        words.append(f"({_show(event['reason'])})")
    return [*words, f"by {_show(event['firing_id'])}"]


def _firing_words(event: Event) -> list[str]:
    return [_show(event["firing_id"]), *_channel_words(event), f"{event['seconds']:.3f} s"]


def _finished_words(event: Event) -> list[str]:
    batches = f"{event['batches']:d} batches"
    purged = [f"{event['purged']:d} episodes purged"] if event["purged"] else []
    return [_show(event["rule_id"]), batches, *_channel_words(event), *purged]


def _channel_words(event: Event) -> list[str]:
    return [f"{_show(name)}: {_count(counts)}" for name, counts in event["channels"].items()]


def _count(counts: Mapping[str, int]) -> str:
    words = [f"{_show(count)} {_show(name)}" for name, count in counts.items() if count]
    return ", ".join(words) or "nothing read"


_WORDS: Mapping[str, Callable[[Event], list[str]]] = {
    "delta.applied": _delta_words,
    "firing.completed": _firing_words,
    "firing.finished": _finished_words,
}


def _traceback(event: Event) -> list[str]:
    return [f"  {printable(line)}" for line in str(event.get("exception") or "").splitlines()]
