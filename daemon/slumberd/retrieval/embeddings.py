"""Embeddings of short texts, by the model that comes with the extra ``vectors``.

The model is a table of words: a text's vector is the mean of its words'. It knows what texts speak
of, and hardly what they say of it: opposites are as near as restatements.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from slumberd.errors import ExtraMissingError, StoppedError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_DIMENSIONS = 256
"""Of the model's vectors."""

_BLOCK = 256
"""Texts that are compared with those before them at a time."""

_KEPT = 20_000
"""Texts whose vectors are kept, a kilobyte each: what stands is compared again and again."""

LONGEST = 65_536
"""Characters of a text that count, as in a filter; the rest would only take time."""

_MOST_BYTES = 131_072
"""Bytes of a text that count: what is no word to the model takes a step for each."""

_TOGETHER = 131_072
"""Characters that the model takes at a time; it makes each text as long as the longest of them."""

_MOST_TOGETHER = 64
"""Texts that the model takes at a time."""

_LONGEST_KEY = 256
"""Characters of a text from which on its digest stands for it where vectors are kept."""


class _Model(Protocol):
    def embed(self, texts: list[str]) -> NDArray[np.float32]: ...


class WordEmbedder:
    """Embeds texts with a model that lies in the package itself, and compares them.

    Implements ``ports.Embedder`` and ``ports.TextComparer``.

    The model, some 20 MB, is read when it is first needed, and kept for the process, as are the
    vectors of the texts that were asked for last.

    Raises:
        ExtraMissingError: The extra ``vectors`` is not installed.
    """

    def __init__(self) -> None:
        self._words = _words()

    def embed(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        """Return a vector of length 1, of 256 dimensions, for each text, in order."""
        return [*map(tuple, self._words.directions(texts).tolist())]

    def near(
        self,
        texts: Sequence[str],
        *,
        first: int,
        least: float,
        most: int,
        late: Callable[[], bool] | None = None,
    ) -> Iterator[list[tuple[int, float]]]:
        """Yield, for each text from `first` on, which of the `most` before it are near to it.

        Raises:
            StoppedError: It was `late`; the vectors that were found until then are kept.
        """
        directions = self._words.directions(texts, late)
        for begin in range(first, len(texts), _BLOCK):
            low = max(0, begin - most)
            some = directions[begin : begin + _BLOCK]
            cosines = (some @ directions[low : begin + _BLOCK].T).clip(-1, 1)
            for number, row in enumerate(cosines, begin):
                before = row[max(low, number - most) - low : number - low]
                offset = number - len(before)
                found = (before >= least).nonzero()[0].tolist()
                yield [(offset + other, float(before[other])) for other in found]


class _Words:
    """The model, and the vectors that it gave last."""

    def __init__(self, model: _Model) -> None:
        self._model = model
        self._lock = Lock()
        self._kept: OrderedDict[str, NDArray[np.float32]] = OrderedDict()

    def directions(
        self, texts: Sequence[str], late: Callable[[], bool] | None = None
    ) -> NDArray[np.float32]:
        """Return a row of length 1 for each text; of zeros for one without words.

        Args:
            texts: Only their first `LONGEST` characters count.
            late: Says that it must end; asked every tenth of a second or so.

        Raises:
            StoppedError: It was `late`; the vectors that were found until then are kept.
        """
        import numpy as np  # of the extra, and slow

        keys = [*map(_key, texts)]
        with self._lock:
            kept = self._kept
            missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in kept}
            for some in _groups(missing):
                if late is not None and late():
                    raise StoppedError("it was too late to go on")
                kept.update(zip(some, self._embedded([missing[key] for key in some]), strict=True))
            found = [kept[key] for key in keys]
            for key in keys:
                kept.move_to_end(key)
            while len(kept) > _KEPT:
                kept.popitem(last=False)
        return np.array(found, np.float32).reshape(len(found), _DIMENSIONS)

    def _embedded(self, texts: Sequence[str]) -> Iterable[NDArray[np.float32]]:
        import numpy as np  # of the extra, and slow

        # Half a character, which JSON may hold, is none that the model takes.
        encoded = [text[:LONGEST].encode(errors="replace")[:_MOST_BYTES] for text in texts]
        whole = [text.decode(errors="ignore") for text in encoded]
        # Without words the mean is that of nothing: not a number.
        vectors = np.nan_to_num(self._model.embed(whole), posinf=0.0, neginf=0.0)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        # Copies: a row that is kept must not keep all the others.
        return map(np.copy, (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32))


def _key(text: str) -> str:
    """Return what stands for a text where vectors are kept, so that texts are not kept, too."""
    if len(text) <= _LONGEST_KEY:
        return text
    told = text[:LONGEST].encode(errors="surrogatepass")
    return f"{len(told)}:{blake2b(told, digest_size=32).hexdigest()}"


def _groups(texts: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the keys of texts in groups that the model takes at a time, short texts first."""
    group: list[str] = []
    for key in sorted(texts, key=lambda one: len(texts[one])):
        longest = min(len(texts[key]), LONGEST)
        if group and (len(group) == _MOST_TOGETHER or (len(group) + 1) * longest > _TOGETHER):
            yield group
            group = []
        group.append(key)
    if group:
        yield group


@cache
def _words() -> _Words:
    try:
        import wordllama  # of an extra, and slow
    except ImportError as error:
        raise ExtraMissingError("vectors", "texts cannot be compared by what they mean") from error
    # Beside the code lies all that it needs; what it does not find, it would fetch from elsewhere.
    folder = Path(wordllama.__file__).parent
    return _Words(wordllama.WordLlama.load(cache_dir=folder, disable_download=True))
