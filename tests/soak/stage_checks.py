"""The checks of a soak about stages: extracted facts, marks, summaries and deleted episodes."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import orjson

from tests.soak.chat import (
    AGENT,
    CHANNELS,
    UNPINNED,
    Chat,
    Marked,
    expected_marks,
    user_of,
)
from tests.soak.checks import BrokenPromise
from tests.support.daemons import Home

MARKS, SUMMARIES = "@marks/", "@summaries/"

_MARK_ROWS = (
    "SELECT fact_id, what, kind, reason, version, payload FROM slumberd_ledger"
    " WHERE fact_id LIKE '@marks/%' OR fact_id LIKE '@summaries/%' ORDER BY seq"
)
_CLAIM, _RESTORED = 1, 5


@contextmanager
def reading(home: Home, name: str) -> Iterator[sqlite3.Connection]:
    """Open a database of the soak, to read only."""
    path = f"file:{home.state / name}?mode=ro"
    with closing(sqlite3.connect(path, uri=True, timeout=60)) as connection:
        yield connection


def check_owners_of_marks(home: Home) -> None:
    """Check that marks and summaries are of the users of their episodes, which existed."""
    with reading(home, "facts.db") as facts:
        found = facts.execute(
            "SELECT fact_id, user, agent, payload, lineage FROM facts"
            " WHERE fact_id LIKE '@marks/%' OR fact_id LIKE '@summaries/%'"
        ).fetchall()
    with reading(home, "memory.db") as memory:
        known = {eid for (eid,) in memory.execute("SELECT eid FROM slumberd_episode_log")}
        (is_whole,) = memory.execute(
            "SELECT count(*) = max(seq) FROM slumberd_episode_log"
        ).fetchone()
    for fact_id, user, agent, payload, lineage in found:
        for eid in _named_by(fact_id, orjson.loads(payload), orjson.loads(lineage)):
            if is_whole and eid not in known:
                raise BrokenPromise(f"{fact_id} is about {eid!r}, which never existed")
            if (user, agent) != (user_of(eid), AGENT):
                raise BrokenPromise(f"{fact_id} of {user!r} is about {eid!r} of {user_of(eid)!r}")


def _named_by(
    fact_id: str, payload: Mapping[str, Any], lineage: Iterable[Mapping[str, Any]]
) -> set[str]:
    """Return all episodes that a mark or a summary names."""
    named = {fact_id.partition("/")[2], *payload.get("summarises", ())}
    for link in lineage:
        named.update(link.get("source_episode_ids", ()))
    if payload.get("predicate") == "duplicate_of":
        named.add(payload["object"])
    if payload.get("predicate") == "summarised_into":
        named.add(payload["object"].removeprefix(SUMMARIES))
    return named


def check_marks_have_causes(home: Home) -> None:
    """Check that no ledger row about a mark repeats the row before it about the same mark."""
    last: dict[str, tuple[Any, ...]] = {}
    with reading(home, "facts.db") as facts:
        for fact_id, *row in facts.execute(_MARK_ROWS):
            if row[0] == _CLAIM and last.get(fact_id) == tuple(row):
                raise BrokenPromise(f"{fact_id} was written twice: {row}")
            last[fact_id] = tuple(row)


def count_mark_rows(home: Home) -> int:
    """Return how many ledger rows are about marks and summaries."""
    with reading(home, "facts.db") as facts:
        return len(facts.execute(_MARK_ROWS).fetchall())


def existing_chats(home: Home) -> set[str]:
    """Return the ids of the chat episodes that the memory has."""
    with reading(home, "memory.db") as memory:
        return {id for (id,) in memory.execute("SELECT id FROM episodes") if _is_chat(id)}


def _is_chat(id: str) -> bool:
    return id.startswith(("dot-", "eve-"))


def check_purged(home: Home, chats: Mapping[str, Chat], erased: Collection[str]) -> int:
    """Check that only marked episodes were deleted, and none that a fact cites; return how many.

    A mark must be of the newest version: a person's edit is never deleted unread.
    """
    existing = existing_chats(home)
    missing = {
        eid for eid, chat in chats.items() if eid not in existing and chat["user"] not in erased
    }
    marks = _last_marks(home)
    with reading(home, "memory.db") as memory:
        newest = dict(memory.execute("SELECT eid, max(seq) FROM slumberd_episode_log GROUP BY eid"))
    for eid in sorted(missing):
        kind, version = marks.get(eid, ("", 0))
        if kind not in ("archived", "duplicate_of"):
            raise BrokenPromise(f"episode {eid!r} is gone, and its mark is {kind!r}")
        if version != newest.get(eid, version):  # the log keeps no rows of it for ever
            raise BrokenPromise(f"episode {eid!r} changed after its mark, and is gone")
    if cited := missing & _cited(home):
        raise BrokenPromise(f"facts cite {len(cited)} deleted episodes: {sorted(cited)[:5]}")
    return len(missing)


def _last_marks(home: Home) -> dict[str, tuple[str, int]]:
    """Return the kind and version of the last mark that each episode got."""
    with reading(home, "facts.db") as facts:
        rows = facts.execute(_MARK_ROWS).fetchall()
    return {
        fact_id.removeprefix(MARKS): (orjson.loads(payload)["payload"]["predicate"], version)
        for fact_id, what, _, _, version, payload in rows
        if what == _CLAIM and payload and fact_id.startswith(MARKS)
    }


def _cited(home: Home) -> set[str]:
    """Return the chat episodes that current facts come from, without marks.

    What a fact replaced is left out, and so is a fact that is current again: an edit may bring back
    what nothing cited when its episode was deleted.
    """
    cited: set[str] = set()
    with reading(home, "facts.db") as facts:
        rows = facts.execute(
            "SELECT fact_id, lineage FROM facts WHERE NOT EXISTS"
            " (SELECT 1 FROM slumberd_ledger AS l WHERE l.fact_id = facts.fact_id AND what = ?)",
            (_RESTORED,),
        ).fetchall()
    for fact_id, lineage in rows:
        for link in orjson.loads(lineage):
            if "rule_id" in link and not fact_id.startswith(MARKS):
                cited.update(link.get("source_episode_ids", ()))
    return cited


def check_extracted(home: Home, chats: Mapping[str, Chat]) -> int:
    """Check that extracted facts are in the newest text of their episodes; return how many."""
    count = 0
    for channel in CHANNELS:
        for fact in home.facts("--channel", channel):
            eid, _, part = fact["id"].partition("/")[2].partition("#")
            stated = chats[eid][channel]
            payload = fact["payload"]
            found = [payload[key] for key in ("subject", "predicate", "object")]
            found += payload.get("extracted", {}).get("span", [])
            if not part or found != (stated[int(part) - 1 :] or [None])[0]:
                raise BrokenPromise(f"{fact['id']} says {found}, and its episode says {stated}")
            count += 1
    return count


def check_marks(home: Home, chats: Mapping[str, Chat], erased: Collection[str]) -> int:
    """Check that marks are those of the oracle, once all were decided anew; return how many.

    Nobody knows what the stages make of the user whose marks people end, except that no repeat
    is kept for a repeat.

    Args:
        home: The soak's.
        chats: The newest version of each chat episode.
        erased: The users that were erased.
    """
    existing = existing_chats(home)
    marks = {
        fact["id"].removeprefix(MARKS): Marked(
            fact["payload"]["predicate"], fact["payload"]["object"]
        )
        for fact in home.facts("--channel", "marks")
    }
    _check_kept(marks, existing)
    left_out = {*erased, UNPINNED}
    expected = expected_marks(
        chats[eid] for eid in existing & chats.keys() if chats[eid]["user"] not in left_out
    )
    found = {
        eid: mark for eid, mark in marks.items() if eid in existing and user_of(eid) != UNPINNED
    }
    if found != expected:
        differing = [
            (eid, found.get(eid), expected.get(eid))
            for eid in sorted(found.keys() | expected)
            if found.get(eid) != expected.get(eid)
        ]
        raise BrokenPromise(f"{len(differing)} marks differ: {differing[:5]}")
    _check_summaries(home, expected)
    return len(marks)


def _check_kept(marks: Mapping[str, Marked], existing: Collection[str]) -> None:
    for eid, (kind, kept) in marks.items():
        if kind != "duplicate_of" or eid not in existing:
            continue
        if kept not in existing:
            raise BrokenPromise(f"{eid!r} repeats {kept!r}, which is gone")
        if marks.get(kept, Marked("", "")).kind == "duplicate_of":
            raise BrokenPromise(f"{eid!r} repeats {kept!r}, which is itself a repeat")


def _check_summaries(home: Home, expected: Mapping[str, Marked]) -> None:
    """Check that each summary stands for the episodes that are marked by it."""
    wanted = Counter(mark.object for mark in expected.values() if mark.kind == "summarised_into")
    found = {
        fact["id"]: len(fact["payload"]["summarises"])
        for fact in home.facts("--channel", "summaries")
        if fact["user"] != UNPINNED
    }
    if found != wanted:
        raise BrokenPromise(f"summaries differ: {sorted(found.items() ^ wanted.items())[:5]}")
