"""Embedders whose vectors a test chooses."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.support.late_imports import LateModule

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    np = LateModule("numpy")


class FakeEmbedder(ABC):
    """Embeds texts; a subclass chooses the vectors."""

    @abstractmethod
    def embed(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        """Return a vector for each text."""

    def rows(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return the same vectors as the rows of an array."""
        return np.array(self.embed(texts), np.float32, ndmin=2)


class WordSums(FakeEmbedder):
    """Sums a direction for each word, which its letters choose."""

    def embed(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        return [tuple(map(float, _direction(text))) for text in texts]


def _direction(text: str) -> npt.NDArray[np.float64]:
    total = np.zeros(4)
    for word in text.split():
        total += [byte % 5 - 2 for byte in hashlib.sha256(word.encode()).digest()[:4]]
    length = float(np.linalg.norm(total))
    return total / length if length else total
