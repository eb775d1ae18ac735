"""Extract triples from entries, and condense entries into one."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from slumberd.consolidation.extraction.conversation import ConversationExtractor
from slumberd.consolidation.stages.summary import summarise
from slumberd.integrations.tiers.entries import MemoryEntry, Triple, entry_for_stages
from slumberd.integrations.tiers.errors import (
    HOST_ERRORS,
    ConsolidationError,
    FactExtractionError,
    raise_if_cancelled,
)
from slumberd.integrations.tiers.stores import takes, vector_of
from slumberd.model.episode import PERSON, microseconds
from slumberd.model.extraction import Turn
from slumberd.rules.vocabulary_loader import shipped_vocabulary

ExtractFn = Callable[[str], Awaitable[list[Triple]]]
"""Returns the triples of a text."""

SummariseFn = Callable[[list[MemoryEntry]], Awaitable[MemoryEntry]]
"""Returns one entry for several."""

_PARTS = 3


class EntityExtractor:
    """Extracts triples from entries.

    Args:
        extract_fn: Returns the triples of a text; None takes what the speaker says in plain
            English, such as ``I live in Oslo``. The owner of the entry is the subject.
    """

    def __init__(self, extract_fn: ExtractFn | None = None) -> None:
        self._extract_fn = extract_fn

    async def extract(self, entry: MemoryEntry) -> list[Triple]:
        """Return the triples of an entry's content.

        Raises:
            FactExtractionError: The function failed, or returned something else than triples.
        """
        if self._extract_fn is None:
            return _extract_sentences(entry)
        try:
            found = [tuple(triple) for triple in await self._extract_fn(entry.content)]
        except HOST_ERRORS as error:  # a function of the host may raise anything
            raise_if_cancelled(error)
            raise _failed(entry.id, f"{type(error).__name__}: {error}") from error
        return [_check_triple(entry.id, triple) for triple in found]


def _check_triple(entry_id: str, triple: tuple[object, ...]) -> Triple:
    if len(triple) != _PARTS or not all(isinstance(part, str) and part for part in triple):
        raise _failed(entry_id, f"{triple!r} is no triple of texts")
    subject, predicate, object_ = map(str, triple)
    return subject, predicate, object_


def _failed(entry_id: str, problem: str) -> FactExtractionError:
    message = f"triples of entry {entry_id!r} could not be extracted: {problem}"
    return FactExtractionError(message, entry_id=entry_id)


def _extract_sentences(entry: MemoryEntry) -> list[Triple]:
    turn = Turn(
        entry.id, "", entry.role, entry.content, microseconds(entry.timestamp),
        user=entry.owner_id or entry.role, is_person=entry.role in PERSON,
    )  # fmt: skip
    [found] = ConversationExtractor(shipped_vocabulary()).extract([turn], [None])
    return [
        (triple.subject, triple.predicate, str(triple.object))
        for triple in found
        if triple.intent == "add"
    ]


class EpisodicCompressor:
    """Condenses entries into one.

    Args:
        summarise_fn: Returns one entry for several; None takes sentences of the entries. A function
            with the parameter `max_tokens` gets the number of tokens.
    """

    def __init__(self, summarise_fn: SummariseFn | None = None) -> None:
        self._summarise_fn = summarise_fn
        self._takes_tokens = summarise_fn is not None and takes(summarise_fn, "max_tokens")

    async def compress(
        self, entries: Sequence[MemoryEntry], *, max_tokens: int = 200
    ) -> MemoryEntry:
        """Return one entry for entries of one owner.

        Its id is a new one: it depends on the entries, and not on what the function says. It has
        the mean of their importance. Its metadata have ``type``, which is ``summary``, and
        ``compressed_ids``. The session is that of the entries when they have one, unless the
        function names another. A vector or an expiry that the function copied from one of the
        entries is left out, and so is the session of one of them when they have several.

        Args:
            entries: At least one.
            max_tokens: The most tokens of the built-in summary; a hint to the function.

        Raises:
            ConsolidationError: There are no entries, they have several owners, the function failed,
                or it returned no `MemoryEntry` with a text, or one with values of other types.
        """
        if not entries:
            raise ConsolidationError("there are no entries to compress")
        if len({entry.owner_id for entry in entries}) > 1:
            raise ConsolidationError("the entries have several owners; compress each owner's own")
        found = await self._summary(entries, max_tokens)
        sessions = {entry.session_id for entry in entries}
        session = {"session_id": sessions.pop()} if len(sessions) == 1 and sessions != {""} else {}
        ids = [entry.id for entry in entries]
        importance = math.fsum(entry.importance for entry in entries) / len(entries)
        # A function may change a copy of an entry: what was true of that one alone must go.
        copies_expiry = found.expires_at in [entry.expires_at for entry in entries]
        metadata = dict(found.metadata)
        if len(sessions) > 1 and found.session_id in sessions:
            metadata.pop(
                "session_id", None
            )  # the texts of the other sessions must not appear in it
        try:
            vector = vector_of(found)
            copies_vector = vector in [vector_of(entry) for entry in entries]
            return replace(
                found,
                id=_id_of(entries),
                owner_id=entries[0].owner_id,
                importance=min(1.0, importance),
                metadata={**session, **metadata, "type": "summary", "compressed_ids": ids},
                embedding=None if copies_vector else vector,
                expires_at=None if copies_expiry else found.expires_at,
            )
        except (TypeError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
            raise ConsolidationError(f"the summary cannot be copied: {problem}") from error

    async def _summary(self, entries: Sequence[MemoryEntry], max_tokens: int) -> MemoryEntry:
        if self._summarise_fn is not None:
            try:
                hint: dict[str, Any] = {"max_tokens": max_tokens} if self._takes_tokens else {}
                found = await self._summarise_fn([*entries], **hint)
            except HOST_ERRORS as error:  # a function of the host may raise anything
                raise_if_cancelled(error)
                problem = f"{type(error).__name__}: {error}"
                raise ConsolidationError(f"the summary function failed: {problem}") from error
            return _check_summary(found)
        numbered = [
            entry_for_stages(entry)._replace(id=f"{number:09}")
            for number, entry in enumerate(entries)
        ]
        summary = summarise(numbered, max_tokens=max_tokens)
        newest = max(entries, key=lambda entry: entry.timestamp)
        return MemoryEntry(
            id=_id_of(entries),
            content=summary.text,
            role="system",
            timestamp=newest.timestamp,
            metadata={"session_id": newest.session_id} if newest.session_id else {},
        )


def _check_summary(found: object) -> MemoryEntry:
    """Return what a summary function returned.

    Raises:
        ConsolidationError: It is no entry with a text.
    """
    if not isinstance(found, MemoryEntry):
        kind = type(found).__name__
        raise ConsolidationError(f"the summary function returned {kind}, not a MemoryEntry")
    content: object = found.content
    if not isinstance(content, str) or not content.strip():
        raise ConsolidationError("the summary function returned an entry without a text")
    role: object = found.role
    metadata: object = found.metadata
    if not isinstance(role, str) or not isinstance(metadata, Mapping):
        raise ConsolidationError("the summary function returned an entry without role or metadata")
    return found


def _id_of(entries: Sequence[MemoryEntry]) -> str:
    """Return the id of a summary: the same for the same entries, another for a later version."""
    said = sorted([entry.id, entry.timestamp.isoformat(), entry.content] for entry in entries)
    document = json.dumps([entries[0].owner_id, *said])
    return f"summary-{hashlib.sha256(document.encode()).hexdigest()[:32]}"
