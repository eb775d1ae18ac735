"""The messages in place of an empty table: what is missing, and what exists instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slumberd.cli.output import MOST_NAMES, join_names, plural
from slumberd.config.settings import Settings
from slumberd.service.composition import inspections_of

FIRE = "`slumberd fire --all` fires the rules, `slumberd status` shows what is pending"


def no_facts(shards: Sequence[Settings], users: Sequence[str]) -> str:
    """Return the message that no facts are found, with users who have some.

    Args:
        shards: The configuration of each shard that was read, for the database of the facts.
        users: The users that the command names.
    """
    known = _users_with_facts(shards)
    if not known:
        return f"there are no facts: {FIRE}"
    if missing := [user for user in users if not _has_facts(shards, user)]:
        return f"no facts for {_users(missing)}; users with facts: {_first(known)}"
    if users:
        return f"no facts match; there are others for {_users(users)}"
    return f"no facts match; users with facts: {_first(known)}"


def no_episodes(shards: Sequence[Settings], user: str, *, narrowed: bool) -> str:
    """Return the message that a user has no episodes, with users who have some.

    Args:
        shards: The configuration of each shard that was read, for the database of the episodes.
        user: The user that the command names.
        narrowed: Whether the command also names a session or an agent.
    """
    known = _users_with_episodes(shards)
    if not known:
        return "there are no episodes: `slumberd import` puts some"
    if narrowed and user in known:
        return f"no such episodes; user {user!r} has others: leave out --session and --agent"
    return f"no episodes of user {user!r}; users with episodes: {_first(known)}"


def no_hits(shards: Sequence[Settings], user: str) -> str:
    """Return the message that a search found nothing."""
    if user in _users_with_episodes(shards):
        return "nothing that is known answers the question: try other words"
    return no_episodes(shards, user, narrowed=False)


def no_rows(rows: int, *, narrowed: bool) -> str:
    """Return the message that no rows of a ledger are shown, with how many it has."""
    if not rows:
        return f"the ledger has no rows: {FIRE}"
    size = plural(rows, "row")
    return f"no rows match; the ledger has {size}" if narrowed else f"the ledger has only {size}"


def no_rules(settings: Settings) -> str:
    """Return the message that there are no rules, with the directory where they belong."""
    if settings.are_rules_published:
        return "the published rules are empty; `slumberd rules publish DIR` publishes others"
    return f"no rules in {str(settings.rules_dir)!r}; `slumberd init DIR` makes a first one"


def _users_with_episodes(shards: Sequence[Settings]) -> list[str]:
    stores = (inspections_of(settings).episodes for settings in shards)
    return [*dict.fromkeys(user for store in stores for user in store.users(MOST_NAMES + 1))]


def _users_with_facts(shards: Sequence[Settings]) -> list[str]:
    stores = (inspections_of(settings).facts for settings in shards)
    known = (store.users(MOST_NAMES + 1) for store in stores if store.exists())
    return sorted({user for users in known for user in users})


def _has_facts(shards: Sequence[Settings], user: str) -> bool:
    stores = (inspections_of(settings).facts for settings in shards)
    return any(store.exists() and store.has_facts_of(user) for store in stores)


def _first(names: Sequence[str]) -> str:
    return join_names(names[:MOST_NAMES]) + (" and others" if len(names) > MOST_NAMES else "")


def _users(users: Iterable[str]) -> str:
    return "user " + " or ".join(repr(user) for user in users)
