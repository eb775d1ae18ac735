"""Count the languages of the newest episodes, as a search recognises them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from slumberd.config.settings import Settings
from slumberd.retrieval.languages import AUTO, recognise, words_of
from slumberd.service.composition import inspections_of

NEWEST = 500
"""So many rows of the episode log are looked at, the newest."""

UNDECIDED = "undecided"
"""In place of a language: the text is too short to decide. It counts as the first of its scope."""


def read_languages(settings: Settings) -> dict[str, Any]:
    """Return the language of a search, and how many of the newest episodes are of which language.

    Raises:
        StoreError: The store of episodes cannot be read.
    """
    language = settings.search.language
    counted = _count(settings) if language == AUTO else {}
    return {"language": language, "recognised": counted}


def _count(settings: Settings) -> dict[str, int]:
    """Return how many episodes are of each language, the most frequent first."""
    episodes = inspections_of(settings).episodes
    if not episodes.exists() or not episodes.has_log():
        return {}
    versions = episodes.latest_versions(NEWEST)
    found = Counter(recognise(words_of(version.content)) or UNDECIDED for version in versions)
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))
