"""Explain the history of a fact, and the outcome of an episode. Reads only the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from slumberd.consolidation.claim import ALL
from slumberd.consolidation.explanation import (
    AssertingRow,
    Decision,
    DetailedRecord,
    Explanation,
    KeyChange,
    NewerClaim,
    Read,
    Source,
    outcome_of,
)
from slumberd.consolidation.precedence import MANUAL_RULE_ID, author_of, effective_claims
from slumberd.model.episode import EpisodeVersion, instant, is_part_of
from slumberd.model.errors import NoInputError
from slumberd.model.fact import Fact
from slumberd.model.scope import FACTS, channel_of, fact_id_of, named_ids, owner_of
from slumberd.storage.engine import Session
from slumberd.storage.erased_scopes import load_erased_scopes
from slumberd.storage.ledger.batch import GENERATION_BITS
from slumberd.storage.ledger.fact_rows import fact_from
from slumberd.storage.ledger.history import channels_at
from slumberd.storage.ledger.rows import (
    EVENTS,
    claim_from,
    evaluations_from,
    record_from,
    row_with_firing,
    sources_of,
)
from slumberd.storage.ledger.state_loader import slot_name

if TYPE_CHECKING:  # a command that reads facts imports no rules
    from slumberd.model.rule import ConsolidationRule

_LOG_NUMBER = (1 << GENERATION_BITS) - 1
MOST_CHANGES = 1_000
"""The most changes of a key that an explanation has."""

_EVALUATED = ("claim", "withdrawal", "quarantine", "known", "gated")


def why(session: Session, fact_id: str) -> Explanation:
    """Explain a fact that is current, or that the ledger knows.

    Raises:
        NoInputError: No current fact has the id, and no row of the ledger has it.
    """
    rows = detailed_records(session, [fact_id])
    fact = _facts(session, [fact_id]).get(fact_id)
    if fact is None and not rows:
        remedy = "the ledger has no such fact; `slumberd facts` lists the current facts"
        raise NoInputError(fact_id, remedy)
    if fact is not None:
        rows = _of_owner(fact, rows)
    effective = _find_effective(session, fact_id)
    assertions = [
        AssertingRow(row, row.record.seq in effective)
        for row in rows
        if row.asserts or row.record.kind in ("add", "update")
    ]
    removals = _find_removals(session, fact_id, rows)
    if fact is not None:
        removals = _of_owner(fact, removals)
    history = _read_history(session, rows, removals)
    return Explanation(
        fact_id,
        fact,
        assertions,
        removals,
        _find_sources(assertions),
        history[-MOST_CHANGES:],
        len(history),
    )


def _of_owner(fact: Fact, rows: Sequence[DetailedRecord]) -> list[DetailedRecord]:
    """Leave out the rows of another owner, who had the fact's id before."""
    own = owner_of(fact.user, fact.agent, channel_of(fact.id))
    claimed = [row for row in rows if row.event == "claim" and row.claimed_at is not None]
    owners = {
        row.key_id: claim_from(row.record.fact_id, row.claimed_at or 0, row.document).owner
        for row in claimed
        if row.document
    }
    return [row for row in rows if owners.get(row.key_id, row.document.get("owner", own)) == own]


def decisions_of(
    session: Session,
    episode_id: str,
    rules: Sequence[ConsolidationRule],
    versions: Mapping[str, EpisodeVersion],
) -> list[Decision]:
    """Return the outcome of an episode: one decision for each rule and channel.

    Args:
        session: Outside of a transaction.
        episode_id: The episode; it need not exist any more.
        rules: The loaded rules, with disabled ones. The result also has decisions of other rules
            that evaluated the episode.
        versions: By the id of a loaded rule, the newest version as that rule reads it. Read them
            before this call.
    """
    return _Inquiry(session, episode_id, rules, versions).decisions()


class _Inquiry:
    """Reads what the ledger knows of one episode, inside a snapshot."""

    def __init__(
        self,
        session: Session,
        episode_id: str,
        rules: Sequence[ConsolidationRule],
        versions: Mapping[str, EpisodeVersion],
    ) -> None:
        self._session = session
        self._episode_id = episode_id
        self._rules = {rule.id: rule for rule in rules}
        self._versions = versions
        self._marks = {row[0]: row[1] for row in session.stream("ledger.watermarks")}
        self._erased = load_erased_scopes(session)
        channels = sorted(self._find_channels())
        fact_ids = self._find_fact_ids(channels)
        self._rows = [
            row
            for row in detailed_records(session, fact_ids)
            if row.record.source_episode_ids == (episode_id,) or row.record.rule_id.startswith("@")
        ]
        self._remaining = _find_remaining(session, fact_ids)
        self._current = _facts(session, fact_ids)
        self._last = self._find_last_rows(channels)

    def decisions(self) -> list[Decision]:
        """Return the decision of each rule on each claim of the episode, in each channel."""
        emitted = {
            (rule.id, fact_id_of(name, self._episode_id))
            for rule in self._rules.values()
            for name in rule.then_emits
        }
        found = emitted | self._last.keys()
        return [self._decide(*pair) for pair in sorted(found, key=_by_rule_and_part)]

    def _find_fact_ids(self, channels: Sequence[str]) -> list[str]:
        """Return the fact ids of the episode's own claim, and of its other claims."""
        own = [id for channel in channels for id in named_ids(channel, self._episode_id)]
        rows = self._session.rows("ledger.parts", {"values": [*own]})
        return [*own, *(part for whole, part in rows if is_part_of(part, whole))]

    def _find_channels(self) -> set[str]:
        """Return the channels of the loaded rules, and of the last firing of each rule."""
        found = {name for rule in self._rules.values() for name in rule.then_emits}
        for rule_id in self._marks:
            counts = self._session.one("ledger.last_counts", (rule_id,))
            found |= set(orjson.loads(counts[0])) if counts else set()
        return found | {FACTS}

    def _find_last_rows(self, channels: Sequence[str]) -> dict[tuple[str, str], DetailedRecord]:
        """Return the last row by rule and fact id; manual edits evaluate no episode."""
        evaluated = [
            (row.record.rule_id, row.record.fact_id, row)
            for row in self._rows
            if row.event in _EVALUATED and not row.record.rule_id.startswith("@")
        ]
        # A row whose id another owner holds has no fact id; only the quarantine knows its episode.
        found = [*evaluated, *self._read_quarantine(channels)]
        return {(rule, fact_id): row for rule, fact_id, row in sorted(found, key=_by_seq)}

    def _read_quarantine(self, channels: Sequence[str]) -> list[tuple[str, str, DetailedRecord]]:
        rule_ids = self._rules.keys() | self._marks.keys()
        pairs = [(rule_id, channel) for rule_id in rule_ids for channel in channels]
        parameters = {"pairs": [*pairs], "eid": self._episode_id}
        rows = self._session.rows("ledger.quarantined_records", parameters)
        found = [(channel, _detailed_record(columns)) for channel, *columns in rows]
        return [
            (row.record.rule_id, row.record.fact_id or fact_id_of(channel, self._episode_id), row)
            for channel, row in found
        ]

    def _decide(self, rule_id: str, fact_id: str) -> Decision:
        row = self._last.get((rule_id, fact_id))
        contested = row is not None and not row.record.fact_id
        is_current = fact_id in self._current and not contested
        removal = None if is_current else self._find_removal(fact_id)
        rival = self._find_rival(row)
        late = row is not None and row.asserts and row.record.reason == "stale"
        read = self._read_rule(rule_id)
        return Decision(
            rule_id,
            channel_of(fact_id),
            fact_id,
            outcome_of(row, read, self._remaining),
            row,
            is_current,
            removal,
            rival.id if rival and late else "",
            rival if removal is None else _rival_of(removal),
            unrecorded=read is not None and read.unrecorded,
            said=self._current[fact_id].payload if is_current else self._find_said(fact_id),
        )

    def _find_said(self, fact_id: str) -> Mapping[str, Any]:
        """Return what the last claim about a fact said; empty when the ledger has none."""
        claims = (row for row in reversed(self._rows) if row.record.fact_id == fact_id)
        said = (row.document["payload"] for row in claims if "payload" in row.document)
        return next(said, {})

    def _read_rule(self, rule_id: str) -> Read | None:
        rule = self._rules.get(rule_id)
        if rule is None:
            return None
        version = self._versions.get(rule_id)
        erased = version is not None and self._is_erased(version)
        return Read(rule, self._marks.get(rule_id), version, erased=erased)

    def _is_erased(self, version: EpisodeVersion) -> bool:
        erased, scope = self._erased, (version.user, version.session, version.agent)
        return erased is not None and (
            erased.has_episode(version.user, version.id) or erased.covers(*scope, version.at)
        )

    def _find_removal(self, fact_id: str) -> DetailedRecord | None:
        rows = [row for row in self._rows if row.record.fact_id == fact_id]
        removals = _find_removals(self._session, fact_id, rows) if rows else []
        return removals[-1] if removals else None

    def _find_rival(self, row: DetailedRecord | None) -> NewerClaim | None:
        """Return the newest claim against a stale claim, or one retracted before it arrived."""
        if row is None or row.claimed_at is None or row.record.reason not in ("stale", "retracted"):
            return None
        claim = claim_from(row.record.fact_id, row.claimed_at, row.document)
        slot = slot_name(channels_at(self._session).slot(claim.key, claim.object))
        retracting = row.record.reason == "retracted"
        rivals = self._read_rivals(claim.key, slot, claim.object, retracting=retracting)
        newer = (rival for rival in rivals if rival.at >= row.claimed_at)
        return max(newer, default=None, key=_by_instant)

    def _read_rivals(
        self, key: str, slot: str, what: str, *, retracting: bool
    ) -> Iterator[NewerClaim]:
        """Yield the newest assertion of a slot, or its retractions of an object and of all."""
        parameters = {"keys": [key]}
        for _, name, _, at, _, _, _, fact_id, _, reach, _ in self._session.rows(
            "ledger.states_of_keys", parameters
        ):
            if not retracting and name == slot and at is not None:
                yield NewerClaim(fact_id, at)
            if retracting and reach and name in (slot, slot_name(ALL)):
                retracted = orjson.loads(reach)
                for covered in (what, ALL):
                    if covered in retracted:
                        at, _, retracting_id, *_ = retracted[covered]
                        yield NewerClaim(retracting_id, at)


def _by_rule_and_part(found: tuple[str, str]) -> tuple[str, str, int, str]:
    rule_id, fact_id = found
    return rule_id, channel_of(fact_id), len(fact_id), fact_id


def _by_instant(rival: NewerClaim) -> int:
    return rival.at


def _rival_of(row: DetailedRecord) -> NewerClaim | None:
    return None if row.claimed_at is None else NewerClaim(row.record.fact_id, row.claimed_at)


def _by_seq(found: tuple[str, str, DetailedRecord]) -> int:
    return found[2].record.seq


def detailed_records(session: Session, fact_ids: Sequence[str]) -> list[DetailedRecord]:
    """Return the rows about some fact ids, oldest first."""
    parameters = {"ids": [*fact_ids]}
    return [_detailed_record(row) for row in session.stream("ledger.detailed_records", parameters)]


def _detailed_record(columns: Sequence[Any]) -> DetailedRecord:
    """Return the detailed record of a row, from the columns of ``detailed_records``."""
    own, *found = columns
    firing = orjson.loads(own) if own else {}
    row, _, rule_hash, trigger, _ = row_with_firing(found[:-2])
    return DetailedRecord(
        record_from(found), row.first, EVENTS[row.event], row.version & _LOG_NUMBER, row.key_id,
        row.at, orjson.loads(row.payload) if row.payload else {}, rule_hash, trigger,
        firing.get("by", ""), firing.get("undoes", ""), firing.get("reason", ""),
    )  # fmt: skip


def _facts(session: Session, fact_ids: Sequence[str]) -> dict[str, Fact]:
    parameters = {"ids": [*fact_ids]}
    return {row[0]: fact_from(row) for row in session.stream("ledger.facts_by_id", parameters)}


def _find_removals(
    session: Session, fact_id: str, rows: Iterable[DetailedRecord]
) -> list[DetailedRecord]:
    """Return the rows that removed a fact, oldest first.

    Only claims of its keys, and claims that name one of these, can remove it.
    """
    key_ids = {row.key_id for row in rows if row.key_id is not None}
    parameters: dict[str, Any] = {"key_ids": list(key_ids)}
    claimants = {id for (id,) in session.stream("ledger.fact_ids_of_keys", parameters)}
    claimants.add(fact_id)
    parameters = {"values": list(claimants)}
    claimants |= {referrer for _, referrer in session.stream("ledger.referrers", parameters)}
    parameters = {"ids": list(claimants), "fact_id": fact_id}
    found = map(_detailed_record, session.stream("ledger.removals", parameters))
    # A new version, or another rule, may replace a fact by itself.
    return [row for row in found if row.record.fact_id != fact_id or row.record.kind != "update"]


def _read_history(
    session: Session, rows: Sequence[DetailedRecord], removals: Sequence[DetailedRecord]
) -> list[KeyChange]:
    """Return the changes of the keys of a fact, oldest first.

    Args:
        session: Inside a snapshot.
        rows: The rows about the fact.
        removals: The rows that removed it; they may be about other keys.
    """
    key_ids = {row.key_id for row in rows if row.key_id is not None}
    parameters: dict[str, Any] = {"key_ids": list(key_ids)}
    claimants = {id for (id,) in session.stream("ledger.fact_ids_of_keys", parameters)}
    found = {row.record.seq: row for row in [*rows, *detailed_records(session, [*claimants])]}
    foreign = {row.record.seq: row for row in removals if row.record.seq not in found}
    claims: dict[str, DetailedRecord] = {}
    history = []
    for seq, row in sorted((found | foreign).items()):
        fact_id = row.record.fact_id
        if row.event == "claim":
            claims[fact_id] = row
        # A row without a claim, as of an undo, is about the last claim of its fact.
        claim = claims.get(fact_id, row)
        if (seq in foreign or claim.key_id in key_ids) and _changes_key(row):
            payload = claim.document.get("payload", {})
            history.append(KeyChange(row, claim.claimed_at, payload))
    return history


def _changes_key(row: DetailedRecord) -> bool:
    return row.event == "claim" or row.record.kind in ("add", "update", "delete")


def _find_effective(session: Session, fact_id: str) -> set[int]:
    """Return the rows of the newest evaluations that count, and of the last manual edit."""
    parameters = {"values": [fact_id]}
    evaluations = evaluations_from(session.stream("ledger.evaluations", parameters)).get(
        fact_id, []
    )
    last = {evaluation.rule_id: evaluation for evaluation in evaluations}
    counted = effective_claims(evaluations)
    promoters = {rule_id for claim in counted for rule_id, _ in claim.promoters}
    return {evaluation.seq for rule_id, evaluation in last.items() if rule_id in promoters}


def _find_remaining(session: Session, fact_ids: Sequence[str]) -> set[int]:
    """Return the rows of the evaluations that no undo took back."""
    parameters = {"values": [*fact_ids]}
    found = evaluations_from(session.stream("ledger.evaluations", parameters))
    return {evaluation.seq for evaluations in found.values() for evaluation in evaluations}


def _find_sources(assertions: Sequence[AssertingRow]) -> list[Source]:
    """Return the source episodes of the claims that count, or of all claims when none counts."""
    asserting = [asserting.row for asserting in assertions if asserting.row.asserts]
    rows = [asserting.row for asserting in assertions if asserting.counts] or asserting
    found = {source.id: source for row in rows for source in _sources_of(row)}
    return [found[id] for id in sorted(found)]


def _sources_of(row: DetailedRecord) -> list[Source]:
    if author_of(row.record.rule_id) == MANUAL_RULE_ID or row.claimed_at is None:
        return [Source(id, "", None, "") for id in sources_of(row.record.fact_id, row.document)]
    session = str(row.document.get("session", ""))
    node = str(row.document.get("payload", {}).get("source_node", ""))
    first, *others = sources_of(row.record.fact_id, row.document)
    # Of a summary's episodes, only the first is recorded with its instant.
    return [
        Source(first, session, instant(row.claimed_at), node),
        *(Source(other, session, None, "") for other in others),
    ]
