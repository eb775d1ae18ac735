"""Hold the facts against what the law makes of the ledger, some keys at a time.

What stands of a key follows from the acts that speak of it, from all else that is known of their
fact ids, and from the acts that name these. So some keys are judged on as much, and let go of.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import orjson

from slumberd.consolidation.manual import ManualAssertion
from slumberd.consolidation.precedence import EXTERNAL, Evaluation
from slumberd.consolidation.state import CurrentFact, KnownState
from slumberd.model.record import Break
from slumberd.sql_statements import statements
from slumberd.storage.ledger.batch import fact_row
from slumberd.storage.ledger.external_changes import UNREADABLE, said_by, shown
from slumberd.storage.ledger.history import channels_at, current_facts_on, facts_then
from slumberd.storage.ledger.rows import evaluation_from, evaluations_from
from slumberd.storage.ledger.state_loader import summary_rows
from slumberd.storage.sqlite.connection import escaped, texts_as

_SQL = statements("matching")
_LEDGER = statements("ledger")
_FACTS = statements("facts")
_EXTERNAL = statements("external")

ROWS = 200
"""Of the ledger that are held at a time, or all of one key; so few stay in a processor's cache."""

_Row = tuple[Any, ...]
_Changed = tuple[Any, str]
"""The id of a fact that is not what it should be, and what is wrong with it."""

EVERY_KEY = (-(2**63), 2**63 - 1)

OTHER, MISSING = "is not what the ledger says", "stands by the ledger and is missing"


class MixedKeysError(Exception):
    """Acts of two keys have one number, or those of one have two; a control flow of the stores."""


class Pages:
    """What stands by the ledger, some keys at a time, in the order of their numbers.

    Attributes:
        digests: Of the keys so far, in place of the keys: they are many.
        summaries: The summaries of the keys so far, compared with what is stored.
    """

    def __init__(
        self, connection: sqlite3.Connection, depth: int, span: tuple[int, int] = EVERY_KEY
    ) -> None:
        """Begin with the keys whose numbers are above the first of a span, up to the second."""
        self._connection = connection
        self._depth = depth
        self._span = span
        self._multi = channels_at(connection)
        self._scattered = {
            fact_id for (fact_id,) in connection.execute(_SQL["spoken_of_elsewhere"])
        }
        self._referrers: dict[str, list[str]] = {}
        for name, referrer in connection.execute(_LEDGER["all_names"]):
            self._referrers.setdefault(name, []).append(referrer)
        self.digests = array("q")
        self.summaries = Summaries(connection)

    def __iter__(self) -> Iterator[list[CurrentFact]]:
        """Yield what stands, a list for some keys.

        Raises:
            MixedKeysError: Rows with one number of a key speak of two.
        """
        self.digests, self.summaries = array("q"), Summaries(self._connection)
        for rows in _pages(self._connection.execute(_SQL["acts_by_key"], self._span)):
            yield list(current_facts_on(self._known_state(rows)))

    def _known_state(self, rows: Sequence[_Row]) -> KnownState:
        evaluations = self._evaluations(rows)
        known_state = KnownState(self._multi, self._depth, evaluations=evaluations)
        claims = {met.seq: met.claim for known in evaluations.values() for met in known}
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
            known_state.full.setdefault(claim.key, set()).add(claim.fact_id)
        self.digests.extend(map(_digest, keys.values()))
        self._name(known_state)
        for key in known_state.full:
            known_state.fold(key)
        self.summaries.compare(known_state, keys)
        return known_state

    def _evaluations(self, rows: Sequence[_Row]) -> dict[str, list[Evaluation]]:
        """Return all that is known of the fact ids of some rows, all those of some keys."""
        found: dict[str, list[Evaluation]] = {}
        scattered: set[str] = set()
        for row in rows:
            if row[0] in self._scattered:
                scattered.add(row[0])
            else:
                found.setdefault(row[0], []).append(evaluation_from(row[:-1]))
        return found | self._ask(scattered) if scattered else found

    def _name(self, known_state: KnownState) -> None:
        """Let a ground know the acts that name what it knows."""
        if not self._referrers:
            return
        known = known_state.evaluations
        known_state.referrers |= {
            name: set(self._referrers[name]) for name in known if name in self._referrers
        }
        referrers = {referrer for some in known_state.referrers.values() for referrer in some}
        known |= self._ask(referrers - known.keys())
        claims = [
            met.claim
            for evaluations in known.values()
            for met in evaluations
            if met.claim is not None
        ]
        named = {name for claim in claims for name in claim.names}
        known |= self._ask(named - known.keys())

    def _ask(self, fact_ids: Iterable[str]) -> dict[str, list[Evaluation]]:
        asked = {"ids": orjson.dumps(list(fact_ids)).decode()}
        return evaluations_from(self._connection.execute(_LEDGER["meetings"], asked))


class Summaries:
    """The summaries of keys in ``slumberd_keys``, held against what the ledger says of the keys.

    Attributes:
        found: Rows that say something, of the keys that were compared.
        changed: The numbers of keys whose rows are others.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.found = 0
        self.changed: list[int] = []

    def compare(self, known_state: KnownState, keys: Mapping[int, str]) -> None:
        """Compare the summaries of some keys, which a ground knows in full, by their numbers."""
        stored: dict[str, set[_Row]] = {key: set() for key in keys.values()}
        asked = {"keys": orjson.dumps([*stored]).decode()}
        with texts_as(self._connection, escaped):
            for row in self._connection.execute(_LEDGER["heads"], asked):
                if _says_something(row):
                    stored[row[0]].add(_comparable(row))
        for number, key in keys.items():
            told = filter(_says_something, summary_rows(known_state, key, number))
            if stored[key] != set(map(_comparable, told)):
                self.changed.append(number)
        self.found += sum(map(len, stored.values()))


def _says_something(row: _Row) -> bool:
    return row[3] is not None or row[8] is not None


def _comparable(row: _Row) -> _Row:
    """Return a row with its retractions in order: they are kept in the order that they came."""
    *columns, reach, trail = row
    try:
        told = orjson.dumps(orjson.loads(reach), option=orjson.OPT_SORT_KEYS) if reach else None
    except orjson.JSONDecodeError:
        told = reach
    return (*columns, told, trail)


def _digest(key: str) -> int:
    # Not its hash, which is another in every process.
    return int.from_bytes(sha256(key.encode()).digest()[:8], "big", signed=True)


def _pages(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """Yield rows, some at a time; those of one key are never parted."""
    page: list[_Row] = []
    for row in rows:
        if len(page) >= ROWS and row[-1] != page[-1][-1]:
            yield page
            page = []
        page.append(row)
    if page:
        yield page


class WorkerResult(Protocol):
    """Where the facts of some keys are compared, by somebody else at the same time."""

    above: int
    """Their numbers are above this one."""

    def share(self) -> Share | None:
        """Wait for what comes of it; None when nothing does."""
        ...


class Share(NamedTuple):
    """What came of comparing the facts of some keys.

    Attributes:
        others: Facts that are not what they should be.
        missing: Ids of facts that stand, and are not there.
        found: How many facts are there under ids that stand.
        digests: Of the keys.
        summaries: How many rows the summaries of the keys have.
        changed: Numbers of the keys whose summaries are not what they should be.
    """

    others: list[_Row]
    missing: list[str]
    found: int
    digests: array[int]
    summaries: int = 0
    changed: Sequence[int] = ()


def compared(connection: sqlite3.Connection, pages: Pages) -> Share:
    """Compare the facts of some keys with what stands.

    Raises:
        MixedKeysError: Rows with one number of a key speak of two.
    """
    share = _compared(connection, pages)
    summaries = pages.summaries
    return share._replace(
        digests=pages.digests, summaries=summaries.found, changed=summaries.changed
    )


def _compared(connection: sqlite3.Connection, pages: Iterable[Sequence[CurrentFact]]) -> Share:
    others: list[_Row] = []
    missing: list[str] = []
    found = 0
    for standing in pages:
        stored = _stored(connection, [one.fact_id for one in standing])
        found += len(stored)
        for one in standing:
            row = stored.get(one.fact_id)
            if row is None:
                missing.append(one.fact_id)
            elif row != fact_row(one):
                others.append(row)
    return Share(others, missing, found, array("q"))


def first_changed_fact(
    connection: sqlite3.Connection, depth: int, elsewhere: WorkerResult | None = None
) -> Break | None:
    """Say which fact is not what the ledger says; what another program did comes last.

    Args:
        connection: Inside a snapshot.
        depth: Links of lineage.
        elsewhere: Where the facts of some keys are compared meanwhile.
    """
    touched = _texts(connection, _EXTERNAL["all_touched"])
    pending = ""
    changed, summary = _changed(connection, depth, elsewhere)
    for fact_id, problem in changed:
        if (fact_id or "") not in touched:
            return Break(0, f"fact {fact_id!r} {problem}")
        pending = pending or f"fact {fact_id!r} was changed by another program"
    if summary:
        return Break(0, summary)
    return Break(0, f"{pending} and is not recorded yet") if pending else None


def _texts(
    connection: sqlite3.Connection, sql: str, asked: Sequence[str] | Mapping[str, str] = ()
) -> set[str]:
    with texts_as(connection, escaped):
        return {text for (text,) in connection.execute(sql, asked)}


def _changed(
    connection: sqlite3.Connection, depth: int, elsewhere: WorkerResult | None
) -> tuple[list[_Changed], str]:
    """Return the facts that are not what they should be: others by id, then what is missing.

    Return also what is wrong with the summaries of the keys; nothing when all are right.
    """
    whole: list[list[CurrentFact]] | None = None
    summary = ""
    try:
        share = _one_to_one(_shares(connection, depth, elsewhere))
        summary = _changed_summary(connection, share)
    except MixedKeysError:
        whole = [facts_then(connection, user=None, depth=depth)]
        share = _compared(connection, whole)
    others = share.others
    if share.found < connection.execute(_FACTS["count_facts"]).fetchone()[0]:
        others += _strangers(connection, whole or Pages(connection, depth))
    wrong = sorted(_ours(connection, others), key=lambda row: shown(row[0]))
    found = [(row[0], OTHER) for row in wrong] + [(one, MISSING) for one in sorted(share.missing)]
    return found, summary


def _changed_summary(connection: sqlite3.Connection, share: Share) -> str:
    if share.changed:
        return f"slumberd_keys is not what the ledger says of the key of row {min(share.changed)}"
    if share.summaries != connection.execute(_SQL["count_summaries"]).fetchone()[0]:
        return "slumberd_keys speaks of a key that the ledger does not know"
    return ""


def _shares(
    connection: sqlite3.Connection, depth: int, elsewhere: WorkerResult | None
) -> Iterator[Share]:
    if elsewhere is None:
        yield compared(connection, Pages(connection, depth))
        return
    first, last = EVERY_KEY
    yield compared(connection, Pages(connection, depth, (first, elsewhere.above)))
    rest = elsewhere.share()
    yield rest or compared(connection, Pages(connection, depth, (elsewhere.above, last)))


def _one_to_one(shares: Iterable[Share]) -> Share:
    """Return shares as one, if no key has two numbers.

    Raises:
        MixedKeysError: One has.
    """
    shares = list(shares)
    digests = sorted(digest for share in shares for digest in share.digests)
    if any(one == other for one, other in pairwise(digests)):
        raise MixedKeysError
    return Share(
        [row for share in shares for row in share.others],
        [fact_id for share in shares for fact_id in share.missing],
        sum(share.found for share in shares),
        array("q"),
        sum(share.summaries for share in shares),
        [number for share in shares for number in share.changed],
    )


def _stored(connection: sqlite3.Connection, fact_ids: Sequence[str]) -> dict[str, _Row]:
    asked = {"ids": orjson.dumps(fact_ids).decode()}
    try:
        return {row[0]: row for row in connection.execute(_SQL["facts_of"], asked)}
    except sqlite3.OperationalError:  # of a text that is no Unicode
        with texts_as(connection, escaped):
            return {row[0]: row for row in connection.execute(_SQL["facts_of"], asked)}


def _strangers(
    connection: sqlite3.Connection, pages: Iterable[Sequence[CurrentFact]]
) -> list[_Row]:
    """Return the facts under ids that nothing stands under."""
    standing = {one.fact_id for some in pages for one in some}
    with texts_as(connection, escaped):
        return [row for row in connection.execute(_SQL["all_facts"]) if row[0] not in standing]


def _ours(connection: sqlite3.Connection, rows: Iterable[_Row]) -> list[_Row]:
    """Leave out what is in the ledger as unreadable, and as another program wrote it."""
    asked = {"rule": EXTERNAL, "reason": UNREADABLE}
    left_alone = _texts(connection, _EXTERNAL["unreadable"], asked)
    return [
        row
        for row in rows
        if shown(row[0]) not in left_alone or isinstance(said_by(row), ManualAssertion)
    ]
