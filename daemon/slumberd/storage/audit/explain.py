"""Explain the history of a fact, and the outcome of an episode. Reads only the ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import orjson

from slumberd.consolidation.claim import ALL
from slumberd.consolidation.entry import Effect
from slumberd.consolidation.explanation import (
    AssertingRow,
    Decision,
    Explanation,
    Line,
    NewerClaim,
    Read,
    Source,
    outcome_of,
)
from slumberd.consolidation.precedence import MANUAL_RULE_ID, author_of, effective_claims
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
_EVALUATED = ("claim", "withdrawal", "quarantine", "known", "gated")


def why(connection: sqlite3.Connection, fact_id: str) -> Explanation:
    """Explain a fact that is current, or that the ledger knows.

    Raises:
        NoInputError: No current fact has the id, and no row of the ledger has it.
    """
    with snapshot(connection):
        lines = _lines_of(connection, [fact_id])
        fact = _facts(connection, [fact_id]).get(fact_id)
        if fact is None and not lines:
            remedy = "the ledger has no such fact; `slumberd facts` lists the current facts"
            raise NoInputError(fact_id, remedy)
        if fact is not None:
            lines = _of_owner(fact, lines)
        effective = _find_effective(connection, fact_id)
        sayings = [
            AssertingRow(line, line.seq in effective)
            for line in lines
            if line.asserts or line.kind in ("add", "update")
        ]
        removals = _find_removals(connection, fact_id, lines)
        if fact is not None:
            removals = _of_owner(fact, removals)
    return Explanation(fact_id, fact, sayings, removals, _find_sources(sayings))


def _of_owner(fact: Fact, lines: Sequence[Line]) -> list[Line]:
    """Leave out the lines of another owner, who had the fact's id before."""
    own = owner_of(fact.user, fact.agent, channel_of(fact.id))
    claimed = [line for line in lines if line.what == "claim" and line.said is not None]
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
    """Return the outcome of an episode: one decision for each rule and channel.

    Args:
        connection: Outside of a transaction.
        episode_id: The episode; ``memory.db`` need not have it any more.
        rules: The loaded rules, with disabled ones. The result also has decisions of other rules
            that evaluated the episode.
        versions: By the id of a loaded rule, the newest version as that rule reads it. Read them
            before this call.
    """
    with snapshot(connection):
        return _Inquiry(connection, episode_id, rules, versions).decisions()


class _Inquiry:
    """Reads what the ledger knows of one episode, inside a snapshot."""

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
        self._erased = forgotten(connection)
        channels = sorted(self._find_channels())
        fact_ids = [fact_id_of(channel, episode_id) for channel in channels]
        self._lines = _lines_of(connection, fact_ids)
        self._remaining = _find_remaining(connection, fact_ids)
        self._current = _facts(connection, fact_ids).keys()
        self._last = self._find_last_lines(channels)

    def decisions(self) -> list[Decision]:
        """Return the decision of each rule in each of its channels."""
        emitted = {(rule.id, name) for rule in self._rules.values() for name in rule.then_emits}
        return [self._decide(*pair) for pair in sorted(emitted | self._last.keys())]

    def _find_channels(self) -> set[str]:
        """Return the channels of the loaded rules, and of the last firing of each rule."""
        found = {name for rule in self._rules.values() for name in rule.then_emits}
        for rule_id in self._marks:
            counts = self._connection.execute(_SQL["last_counts"], (rule_id,)).fetchone()
            found |= set(orjson.loads(counts[0])) if counts else set()
        return found | {FACTS}

    def _find_last_lines(self, channels: Sequence[str]) -> dict[tuple[str, str], Line]:
        """Return the last row by rule and channel; manual edits evaluate no episode."""
        evaluated = [
            (line.rule_id, channel_of(line.fact_id), line)
            for line in self._lines
            if line.what in _EVALUATED and not line.rule_id.startswith("@")
        ]
        # A row whose id another owner holds has no fact id; only the quarantine knows its episode.
        found = [*evaluated, *self._read_quarantine(channels)]
        return {(rule, channel): line for rule, channel, line in sorted(found, key=_by_seq)}

    def _read_quarantine(self, channels: Sequence[str]) -> list[tuple[str, str, Line]]:
        rule_ids = self._rules.keys() | self._marks.keys()
        pairs = [(rule_id, channel) for rule_id in rule_ids for channel in channels]
        parameters = {"pairs": orjson.dumps(pairs).decode(), "eid": self._episode_id}
        rows = self._connection.execute(_SQL["lines_of_quarantine"], parameters).fetchall()
        return [(line.rule_id, row[-1], line) for row in rows for line in [_line_from(row[:-1])]]

    def _decide(self, rule_id: str, channel: str) -> Decision:
        fact_id = fact_id_of(channel, self._episode_id)
        line = self._last.get((rule_id, channel))
        contested = line is not None and not line.fact_id
        is_current = fact_id in self._current and not contested
        removal = None if is_current else self._find_removal(fact_id)
        rival = self._find_rival(line)
        late = line is not None and line.asserts and line.reason == "stale"
        return Decision(
            rule_id,
            channel,
            fact_id,
            outcome_of(line, self._read_rule(rule_id), self._remaining),
            line,
            is_current,
            removal,
            rival.id if rival and late else "",
            rival if removal is None else _rival_of(removal),
        )

    def _read_rule(self, rule_id: str) -> Read | None:
        rule = self._rules.get(rule_id)
        if rule is None:
            return None
        version = self._versions.get(rule_id)
        erased = version is not None and self._is_erased(version)
        return Read(rule, self._marks.get(rule_id), version, forgotten=erased)

    def _is_erased(self, version: EpisodeVersion) -> bool:
        scope = (version.user, version.session, version.agent)
        return self._erased is not None and self._erased.covers(*scope, version.at)

    def _find_removal(self, fact_id: str) -> Line | None:
        lines = [line for line in self._lines if line.fact_id == fact_id]
        removals = _find_removals(self._connection, fact_id, lines) if lines else []
        return removals[-1] if removals else None

    def _find_rival(self, line: Line | None) -> NewerClaim | None:
        """Return the newest claim against a stale claim, or one retracted before it arrived."""
        if line is None or line.said is None or line.reason not in ("stale", "retracted"):
            return None
        claim = claim_from(line.fact_id, line.said, line.document)
        slot = slot_name(channels_at(self._connection).slot(claim.key, claim.object))
        retracting = line.reason == "retracted"
        rivals = self._read_rivals(claim.key, slot, claim.object, retracting=retracting)
        newer = (rival for rival in rivals if rival.at >= line.said)
        return max(newer, default=None, key=_by_instant)

    def _read_rivals(
        self, key: str, slot: str, what: str, *, retracting: bool
    ) -> Iterator[NewerClaim]:
        """Yield the newest assertion of a slot, or its retractions of an object and of all."""
        parameters = {"keys": orjson.dumps([key]).decode()}
        for _, name, _, at, _, _, fact_id, _, reach, _ in self._connection.execute(
            _SQL["states_of_keys"], parameters
        ).fetchall():
            if not retracting and name == slot and at is not None:
                yield NewerClaim(fact_id, at)
            if retracting and reach and name in (slot, slot_name(ALL)):
                retracted = orjson.loads(reach)
                for covered in (what, ALL):
                    if covered in retracted:
                        at, _, retracting_id = retracted[covered]
                        yield NewerClaim(retracting_id, at)


def _by_instant(rival: NewerClaim) -> int:
    return rival.at


def _rival_of(line: Line) -> NewerClaim | None:
    return None if line.said is None else NewerClaim(line.fact_id, line.said)


def _by_seq(found: tuple[str, str, Line]) -> int:
    return found[2].seq


def _lines_of(connection: sqlite3.Connection, fact_ids: Sequence[str]) -> list[Line]:
    parameters = {"ids": orjson.dumps(fact_ids).decode()}
    return [_line_from(row) for row in connection.execute(_SQL["lines_of_facts"], parameters)]


def _line_from(row: Sequence[Any]) -> Line:
    (
        seq, first, what, kind, reason, fact_id, replaces, version, key_id, said, payload,
        number, rule_id, rule_hash, trigger, at, own,
    ) = row  # fmt: skip
    firing = orjson.loads(own) if own else {}
    # The kind is that of a delta: the row of a firing has no fact id, and is not in quarantine.
    delta = cast("Effect", KINDS[kind])
    return Line(
        seq, first, WHATS[what], delta, reason, fact_id or "",
        tuple(orjson.loads(replaces)) if replaces else (),
        version & _LOG_NUMBER, key_id, said, orjson.loads(payload) if payload else {},
        firing_id_of(rule_id, number), rule_id, rule_hash, trigger, instant(at),
        firing.get("by", ""), firing.get("undoes", ""),
    )  # fmt: skip


def _facts(connection: sqlite3.Connection, fact_ids: Sequence[str]) -> dict[str, Fact]:
    parameters = {"ids": orjson.dumps(fact_ids).decode()}
    return {row[0]: fact_from(row) for row in connection.execute(_SQL["facts_by_id"], parameters)}


def _find_removals(
    connection: sqlite3.Connection, fact_id: str, lines: Iterable[Line]
) -> list[Line]:
    """Return the rows that removed a fact, oldest first.

    Only claims of its keys, and claims that name one of these, can remove it.
    """
    key_ids = {line.key_id for line in lines if line.key_id is not None}
    parameters = {"key_ids": orjson.dumps(list(key_ids)).decode()}
    found = connection.execute(_SQL["fact_ids_of_keys"], parameters)
    claimants = {row[0] for row in found} | {fact_id}
    parameters = {"ids": orjson.dumps(list(claimants)).decode()}
    claimants |= {referrer for _, referrer in connection.execute(_SQL["referrers"], parameters)}
    parameters = {"ids": orjson.dumps(list(claimants)).decode(), "fact_id": fact_id}
    lines_found = map(_line_from, connection.execute(_SQL["lines_that_replace"], parameters))
    # A new version, or another rule, may replace a fact by itself.
    return [line for line in lines_found if line.fact_id != fact_id or line.kind != "update"]


def _find_effective(connection: sqlite3.Connection, fact_id: str) -> set[int]:
    """Return the rows of the newest evaluations that count, and of the last manual edit."""
    parameters = {"ids": orjson.dumps([fact_id]).decode()}
    evaluations = evaluations_from(connection.execute(_SQL["evaluations"], parameters)).get(
        fact_id, []
    )
    last = {evaluation.rule_id: evaluation for evaluation in evaluations}
    counted = effective_claims(evaluations)
    promoters = {rule_id for claim in counted for rule_id, _ in claim.promoters}
    return {evaluation.seq for rule_id, evaluation in last.items() if rule_id in promoters}


def _find_remaining(connection: sqlite3.Connection, fact_ids: Sequence[str]) -> set[int]:
    """Return the rows of the evaluations that no undo took back."""
    parameters = {"ids": orjson.dumps(fact_ids).decode()}
    found = evaluations_from(connection.execute(_SQL["evaluations"], parameters))
    return {evaluation.seq for evaluations in found.values() for evaluation in evaluations}


def _find_sources(sayings: Sequence[AssertingRow]) -> list[Source]:
    """Return the source episodes of the claims that count, or of all claims when none counts."""
    asserting = [saying.line for saying in sayings if saying.line.asserts]
    lines = [saying.line for saying in sayings if saying.counts] or asserting
    found = {source.id: source for line in lines for source in _sources_of(line)}
    return [found[id] for id in sorted(found)]


def _sources_of(line: Line) -> list[Source]:
    if author_of(line.rule_id) == MANUAL_RULE_ID or line.said is None:
        return [Source(id, "", None, "") for id in sources_of(line.fact_id, line.document)]
    session = str(line.document.get("session", ""))
    node = str(line.document.get("payload", {}).get("source_node", ""))
    return [Source(episode_id_of(line.fact_id), session, instant(line.said), node)]
