"""The messages in place of an empty table: what is missing, and what exists instead."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime

from slumberd.cli.output import MOST_NAMES, join_names, plural
from slumberd.daemon.stores import inspections_of, open_facts_if_present
from slumberd.logs.lines import timestamp
from slumberd.rules.settings import Settings

FIRE = "`slumberd fire --all` fires the rules, `slumberd status` shows what is pending"


def no_facts(settings: Settings, users: Sequence[str], believed_at: datetime | None = None) -> str:
    """Return the message that no facts are found, with users who have some.

    Args:
        settings: The configuration, for the database of the facts.
        users: The users that the command names.
        believed_at: The instant of the facts, if the command asks what was known then.
    """
    first = None if believed_at is None else asyncio.run(_first_recorded(settings))
    if believed_at is not None and first is not None and believed_at < first:
        return (
            f"nothing was recorded before {timestamp(first)}, when the ledger begins;"
            " --valid-at T asks what was true at T, by what is known now"
        )
    known = _users_with_facts(settings)
    if not known:
        return f"there are no facts: {FIRE}"
    if missing := [user for user in users if not _has_facts(settings, user)]:
        return f"no facts for {_users(missing)}; users with facts: {_first(known)}"
    if users:
        return f"no facts match; there are others for {_users(users)}"
    return f"no facts match; users with facts: {_first(known)}"


def no_episodes(settings: Settings, user: str, *, narrowed: bool) -> str:
    """Return the message that a user has no episodes, with users who have some.

    Args:
        settings: The configuration, for the database of the episodes.
        user: The user that the command names.
        narrowed: Whether the command also names a session or an agent.
    """
    known = _users_with_episodes(settings)
    if not known:
        return "there are no episodes: `slumberd import` puts some"
    if narrowed and user in known:
        return f"no such episodes; user {user!r} has others: leave out --session and --agent"
    return f"no episodes of user {user!r}; users with episodes: {_first(known)}"


def no_hits(settings: Settings, user: str) -> str:
    """Return the message that a search found nothing."""
    if user in _users_with_episodes(settings):
        return "nothing that is known answers the question: try other words"
    return no_episodes(settings, user, narrowed=False)


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


async def _first_recorded(settings: Settings) -> datetime | None:
    """Return when the first row of the ledger was recorded; None when it has none."""
    async with open_facts_if_present(settings) as facts:
        rows = [] if facts is None else await facts.reads.records(limit=1)
        return rows[0].at if rows else None


def _users_with_episodes(settings: Settings) -> list[str]:
    return inspections_of(settings).episodes.users(MOST_NAMES + 1)


def _users_with_facts(settings: Settings) -> list[str]:
    facts = inspections_of(settings).facts
    return facts.users(MOST_NAMES + 1) if facts.exists() else []


def _has_facts(settings: Settings, user: str) -> bool:
    facts = inspections_of(settings).facts
    return facts.exists() and facts.has_facts_of(user)


def _first(names: Sequence[str]) -> str:
    return join_names(names[:MOST_NAMES]) + (" and others" if len(names) > MOST_NAMES else "")


def _users(users: Iterable[str]) -> str:
    return "user " + " or ".join(repr(user) for user in users)
