"""Split a version of an episode into its statements: its own, and those of ``triples``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slumberd.model.episode import EpisodeVersion

MOST_TRIPLES = 1_000
"""How many triples one episode may have."""

TRIPLES_MALFORMED = "triples_malformed"
"""The reason of a fault: ``metadata.triples`` cannot be read."""

_OWN = ("intent", "subject", "predicate", "object", "replaces")
"""The keys of metadata that make a statement of the episode's own."""


def as_stated(version: EpisodeVersion) -> EpisodeVersion:
    """Return a version as its speaker lets it stand; no rule selects one that was taken back.

    So a rule that has evaluated an older version withdraws what that one claimed.
    """
    return version._replace(matched=False) if version.withdrawn and not version.fault else version


def statements_of(version: EpisodeVersion) -> list[EpisodeVersion]:
    """Return a version once for each of its statements, each with the metadata of its own.

    The first is the statement of the metadata itself. With ``triples`` and without keys of its
    own, the metadata states nothing, as with the intent ``noop``. A version whose ``triples``
    cannot be read is returned with a fault.
    """
    version = as_stated(version)
    triples = version.metadata.get("triples")
    if triples is None or version.fault or not version.matched:
        return [version]
    problem = _find_problem(triples)
    if problem:
        return [version._replace(fault=f"{TRIPLES_MALFORMED}: {problem}")]
    parts = [version._replace(metadata=triple, part=n) for n, triple in enumerate(triples, 1)]
    return [version._replace(metadata=_own_metadata(version.metadata, len(parts))), *parts]


def states_nothing(metadata: Mapping[str, Any]) -> bool:
    """Return whether metadata has neither a statement of its own nor ``triples``."""
    return all(metadata.get(key) is None for key in (*_OWN, "triples"))


def _own_metadata(metadata: dict[str, Any], triples: int) -> dict[str, Any]:
    own = {key: value for key, value in metadata.items() if key != "triples"}
    return {**own, "intent": "noop", "triples": triples} if states_nothing(own) else own


def _find_problem(triples: object) -> str:
    """Return why triples cannot be read; empty when they can."""
    if not isinstance(triples, list):
        return f"triples is {triples!r}; write a list of objects"[:200]
    if len(triples) > MOST_TRIPLES:
        return f"triples has {len(triples)} elements; write {MOST_TRIPLES} at most"
    wrong = next((triple for triple in triples if not isinstance(triple, dict)), None)
    if wrong is not None or None in triples:
        return f"triples holds {wrong!r}; each element is an object"[:200]
    return ""
