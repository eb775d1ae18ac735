"""The sessions of OpenAI's agents, with episodes beneath. Needs the extra ``openai``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast
from uuid import uuid4

from slumberd.client.memory import Memory
from slumberd.clock import Clock, SystemClock
from slumberd.model.capture.secrets import pieces
from slumberd.model.episode import is_visible
from slumberd.model.errors import ExtraMissingError
from slumberd.operations.episodes import KnownEpisode
from slumberd.operations.forms import MOST, MOST_CHARACTERS

try:
    from agents import Session, SessionSettings, TResponseInputItem
except ImportError as error:
    raise ExtraMissingError("openai", "OpenAI's agents cannot use this session") from error

_KEY = "openai_agents"
"""The key of an episode's metadata; the item lies below it as a text of JSON."""

_PAGE = 100
"""So many episodes are read at first; later pages are larger."""

_STEP = timedelta(microseconds=1)


class _Entry(NamedTuple):
    """An item of a session, with the episode that keeps it."""

    episode: KnownEpisode
    item: str
    is_removed: bool


class SlumberdSession(Session):
    """A conversation as episodes; rules make facts of what is said in it.

    One program at a time should write to a session. Several may read it.

    Attributes:
        session_id: The session of the episodes.
        session_settings: How many items a run reads.

    Args:
        session_id: The session of the episodes.
        memory: The memory of the user.
        session_settings: How many items a run reads; by default all.
        clock: The time of new items.
    """

    def __init__(
        self,
        session_id: str,
        memory: Memory,
        *,
        session_settings: SessionSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = session_settings or SessionSettings()
        self._memory = memory
        self._clock = clock or SystemClock()
        self._turn = asyncio.Lock()

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items of the conversation, oldest first.

        Args:
            limit: Only so many of the latest; a negative number means all, and None the limit of
                the settings.
        """
        settings = self.session_settings
        most = settings.limit if limit is None and settings is not None else limit
        found: list[str] = []
        if most != 0:
            async for entry in self._latest():
                found.append(entry.item)
                if len(found) == most:
                    break
        return [json.loads(item) for item in reversed(found)]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Put each item as an episode, in their order; each is on disk before the next one.

        Raises:
            TypeError: An item is not JSON; nothing is written.
        """
        encoded = [json.dumps(item) for item in items]
        if not items:
            return
        async with self._turn:
            at = await self._next_instant()
            for number, text in enumerate(encoded):
                await self._put(json.loads(text), text, at + number * _STEP)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the latest item from the conversation, and return it; None without one.

        The episode stays, without its text and its item, and says when the item was removed. So
        rules withdraw the facts that they made of it. `Memory.forget` with this episode erases what
        the ledger keeps of it, too.
        """
        async with self._turn:
            async for entry in self._latest():
                await self._remove(entry)
                return cast("TResponseInputItem", json.loads(entry.item))
        return None

    async def clear_session(self) -> None:
        """Remove all items from the conversation, as `pop_item` removes one.

        `Memory.forget` with this session erases them for good.
        """
        async with self._turn:
            # slumberd 0.2.0 kept the texts of removed items.
            for entry in [entry async for entry in self._latest(also_removed=True)]:
                await self._remove(entry)

    async def _latest(self, *, also_removed: bool = False) -> AsyncIterator[_Entry]:
        """Yield the items that episodes keep, latest first; by default those not yet removed."""
        seen: set[str] = set()  # an episode that comes meanwhile moves others to the next page
        skip, limit = 0, _PAGE
        while True:
            page = await self._memory.episodes(session=self.session_id, limit=limit, skip=skip)
            for entry in _entries(page):
                is_wanted = also_removed or not entry.is_removed
                if entry.episode.id not in seen and is_wanted:
                    yield entry
                seen.add(entry.episode.id)
            if len(page) < limit:
                return
            skip, limit = skip + limit, MOST

    async def _next_instant(self) -> datetime:
        """Return an instant after those of all episodes of the session: they order the items."""
        now = self._clock.now()
        latest = await self._memory.episodes(session=self.session_id, limit=1)
        return max([now, *(episode.timestamp + _STEP for episode in latest)])

    async def _put(self, item: Any, encoded: str, at: datetime) -> None:  # noqa: ANN401 # any JSON
        await self._memory.remember(
            text_of(item),
            id=str(uuid4()),  # a put with an id may be sent again, when its answer is lost
            when=at,
            session=self.session_id,
            speaker=_speaker_of(item),
            metadata={_KEY: {"item": encoded}},
        )

    async def _remove(self, entry: _Entry) -> None:
        kept = entry.episode.metadata[_KEY]
        removed_at = kept.get("removed_at", self._clock.now().isoformat())
        await self._memory.remember(
            "",
            id=entry.episode.id,
            when=entry.episode.timestamp,
            session=self.session_id,
            speaker=entry.episode.speaker,
            metadata={_KEY: {"removed_at": removed_at}},
        )


def _entries(page: Iterable[KnownEpisode]) -> Iterator[_Entry]:
    """Yield the items that episodes keep; other and removed episodes of the session keep none."""
    for episode in page:
        kept = episode.metadata.get(_KEY)
        item = kept.get("item") if isinstance(kept, dict) else None
        if isinstance(kept, dict) and isinstance(item, str):
            yield _Entry(episode, item, "removed_at" in kept)


def text_of(item: Any) -> str:  # noqa: ANN401 # any JSON
    """Return what an item says, for rules and for searches; empty when it has no text.

    Args:
        item: An input item of OpenAI's API: a message, a call of a tool, or its output.
    """
    match item:
        case {"content": str() | list() as content}:
            text = _joined(content)
        case {"type": "function_call", "name": str(name), "arguments": str(arguments)}:
            text = f"{name} {arguments}"
        case {"output": str() | list() as output}:
            text = _joined(output)
        case {"type": "reasoning", "summary": list(summary)}:
            text = _joined(summary)
        case _:
            text = ""
    # JSON may hold half a character, and the store takes none.
    valid = text.encode(errors="replace").decode()
    _, end = next(pieces(valid, MOST_CHARACTERS))
    return valid[:end]


def _joined(content: str | list[Any]) -> str:
    """Return the texts of the parts of a content, one a line."""
    if isinstance(content, str):
        return content
    parts = (part.get("text", part.get("refusal")) for part in content if isinstance(part, dict))
    return "\n".join(part for part in parts if isinstance(part, str))


def _speaker_of(item: Any) -> str:  # noqa: ANN401 # any JSON
    """Return who speaks an item: the role of a message, else what wrote it.

    Only messages are the words of the person; the agent calls tools, and tools answer.
    """
    match item:
        case {"role": str(role)} if is_visible(role):
            return role
        case {"type": "message"} | {"content": str()}:
            return "user"
        case {"output": _, "type": str(kind)} if kind.endswith("_output"):
            return "tool"
        case {"type": str()}:
            return "assistant"
        case _:
            return "user"
