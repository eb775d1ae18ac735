"""The checks of a soak: while it runs, and at its end."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from tests.soak.chat import AGENT, CHANNELS
from tests.soak.writers import ManualAssertion
from tests.support.daemons import Home
from tests.support.oracle import OracleClaim, claims_in, current_claims

MOST_MEBIBYTES = 400.0
MOST_WAL_MEBIBYTES = 64.0
MOST_FILES = 100

NO_CHAT = f"agent <> '{AGENT}'"
"""The filter of all rules that do not read the chat; else their facts would cite all of it."""

TAGS = {
    "every tag": (NO_CHAT, {0, 1, 2}),
    "some tags": (f"{NO_CHAT} AND source_node <> 'tag 0'", {1, 2}),
}
"""Filters of the rule that is edited, and the tags that they select."""


class BrokenPromise(Exception):  # noqa: N818 # a proof of one, not an error of ours
    """A promise is broken."""


@dataclass
class Figures:
    """The figures of a soak."""

    episodes: int = 0
    firings: int = 0
    rows: int = 0
    facts: int = 0
    extracted: int = 0
    marks: int = 0
    purged: int = 0
    hits: int = 0
    kills: int = 0
    reloads: int = 0
    steps: int = 0
    manual_edits: int = 0
    checks: int = 0
    most_mebibytes: float = 0.0
    most_wal_mebibytes: float = 0.0
    most_files: int = 0


@dataclass
class Expected:
    """What the facts at the end depend on, in addition to the journals.

    Attributes:
        pinned: The objects that people pinned and did not unpin, by fact id.
        unsure: Ids of manual edits that may or may not be committed, because of a kill.
        erased: The users that were erased.
        filter: The filter of the rule that is edited, by its name.
        multi: Predicates that hold several objects, with their channel.
    """

    pinned: dict[str, str] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    erased: set[str] = field(default_factory=set)
    filter: str = "every tag"
    multi: set[tuple[str, str]] = field(default_factory=set)


def check_process(pid: int, figures: Figures) -> None:
    """Check that a daemon does not grow.

    Raises:
        Unsound: It does.
    """
    process = Path("/proc") / str(pid)
    try:
        status = (process / "status").read_text()
        files = len(list((process / "fd").iterdir()))
    except OSError:  # it was killed meanwhile
        return
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    figures.most_mebibytes = max(figures.most_mebibytes, int(resident.split()[1]) / 1024)
    figures.most_files = max(figures.most_files, files)
    if figures.most_mebibytes > MOST_MEBIBYTES:
        raise BrokenPromise(f"the daemon takes {figures.most_mebibytes:.0f} MiB")
    if figures.most_files > MOST_FILES:
        raise BrokenPromise(f"the daemon has {figures.most_files} files open")


def check_files(home: Home, figures: Figures) -> None:
    """Check that write-ahead logs do not grow."""
    sizes = [file.stat().st_size for file in home.state.glob("*-wal")]
    figures.most_wal_mebibytes = max(figures.most_wal_mebibytes, max(sizes, default=0) / 1024**2)
    if figures.most_wal_mebibytes > MOST_WAL_MEBIBYTES:
        raise BrokenPromise(f"a write-ahead log has {figures.most_wal_mebibytes:.0f} MiB")


def check_ledger(home: Home) -> None:
    """Check that the ledger verifies, and that nothing was decided twice."""
    verified = home.call("audit", "verify", check=False)
    if verified.returncode:
        raise BrokenPromise(f"the ledger does not verify: {verified.stderr or verified.stdout}")
    check_once_each(home.state / "facts.db")


def check_once_each(path: Path) -> None:
    """Check that no due firing evaluated a version of an episode twice.

    Marks are left out: a mark may end and come back while its episode stays the same.
    """
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60)) as connection:
        twice = connection.execute(
            "SELECT rule, fact_id, version, count(*) FROM slumberd_ledger"
            " JOIN slumberd_firings ON firing = n"
            " WHERE what IN (1, 2, 3, 4) AND fact_id IS NOT NULL"  # not what only comes of another
            " AND cause IN ('every', 'cron', 'catchup')"
            " AND fact_id NOT LIKE '@marks/%' AND fact_id NOT LIKE '@summaries/%'"
            " GROUP BY rule, fact_id, version HAVING count(*) > 1 LIMIT 3"
        ).fetchall()
    if twice:
        raise BrokenPromise(f"decided twice: {twice}")


def check_newest_evaluated(
    home: Home, eids: Iterable[str], rule: str = "all", prefix: str = ""
) -> None:
    """Check that a rule evaluated the newest version of each of these episodes.

    Args:
        home: The soak's.
        eids: Ids of episodes.
        rule: The rule.
        prefix: What the ids of the rule's facts begin with.

    Raises:
        Unsound: It did not evaluate one of them.
    """
    with closing(sqlite3.connect(f"file:{home.state / 'memory.db'}?mode=ro", uri=True)) as memory:
        newest = dict(memory.execute("SELECT eid, max(seq) FROM slumberd_episode_log GROUP BY eid"))
    with closing(sqlite3.connect(f"file:{home.state / 'facts.db'}?mode=ro", uri=True)) as facts:
        evaluated = set(facts.execute(
            "SELECT fact_id, version FROM slumberd_ledger JOIN slumberd_firings ON firing = n"
            " WHERE rule = ? AND fact_id IS NOT NULL",
            (rule,),
        ))  # fmt: skip
    # The log keeps no rows for ever of what was deleted.
    kept = [eid for eid in eids if eid in newest]
    missed = [eid for eid in kept if (f"{prefix}{eid}", newest[eid]) not in evaluated]
    if missed:
        raise BrokenPromise(f"{len(missed)} episodes were never evaluated: {sorted(missed)[:5]}")


def count_firings(path: Path) -> int:
    """Return how many firings there were, with those of manual edits."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return int(connection.execute("SELECT count(*) FROM slumberd_firings").fetchone()[0])


def journals(folder: Path) -> dict[str, ManualAssertion]:
    """Return the newest version that was committed of each episode."""
    written = {}
    for file in sorted(folder.glob("*.journal")):
        for line in file.read_bytes().splitlines():
            episode = orjson.loads(line)
            written[episode["id"]] = episode
    return written


def check_rows(home: Home, written: Mapping[str, ManualAssertion], erased: set[str]) -> None:
    """Check that every committed episode is there, without those of erased users.

    A chat episode may be deleted, because it is archived; if it is there, it is the newest version.
    """
    with closing(sqlite3.connect(home.state / "memory.db", timeout=60)) as connection:
        rows = {id: orjson.loads(text) for id, text in connection.execute(
            "SELECT id, metadata FROM episodes"
        )}  # fmt: skip
    for eid, episode in written.items():
        if episode["agent"] == AGENT and eid not in rows:
            continue
        if episode["user"] not in erased and rows.get(eid) != episode["metadata"]:
            raise BrokenPromise(f"episode {eid!r} was committed and is lost: {rows.get(eid)}")


_OF_NO_CLAIM = ("@guests/", "@summaries/")


def check_facts(home: Home, written: Mapping[str, ManualAssertion], expected: Expected) -> int:
    """Check that the facts are those of the oracle; return how many there are."""
    found = {}
    for fact in home.facts():
        rules = [own["rule_id"] for own in fact["lineage"] if "rule_id" in own]
        if not fact["id"].startswith(_OF_NO_CLAIM) and fact["id"] not in expected.unsure:
            found[fact["id"]] = (fact["user"], fact["payload"].get("object"), rules)
    wanted = {
        claim.fact_id: (claim.user, claim.object, list(claim.rules))
        for claim in expected_claims(written, expected)
    }
    for fact_id, value in expected.pinned.items():
        wanted[fact_id] = ("people", value, ["@manual"])
    if found != wanted:
        differing = [
            (fact_id, found.get(fact_id), wanted.get(fact_id))
            for fact_id in sorted(found.keys() | wanted)
            if found.get(fact_id) != wanted.get(fact_id)
        ]
        raise BrokenPromise(f"{len(differing)} facts differ: {differing[:5]}")
    return len(found)


def expected_claims(
    written: Mapping[str, ManualAssertion], expected: Expected
) -> Iterator[OracleClaim]:
    """Yield the current claims; a user and channel at a time, for none affects another."""
    parts: dict[tuple[str, str], list[OracleClaim]] = defaultdict(list)
    for episode in written.values():
        if episode["user"] not in expected.erased:
            for claim in claims(episode, expected):
                parts[claim.user, claim.channel].append(claim)
    for competing in parts.values():
        yield from current_claims(competing, expected.multi).values()


def claims(episode: ManualAssertion, expected: Expected) -> Iterable[OracleClaim]:
    """Yield the claims of an episode in each channel; the rule `tagged` selects by tag."""
    if episode["agent"] == AGENT:
        yield from chat_claims(episode)
        return
    _, tags = TAGS[expected.filter]
    selected = ("tagged",) if episode["tag"] in tags else ()
    for channel, rules in (("facts", ("all", *selected)), ("notes", selected)):
        if rules:
            yield from claims_in(episode, channel, rules)


def chat_claims(episode: ManualAssertion) -> Iterable[OracleClaim]:
    """Yield the claims of what is extracted from a chat episode, in each channel."""
    for channel, rule in CHANNELS.items():
        triples = [
            dict(zip(("subject", "predicate", "object"), stated[:3], strict=True))
            for stated in episode[channel]
        ]
        yield from claims_in({**episode, "metadata": {"triples": triples}}, channel, (rule,))
