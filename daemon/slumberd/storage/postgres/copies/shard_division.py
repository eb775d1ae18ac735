"""Divide the rows of a state directory among the shards of a database.

All rows keep their numbers, salts and commitments: a shard has those rows that belong to its users
and agents. Rows that belong to nobody, such as those of firings, go to every shard. So the numbers
of a shard have gaps, and each shard gets chain hashes of its own. What models answered about
episodes that are gone goes nowhere.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import orjson

from slumberd.consolidation.claim import user_and_agent
from slumberd.model.scope import ScopeMismatch, scope_of
from slumberd.storage.engine import Row
from slumberd.storage.episodes.rows import owner_of
from slumberd.storage.ledger.copies import Copied
from slumberd.storage.ledger.rows import FIRING, GENESIS, chain_of, fixed_part
from slumberd.storage.postgres.shards import shard_of
from slumberd.storage.sqlite.file_rows import Table

FindShards = Callable[[Sequence[str]], Mapping[str, int]]
"""Returns the shard of each episode that exists, by its id."""

_FIRST = 0
"""The shard of rows of which only the sum over all shards counts."""

_ANSWERS = ("extractions", "model_summaries")
"""The tables of what models answered about episodes."""

_EVERY, _NONE = -1, -2
"""In place of a shard: every shard, or none."""


class ShardDivision:
    """Says to which shards each row of a state directory belongs.

    The tables are divided in the order in which they are copied, each of them once and whole.

    Args:
        shards: How many shards the database has.
        keys: The rows of the table of keys.
        positions: The numbers of the log's rows at which rules stopped; each rule checks its row.
        find_shards: Finds the shards of episodes, after all episodes were divided.
        mismatch: Which of scope key and content names the owner, when they differ.
        key: The key of the ledger; None without one.
    """

    def __init__(
        self,
        shards: int,
        keys: Iterable[Row],
        positions: Collection[int],
        find_shards: FindShards,
        *,
        mismatch: ScopeMismatch,
        key: bytes | None,
    ) -> None:
        self._every = range(shards)
        self._owners = _Owners(shards)
        self._positions = positions
        self._find_shards = find_shards
        self._mismatch: ScopeMismatch = mismatch
        self._key = key
        self._heads = [GENESIS] * shards
        self._kept = [0] * shards
        self._last_seq = 0
        self._episodes = _Episodes()
        self._rows = _ShardsByNumber()
        self._referrers: dict[str, int] = {}
        self._keys = _ShardsByNumber()
        for name, _, key_id, *_ in keys:
            self._keys[key_id] = self._owners.shard_of_text(name)

    def divide(self, table: Table, rows: Sequence[Row]) -> dict[int, list[Row]]:
        """Return the rows of each shard, in their order; rows of the ledger with new chain hashes.

        Args:
            table: The table.
            rows: Some of its rows, after those of the call before.
        """
        found: dict[int, list[Row]] = {}
        for row, shard in zip(rows, self._shards_of(table, rows), strict=True):
            for one in self._each(shard):
                found.setdefault(one, []).append(
                    self._with_chain(one, row) if table.name == "ledger" else row
                )
        return found

    def _each(self, shard: int) -> Sequence[int]:
        return self._every if shard == _EVERY else () if shard == _NONE else (shard,)

    def copied(self, head: str, shard: int) -> Copied:
        """Return what was copied into a shard, once all rows are divided.

        Args:
            head: The head of the source's chain.
            shard: The shard.
        """
        return Copied(head, self._last_seq, self._kept[shard], shard, len(self._every))

    def _shards_of(self, table: Table, rows: Sequence[Row]) -> Iterator[int]:
        if table.name in _ANSWERS:
            found = self._find_shards([row[1] for row in rows])
            return (found.get(row[1], _NONE) for row in rows)
        if (find := _FINDERS.get(table.name)) is None:
            return repeat(_EVERY, len(rows))
        return (find(self, row) for row in rows)

    def shard_of_episode(self, row: Row) -> int:
        """Return the shard of an episode, and keep it for the rows that name its number."""
        number, _, scope_key, content, *_ = row
        owner = owner_of(scope_key, content, self._mismatch)
        shard = self._owners.shard_of_scope(scope_key if owner is None else owner.key)
        self._episodes.add(number, shard)
        return shard

    def shard_of_version(self, row: Row) -> int:
        """Return the shard of a row of the log."""
        seq, number, _ = row
        return _EVERY if seq in self._positions else self._episodes.shard_of(number)

    def shard_of_deletion(self, row: Row) -> int:
        """Return the shard of a deleted episode."""
        return self._episodes.shard_of(row[1])

    def shard_of_access(self, row: Row) -> int:
        """Return the shard of what counts the reads of an episode."""
        return self._owners.shard_of_scope(row[1])

    def shard_of_request(self, row: Row) -> int:
        """Return the shard of a request to a language model."""
        return self._owners.shard_of_scope(row[2])

    def shard_of_fact(self, row: Row) -> int:
        """Return the shard of a fact."""
        return self._owners.shard_of(row[1], row[2])

    def shard_of_key(self, row: Row) -> int:
        """Return the shard of a key."""
        return self._owners.shard_of_text(row[0])

    def shard_of_reference(self, row: Row) -> int:
        """Return the shard of a reference: that of the fact that refers."""
        return self._referrers.get(row[1], _FIRST)

    def shard_of_quarantine(self, row: Row) -> int:
        """Return the shard of a quarantined episode."""
        return self._owners.shard_of_text(row[4])

    def shard_of_ledger_row(self, row: Row) -> int:
        """Return the shard of a row of the ledger, and keep it for the rows that repeat it."""
        seq, first, _, event, _, _, _, key_id, _, fact_id, _, salt, payload, *_ = row
        document: dict[str, Any] = orjson.loads(payload) if payload and event != FIRING else {}
        if event == FIRING or salt is None:
            shard = _EVERY
        elif key_id is not None:
            shard = self._keys[key_id]
        elif owner := document.get("owner"):
            shard = self._owners.shard_of_text(owner)
        else:
            shard = self._rows[first] if first != seq else _EVERY
        if document.get("names") and fact_id is not None:
            self._referrers[fact_id] = shard
        self._rows[seq] = shard
        self._last_seq = seq
        return shard

    def _with_chain(self, shard: int, row: Row) -> Row:
        seq, first, firing, event, kind, reason, version, *_, commitment, _ = row
        fixed = fixed_part(seq, first, firing, version, event, kind)
        self._heads[shard] = chain_of(
            self._key, self._heads[shard], commitment, fixed, reason.encode()
        )
        self._kept[shard] += 1
        return (*row[:-1], self._heads[shard])


_FINDERS: Mapping[str, Callable[[ShardDivision, Row], int]] = {
    "episodes": ShardDivision.shard_of_episode,
    "episode_log": ShardDivision.shard_of_version,
    "episode_deletions": ShardDivision.shard_of_deletion,
    "accesses": ShardDivision.shard_of_access,
    "model_requests": ShardDivision.shard_of_request,
    "model_usage": lambda *_: _FIRST,
    "ledger": ShardDivision.shard_of_ledger_row,
    "facts": ShardDivision.shard_of_fact,
    "keys": ShardDivision.shard_of_key,
    "claim_references": ShardDivision.shard_of_reference,
    "quarantine": ShardDivision.shard_of_quarantine,
}
"""How the shard of a row is found, by the name of its table; other rows go to every shard."""


class _Owners:
    """The shards of users and agents."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._known: dict[tuple[str, str], int] = {}

    def shard_of(self, user: str, agent: str) -> int:
        """Return the shard of a user and an agent."""
        found = self._known.get((user, agent))
        if found is None:
            found = self._known[user, agent] = shard_of(user, agent, self._shards)
        return found

    def shard_of_text(self, owner: str) -> int:
        """Return the shard of an owner, or of a key, which begins with its owner."""
        return self.shard_of(*user_and_agent(owner))

    def shard_of_scope(self, scope_key: str) -> int:
        """Return the shard of a scope key; a malformed key belongs to the empty user and agent."""
        scope = scope_of(scope_key)
        return self.shard_of("", "") if scope is None else self.shard_of(scope.user, scope.agent)


class _Episodes:
    """The shard of each episode, by the number of its row; the numbers come in order."""

    def __init__(self) -> None:
        self._numbers = array("q")
        self._shards = array("h")

    def add(self, number: int, shard: int) -> None:
        self._numbers.append(number)
        self._shards.append(shard)

    def shard_of(self, number: int | None) -> int:
        """Return the shard; every shard for an episode that is gone."""
        if number is None:
            return _EVERY
        place = bisect_left(self._numbers, number)
        is_known = place < len(self._numbers) and self._numbers[place] == number
        return self._shards[place] if is_known else _EVERY


class _ShardsByNumber:
    """Shards by numbers from 1 on, most of which are in use."""

    def __init__(self) -> None:
        self._shards = array("h")

    def __getitem__(self, number: int) -> int:
        """Return the shard of a number; every shard for an unknown one."""
        return self._shards[number] if number < len(self._shards) else _EVERY

    def __setitem__(self, number: int, shard: int) -> None:
        missing = number + 1 - len(self._shards)
        if missing > 0:
            self._shards.extend([_EVERY] * missing)
        self._shards[number] = shard
