"""List the users who have current facts, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, islice
from operator import itemgetter

from slumberd.model.store_status import MOST_AGENTS, UserFacts
from slumberd.storage.engine import Session
from slumberd.storage.facts.index_ranges import upper_bound

_USER = itemgetter(0)


def list_users(session: Session, prefix: str, after: str | None, limit: int) -> list[UserFacts]:
    """Return the users who have current facts, by name.

    The index finds each user and agent, however many facts they have.

    Args:
        session: Inside a snapshot.
        prefix: Only users whose names begin with this text.
        after: Only users after this one; None for the first page.
        limit: At most this many.
    """
    # NUL is the first character: no text lies between a text and that text with NUL appended.
    low = prefix if after is None else max(prefix, f"{after}\0")
    # Where the index has long names in a shorter form, only the whole name before finds its place.
    values = {"low": low, "high": upper_bound(prefix), "prefix": prefix, "after": after or ""}
    owners = (
        (user, agent, facts)
        for user, agent, facts in session.stream("facts.owners_from", values)
        # Marks alone are no facts, and a name that is no text is of an unreadable fact.
        if facts and isinstance(user, str) and isinstance(agent, str)
    )
    users = (_sum_up(user, found) for user, found in groupby(owners, key=_USER))
    return list(islice(users, limit))


def _sum_up(user: str, owners: Iterator[tuple[str, str, int]]) -> UserFacts:
    found = [(agent, facts) for _, agent, facts in owners]
    agents = [agent for agent, _ in found[:MOST_AGENTS]]
    return UserFacts(user, agents, sum(facts for _, facts in found))
