"""Daemons with a web console, whose state has something to undo, to approve and to read again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

from slumberd.daemon.control_socket import ask
from slumberd.model.episode import Episode
from slumberd.operations.registry import OPERATIONS
from tests.support.broken_disks import put
from tests.support.builders import at, episode, triple
from tests.support.console_people import Seen
from tests.support.http_daemon import HttpDaemon, http_daemon
from tests.support.shards import shard_of

HOSTILE = "<img src=x onerror=alert(1)>\"'&"
"""A text that a page must show, and never run."""

SELDOM = 1_000_000
"""A rule with this cadence fires when it is told to."""

SHARD = 0
"""The shard of a database with several on which a test works; the user ana lies there."""

OPERATOR = "token operator"
"""The name in the ledger of the person who signed in as operator."""


@contextmanager
def console_daemon(folder: Path, *, store: str | None = None) -> Iterator[HttpDaemon]:
    """Run a daemon whose rules fire only when they are told to, while the block runs.

    The rule ``all`` promotes every episode. So does ``careful``, but it may not delete a fact.

    Args:
        folder: A directory for it.
        store: The address of a database; None for files.
    """
    everywhere = [] if store is None else ["--all-shards"]
    with http_daemon(folder, store=store) as daemon:
        daemon.home.rule("all", cadence={"every": SELDOM})
        daemon.home.rule(
            "careful",
            cadence={"every": SELDOM},
            limits={"max_deletes": 0},
            then_emits=["work"],
        )
        daemon.home.call(*everywhere, "reload")
        yield daemon


def ask_daemon(daemon: HttpDaemon, operation: str, **fields: Any) -> dict[str, Any]:
    """Return the answer of an operation, asked for by the user of the machine.

    What concerns no user concerns the shard of the test.
    """
    takes_shard = "shard" in OPERATIONS[operation].form.model_fields
    if daemon.shards > 1 and takes_shard and "user" not in fields:
        fields["shard"] = SHARD
    return ask(daemon.home.state, operation, **fields)


def fire(daemon: HttpDaemon, *rules: str) -> dict[str, Any]:
    """Fire rules, and return the answer."""
    return ask_daemon(daemon, "fire", rules=[*rules])


def learn(daemon: HttpDaemon, *episodes: Episode) -> str:
    """Put episodes, fire the rule ``all``, and return the id of its firing."""
    put(daemon.home, episodes)
    [report] = fire(daemon, "all")["reports"]
    [firing] = report["firing_ids"]
    return str(firing)


def likes(id: str, object: str, **fields: Any) -> Episode:
    """Return an episode of ana, who likes something."""
    return triple(
        id, "ana", "likes", object, **{"user": "ana", "content": f"I like {object}", **fields}
    )


def unreadable(id: str, **fields: Any) -> Episode:
    """Return an episode of ana that no rule can read."""
    return episode(
        id, **{"user": "ana", "metadata": {"object": "tea", "intent": "nonsense"}, **fields}
    )


def hold(daemon: HttpDaemon, object: str = "tea") -> str:
    """Make a batch of the rule ``careful`` that awaits approval, and return its firing."""
    kept, taken, user = fresh_id(), fresh_id(), fresh_user(daemon)
    put(daemon.home, [likes(kept, object, user=user)])
    fire(daemon, "careful")
    metadata = {"intent": "delete", "replaces": kept}
    put(daemon.home, [likes(taken, object, user=user, timestamp=at(1), metadata=metadata)])
    fire(daemon, "careful")
    [held] = ask_daemon(daemon, "held")["held"]
    return str(held["firing_id"])


def reject_all(daemon: HttpDaemon) -> None:
    """Reject every batch that awaits approval, such as one of an earlier test."""
    for batch in ask_daemon(daemon, "held")["held"]:
        ask_daemon(daemon, "decide", firing=batch["firing_id"], approve=False)


def fresh_id() -> str:
    """Return an id that no test had before."""
    return str(uuid4())


def fresh_user(daemon: HttpDaemon) -> str:
    """Return a user of the shard of the test that no test had before."""
    users = (fresh_id() for _ in count())
    return next(user for user in users if shard_of(user, daemon.shards) == SHARD)


def newest_firing(daemon: HttpDaemon) -> dict[str, Any]:
    """Return the newest firing of the ledger."""
    [found] = ask_daemon(daemon, "firings", limit=1)["firings"]
    return dict(found)


def ledger_rows(daemon: HttpDaemon) -> int:
    """Return the number of the last row of the ledger."""
    return int(ask_daemon(daemon, "changes", after=0, limit=1_000, seconds=0.0)["last"])


def assert_shows(seen: Seen, *texts: str) -> None:
    """Check that a page shows texts, and has no tag of a hostile text."""
    assert "<img" not in seen.html
    assert "img" not in seen.page.tags
    missing: Sequence[str] = [text for text in texts if text not in seen.text]
    assert not missing, seen.text
