"""Find stores that hold content of erased scopes and episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from slumberd.model.errors import StoreError
from slumberd.model.health import Finding
from slumberd.storage.inspections import StoreInspections
from slumberd.storage.ledger.erased_rows import FOREIGN, runs_of

HURRIED_SECONDS = 1.0
"""The time limit of a search in each database that somebody waits for."""

ROUTINE_SECONDS = 0.05
"""The time limit of it while a daemon starts on stores that record the same erasures."""

NAMED = 3
"""How many ids a message lists."""

T = TypeVar("T")


def find_at_start(stores: StoreInspections) -> Iterator[Finding]:
    """Find what a start must log, in a time that does not follow what the stores hold.

    A store that lacks erasures of the other one may be an older copy: only then the search takes
    longer. `slumberd doctor` searches to the end.
    """
    lists = [read_or_none(store.erased_list) for store in stores]
    moments = [each and each.moments for each in lists]
    seconds = ROUTINE_SECONDS if moments[0] == moments[1] else HURRIED_SECONDS
    yield from find_resurfaced(stores, seconds)
    yield from find_foreign(stores, seconds)


def find_resurfaced(stores: StoreInspections, seconds: float | None) -> Iterator[Finding]:
    """Find stores that hold content of a scope or an episode that a store records as erased.

    Args:
        stores: Looks at the stores.
        seconds: The time limit for each store; None sets none.
    """
    found = [read_or_none(store.erased_scopes) for store in stores]
    pasts = [past for past in found if past is not None]
    for what, store in stores._asdict().items() if pasts else ():
        if users := read_or_none(partial(store.count_erased_content, pasts, seconds)):
            named = ", ".join(repr(user) for user in sorted(users)[:NAMED])
            problem = f"holds {sum(users.values())} {what} that were erased, of {named}"
            remedy = "if it is an older copy, repeat `slumberd forget` or restore a newer copy"
            yield Finding("erasure.contradicted", store.where, problem, remedy)


def find_unlisted(stores: StoreInspections) -> Iterator[Finding]:
    """Find a list of erased scopes that contradicts the erasures of the ledger."""
    recorded = read_or_none(stores.facts.recorded_erasures)
    if recorded is None:
        return
    lists = ((stores.facts, recorded), (stores.episodes, recorded.finished()))
    problems: dict[str, str] = {}
    for store, expected in lists:
        kept = read_or_none(store.erased_list)
        if kept is not None and (problem := expected.describe_fault(kept)):
            problems.setdefault(store.where, problem)
    for where, problem in problems.items():
        remedy = "`systemctl restart slumberd` restores the list; find out which program changed it"
        yield Finding("erasure.unlisted", where, problem, remedy)


def find_foreign(stores: StoreInspections, seconds: float | None) -> Iterator[Finding]:
    """Find blank rows of the ledger that no erasure names.

    Args:
        seconds: The time limit; None sets none.
    """
    rows = read_or_none(partial(stores.facts.erased_rows, seconds))
    if rows is not None and (rows.foreign_rows or rows.broken):
        numbers = f": {runs_of(rows.foreign[:NAMED])}" if rows.foreign else ""
        one = "1 row of the ledger is blank, and no erasure names it"
        many = f"{rows.foreign_rows} rows of the ledger are blank, and no erasure names them"
        problem = (one if rows.foreign_rows == 1 else many) + numbers
        remedy = "another program blanked them; compare with a backup, see `slumberd audit verify`"
        yield Finding(FOREIGN, stores.facts.where, problem, remedy)


def read_or_none(read: Callable[[], T]) -> T | None:
    """Return what `read` finds in a store; None when the store cannot be read."""
    try:
        return read()
    except StoreError:  # another check reports the unreadable store
        return None
