"""Compare facts, and the other tables beside the ledger, with what the ledger says.

Facts are compared some keys at a time. The current facts of a key depend on the claims of the key,
on the other rows of their fact ids, and on the claims that name these ids. The comparison loads so
much for a page of keys, and frees it.

The other tables beside the ledger are compared with its rows, too: watermarks, generations, held
batches, quarantine. These changes stay unseen: the watermark of a rule that has not fired; a
watermark that was moved back, so that the rule evaluates the same versions again; a generation that
no firing has used; the episode ids beside log numbers, which an erasure may remove; and missing
quarantine entries of rows that other programs wrote.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import orjson

from slumberd.consolidation.claim import Claim
from slumberd.consolidation.manual import ManualAssertion
from slumberd.consolidation.precedence import EXTERNAL, Evaluation
from slumberd.consolidation.state import CurrentFact, KnownState
from slumberd.model.episode import is_part_of
from slumberd.model.record import Break
from slumberd.model.scope import named_ids, unescape
from slumberd.storage.audit.plain_keys import has_content, proved_keys
from slumberd.storage.engine import Session
from slumberd.storage.ledger.batch import GENERATION_BITS, fact_row
from slumberd.storage.ledger.external_changes import UNREADABLE, decode_fact_row, printable_id
from slumberd.storage.ledger.history import channels_at, current_facts_on, facts_at
from slumberd.storage.ledger.rows import (
    LEAST,
    MOST,
    evaluation_from,
    evaluations_from,
    firing_id_of,
)
from slumberd.storage.ledger.state_loader import episodes_of, law_at, summary_rows

_LOG_NUMBER = (1 << GENERATION_BITS) - 1

ROWS = 200
"""Ledger rows on one page; more only of a single key. So few stay in a processor's cache."""

_Row = tuple[Any, ...]
_Problem = tuple[Any, str]
"""The id of a fact that differs from the ledger, and how it differs."""

OTHER, MISSING = "is not what the ledger says", "is current by the ledger and is missing"
OTHER_SLOTS = "is searched by another subject, predicate or object than it has"


class MixedKeysError(Exception):
    """One key has two numbers, or two keys have one; verify catches this error and reads by key."""


class KeyRange(NamedTuple):
    """The numbers of keys from `first` to `last`."""

    first: int
    last: int


ALL_KEYS = KeyRange(LEAST, MOST)


class KeyPages:
    """The facts that the ledger makes current, a page of keys at a time, by the keys' numbers.

    Attributes:
        summaries: Compares the stored summaries of the keys that were read.
        key_hashes: Hashes of the keys that were read, with repetitions.
        proved: How many keys `unproved` left out: each has one fact, as the ledger says.
    """

    def __init__(
        self, session: Session, depth: int, rows: int = ROWS, keys: KeyRange = ALL_KEYS
    ) -> None:
        """Read pages of about so many ledger rows; only those of the keys in a range."""
        self._session = session
        self._depth = depth
        self._rows = rows
        self._keys = keys
        self._multi, self._law = channels_at(session), law_at(session)
        self._ids_of_other_rows = {
            fact_id for (fact_id,) in session.stream("fact_check.ids_of_other_rows")
        }
        self._referrers: dict[str, list[str]] = {}
        for name, referrer in session.stream("ledger.all_references"):
            self._referrers.setdefault(name, []).append(referrer)
        self._touched = self._ids_of_other_rows | self._referrers.keys()
        self._forget()

    def _forget(self) -> None:
        """Forget the pages that were read."""
        self.key_hashes, self.summaries, self.proved = array("q"), Summaries(self._session), 0

    def _begin(self) -> Iterator[list[_Row]]:
        """Read all pages of rows from the first one on."""
        self._forget()
        found = self._session.stream("fact_check.claims_by_key", self._keys._asdict())
        return _pages(found, self._rows)

    def __iter__(self) -> Iterator[list[CurrentFact]]:
        """Yield the current facts of each page.

        Raises:
            MixedKeysError: One number belongs to two keys, or one key has two numbers.
        """
        for rows in self._begin():
            yield list(current_facts_on(self._load_state(rows)))
        _check_distinct([self.key_hashes])

    def unproved(self) -> Iterator[list[CurrentFact]]:
        """Yield the current facts of each page, without those that are proved right.

        Raises:
            MixedKeysError: One number belongs to two keys, or one key has two numbers.
        """
        for rows in self._begin():
            proved = proved_keys(self._session, rows, self._multi, self._touched)
            self.key_hashes.extend(map(hash, proved.values()))
            self.summaries.found += len(proved)
            self.proved += len(proved)
            if rest := [row for row in rows if row[-1] not in proved]:
                yield list(current_facts_on(self._load_state(rest)))
        _check_distinct([self.key_hashes])

    def _load_state(self, rows: Sequence[_Row]) -> KnownState:
        evaluations = self._load_evaluations(rows)
        state = KnownState(self._multi, self._depth, evaluations=evaluations, law=self._law)
        claims = {
            evaluation.seq: evaluation.claim
            for found in evaluations.values()
            for evaluation in found
        }
        keys: dict[int, str] = {}
        for row in rows:
            claim, number = claims.get(row[1]), row[-1]
            if claim is None:
                undone = evaluation_from(row[:-1]).claim
                if undone is not None:
                    keys.setdefault(number, undone.key)
                continue
            if keys.setdefault(number, claim.key) != claim.key:
                raise MixedKeysError
            state.complete_keys.setdefault(claim.key, set()).add(claim.fact_id)
        # Python's hash of a text is the same in this process and in its forks only.
        self.key_hashes.extend(map(hash, keys.values()))
        self._load_references(state)
        for key in state.complete_keys:
            state.fold(key)
        self.summaries.compare(state, keys)
        return state

    def _load_evaluations(self, rows: Sequence[_Row]) -> dict[str, list[Evaluation]]:
        """Return all evaluations of the fact ids of some rows; the rows hold whole keys."""
        found: dict[str, list[Evaluation]] = {}
        elsewhere: set[str] = set()
        for row in rows:
            if row[0] in self._ids_of_other_rows:
                elsewhere.add(row[0])
            else:
                found.setdefault(row[0], []).append(evaluation_from(row[:-1]))
        return found | self._read_evaluations(elsewhere) if elsewhere else found

    def _load_references(self, state: KnownState) -> None:
        """Add to a state the claims that name its fact ids, and the ids that its claims name."""
        if not self._referrers:
            return
        known = state.evaluations
        names = known.keys() | episodes_of(_claims_of(known))
        state.referrers |= {
            name: set(self._referrers[name]) for name in names if name in self._referrers
        }
        referrers = {referrer for some in state.referrers.values() for referrer in some}
        known |= self._read_evaluations(referrers - known.keys())
        named = {name for claim in _claims_of(known) for name in claim.names}
        for whole, part in self._session.rows("ledger.parts", {"values": [*named]}):
            if is_part_of(part, whole):
                state.parts.setdefault(whole, set()).add(part)
                named.add(part)
        known |= self._read_evaluations(named - known.keys())

    def _read_evaluations(self, fact_ids: Iterable[str]) -> dict[str, list[Evaluation]]:
        parameters = {"values": list(fact_ids)}
        return evaluations_from(self._session.stream("ledger.evaluations", parameters))


def _check_distinct(hashes: Iterable[Iterable[int]]) -> None:
    """Check that no hash of a key occurs twice.

    Raises:
        MixedKeysError: One does. Two keys of equal hash are harmless: the facts are then read by
            key.
    """
    if any(key == other for key, other in pairwise(sorted(chain.from_iterable(hashes)))):
        raise MixedKeysError


def _claims_of(evaluations: Mapping[str, Sequence[Evaluation]]) -> list[Claim]:
    found = [evaluation.claim for some in evaluations.values() for evaluation in some]
    return [claim for claim in found if claim is not None]


class Summaries:
    """Compares the summaries of keys in ``slumberd_keys`` with those that the ledger makes.

    Attributes:
        found: How many stored rows the compared keys have; rows without content do not count.
        changed: The numbers of the keys whose rows differ.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.found = 0
        self.changed: list[int] = []

    def compare(self, state: KnownState, keys: Mapping[int, str]) -> None:
        """Compare the summaries of keys, given by number; the state must hold the keys in full."""
        stored: dict[str, set[_Row]] = {key: set() for key in keys.values()}
        parameters = {"keys": [*stored]}
        for row in self._session.stream("ledger.states_of_keys", parameters):
            if has_content(row):
                stored[row[0]].add(_normalize(row))
        for number, key in keys.items():
            expected = filter(has_content, summary_rows(state, key, number))
            if stored[key] != {*map(_normalize, expected)}:
                self.changed.append(number)
        self.found += sum(map(len, stored.values()))


def _normalize(row: _Row) -> _Row:
    """Return a row with its retractions sorted; the ledger keeps them in order of arrival."""
    *columns, reach, trail = row
    if reach is None:
        return row
    try:
        text = orjson.dumps(orjson.loads(reach), option=orjson.OPT_SORT_KEYS) if reach else None
    except orjson.JSONDecodeError:
        text = reach
    return (*columns, text, trail)


def _pages(rows: Iterable[_Row], size: int) -> Iterator[list[_Row]]:
    """Yield pages of about so many rows; all rows of a key are on one page."""
    page: list[_Row] = []
    for row in rows:
        if len(page) >= size and row[-1] != page[-1][-1]:
            yield page
            page = []
        page.append(row)
    if page:
        yield page


class PartialComparison(NamedTuple):
    """A comparison of the facts that should be stored; it does not include surplus facts.

    Attributes:
        differing: Stored facts that differ.
        missing: Ids of current facts that are not stored.
        found: How many stored facts have the id of a current fact.
    """

    differing: list[_Row]
    missing: list[str]
    found: int


class ComparedKeys(NamedTuple):
    """How the facts of some keys compare with the ledger.

    Attributes:
        facts: The comparison; None when one number belongs to two keys, or one key has two numbers.
        summaries: How many summaries these keys have.
        changed: The first key whose summary differs; None without one.
        hashes: Hashes of these keys, without repetitions.
    """

    facts: PartialComparison | None
    summaries: int = 0
    changed: int | None = None
    hashes: array[int] = array("q")


def divide_keys(session: Session) -> list[KeyRange]:
    """Return ranges of all keys, with about equally many rows, one for each process."""
    count = session.processes
    rows = session.value("fact_check.count_keyed_rows") if count > 1 else 0
    places = {rows * part // count for part in range(1, count)} if rows else set()
    starts = {session.value("fact_check.key_at", {"place": place}) for place in places}
    bounds = [LEAST, *sorted(starts - {LEAST})]
    return [KeyRange(low, high - 1) for low, high in pairwise([*bounds, MOST + 1])]


def compare_keys(session: Session, depth: int, keys: KeyRange) -> ComparedKeys:
    """Compare the facts and summaries of the keys in a range with the ledger."""
    pages = KeyPages(session, depth, keys=keys)
    try:
        facts = _compare(session, pages.unproved())
    except MixedKeysError:
        return ComparedKeys(None)
    facts = facts._replace(found=facts.found + pages.proved)
    summaries = pages.summaries
    changed = min(summaries.changed, default=None)
    return ComparedKeys(facts, summaries.found, changed, pages.key_hashes)


def first_changed_fact(
    session: Session, depth: int, compared: Iterable[ComparedKeys]
) -> Break | None:
    """Return the first fact or summary that differs from the ledger; None when all agree.

    Changes by other programs that the ledger does not record yet come last.

    Args:
        session: Inside a snapshot.
        depth: Links of lineage.
        compared: The comparisons of all keys, by ranges.
    """
    touched = _read_texts(session, "external_changes.all_changed_ids")
    pending = ""
    changed, summary = _find_changes(session, depth, compared)
    for fact_id, problem in changed:
        if (fact_id or "") not in touched:
            return Break(0, f"fact {fact_id!r} {problem}")
        pending = pending or f"fact {fact_id!r} was changed by another program"
    if summary:
        return Break(0, summary)
    return Break(0, f"{pending} and is not recorded yet") if pending else None


def _read_texts(
    session: Session, sql: str, parameters: Sequence[str] | Mapping[str, str] = ()
) -> set[str]:
    return {text for (text,) in session.stream(sql, parameters)}


def _find_changes(
    session: Session, depth: int, compared: Iterable[ComparedKeys]
) -> tuple[list[_Problem], str]:
    """Return the facts that differ, by id, then the missing facts; and what a summary has wrong."""
    summary = ""
    whole: Sequence[CurrentFact] | None = None
    try:
        comparison, summary = _join(session, compared)
    except MixedKeysError:
        whole = facts_at(session, user=None, depth=depth)
        comparison = _compare(session, [whole])
    differing = comparison.differing
    if comparison.found < session.value("facts.count_facts"):
        pages = KeyPages(session, depth) if whole is None else [whole]
        differing += _find_surplus(session, pages)
    wrong = sorted(_exclude_unreadable(session, differing), key=lambda row: printable_id(row[0]))
    problems = [(row[0], OTHER) for row in wrong]
    problems += [(fact_id, OTHER_SLOTS) for fact_id in sorted(session.facts_with_wrong_slots())]
    return problems + [(fact_id, MISSING) for fact_id in sorted(comparison.missing)], summary


def _join(session: Session, compared: Iterable[ComparedKeys]) -> tuple[PartialComparison, str]:
    """Return what the comparisons of all keys say together.

    Raises:
        MixedKeysError: One number belongs to two keys, or one key has two numbers.
    """
    differing: list[_Row] = []
    missing: list[str] = []
    found, summaries = 0, 0
    changed: list[int] = []
    hashes = []
    for part in compared:
        if part.facts is None:
            raise MixedKeysError
        differing += part.facts.differing
        missing += part.facts.missing
        found += part.facts.found
        summaries += part.summaries
        changed += [] if part.changed is None else [part.changed]
        hashes.append(part.hashes)
    if len(hashes) > 1:
        _check_distinct(hashes)
    comparison = PartialComparison(differing, missing, found)
    return comparison, _find_changed_summary(session, changed, summaries)


def _compare(session: Session, pages: Iterable[Sequence[CurrentFact]]) -> PartialComparison:
    differing: list[_Row] = []
    missing: list[str] = []
    found = 0
    for facts in pages:
        stored = _read_facts(session, [fact.fact_id for fact in facts])
        found += len(stored)
        for fact in facts:
            row = stored.get(fact.fact_id)
            if row is None:
                missing.append(fact.fact_id)
            elif row != fact_row(fact):
                differing.append(row)
    return PartialComparison(differing, missing, found)


def _find_changed_summary(session: Session, changed: Sequence[int], found: int) -> str:
    if changed:
        return f"slumberd_keys is not what the ledger says of the key of row {min(changed)}"
    if found != session.value("fact_check.count_summaries"):
        return "slumberd_keys has a key that the ledger does not know"
    return ""


def _read_facts(session: Session, fact_ids: Sequence[str]) -> dict[str, _Row]:
    parameters = {"ids": [*fact_ids]}
    return {row[0]: row for row in session.stream("fact_check.facts_of", parameters)}


def _find_surplus(session: Session, pages: Iterable[Sequence[CurrentFact]]) -> list[_Row]:
    """Return the stored facts whose ids belong to no current fact."""
    current = {fact.fact_id for facts in pages for fact in facts}
    return [row for row in session.stream("fact_check.all_facts") if row[0] not in current]


def _exclude_unreadable(session: Session, rows: Iterable[_Row]) -> list[_Row]:
    """Exclude rows that are as another program wrote them, and unreadable by the ledger."""
    parameters = {"rule": EXTERNAL, "reason": UNREADABLE}
    unreadable = _read_texts(session, "external_changes.unreadable_ids", parameters)
    return [
        row
        for row in rows
        if printable_id(row[0]) not in unreadable
        or isinstance(decode_fact_row(row), ManualAssertion)
    ]


def first_changed_schema(session: Session) -> Break | None:
    """Return a break when another program changed the tables of the store; else None."""
    problem = session.find_schema_change()
    return Break(0, problem) if problem else None


def first_changed_table(session: Session) -> Break | None:
    """Return the first difference between the ledger and the tables beside it; None when equal."""
    checks: tuple[Callable[[Session], Iterator[Break]], ...] = (
        _check_watermarks,
        _check_generations,
        _check_held,
        _check_quarantine,
        _check_missing_quarantine,
    )
    for check in checks:
        broken = next(check(session), None)
        if broken is not None:
            return broken
    return None


def _check_watermarks(session: Session) -> Iterator[Break]:
    for rule, seq, upto in session.stream("verify_tables.watermarks"):
        if upto is not None and seq > upto:
            problem = f"slumberd_watermark has log row {seq} for rule {rule!r}"
            yield Break(0, f"{problem}, its last firing ended at {upto}")


def _check_generations(session: Session) -> Iterator[Break]:
    """Compute the generation of each version again; only a restored log has generations."""
    generations = session.rows("verify_tables.generations")
    highest = max((generation for generation, _ in generations), default=0)
    if [generation for generation, _ in generations] != [*range(highest, 0, -1)]:
        yield Break(0, "slumberd_generations lacks a generation")
    known = session.value("verify_tables.highest_generation") or 0
    if not known <= highest <= known + 1:
        yield Break(0, f"slumberd_generations ends at {highest}, the firings at {known}")
    for seq, version, generation in session.stream("verify_tables.versions") if highest else ():
        number = version & _LOG_NUMBER
        older = (known for known, after in generations if known <= generation and after < number)
        if version >> GENERATION_BITS != next(older, 0):
            yield Break(seq, "slumberd_generations has another generation for its version")


def _check_held(session: Session) -> Iterator[Break]:
    approved = set()
    for (payload,) in session.stream("verify_tables.approvals"):
        approved.add(orjson.loads(payload).get("approves"))
    for rule, number, upto, problem, is_approved, its_rule, payload in session.stream(
        "verify_tables.held_batches"
    ):
        document = orjson.loads(payload) if payload else {}
        expected = its_rule, document.get("held"), document.get("held_upto")
        name = firing_id_of(its_rule, number) if "held_again" in document else its_rule
        if (name, *expected) != (rule, its_rule, problem, upto):
            yield Break(
                number, f"slumberd_held_batches differs from the ledger for a batch of {rule!r}"
            )
        if is_approved and firing_id_of(its_rule, number) not in approved:
            yield Break(number, "slumberd_held_batches has it as approved, the ledger does not")


def _check_quarantine(session: Session) -> Iterator[Break]:
    """Compare each quarantined episode with the row that quarantined it."""
    for stored in session.stream("verify_tables.quarantine"):
        rule, channel, eid, version, owner, reason, detail, seq, *row = stored
        what, its_rule, its_version, its_reason, payload = row
        document = orjson.loads(payload) if payload else {}
        expected = document.get("eid"), document.get("owner"), document.get("detail"), its_version
        by_rule = rule == its_rule or its_rule == "@undo"
        same = expected == (eid, owner, detail, version) and its_reason in ("", reason)
        if what != 3 or not by_rule or not same or channel != owner.split("/")[2]:
            yield Break(seq, f"slumberd_quarantine differs from the ledger for episode {eid!r}")


def _check_missing_quarantine(session: Session) -> Iterator[Break]:
    """Find rows whose episode the quarantine lacks, though nothing removed it from there."""
    listed = set(session.stream("verify_tables.quarantined_ids"))
    dropped, undone = _find_removals(session)
    for episode, (seq, firing_id) in _last_quarantines(session).items():
        removed = seq in dropped or firing_id in undone
        if episode not in listed and not removed and not _is_resolved(session, episode, seq):
            yield Break(seq, f"quarantined episode {episode[2]!r}, slumberd_quarantine lacks it")


def _last_quarantines(
    session: Session,
) -> dict[tuple[str, str, str], tuple[int, str]]:
    """Return by rule, channel and episode the last row that quarantined it, with its firing."""
    found = {}
    for seq, firing, rule, payload in session.stream("verify_tables.quarantine_rows"):
        document = orjson.loads(payload)
        if rule != EXTERNAL:
            episode = rule, document["owner"].split("/")[2], document["eid"]
            found[episode] = seq, firing_id_of(rule, firing)
    return found


def _find_removals(session: Session) -> tuple[set[int], set[str]]:
    """Return the rows that people removed from the quarantine, and the firings they undid."""
    dropped: set[int] = set()
    undone: set[str] = set()
    for (payload,) in session.stream("verify_tables.quarantine_removals"):
        document: dict[str, Any] = orjson.loads(payload)
        dropped.update(document.get("rows", ()))
        undone.add(document.get("undoes", ""))
    return dropped, undone


def _is_resolved(session: Session, episode: tuple[str, str, str], seq: int) -> bool:
    """Return whether the rule evaluated the episode since, and did not quarantine it."""
    rule, channel, eid = episode
    for fact_id in named_ids(unescape(channel), eid):
        parameters = {"rule": rule, "fact_id": fact_id, "seq": seq}
        if session.one("verify_tables.is_read_later", parameters) is not None:
            return True
    return False
