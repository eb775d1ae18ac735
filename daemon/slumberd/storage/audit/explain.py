"""Explain: how a fact came and went, and what became of an episode. Only reads the ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import orjson

from slumberd.consolidation.claim import ALL
from slumberd.consolidation.explanation import (
    Decision,
    Explanation,
    Line,
    Read,
    Rival,
    Saying,
    Source,
    became,
)
from slumberd.consolidation.precedence import HANDS, effective_claims, said_by
from slumberd.consolidation.resolution import Delta
from slumberd.errors import NoInputError
from slumberd.model.episode import EpisodeVersion, instant
from slumberd.model.fact import Fact
from slumberd.model.fact_ids import channel_of, episode_id_of, fact_id_of, owner_of
from slumberd.model.rule import FACTS, ConsolidationRule
from slumberd.sql_statements import statements
from slumberd.storage.ledger.batch import GENERATION_BITS
from slumberd.storage.ledger.fact_rows import fact_from
from slumberd.storage.ledger.history import channels_at
from slumberd.storage.ledger.rows import (
    KINDS,
    WHATS,
    claim_from,
    evaluations_from,
    firing_id_of,
    sources_of,
)
from slumberd.storage.ledger.state_loader import slot_name
from slumberd.storage.sqlite.connection import snapshot
from slumberd.storage.sqlite.erased_scopes import forgotten

_SQL = statements("ledger")
_LOG_NUMBER = (1 << GENERATION_BITS) - 1
_MET = ("act", "withdrawal", "quarantine", "known", "gated")


def why(connection: sqlite3.Connection, fact_id: str) -> Explanation:
    """Explain a fact that stands, or that the ledger knows.

    Raises:
        NoInputError: No fact stands under the id, and the ledger does not speak of it.
    """
    with snapshot(connection):
        lines = _lines_of(connection, [fact_id])
        fact = _facts(connection, [fact_id]).get(fact_id)
        if fact is None and not lines:
            remedy = "the ledger knows no such fact; `slumberd facts` lists those that stand"
            raise NoInputError(fact_id, remedy)
        if fact is not None:
            lines = _of_owner(fact, lines)
        counts = _counting(connection, fact_id)
        sayings = [
            Saying(line, line.seq in counts)
            for line in lines
            if line.asserts or line.kind in ("add", "update")
        ]
        replacing = _replacing(connection, fact_id, lines)
        if fact is not None:
            replacing = _of_owner(fact, replacing)
    return Explanation(fact_id, fact, sayings, replacing, _sources(sayings))


def _of_owner(fact: Fact, lines: Sequence[Line]) -> list[Line]:
    """Leave out what another owner said under the fact's id before."""
    own = owner_of(fact.user, fact.agent, channel_of(fact.id))
    claimed = [line for line in lines if line.what == "act" and line.said is not None]
    owners = {
        line.key_id: claim_from(line.fact_id, line.said or 0, line.document).owner
        for line in claimed
        if line.document
    }
    return [
        line for line in lines if owners.get(line.key_id, line.document.get("owner", own)) == own
    ]


def decisions_of(
    connection: sqlite3.Connection,
    episode_id: str,
    rules: Sequence[ConsolidationRule],
    versions: Mapping[str, EpisodeVersion],
) -> list[Decision]:
    """Return what became of an episode, by rule and channel; one decision for each.

    Args:
        connection: Outside of a transaction.
        episode_id: The episode; it need not be in memory any more.
        rules: Those that are loaded, disabled ones included. Others that met it are told too.
        versions: By the id of a loaded rule, its newest version as that rule reads it; read
            before this is called.
    """
    with snapshot(connection):
        return _Inquiry(connection, episode_id, rules, versions).decisions()


class _Inquiry:
    """What is known of one episode, inside a snapshot."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        episode_id: str,
        rules: Sequence[ConsolidationRule],
        versions: Mapping[str, EpisodeVersion],
    ) -> None:
        self._connection = connection
        self._episode_id = episode_id
        self._rules = {rule.id: rule for rule in rules}
        self._versions = versions
        self._marks = {row[0]: row[1] for row in connection.execute(_SQL["watermarks"])}
        self._past = forgotten(connection)
        channels = sorted(self._channels())
        fact_ids = [fact_id_of(channel, episode_id) for channel in channels]
        self._lines = _lines_of(connection, fact_ids)
        self._remaining = _remaining(connection, fact_ids)
        self._standing = _facts(connection, fact_ids).keys()
        self._last = self._last_lines(channels)

    def decisions(self) -> list[Decision]:
        """Return the decision of each rule in each of its channels."""
        emitted = {(rule.id, name) for rule in self._rules.values() for name in rule.then_emits}
        return [self._decision(*pair) for pair in sorted(emitted | self._last.keys())]

    def _channels(self) -> set[str]:
        """Return the channels of the rules, as they are loaded and as they last fired."""
        found = {name for rule in self._rules.values() for name in rule.then_emits}
        for rule_id in self._marks:
            counts = self._connection.execute(_SQL["last_counts"], (rule_id,)).fetchone()
            found |= set(orjson.loads(counts[0])) if counts else set()
        return found | {FACTS}

    def _last_lines(self, channels: Sequence[str]) -> dict[tuple[str, str], Line]:
        """Return the last row of each rule in each channel; the rules of hands met nothing."""
        met = [
            (line.rule_id, channel_of(line.fact_id), line)
            for line in self._lines
            if line.what in _MET and not line.rule_id.startswith("@")
        ]
        # What is contested has no fact id, so only the quarantine tells whose row it is.
        found = [*met, *self._quarantined(channels)]
        return {(rule, channel): line for rule, channel, line in sorted(found, key=_by_seq)}

    def _quarantined(self, channels: Sequence[str]) -> list[tuple[str, str, Line]]:
        rule_ids = self._rules.keys() | self._marks.keys()
        pairs = [(rule_id, channel) for rule_id in rule_ids for channel in channels]
        asked = {"pairs": orjson.dumps(pairs).decode(), "eid": self._episode_id}
        rows = self._connection.execute(_SQL["lines_of_quarantine"], asked).fetchall()
        return [(line.rule_id, row[-1], line) for row in rows for line in [_line_from(row[:-1])]]

    def _decision(self, rule_id: str, channel: str) -> Decision:
        fact_id = fact_id_of(channel, self._episode_id)
        line = self._last.get((rule_id, channel))
        contested = line is not None and not line.fact_id
        stands = fact_id in self._standing and not contested
        taken_out = None if stands else self._taken_out(fact_id)
        rival = self._rival(line)
        late = line is not None and line.asserts and line.reason == "stale"
        return Decision(
            rule_id,
            channel,
            fact_id,
            became(line, self._read(rule_id), self._remaining),
            line,
            stands,
            taken_out,
            rival.id if rival and late else "",
            rival if taken_out is None else _rival_of(taken_out),
        )

    def _read(self, rule_id: str) -> Read | None:
        rule = self._rules.get(rule_id)
        if rule is None:
            return None
        version = self._versions.get(rule_id)
        counts = version is None or not self._is_forgotten(version)
        return Read(rule, self._marks.get(rule_id), version, forgotten=not counts)

    def _is_forgotten(self, version: EpisodeVersion) -> bool:
        scope = (version.user, version.session, version.agent)
        return self._past is not None and self._past.covers(*scope, version.at)

    def _taken_out(self, fact_id: str) -> Line | None:
        lines = [line for line in self._lines if line.fact_id == fact_id]
        replacing = _replacing(self._connection, fact_id, lines) if lines else []
        return replacing[-1] if replacing else None

    def _rival(self, line: Line | None) -> Rival | None:
        """Return the newest claim against what came too late, or was retracted before it came."""
        if line is None or line.said is None or line.reason not in ("stale", "retracted"):
            return None
        claim = claim_from(line.fact_id, line.said, line.document)
        slot = slot_name(channels_at(self._connection).slot(claim.key, claim.object))
        found = [
            *self._claims(claim.key, slot, claim.object, retracting=line.reason == "retracted")
        ]
        return max((one for one in found if one.at >= line.said), default=None, key=_by_instant)

    def _claims(self, key: str, slot: str, what: str, *, retracting: bool) -> Iterator[Rival]:
        """Yield the newest assertion of a slot; or its retractions of an object, or of all."""
        asked = {"keys": orjson.dumps([key]).decode()}
        for _, name, _, at, _, _, fact_id, _, reach, _ in self._connection.execute(
            _SQL["heads"], asked
        ).fetchall():
            if not retracting and name == slot and at is not None:
                yield Rival(fact_id, at)
            if retracting and reach and name in (slot, slot_name(ALL)):
                said = orjson.loads(reach)
                yield from (Rival(said[one][2], said[one][0]) for one in (what, ALL) if one in said)


def _by_instant(rival: Rival) -> int:
    return rival.at


def _rival_of(line: Line) -> Rival | None:
    return None if line.said is None else Rival(line.fact_id, line.said)


def _by_seq(found: tuple[str, str, Line]) -> int:
    return found[2].seq


def _lines_of(connection: sqlite3.Connection, fact_ids: Sequence[str]) -> list[Line]:
    asked = {"ids": orjson.dumps(fact_ids).decode()}
    return [_line_from(row) for row in connection.execute(_SQL["lines_of_facts"], asked)]


def _line_from(row: Sequence[Any]) -> Line:
    (
        seq, first, what, kind, reason, fact_id, replaces, version, key_id, said, payload,
        number, rule_id, rule_hash, trigger, at, own,
    ) = row  # fmt: skip
    firing = orjson.loads(own) if own else {}
    # The kind is a delta's: a firing's own row has no fact id, and is never in quarantine.
    delta = cast("Delta", KINDS[kind])
    return Line(
        seq, first, WHATS[what], delta, reason, fact_id or "",
        tuple(orjson.loads(replaces)) if replaces else (),
        version & _LOG_NUMBER, key_id, said, orjson.loads(payload) if payload else {},
        firing_id_of(rule_id, number), rule_id, rule_hash, trigger, instant(at),
        firing.get("by", ""), firing.get("undoes", ""),
    )  # fmt: skip


def _facts(connection: sqlite3.Connection, fact_ids: Sequence[str]) -> dict[str, Fact]:
    asked = {"ids": orjson.dumps(fact_ids).decode()}
    return {row[0]: fact_from(row) for row in connection.execute(_SQL["facts_by_id"], asked)}


def _replacing(connection: sqlite3.Connection, fact_id: str, lines: Iterable[Line]) -> list[Line]:
    """Return the rows that took a fact out, oldest first.

    Only acts of its keys, and acts that name one of those, can reach it.
    """
    key_ids = {line.key_id for line in lines if line.key_id is not None}
    asked = {"key_ids": orjson.dumps(list(key_ids)).decode()}
    speakers = {row[0] for row in connection.execute(_SQL["fact_ids_of_keys"], asked)} | {fact_id}
    asked = {"ids": orjson.dumps(list(speakers)).decode()}
    speakers |= {referrer for _, referrer in connection.execute(_SQL["namers"], asked)}
    asked = {"ids": orjson.dumps(list(speakers)).decode(), "fact_id": fact_id}
    found = map(_line_from, connection.execute(_SQL["lines_that_replace"], asked))
    # A new version, or another rule, that says it again puts it in the place of itself.
    return [line for line in found if line.fact_id != fact_id or line.kind != "update"]


def _counting(connection: sqlite3.Connection, fact_id: str) -> set[int]:
    """Return the rows whose meetings count: what the rules, and the last hand, say now."""
    asked = {"ids": orjson.dumps([fact_id]).decode()}
    met = evaluations_from(connection.execute(_SQL["meetings"], asked)).get(fact_id, [])
    last = {evaluation.rule_id: evaluation for evaluation in met}
    promoters = {rule_id for one in effective_claims(met) for rule_id, _ in one.promoters}
    return {evaluation.seq for rule_id, evaluation in last.items() if rule_id in promoters}


def _remaining(connection: sqlite3.Connection, fact_ids: Sequence[str]) -> set[int]:
    """Return the rows of meetings that were not undone."""
    asked = {"ids": orjson.dumps(fact_ids).decode()}
    found = evaluations_from(connection.execute(_SQL["meetings"], asked))
    return {evaluation.seq for evaluations in found.values() for evaluation in evaluations}


def _sources(sayings: Sequence[Saying]) -> list[Source]:
    """Return the episodes behind what is said now, or behind all that was when nothing is."""
    said = [one.line for one in sayings if one.line.asserts]
    said = [one.line for one in sayings if one.counts] or said
    found = {source.id: source for line in said for source in _sources_of(line)}
    return [found[id] for id in sorted(found)]


def _sources_of(line: Line) -> list[Source]:
    if said_by(line.rule_id) == HANDS or line.said is None:
        return [Source(id, "", None, "") for id in sources_of(line.fact_id, line.document)]
    session = str(line.document.get("session", ""))
    node = str(line.document.get("payload", {}).get("source_node", ""))
    return [Source(episode_id_of(line.fact_id), session, instant(line.said), node)]
