"""Resolve one batch of claims and write its rows to facts, ledger and quarantine.

The caller begins the transaction of the facts and ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Any

import orjson

from slumberd.consolidation.claim import Claim, user_and_agent
from slumberd.consolidation.incoming import (
    FUTURE,
    Candidate,
    Condition,
    Contested,
    Erased,
    HeldBack,
    Unreadable,
    never,
)
from slumberd.consolidation.precedence import (
    FIRST_LAW,
    MANUAL_RULE_ID,
    EffectiveClaim,
    MultiValued,
)
from slumberd.consolidation.resolution import (
    Decision,
    Resolution,
    ResolvedEffect,
    check_cancelled,
    decide,
    losses_after,
    until_cancelled,
)
from slumberd.consolidation.state import CurrentFact
from slumberd.consolidation.withdrawal import withdraw_former, withdraw_parts
from slumberd.garbage_collection import free_in_portions
from slumberd.model.episode import instant, microseconds
from slumberd.model.firing import Counts, DeletionImpact, Firing, Outcome, Record
from slumberd.model.scope import ErasedScopes, channel_of, fact_id_of, plain_fact_id, unescape
from slumberd.storage.engine import Row, Session
from slumberd.storage.erased_scopes import load_erased_scopes
from slumberd.storage.ledger.rows import (
    FIRING,
    FIRING_KIND,
    LedgerRow,
    check_key,
    firing_id_of,
    has_known_owner,
    is_usable_name,
    record_key,
    row_of,
    seal,
    sources_of,
)
from slumberd.storage.ledger.similarity import BatchSimilarity
from slumberd.storage.ledger.state_loader import LoadedState, read_end
from slumberd.storage.strict_json import written

GENERATION_BITS = 40
"""Log numbers take the low bits of a version: a restored log starts a new generation above."""


class OverLimitError(Exception):
    """A batch would delete more facts than its limits allow; the stores catch it.

    Attributes:
        problem: The limit, in words; empty for a batch that was to delete nothing.
        impact: What its command would have deleted after it.
    """

    def __init__(self, problem: str, impact: DeletionImpact) -> None:
        super().__init__(problem)
        self.problem = problem
        self.impact = impact


class Batch:
    """One batch of a firing, from its candidates to its rows.

    Attributes:
        number: The number of the firing's row in the ledger.
        at: The batch's instant, microseconds; never before the last recorded instant.
        head: The chain hash before the batch.
        loaded: The known state that the batch is resolved on.
        note: Keys that the firing's row has beside those of the firing.
        overwrites: Whether ``facts`` may have rows whose ids are new to the ledger.
        found: Rows that other programs wrote, by fact id; an equal row is not written again.
    """

    def __init__(  # noqa: PLR0913 # one for each part of the request
        self,
        session: Session,
        firing: Firing,
        depth: int,
        *,
        multi: MultiValued | None = None,
        law: int | None = None,
        cancelled: Condition = never,
        on_decided: Callable[[], None] | None = None,
    ) -> None:
        self._is_cancelled = cancelled
        self._on_decided = on_decided
        self._session = session
        self._firing = firing
        end = read_end(session)
        self._end = end
        self.number = end.seq + 1
        self.head = end.chain
        self._key = check_key(session, end.key_number) if end.seq else record_key(session)
        self.at = max(microseconds(firing.at), end.at)
        self._generation = end.generations[0][1] if end.generations else 0
        self._law = end.law if law is None else law
        multi = end.multi_valued if multi is None else multi
        self.loaded = LoadedState(session, multi, depth, self._law)
        self.note: dict[str, Any] = {}
        self.overwrites = False
        self.found: dict[str, Row] = {}
        self._losses = firing.losses

    def apply(
        self,
        candidates: Mapping[str, Sequence[Candidate]],
        similarity: BatchSimilarity | None = None,
    ) -> Outcome:
        """Decide what the candidates change, and write it.

        Args:
            candidates: The candidates, by channel.
            similarity: Links new facts with similar facts; None when the rule does not ask.

        Raises:
            OverLimitError: The batch deletes more facts than its limits allow.
            StoppedError: The firing was cancelled.
        """
        erased = load_erased_scopes(self._session) if self._end.has_erasures else None
        prepared: Mapping[str, Sequence[Candidate]] = {
            channel: self._set_versions(_remove_erased(found, erased))
            for channel, found in candidates.items()
        }
        if self._firing.again and self._end.has_quarantine:
            prepared = self._without_waiting(prepared)
        known = self.loaded.known_state
        known.finds_links = similarity is not None
        self._load_for([candidate for found in prepared.values() for candidate in found])
        decision = decide(
            self._with_withdrawn_parts(prepared),
            known,
            number=self.number,
            at=self.at,
            again=self._firing.again,
            link=list if similarity is None else partial(similarity.add_links, known_state=known),
            cancelled=self._is_cancelled,
        )
        self._check_limits(decision)
        outcome = self.write(decision)
        free_in_portions(decision.rows, decision.facts, known.evaluations, known.heads)
        return outcome

    def _without_waiting(
        self, candidates: Mapping[str, Sequence[Candidate]]
    ) -> Mapping[str, Sequence[Candidate]]:
        """Return the candidates without versions that wait in quarantine for their instant."""
        future = {
            candidate.eid
            for found in candidates.values()
            for candidate in found
            if isinstance(candidate, Contested) and candidate.reason == FUTURE
        }
        if not future:
            return candidates
        values = {"rule": self._firing.rule_id, "ids": sorted(future)}
        waiting = set(self._session.rows("ledger.future_entries", values))
        return {
            name: [
                candidate
                for candidate in found
                if not isinstance(candidate, Contested)
                or (candidate.rule_id, name, candidate.eid, candidate.version) not in waiting
            ]
            for name, found in candidates.items()
        }

    def _with_withdrawn_parts(
        self, candidates: Mapping[str, Sequence[Candidate]]
    ) -> Mapping[str, Sequence[Candidate]]:
        """Return the candidates, and those that withdraw what new versions say no more."""
        candidates = self._with_former_ids(candidates)
        known = self.loaded.known_state
        again = [
            candidate.fact_id
            for found in candidates.values()
            for candidate in found
            if candidate.fact_id in known.evaluations
        ]
        recorded = self.loaded.load_claims_of_parts(again)
        if not known.parts and not self._has_former:
            return candidates
        withdrawn = {
            name: withdraw_parts(found, known, recorded) for name, found in candidates.items()
        }
        every = {name: [*found, *withdrawn[name]] for name, found in candidates.items()}
        if any(withdrawn.values()) or self._has_former:
            # All together: what is withdrawn may name what arrives.
            self.loaded.load([candidate for found in every.values() for candidate in found])
        return every

    def _with_former_ids(
        self, candidates: Mapping[str, Sequence[Candidate]]
    ) -> Mapping[str, Sequence[Candidate]]:
        """Return the candidates, and those that withdraw claims under ids of slumberd 0.2."""
        former = {
            (name, plain_fact_id(unescape(name), one.eid)): one
            for name, found in candidates.items()
            for one in found
            if "#" in one.eid and not isinstance(one, Erased)
            if one.fact_id == fact_id_of(unescape(name), one.eid)
            if one.fact_id != plain_fact_id(unescape(name), one.eid)
        }
        self._has_former = False
        if not former:
            return candidates
        histories = self.loaded.load_histories(sorted({fact_id for _, fact_id in former}))
        added: dict[str, list[Candidate]] = {name: [*found] for name, found in candidates.items()}
        for (name, fact_id), one in former.items():
            evaluations = histories[fact_id].evaluations if fact_id in histories else ()
            claims = [found.claim for found in evaluations if found.claim is not None]
            if any((claim.source, claim.owner) == (one.eid, one.owner) for claim in claims):
                added[name] += withdraw_former(one, fact_id)
                self._has_former = True
        return added

    def _load_for(self, candidates: Sequence[Candidate]) -> None:
        """Load the state that the resolution of the candidates needs."""
        self.loaded.load(candidates)
        waiting = [
            candidate.fact_id
            for candidate in candidates
            if candidate.reread or isinstance(candidate, HeldBack)
        ]
        if waiting:
            self.loaded.load_waiting(self._firing.rule_id, waiting)

    def _check_limits(self, decision: Decision) -> None:
        """Add what the batch deletes to the losses of its command, and check these."""
        firing = self._firing
        earlier = firing.losses
        start = earlier.start or self.number
        self._losses = losses_after(
            replace(earlier, start=start), decision.rows, self._age_test(decision, start)
        )
        impact = self._losses.impact
        if not earlier.current and (impact.lost or impact.fewer > 0):
            # The limit is for facts: marks and weights only say something about episodes.
            current = self._session.value("facts.count_limited_facts") + earlier.fewer
            self._losses = replace(self._losses, current=current)
        problem = firing.limits.describe_excess(impact, self._losses.current)
        if problem or (firing.probes and impact.lost > earlier.impact.lost):
            raise OverLimitError(problem, impact)

    def _age_test(self, decision: Decision, start: int) -> Callable[[str], bool]:
        """Return what says whether a fact is older than the ledger row at which a command began."""
        evaluations = self.loaded.known_state.evaluations
        first: dict[str, int] = {}
        if start < self.number:
            # The summary of a key names its fact, whose evaluations need not be loaded.
            ids = {fact_id for entry in decision.rows for fact_id in entry.replaces}
            unknown = sorted(fact_id for fact_id in ids if not evaluations.get(fact_id))
            for seq, fact_id, *_ in self._session.stream("erasure.rows_of_facts", {"ids": unknown}):
                first[fact_id] = min(seq, first.get(fact_id, seq))

        def is_older(fact_id: str) -> bool:
            found = evaluations.get(fact_id)
            return (found[0].seq if found else first.get(fact_id, 0)) < start

        return is_older

    def resolution(self) -> Resolution:
        """Return a new resolution on the loaded state."""
        return Resolution(
            self.loaded.known_state, firing=self.number, at=self.at, again=self._firing.again
        )

    def _set_versions(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the candidates with the log's generation in their versions."""
        if not self._generation:
            return candidates
        return [
            candidate
            if isinstance(candidate, Erased)
            else candidate._replace(version=self._version(candidate.version))
            for candidate in candidates
        ]

    def _version(self, seq: int) -> int:
        # A restored log keeps the numbers of its old rows.
        found = (number for after, number in self._end.generations if seq and after < seq)
        return seq | (next(found, 0) << GENERATION_BITS)

    def write(self, decision: Decision) -> Outcome:
        """Write the rows of a decision; return the outcome."""
        rows, counts = decision.rows, decision.counts
        outcome = self._outcome(rows, counts)
        ledger = [*seal(self._rows(rows, counts), self.head, self._key)]
        facts = [fact_row(fact) for fact in until_cancelled(decision.facts, self._is_cancelled)]
        heads = [*self.loaded.changed_rows()]
        check_cancelled(self._is_cancelled)
        if self._on_decided is not None:
            self._on_decided()
        self._write_ledger(ledger, self._firing_row(rows, counts))
        self._write_references(rows)
        self._write_quarantine(rows)
        self._write_facts(facts, decision.removed)
        self.loaded.save(heads)
        free_in_portions(ledger, facts, heads)
        check_cancelled(self._is_cancelled)
        return outcome

    def _outcome(self, entries: Sequence[ResolvedEffect], counts: Mapping[str, Counts]) -> Outcome:
        firing = replace(self._firing, at=instant(self.at))
        firing_id = firing_id_of(firing.rule_id, self.number)
        records = [self._firing_record(firing_id, firing.at)]
        records += [
            self._record(entry, firing_id, firing.at)
            for entry in until_cancelled(entries, self._is_cancelled)
        ]
        return Outcome(
            firing,
            firing_id,
            dict(counts),
            records,
            0.0,
            losses=self._losses,
        )

    def _write_ledger(self, rows: Sequence[Row], firing: Row) -> None:
        self._session.do("ledger.add_firing", firing)
        self._session.insert("ledger.add_row", rows)

    def _last_seq(self, entries: Sequence[ResolvedEffect]) -> int:
        return entries[-1].seq if entries else self.number

    def _rows(
        self, entries: Sequence[ResolvedEffect], counts: Mapping[str, Counts]
    ) -> Iterator[LedgerRow[str]]:
        key_ids = self.loaded.key_ids
        yield self._row_of_firing(counts, self._last_seq(entries))
        for entry in until_cancelled(entries, self._is_cancelled):
            key_id = key_ids.setdefault(entry.key, entry.seq) if entry.key else None
            yield row_of(entry, firing=self.number, key_id=key_id)

    def _firing_row(self, entries: Sequence[ResolvedEffect], counts: Mapping[str, Counts]) -> Row:
        firing = self._firing
        return (
            self.number, firing.rule_id, firing.rule_hash, firing.trigger, self.at,
            self._last_seq(entries), self._generation, firing.upto.seq, firing.upto.eid,
            _counts_json(counts),
        )  # fmt: skip

    def _row_of_firing(self, counts: Mapping[str, Counts], last_seq: int) -> LedgerRow[str]:
        firing = self._firing
        payload = orjson.dumps(
            {
                "rule": firing.rule_id,
                "rule_hash": firing.rule_hash,
                "trigger": firing.trigger,
                "at": iso(self.at),
                "after": firing.after.seq,
                "upto": firing.upto.seq,
                "generation": self._generation,
                "last_seq": last_seq,
                "by": firing.by,
                **({"reason": firing.reason} if firing.reason else {}),
                **({"run": firing.run} if firing.run else {}),
                "counts": {channel: count._asdict() for channel, count in counts.items()},
                **({"law": self._law} if self._law != FIRST_LAW else {}),
                **self.note,
            }
        )
        own = self.number
        return LedgerRow(own, own, own, FIRING, FIRING_KIND, "", 0, None, None, None, None, payload)

    def _write_references(self, entries: Sequence[ResolvedEffect]) -> None:
        named = [
            (name, entry.fact_id)
            for entry in entries
            if entry.event == "claim" and entry.candidate and entry.candidate.claim
            for name in entry.candidate.claim.names
            if is_usable_name(name)
        ]
        self._session.do_each("ledger.add_reference", named)

    def _write_quarantine(self, entries: Sequence[ResolvedEffect]) -> None:
        readable = [
            (entry.candidate.rule_id, _channel_of(entry), entry.candidate.eid)
            for entry in entries
            if self._end.has_quarantine and entry.candidate and entry.candidate.version
            if entry.event not in ("quarantine", "known")
        ]
        self._session.do_each("ledger.drop_quarantine", readable)
        held = [_quarantine_row(entry) for entry in entries if entry.event == "quarantine"]
        # Several triples of an episode may be malformed; the quarantine keeps the last.
        self._session.do_each("ledger.put_quarantine", {row[:3]: row for row in held}.values())

    def _write_facts(self, current: Sequence[Row], removed: Iterable[str]) -> None:
        current_ids = {row[0] for row in current}
        dropped = [
            fact_id
            for fact_id in removed
            if fact_id not in current_ids and (self.overwrites or not self._is_new(fact_id))
        ]
        with self._session.own_writes(rows=len(dropped) + len(current)):
            parameters = {"ids": [*dropped]}
            self._session.do("facts.drop_facts", parameters)
            changed = [row for row in current if self.found.get(str(row[0])) != row]
            self._session.insert("facts.put_fact", changed if self.found else current)

    def _is_new(self, fact_id: str) -> bool:
        evaluations = self.loaded.known_state.evaluations.get(fact_id)
        return evaluations is not None and evaluations != [] and evaluations[0].seq > self.number

    def _firing_record(self, firing_id: str, at: datetime) -> Record:
        return Record(
            self.number, firing_id, self._firing.rule_id, "firing", "", (), (),
            self._firing.reason, 1.0, at, run=self._firing.run,
        )  # fmt: skip

    def _record(self, entry: ResolvedEffect, firing_id: str, at: datetime) -> Record:
        claim = entry.candidate.claim if entry.candidate else None
        return Record(
            entry.seq,
            firing_id,
            self._firing.rule_id,
            entry.effect,
            entry.fact_id,
            entry.replaces,
            _sources_of(entry),
            entry.reason,
            claim.confidence if claim else 1.0,
            at,
            *_owner_of(entry),
            self._firing.run,
        )


def number(session: Session, name: str) -> int:
    """Return one of the store's numbers, such as ``epoch`` or ``logged``."""
    value: int = session.value("ledger.number", (name,))
    return value


def _remove_erased(
    candidates: Sequence[Candidate], erased: ErasedScopes | None
) -> Sequence[Candidate]:
    """Return the candidates, without the content of erased scopes."""
    if erased is None:
        return candidates
    return [_without_erased(candidate, erased) for candidate in candidates]


def _without_erased(candidate: Candidate, erased: ErasedScopes) -> Candidate:
    """Return a candidate, without content when its scope was erased."""
    if isinstance(candidate, Erased):
        return candidate
    user, agent = user_and_agent(candidate.owner)
    if candidate.version and (
        erased.has_episode(user, candidate.eid)
        or erased.covers(user, candidate.session, agent, candidate.at)
    ):
        return Erased(reread=candidate.reread)
    return candidate


def _sources_of(entry: ResolvedEffect) -> tuple[str, ...]:
    candidate = entry.candidate
    if candidate is None:
        return sources_of(entry.fact_id, {})
    return (candidate.eid,) if candidate.claim is None else candidate.claim.sources


def _owner_of(entry: ResolvedEffect) -> tuple[str, str]:
    """Return the user and agent of a row; empty when they are unknown."""
    candidate = entry.candidate
    if candidate is not None and candidate.owner and has_known_owner(entry.fact_id, entry.reason):
        return user_and_agent(candidate.owner)
    return user_and_agent(entry.key) if entry.key else ("", "")


def _channel_of(entry: ResolvedEffect) -> str:
    return entry.candidate.owner.split("/")[2] if entry.candidate else channel_of(entry.fact_id)


def _quarantine_row(entry: ResolvedEffect) -> tuple[object, ...]:
    candidate = entry.candidate
    if not isinstance(candidate, Unreadable | Contested):
        raise TypeError(f"quarantine row {entry.seq} has no reason in its candidate")
    return (
        candidate.rule_id,
        _channel_of(entry),
        candidate.eid,
        candidate.version,
        candidate.owner,
        candidate.reason,
        candidate.detail,
        entry.seq,
    )


def _counts_json(counts: Mapping[str, Counts]) -> bytes:
    return orjson.dumps({channel: count._asdict() for channel, count in counts.items()})


def fact_row(current: CurrentFact) -> Row:
    """Return the row of ``facts`` for a current fact."""
    effective = current.effective
    claim = effective.claim
    metadata = metadata_of(claim)
    row = (
        claim.fact_id,
        *user_and_agent(claim.owner),
        written(claim.payload),
        written(lineage_of(current)),
        claim.confidence,
        written(metadata) if metadata else b"{}",
        iso(effective.pinned_at),
    )
    return row if claim.stored is None else _with_stored_bytes(row, claim.stored)


COLUMNS = (
    "fact_id", "user", "agent", "payload", "lineage", "confidence", "metadata", "pinned_at",
)  # fmt: skip
"""The columns of ``facts`` in the order of the specification."""


def _with_stored_bytes(row: Row, stored: Mapping[str, Sequence[str]]) -> Row:
    """Return a row with the bytes that another program wrote."""
    return tuple(
        _value(*stored[column]) if column in stored else value
        for column, value in zip(COLUMNS, row, strict=True)
    )


def _value(kind: str, text: str) -> str | bytes:
    return text.encode() if kind == "blob" else text


def metadata_of(claim: Claim) -> dict[str, Any]:
    """Return the metadata of the fact that a claim asserts."""
    if claim.near:
        return {"possible_duplicate": [fact_id for fact_id, _ in claim.near]}
    return claim.metadata or {}


def lineage_of(current: CurrentFact) -> list[dict[str, Any]]:
    """Return the lineage of a current fact."""
    claim, promoters = current.effective
    own = (
        list(claim.lineage)
        if promoters[0][0] == MANUAL_RULE_ID
        else _own_entries(current.effective)
    )
    # A pinned fact keeps the lineage of its pin; other facts link the assertions they replaced.
    return own if claim.metadata is not None else [*own, *current.trail]


@lru_cache(maxsize=1024)
def iso(at: int) -> str:
    """Return an instant in microseconds as the stores write it."""
    return instant(at).isoformat()


def _own_entries(effective: EffectiveClaim) -> list[dict[str, object]]:
    sources = [*effective.claim.sources]
    return [
        {"rule_id": rule_id, "source_episode_ids": sources, "promotion_ts": iso(at)}
        for rule_id, at in effective.promoters
    ]
