"""What is said in place of an empty table: that nothing is there, and what is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from slumberd.cli.wording import NAMED, listed, plural
from slumberd.config.settings import Settings
from slumberd.storage.audit.offline_status import (
    has_facts_of,
    users_with_episodes,
    users_with_facts,
)
from slumberd.storage.sqlite.recovery import look

FIRE = "`slumberd fire --all` fires the rules, `slumberd status` shows what waits for them"


def no_facts(settings: Settings, users: Sequence[str]) -> str:
    """Say that no facts are found, and which users have some.

    Args:
        settings: Where the facts are.
        users: The users that were asked for by name.
    """
    known = _users_with_facts(settings)
    if not known:
        return f"there are no facts: {FIRE}"
    if missing := [user for user in users if not _has_facts(settings, user)]:
        return f"no facts for {_named(missing)}; users with facts: {_some(known)}"
    if users:
        return f"no facts match; there are others for {_named(users)}"
    return f"no facts match; users with facts: {_some(known)}"


def no_episodes(settings: Settings, user: str, *, narrowed: bool) -> str:
    """Say that a user has no episodes, and which users have some.

    Args:
        settings: Where the episodes are.
        user: The user.
        narrowed: Whether only a session or an agent was asked for.
    """
    known = look(settings.memory_path, partial(users_with_episodes, limit=NAMED + 1))
    if not known:
        return "there are no episodes: `slumberd import` puts some"
    if narrowed and user in known:
        return f"no such episodes; without --session and --agent there are some of user {user!r}"
    return f"no episodes of user {user!r}; users with episodes: {_some(known)}"


def no_rows(rows: int, *, narrowed: bool) -> str:
    """Say that a ledger shows no rows, and how many it has."""
    if not rows:
        return f"the ledger has no rows: {FIRE}"
    there = plural(rows, "row")
    return f"no rows match; the ledger has {there}" if narrowed else f"the ledger ends at {there}"


def no_rules(settings: Settings) -> str:
    """Say that there are no rules, and where they belong."""
    return f"no rules in {str(settings.rules_dir)!r}; `slumberd init DIR` makes a first one"


def _users_with_facts(settings: Settings) -> list[str]:
    if not settings.facts_path.exists():
        return []
    return sorted(look(settings.facts_path, partial(users_with_facts, limit=NAMED + 1)))


def _has_facts(settings: Settings, user: str) -> bool:
    path = settings.facts_path
    return path.exists() and look(path, partial(has_facts_of, user=user))


def _some(names: Sequence[str]) -> str:
    return listed(names[:NAMED]) + (" and others" if len(names) > NAMED else "")


def _named(users: Iterable[str]) -> str:
    return "user " + " or ".join(repr(user) for user in users)
