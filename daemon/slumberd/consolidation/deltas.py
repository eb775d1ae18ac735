"""Classify episodes into the deltas of the specification, as a table of each channel says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from slumberd.consolidation.claim import (
    EMPTY_DELETE,
    EMPTY_SET,
    OBJECT_WORDS_MALFORMED,
    REPLACES_BESIDE_SET,
    Fault,
    add_triple,
    confidence_fault,
    confidence_of,
    covers,
    deleted_object,
    fault_of,
    find_words_problem,
    intent_fault,
    names_in,
    statements_of,
)
from slumberd.model.construct import construct
from slumberd.model.delta import AddDelta, AnyDelta, DeleteDelta, NoopDelta, UpdateDelta
from slumberd.model.episode import EpisodeVersion, instant, whole_of
from slumberd.model.scope import FACTS, canonical, fact_id_of, plain_fact_id

Key = tuple[str, str, str, str]


class Classified(NamedTuple):
    """The deltas and faults of some episodes.

    Attributes:
        deltas: By instant of the episode, then by its id, then in the order of the channels.
        faults: Why other episodes have no delta, by their ids.
    """

    deltas: list[AnyDelta]
    faults: dict[str, Fault]


def classify(
    episodes: Sequence[EpisodeVersion],
    rule_id: str,
    channels: Sequence[str],
    *,
    at: datetime,
    others: Sequence[EpisodeVersion] = (),
) -> Classified:
    """Return one delta for each episode and channel; of a noop, one delta in all.

    An episode without intent is an update when an earlier episode of the same user and agent has
    its subject and predicate, and nothing in between has replaced or deleted that one. The claims
    of one episode hold together: its first one of a subject and predicate is the update, each
    further object an add, an equal object a noop. A set is an update that replaces all older
    episodes of its subject and predicate, or an add when there is none. Ids of another user's or
    agent's episodes are ignored. An update that names no id is classified as if it had no intent. A
    delete that names no id deletes the fact of its subject and predicate; it is a noop when there
    is none.

    Args:
        episodes: The episodes that the rule selects.
        channels: The channels that it emits into; without one the deltas go to ``facts``.
        at: The promotion instant.
        others: Further episodes that `names_of` may name.
    """
    statements = [found for episode in episodes for found in statements_of(episode)]
    known = (*others, *statements)
    owners = {(found.id, found.part): (found.user, found.agent) for found in known}
    parts: dict[str, list[int]] = {}
    for statement in statements:
        if statement.part:
            parts.setdefault(statement.id, []).append(statement.part)
    names = dict.fromkeys(channels or [FACTS])
    tables = [_Table(rule_id, at, owners, parts, channel) for channel in names]
    deltas: list[AnyDelta] = []
    faults: dict[str, Fault] = {}
    for episode in sorted(statements, key=_order):
        first = tables[0].delta(episode)
        if isinstance(first, Fault):
            faults[episode.claim_id] = first
        elif len(tables) == 1:
            deltas.append(first)
        else:
            deltas += _join_channels([first, *(table.delta(episode) for table in tables[1:])])
    return Classified(deltas, faults)


_order = attrgetter("at", "id", "part")


def _join_channels(found: Iterable[AnyDelta | Fault]) -> list[AnyDelta]:
    """Return the deltas of one episode in all channels; a single noop if there are only noops."""
    deltas = [delta for delta in found if not isinstance(delta, Fault)]
    return [delta for delta in deltas if delta.kind != "noop"] or deltas[:1]


def names_of(episodes: Iterable[EpisodeVersion]) -> set[str]:
    """Return the ids that episodes and their triples name as replaced, well-formed or not.

    With the id of a single claim, ``e1#2``, also the id of its episode.
    """
    found: set[str] = set()
    for episode in episodes:
        for statement in statements_of(episode):
            replaces = statement.metadata.get("replaces")
            if isinstance(replaces, str):
                found.add(replaces)
            elif isinstance(replaces, list):
                found |= {id for id in replaces if isinstance(id, str)}
    return found | {whole for whole in map(whole_of, found) if whole}


class _Table:
    """The specification's table for one channel, with the facts that hold each key so far."""

    def __init__(
        self,
        rule_id: str,
        at: datetime,
        owners: Mapping[tuple[str, int], tuple[str, str]],
        parts: Mapping[str, Sequence[int]],
        channel: str,
    ) -> None:
        self._rule_id = rule_id
        self._at = at
        self._owners = owners
        self._parts = parts
        self._channel = channel
        self._holders: dict[Key, list[str]] = {}
        self._asserted: dict[Key, list[str]] = {}
        self._sources: dict[str, str] = {}
        self._objects: dict[str, tuple[Key, object]] = {}

    def delta(self, episode: EpisodeVersion) -> AnyDelta | Fault:
        """Return the delta of the next statement in order; a fault if it has none."""
        fault = fault_of(episode) if episode.fault else confidence_fault(episode.metadata)
        if fault:
            return fault
        metadata = episode.metadata
        intent = metadata.get("intent")
        if intent is None or intent == "add":
            return self._default(episode)
        if intent == "noop":
            return self._noop(episode)
        if intent != "update" and intent != "delete" and intent != "set":  # mypy follows this one
            return intent_fault(intent)
        names = names_in(metadata.get("replaces"))
        if isinstance(names, Fault):
            return names
        given = [name for name in names if name]
        if intent == "set":
            return self._set(episode) if not given else REPLACES_BESIDE_SET
        own = self._ids_of_own_scope(episode, given)
        if intent == "update":
            return self._update(episode, own, _key(episode)) if own else self._default(episode)
        return self._delete(episode, own, named=bool(given))

    def _default(self, episode: EpisodeVersion) -> AnyDelta:
        key = _key(episode)
        earlier = [*self._holders.get(key, ())] if key else []
        siblings = [id for id in earlier if self._sources[id] == episode.id]
        if any(self._holds(id, episode) for id in siblings):
            return self._noop(episode)
        if earlier and not siblings:
            return self._update(episode, earlier, key)
        return self._add(episode, key)

    def _set(self, episode: EpisodeVersion) -> AnyDelta | Fault:
        key = _key(episode)
        if key is None:
            return EMPTY_SET
        ids = self._asserted.get(key, [])
        older = [id for id in ids if self._sources[id] != episode.id]
        if any(self._holds(id, episode) for id in ids if id not in older):
            return self._noop(episode)
        return self._update(episode, older, key) if older else self._add(episode, key)

    def _add(self, episode: EpisodeVersion, key: Key | None) -> AddDelta:
        fields = self._provenance(episode)
        fields["kind"] = "add"
        fields["fact_payload"] = self._promote(episode, key)
        return construct(AddDelta, fields)

    def _update(self, episode: EpisodeVersion, replaces: list[str], key: Key | None) -> UpdateDelta:
        self._release(episode, replaces)
        fields = self._provenance(episode)
        fields["kind"] = "update"
        fields["replaces"] = replaces
        fields["fact_payload"] = self._promote(episode, key)
        return construct(UpdateDelta, fields)

    def _delete(
        self, episode: EpisodeVersion, names: list[str], *, named: bool
    ) -> DeleteDelta | NoopDelta | Fault:
        problem = find_words_problem(episode.metadata, names)
        if problem:
            return Fault(OBJECT_WORDS_MALFORMED, problem)
        if not named:
            key = _key(episode)
            if key is None:
                return EMPTY_DELETE
            names = self._deleted_holders(key, episode)
        if not names:
            return self._noop(episode)
        self._release(episode, names)
        fields = self._provenance(episode) | {"kind": "delete", "replaces": names}
        return construct(DeleteDelta, fields)

    def _noop(self, episode: EpisodeVersion) -> NoopDelta:
        return construct(NoopDelta, self._provenance(episode) | {"kind": "noop"})

    def _deleted_holders(self, key: Key, episode: EpisodeVersion) -> list[str]:
        """Return the facts that hold a key and that the episode deletes; none of its own."""
        what = deleted_object(episode.metadata)
        older = [id for id in self._holders.get(key, ()) if self._sources[id] != episode.id]
        return [id for id in older if covers(what, canonical(self._objects[id][1]))]

    def _holds(self, id: str, episode: EpisodeVersion) -> bool:
        return canonical(self._objects[id][1]) == canonical(episode.metadata.get("object"))

    def _ids_of_own_scope(self, episode: EpisodeVersion, names: Sequence[str]) -> list[str]:
        """Return the fact ids that are not of another scope; of a whole episode, all claims."""
        own = (episode.user, episode.agent)
        named = [id for name in names for id in self._ids_of(name, own)]
        others = [name for name in names if self._owners.get((name, 0), own) == own]
        parts = [
            fact_id_of(self._channel, name, part)
            for name in others
            if name != episode.id
            for part in self._parts.get(name, ())
        ]
        return [*named, *parts]

    def _ids_of(self, name: str, own: tuple[str, str]) -> list[str]:
        """Return what a name stands for in one scope: an episode's own fact, or a single one."""
        whole = whole_of(name)
        part = int(name[len(whole) + 1 :]) if whole else 0
        found = []
        if self._owners.get((name, 0)) == own:
            found.append(fact_id_of(self._channel, name))
        owner = self._owners.get((whole, part)) if part else None
        if owner is None and (name, 0) not in self._owners:
            owner = self._owners.get((whole, 0), own)
        if owner == own:
            found.append(plain_fact_id(self._channel, name))
        return found

    def _release(self, episode: EpisodeVersion, ids: Sequence[str]) -> None:
        for id in ids:
            holder = self._objects.get(id)
            if holder is None:
                continue
            key, _ = holder
            # Only of its own scope: an episode changes no fact of another user or agent.
            holders = self._holders.get(key, [])
            if key[0] == episode.user and key[1] == episode.agent and id in holders:
                holders.remove(id)

    def _provenance(self, episode: EpisodeVersion) -> dict[str, Any]:
        return {
            "source_episode_ids": [episode.id],
            "promotion_ts": self._at,
            "rule_id": self._rule_id,
            "confidence": confidence_of(episode.metadata),
        }

    def _promote(self, episode: EpisodeVersion, key: Key | None) -> dict[str, Any]:
        """Return the body of the fact that an episode promotes; the fact now holds the key."""
        id = fact_id_of(self._channel, episode.id, episode.part)
        payload: dict[str, Any] = {
            "id": id,
            "user": episode.user,
            "agent": episode.agent,
            "content": episode.content,
            "source_node": episode.source_node,
            "timestamp": instant(episode.at).isoformat(),
        }
        add_triple(payload, episode.metadata)
        if key is not None:
            holders = self._holders.get(key, [])
            siblings = [holder for holder in holders if self._sources[holder] == episode.id]
            self._holders[key] = [*siblings, id]
            self._asserted.setdefault(key, []).append(id)
            self._sources[id] = episode.id
            self._objects[id] = key, payload.get("object")
        return payload


def _key(episode: EpisodeVersion) -> Key | None:
    metadata = episode.metadata
    subject, predicate = metadata.get("subject"), metadata.get("predicate")
    if isinstance(subject, str) and isinstance(predicate, str) and subject and predicate:
        return episode.user, episode.agent, subject, predicate
    return None
