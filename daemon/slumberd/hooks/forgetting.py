"""Leave out the replies to turns that a person asks to forget, and take back the turn before.

The daemon finds the words, since its configuration has them, and stores nothing of such a turn.
This module knows what only the order of a transcript says: which replies belong to the turn, and
which turn came before. Between two hooks it keeps ids, and no text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from slumberd.hooks.daemon_client import Answer
from slumberd.model.speaker import PERSON

_KEPT = ("id", "session", "speaker", "when")


class ForgottenTurns:
    """What was said last in a transcript, and whether the replies to it are left out.

    Args:
        last_turn: What `finished` returned at the place where the transcript is read on; empty at
            its beginning.
    """

    def __init__(self, last_turn: Mapping[str, Any]) -> None:
        self._left_out = str(last_turn.get("left_out", ""))
        self._said = _requests_in(last_turn, "said")
        self._before = _requests_in(last_turn, "before")
        self.finish_line()

    def leaves_out(self, request: dict[str, Any]) -> bool:
        """Return whether a request is a reply to a turn that is to be forgotten, or part of it."""
        if not self._left_out:
            return False
        if request["speaker"] not in PERSON or _is_part(request, self._left_out):
            return True
        self._left_out = ""
        return False

    def take_back(self, request: dict[str, Any], answer: Answer) -> Iterator[dict[str, Any]]:
        """Yield the requests that withdraw what was put, when a person asks to forget it.

        Args:
            request: The request of a turn.
            answer: The answer to it.
        """
        begins = request["speaker"] in PERSON and not (
            self._said and _is_part(request, self._said[0]["id"])
        )
        if begins:
            self._before, self._said = self._said, []
        forget = answer.document.get("forget")
        if forget is None:
            self._said.append({name: request[name] for name in _KEPT})
            return
        for each in [*self._said, *(self._before if forget == "that" else ())]:
            yield {**request, **each, "text": "", "metadata": {"withdrawn": "forgotten"}}
        self._left_out = self._said[0]["id"] if self._said else request["id"]
        self._said = self._before = []

    def finish_line(self) -> None:
        """Record that a whole line is put, and that the cursor may move."""
        self._finished = (self._left_out, self._said, len(self._said), self._before)

    def finished(self) -> dict[str, Any]:
        """Return what was said last before the end of the last whole line."""
        left_out, said, count, before = self._finished
        return {"left_out": left_out, "said": said[:count], "before": before}


def _is_part(request: dict[str, Any], id: str) -> bool:  # what it is
    """Return whether a request is a further part of a long turn."""
    return str(request["id"]).startswith(f"{id}.")


def _requests_in(last_turn: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the requests that a cursor keeps; none when the cursor is damaged."""
    found = last_turn.get(key)
    listed = found if isinstance(found, list) else []
    return [each for each in listed if isinstance(each, dict) and each.keys() == {*_KEPT}]
