"""Find which episodes the stages must see together, and when time alone changes what they say.

The stages decide about an owner's episodes together. Two episodes depend on each other only if a
mark or a summary names both, or if both have no mark and can be duplicates, or be summarised
together. So episodes that neither can reach in such steps need not be seen: what the stages say of
the others is the same without them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from slumberd.consolidation.stages.decay import decays_at, halves_at
from slumberd.consolidation.stages.entries import Entry
from slumberd.consolidation.stages.similar_texts import (
    Embed,
    Wording,
    jaccard,
    set_of_words,
    wording_of,
)
from slumberd.consolidation.stages.spellings import FUZZY_CHARACTERS, near_by_spelling
from slumberd.model.scope import episode_id_of
from slumberd.model.stages import ComparedText, Decay, Dedup, Mark, Stage, Summarise
from slumberd.search.vectors import near_rows, pack_rows

_ROUNDING = 1e-9
"""The most by which a product of a similarity and a size is wrong."""


class Comparable(NamedTuple):
    """What is compared of an entry.

    Attributes:
        assertion: What duplicates have in common exactly.
        text: The text without differences of form, case and white space.
        words: The set of words; of a text without words, the text itself.
    """

    assertion: tuple[object, ...]
    text: str
    words: frozenset[str]


def comparable_of(entry: Entry) -> Comparable:
    """Return what stages compare of an entry."""
    wording: Wording = wording_of(entry.content)
    return Comparable(
        (entry.triple, wording.numbers, wording.negations),
        wording.text,
        set_of_words(wording.words, wording.text),
    )


def traces_of(compared: Comparable, stages: Iterable[Stage]) -> tuple[int, ...]:
    """Return numbers of 64 bits, of which two entries have one in common if they may be duplicates.

    For equal texts it is a hash of the text. Similar sets of words have a common word among the
    first words of both, in any order that all sets share; each of these words has a hash. Long
    words are rarer, so they come first. Equal texts have equal sets of words.

    What the methods ``fuzzy`` and ``vectors`` find is found by `compared_texts` instead.
    """
    least = _least_similarity(stages)
    if least is None:
        return ()
    words = sorted(compared.words, key=lambda word: (-len(word), word))
    common = max(1, math.ceil(least * len(words) - _ROUNDING))
    first = words[: len(words) - common + 1] if least < 1 else [compared.text]
    # The assertion of a long text may be as long as the text, so it is hashed only once.
    assertion = _number(repr(compared.assertion))
    return tuple(_number(f"{word}\0{assertion}") for word in first)


def compared_texts(
    entries: Sequence[Comparable], stages: Iterable[Stage], embed: Embed
) -> list[ComparedText | None]:
    """Return what is kept of entries to compare each with all others of their owner.

    Raises:
        ExtraMissingError: The extra ``vectors`` is not installed, and a stage compares vectors.
    """
    methods = {stage.method for stage in stages if isinstance(stage, Dedup)}
    if methods.isdisjoint({"fuzzy", "vectors"}):
        return [None] * len(entries)
    vectors = [b""] * len(entries)
    if "vectors" in methods and entries:
        vectors = pack_rows(embed([one.text for one in entries]))
    return [
        ComparedText(
            _number(repr(one.assertion)),
            one.text if "fuzzy" in methods and len(one.text) <= FUZZY_CHARACTERS else "",
            vector,
        )
        for one, vector in zip(entries, vectors, strict=True)
    ]


def find_near(
    some: Collection[ComparedText],
    kept: Sequence[tuple[str, str, bytes]],
    stages: Iterable[Stage],
) -> set[str]:
    """Return the kept entries that may be duplicates of some texts by ``fuzzy`` or ``vectors``.

    It finds all of them, and few others. Equal texts need not be found.

    Args:
        some: Texts of one assertion, as the kept ones are.
        kept: Each with the id of its entry, its text and its vector.

    Raises:
        ExtraMissingError: The extra ``fuzzy`` is not installed, and a stage compares characters.
    """
    found: set[str] = set()
    for stage in stages:
        if isinstance(stage, Dedup) and stage.method == "fuzzy":
            texts = [text for _, text, _ in kept]
            for text in {one.text for one in some} - {""}:
                places = near_by_spelling(text, texts, stage.similarity)
                found.update(kept[place][0] for place in places)
        if isinstance(stage, Dedup) and stage.method == "vectors":
            vectors = [one.vector for one in some], [vector for _, _, vector in kept]
            found.update(kept[place][0] for place in near_rows(*vectors, stage.similarity))
    return found


def group_traces(entry: Entry, stages: Iterable[Stage]) -> tuple[int, ...]:
    """Return the number that entries have in common which may be summarised together."""
    summarises = any(isinstance(stage, Summarise) for stage in stages)
    return (_number(f"\0session\0{entry.session}"),) if summarises else ()


def kept_trace(eid: str) -> int:
    """Return the number that the duplicates of an episode have in common.

    The episodes of the summary that has the id of this episode have it, too.
    """
    return _number(f"\0kept\0{eid}")


def named_episode(mark: Mark) -> str:
    """Return the episode that a mark names: a kept one, or that with the id of a summary."""
    return "" if mark.kind == "archived" else episode_id_of(mark.object)


def are_near(left: Comparable, right: Comparable, stages: Iterable[Stage]) -> bool:
    """Return whether two entries may be duplicates of each other."""
    least = _least_similarity(stages)
    if least is None or left.assertion != right.assertion:
        return False
    return left.text == right.text or (least < 1 and jaccard(left.words, right.words) >= least)


def _least_similarity(stages: Iterable[Stage]) -> float | None:
    """Return the least similarity of duplicates; 1 means equal texts, None no duplicates.

    A set of words that equals another one may be that of another text.
    """
    found = [
        min(stage.similarity, 1 - _ROUNDING) if stage.method == "jaccard" else 1.0
        for stage in stages
        if isinstance(stage, Dedup)
    ]
    return min(found, default=None)


def _number(text: str) -> int:
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def next_change(
    entry: Entry, stages: Sequence[Stage], now: int, *, archivable: bool, weightable: bool
) -> int | None:
    """Return the first instant after now at which an entry may decay, or weigh less.

    Args:
        entry: It has no mark, and the importance of its duplicates.
        now: In microseconds since 1970 UTC, as the result.
        archivable: Whether it may have a mark.
        weightable: Whether it may have a weight.

    Returns:
        None when time changes nothing.
    """
    found: list[int | None] = []
    for stage in stages:
        if not isinstance(stage, Decay) or entry.importance >= stage.protect_importance:
            continue
        if stage.action == "archive" and archivable:
            found.append(
                decays_at(entry.at, half_life_seconds=stage.half_life, threshold=stage.threshold)
            )
        if stage.action == "reweight" and weightable:
            found.append(
                halves_at(
                    entry.at, now, half_life_seconds=stage.half_life, threshold=stage.threshold
                )
            )
    return min((one for one in found if one is not None), default=None)
