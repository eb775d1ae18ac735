"""Read the facts of a user for an index, and later only what has changed since.

Each change of a fact has a row in the ledger, which names the fact. What other programs changed is
recorded there later; until then a table holds the ids. Both tell which facts to read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

import orjson

from slumberd.model.feed import Changes, FactPlace, NumberedFact, Reading
from slumberd.model.scope import ScopeFilter
from slumberd.model.stages import WEIGHTS
from slumberd.storage.engine import Row, Session
from slumberd.storage.facts.apply import FactTransactions, has_row, head_of
from slumberd.storage.facts.search import BEYOND, FIRST, upper_bound
from slumberd.storage.ledger.arrivals import ARRIVAL, COPY, DEPARTURE
from slumberd.storage.ledger.erasure import FORGET
from slumberd.storage.ledger.fact_rows import readable_facts

_UNNAMED = frozenset({ARRIVAL, DEPARTURE, COPY})
"""The rules of firings that change facts without a row for each. An erasure names those only that
are current again."""

_MOST_AGENTS = 100
"""The facts of a user with more agents are read at once, not agent by agent."""

_PAGE = 1_000
"""Facts that are read in one transaction, so that other reads do not wait for long."""

_MOST_MEANWHILE = 5_000
"""After more changes than this while facts are read, they are read again in one transaction."""

_WEIGHT_IDS = f"@{WEIGHTS}/"
_SPANS = (FIRST, _WEIGHT_IDS), (upper_bound(_WEIGHT_IDS), BEYOND)
"""The ids below and above those of weights, which no index has."""


class FactFeed:
    """Tells indexes which facts are current, marks included, and weights left out.

    Args:
        transactions: Of the store.
        page: How many facts are read in one transaction, 1 or more.
    """

    def __init__(self, transactions: FactTransactions, *, page: int = _PAGE) -> None:
        self._transactions = transactions
        self._page = page

    async def place(self) -> FactPlace:
        """Return where a reader that reads scopes from now on goes on later."""
        return await self._transactions.read(_place)

    async def read_scope(self, scope: ScopeFilter) -> Reading[FactPlace, NumberedFact]:
        """Return the current facts of a user, or of one agent of it.

        They are read page by page, and then once more what has changed meanwhile.
        """
        place, agents = await self._transactions.read(partial(_begin, scope=scope))
        if agents is None:
            return await self._read_at_once(scope)
        versions: dict[str, NumberedFact] = {}
        for agent in agents:
            for low, high in _SPANS:
                start: str | None = low
                while start is not None:
                    values = {"user": scope.user, "agent": agent, "low": start, "high": high}
                    found, start = await self._transactions.read(
                        partial(_read_page, values=values, most=self._page)
                    )
                    versions.update((one.row, one) for one in found)
        changes = await self.changes(place, most=_MOST_MEANWHILE)
        if changes is None or changes.find_rows is not None:
            return await self._read_at_once(scope)
        for id in changes.rows:
            versions.pop(id, None)
        versions.update((one.row, one) for one in changes.versions)
        return Reading(changes.place, _of_scope(versions.values(), scope))

    async def _read_at_once(self, scope: ScopeFilter) -> Reading[FactPlace, NumberedFact]:
        def work(session: Session) -> Reading[FactPlace, NumberedFact]:
            found = session.rows("facts.find_facts_of_user", {"user": scope.user})
            return Reading(_place(session), _of_scope(_numbered(found), scope))

        return await self._transactions.read(work)

    async def changes(
        self, place: FactPlace, *, most: int
    ) -> Changes[FactPlace, NumberedFact] | None:
        """Return what changed after a place.

        Args:
            place: The place of an earlier reading.
            most: Return None when the ledger has more rows than this after it.

        Returns:
            None also when the ledger does not tell: a user was moved, the store was restored, or
            another program has removed what notices its changes.
        """
        found = await self._transactions.read(partial(_changes, place=place, most=most))
        if found is None:
            return None
        changes, has_erasure = found
        return changes._replace(find_rows=self._ids_of) if has_erasure else changes

    async def _ids_of(self, scope: ScopeFilter) -> frozenset[str]:
        """Return the ids of the facts, marks and weights of a user, or of one agent of it."""
        found = await self._transactions.fetch_all("facts.ids_of_user", {"user": scope.user})
        return frozenset(id for id, agent in found if scope.agent in (None, agent))


def _place(session: Session) -> FactPlace:
    unrecorded = (id for (id,) in session.rows("external_changes.all_changed_ids"))
    # A row whose id is no text, or no Unicode, is unreadable.
    ids = frozenset(id for id in unrecorded if isinstance(id, str) and _is_unicode(id))
    return FactPlace(head_of(session), ids)


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _begin(session: Session, scope: ScopeFilter) -> tuple[FactPlace, list[str] | None]:
    """Return the place, and the agents whose facts are read; None for all at once."""
    if scope.agent is not None:
        return _place(session), [scope.agent]
    values = {"user": scope.user, "limit": _MOST_AGENTS + 1}
    agents = [agent for (agent,) in session.rows("facts.agents_of_user", values)]
    known = [agent for agent in agents if isinstance(agent, str)]  # others are unreadable
    return _place(session), known if len(agents) <= _MOST_AGENTS else None


def _read_page(
    session: Session, values: Mapping[str, str | bytes], most: int
) -> tuple[list[NumberedFact], str | None]:
    """Return some facts, and where the next page starts; None after the last page."""
    stream = session.stream("facts.facts_of_owner_from_id", values)
    rows = [*islice(stream, most)]
    if len(rows) == most:
        # An id that is no text names no place.
        while not isinstance(rows[-1][0], str) and (row := next(stream, None)):
            rows.append(row)
    is_last = len(rows) < most or not isinstance(rows[-1][0], str)
    # NUL is the first character: no text lies between a text and that text with NUL appended.
    return _numbered(rows), None if is_last else f"{rows[-1][0]}\0"


def _changes(
    session: Session, place: FactPlace, most: int
) -> tuple[Changes[FactPlace, NumberedFact], bool] | None:
    """Return what changed, and whether anything was erased."""
    if not has_row(session, place.ledger) or session.find_schema_change():
        return None
    now = _place(session)
    ids, has_erasure = place.unrecorded | now.unrecorded, False
    if now.ledger.rows != place.ledger.rows:
        values = {"seq": place.ledger.rows, "limit": most + 1}
        rows = session.rows("promotion_feed.changed_facts", values)
        if len(rows) > most or any(rule in _UNNAMED for *_, rule in rows):
            return None
        ids = ids.union(_ids_in(rows))
        has_erasure = any(rule == FORGET for *_, rule in rows)
    if any("\0" in id for id in ids):  # some versions of SQLite read such a text to its NUL only
        return None
    return Changes(now, ids, _read(session, ids)), has_erasure


def _ids_in(rows: Sequence[Row]) -> Iterator[str]:
    for fact_id, replaces, _ in rows:
        if fact_id is not None:
            yield fact_id
        if replaces is not None:
            yield from orjson.loads(replaces)


def _read(session: Session, ids: frozenset[str]) -> list[NumberedFact]:
    if not ids:
        return []
    return _numbered(session.rows("facts.find_facts_of_ids", {"values": sorted(ids)}))


def _of_scope(facts: Iterable[NumberedFact], scope: ScopeFilter) -> list[NumberedFact]:
    return [
        one
        for one in facts
        if scope.holds_owner(one.version.user, one.version.agent)
        if not one.row.startswith(_WEIGHT_IDS)
    ]


def _numbered(rows: Sequence[Row]) -> list[NumberedFact]:
    return [NumberedFact(fact.id, fact) for fact in readable_facts(rows)]
