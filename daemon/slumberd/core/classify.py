"""Classify episodes by the specification's table; what `MemoryStore.consolidate` returns.

The daemon does not go by this table but by the law (`law`): here a delta depends on what else
is in the batch, there what stands does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from slumberd.core.act import INTENTS, confidence_of
from slumberd.core.delta import AddDelta, DeleteDelta, NoopDelta, UpdateDelta
from slumberd.core.episode import EpisodeVersion, instant
from slumberd.core.rule import ConsolidationRule
from slumberd.errors import ConsolidationRuleError

AnyDelta = AddDelta | UpdateDelta | DeleteDelta | NoopDelta
Key = tuple[str, str, str, str]


def classify(
    episodes: Sequence[EpisodeVersion],
    rule: ConsolidationRule,
    *,
    at: datetime,
    others: Sequence[EpisodeVersion] = (),
) -> list[AnyDelta]:
    """Return one delta for each episode, by instant, then by id.

    An episode without intent whose user, agent, subject and predicate an earlier one had is an
    update of that one, unless something in between has replaced or deleted it. An episode that is
    known to be another user's, or with another agent, is replaced by nobody who names it: without
    a name that is left, an update is as without intent, and a delete is a noop.

    Args:
        episodes: What the rule selects.
        rule: Whose deltas they are.
        at: The promotion instant.
        others: More episodes that are known; there are those that `names_of` some may be.

    Raises:
        ConsolidationRuleError: An intent or ``replaces`` is malformed; the episode is named.
    """
    owners = {one.id: (one.user, one.agent) for one in (*others, *episodes)}
    table = _Table(rule.id, at, owners)
    return [table.delta(episode) for episode in sorted(episodes, key=_moment)]


def names_of(episodes: Iterable[EpisodeVersion]) -> set[str]:
    """Return the ids that episodes name as replaced, well-formed or not."""
    found: set[str] = set()
    for episode in episodes:
        match episode.metadata.get("replaces"):
            case str() as id:
                found.add(id)
            case list() as ids:
                found |= {id for id in ids if isinstance(id, str)}
            case _:
                pass
    return found


def _moment(episode: EpisodeVersion) -> tuple[int, str]:
    return episode.at, episode.id


class _Table:
    """The specification's table, with the ids that hold each key so far."""

    def __init__(self, rule_id: str, at: datetime, owners: Mapping[str, tuple[str, str]]) -> None:
        self._rule_id = rule_id
        self._at = at
        self._owners = owners
        self._holders: dict[Key, str] = {}
        self._held: dict[str, Key] = {}

    def delta(self, episode: EpisodeVersion) -> AnyDelta:
        """Return what the next episode in order comes to."""
        intent = episode.metadata.get("intent")
        match intent:
            case None | "add":
                return self._default(episode)
            case "update":
                names = self._own(episode, self._named(episode, "UpdateDelta"))
                return self._update(episode, names) if names else self._default(episode)
            case "delete":
                names = self._own(episode, self._named(episode, "DeleteDelta"))
                return self._delete(episode, names) if names else self._noop(episode)
            case "noop":
                return self._noop(episode)
            case _:
                problem = f"intent is {intent!r}; write one of {', '.join(INTENTS)}"
                raise self._malformed(episode, "", problem)

    def _default(self, episode: EpisodeVersion) -> AddDelta | UpdateDelta:
        earlier = self._holders.get(key) if (key := _key(episode)) else None
        if earlier is not None:
            return self._update(episode, [earlier])
        self._hold(episode)
        return AddDelta(kind="add", fact_payload=_payload(episode), **self._provenance(episode))

    def _update(self, episode: EpisodeVersion, replaces: list[str]) -> UpdateDelta:
        self._release(episode, replaces)
        self._hold(episode)
        return UpdateDelta(
            kind="update",
            replaces=replaces,
            fact_payload=_payload(episode),
            **self._provenance(episode),
        )

    def _delete(self, episode: EpisodeVersion, replaces: list[str]) -> DeleteDelta:
        self._release(episode, replaces)
        return DeleteDelta(kind="delete", replaces=replaces, **self._provenance(episode))

    def _noop(self, episode: EpisodeVersion) -> NoopDelta:
        return NoopDelta(kind="noop", **self._provenance(episode))

    def _own(self, episode: EpisodeVersion, names: Sequence[str]) -> list[str]:
        own = (episode.user, episode.agent)
        return [name for name in names if self._owners.get(name, own) == own]

    def _hold(self, episode: EpisodeVersion) -> None:
        if key := _key(episode):
            self._holders[key] = episode.id
            self._held[episode.id] = key

    def _release(self, episode: EpisodeVersion, ids: Sequence[str]) -> None:
        for id in ids:
            key = self._held.get(id)
            # Only its own user and agent: nobody decides what another's episode becomes.
            if key and key[:2] == (episode.user, episode.agent) and self._holders.get(key) == id:
                del self._holders[key]

    def _named(self, episode: EpisodeVersion, delta_type: str) -> list[str]:
        match episode.metadata.get("replaces"):
            case str() as id if id:
                return [id]
            case list() as ids if ids and all(isinstance(id, str) and id for id in ids):
                return ids
            case None | "" | []:
                raise self._malformed(episode, delta_type, "replaces must be non-empty")
            case _:
                raise self._malformed(episode, delta_type, "replaces is no list of episode ids")

    def _malformed(
        self, episode: EpisodeVersion, delta_type: str, problem: str
    ) -> ConsolidationRuleError:
        return ConsolidationRuleError(
            self._rule_id, delta_type, f"episode {episode.id!r}: {problem}"
        )

    def _provenance(self, episode: EpisodeVersion) -> dict[str, Any]:
        return {
            "source_episode_ids": [episode.id],
            "promotion_ts": self._at,
            "rule_id": self._rule_id,
            "confidence": confidence_of(episode.metadata),
        }


def _key(episode: EpisodeVersion) -> Key | None:
    subject = episode.metadata.get("subject")
    predicate = episode.metadata.get("predicate")
    if isinstance(subject, str) and isinstance(predicate, str) and subject and predicate:
        return episode.user, episode.agent, subject, predicate
    return None


def _payload(episode: EpisodeVersion) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "id": episode.id,
        "user": episode.user,
        "agent": episode.agent,
        "content": episode.content,
        "source_node": episode.source_node,
        "timestamp": instant(episode.at).isoformat(),
    }
    triple = {part: episode.metadata.get(part) for part in ("subject", "predicate", "object")}
    return payload | {part: value for part, value in triple.items() if value is not None}
