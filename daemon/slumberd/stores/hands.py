"""Hands at work: pin, unpin and deltas applied directly, each inside one transaction."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson

from slumberd.core.act import Act
from slumberd.core.delta import AddDelta, DeleteDelta, NoopDelta, UpdateDelta
from slumberd.core.firing import Firing
from slumberd.core.ground import Ground
from slumberd.core.hand import (
    Said,
    assertion,
    incoming,
    newest_instant,
    retraction,
    says_the_same,
    silence,
    stamp_of,
)
from slumberd.core.law import HANDS
from slumberd.errors import FactConflictError
from slumberd.ports import AnyDelta
from slumberd.stores.batch import Batch
from slumberd.stores.beliefs import channels_at
from slumberd.stores.queries import statements

_FACTS = statements("facts")


class HandAtWork:
    """One direct change, inside a transaction."""

    def __init__(self, connection: sqlite3.Connection, depth: int, now: datetime) -> None:
        self._connection = connection
        firing = Firing(HANDS, "", "manual", now)
        self._batch = Batch(connection, firing, channels_at(connection), depth)
        self._stamp = stamp_of(self._batch.at, self._batch.number)

    @property
    def _ground(self) -> Ground:
        return self._batch.loaded.ground

    def assert_(self, said: Said, *, again: bool) -> None:
        """Assert a fact; unless `again`, not when the last hand on its id said the same."""
        act = self._in_time(assertion(said, self._stamp))
        self._refuse_foreign(act, (act.fact_id, *act.names))
        last = [one.act for one in self._ground.meetings.get(act.fact_id, ()) if one.act]
        known = bool(last) and says_the_same(last[-1], act)
        if not known or (again and not self._stands(act.fact_id)):
            self._commit(act)

    def take_out(self, fact_ids: Sequence[str], *, lineage: Sequence[dict[str, Any]]) -> None:
        """Take out those of some facts that stand."""
        self._batch.loaded.load_named(fact_ids)
        standing = [fact_id for fact_id in fact_ids if self._stands(fact_id)]
        by_owner: dict[str, list[Act]] = {}
        for fact_id in standing:
            for one in self._ground.counted(fact_id):
                if one.act.asserts:
                    by_owner.setdefault(one.act.owner, []).append(one.act)
        for targets in by_owner.values():
            act = retraction(targets, self._stamp, number=self._batch.number, lineage=lineage)
            self._commit(self._in_time(act))
            self._batch = self._batch.next()
            self._stamp = stamp_of(self._batch.at, self._batch.number)

    def apply(self, delta: AnyDelta, *, strict: bool) -> None:
        """Apply one delta whose provenance is whole."""
        lineage = (_provenance(delta),)
        if isinstance(delta, UpdateDelta | DeleteDelta) and strict:
            self._refuse_unknown(delta.replaces)
        match delta:
            case NoopDelta():
                self._commit(
                    silence(
                        self._stamp,
                        number=self._batch.number,
                        confidence=delta.confidence,
                        lineage=lineage,
                    )
                )
            case DeleteDelta():
                self.take_out(delta.replaces, lineage=lineage)
            case AddDelta() | UpdateDelta():
                self.assert_(_said(delta, lineage), again=False)

    def _in_time(self, act: Act) -> Act:
        """Let a hand take effect at once, whatever its key and ids already hold."""
        self._batch.loaded.load([incoming(act)])
        targets = self._ground.targets(act)
        newest = newest_instant(
            self._ground,
            (act.fact_id, *act.names),
            (act.key, *(target.key for target in targets)),
        )
        if newest is None or newest <= act.stamp.at:
            return act
        return act._replace(stamp=act.stamp._replace(at=newest))

    def _commit(self, act: Act) -> None:
        self._batch.commit({"": [incoming(act)]})

    def _stands(self, fact_id: str) -> bool:
        return self._connection.execute(_FACTS["has_fact"], (fact_id,)).fetchone() is not None

    def _refuse_foreign(self, act: Act, fact_ids: Sequence[str]) -> None:
        for fact_id in fact_ids:
            for one in self._ground.counted(fact_id):
                if one.act.owner != act.owner:
                    raise FactConflictError(fact_id, "is held by another user, agent or channel")

    def _refuse_unknown(self, fact_ids: Sequence[str]) -> None:
        self._batch.loaded.load_named(fact_ids)
        for fact_id in fact_ids:
            if not self._ground.counted(fact_id):
                raise FactConflictError(fact_id, "replaces a fact that never was")


def _provenance(delta: AnyDelta) -> dict[str, Any]:
    return {
        "rule_id": delta.rule_id,
        "source_episode_ids": list(delta.source_episode_ids),
        "promotion_ts": delta.promotion_ts.isoformat(),
    }


def _said(delta: AddDelta | UpdateDelta, lineage: Sequence[dict[str, Any]]) -> Said:
    payload = dict(delta.fact_payload)
    fact_id = str(payload.get("id") or _derived_id(delta))
    names = tuple(delta.replaces) if isinstance(delta, UpdateDelta) else ()
    user, agent = str(payload.get("user") or ""), str(payload.get("agent") or "")
    return Said(fact_id, user, agent, payload, delta.confidence, lineage, None, names)


def _derived_id(delta: AddDelta | UpdateDelta) -> str:
    # A payload without an id must come out the same each time it is applied.
    told = orjson.dumps(
        [delta.rule_id, delta.source_episode_ids, delta.fact_payload],
        option=orjson.OPT_SORT_KEYS,
    )
    return str(uuid.uuid5(uuid.NAMESPACE_OID, told.decode()))
