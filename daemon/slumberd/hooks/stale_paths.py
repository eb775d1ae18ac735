"""Find the transcript that a session goes on in, when a coding agent names an older one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from heapq import nlargest
from pathlib import Path

_SUFFIX = ".jsonl"
_MOST_FILES = 8
_HEAD_BYTES = 64 * 1024


def find_newer(path: str, session: str) -> str | None:
    """Return a newer transcript of the same session in the same directory; None for none.

    Args:
        path: The transcript that the coding agent names.
        session: The conversation.
    """
    given = Path(path)
    try:
        since = given.stat().st_mtime_ns
    except OSError:
        since = -1
    newer = nlargest(_MOST_FILES, _newer_than(given, since))
    return next((file for _, file in newer if _is_of(Path(file), session)), None)


def _newer_than(given: Path, since: int) -> Iterator[tuple[int, str]]:
    """Yield the newer transcripts beside one, each after the instant of its last change."""
    try:
        with os.scandir(given.parent) as entries:
            for entry in entries:
                if not entry.name.endswith(_SUFFIX) or entry.name == given.name:
                    continue
                changed_at = entry.stat().st_mtime_ns
                if changed_at > since and entry.is_file():
                    yield changed_at, entry.path
    except (OSError, ValueError):
        return


def _is_of(file: Path, session: str) -> bool:
    """Return whether a transcript is of a session, by its name or by its first line of one."""
    if file.stem == session or file.stem.endswith(f"-{session}"):
        return True
    try:
        with file.open("rb") as opened:
            head = opened.read(_HEAD_BYTES)
    except OSError:
        return False
    return next(filter(None, map(_session_in, head.split(b"\n"))), None) == session


def _session_in(line: bytes) -> str | None:
    """Return the session that a line names as its own; None when it names none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or record.get("isSidechain"):  # a subagent's transcript
        return None
    head = record.get("payload") if record.get("type") == "session_meta" else None
    own = head.get("id") if isinstance(head, dict) else record.get("sessionId")
    return own if isinstance(own, str) else None
