"""Vectors of texts for tests: texts that share words are near, others are not."""

from __future__ import annotations

import zlib

_DIMENSIONS = 512


async def embed_words(text: str) -> list[float]:
    """Return the counts of the words of a text, each word in a dimension of its own, mostly."""
    found = [0.0] * _DIMENSIONS
    for word in text.casefold().split():
        found[zlib.crc32(word.encode()) % _DIMENSIONS] += 1
    return found
