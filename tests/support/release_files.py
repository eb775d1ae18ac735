"""Make small files with the commands of a release; `tests/releases` keeps those of each release.

A later release must open them, so they are made once, by the release itself, and never again:

    git archive REVISION daemon | tar x -C CHECKOUT
    python -m tests.support.release_files CHECKOUT/daemon tests/releases/VERSION

The interpreter must have what that release needs. `--python` names another one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.postgres_server import running_server
from tests.support.repository import TESTS

FOLDER = TESTS / "releases"
STORES = ("memory", "facts")
RULES = """\
channels:
  facts: {multi_valued: [likes]}
rules:
  - id: profile
    cadence: {every: 1}
    when_filter: "predicate IS NOT NULL OR json_extract(metadata, '$.triples') IS NOT NULL"
    then_emits: [facts]
"""
CONFIG = "state_dir: state\nrules_dir: rules.d\nlogging: {file: slumberd.log}\n"
_DATABASE = "postgres_{shards}.sql.gz"
KEY = "5b1d" * 16
"""The key of the ledgers below `keyed`, as the file of the key has it."""


def kept(version: str, store: str) -> bytes:
    """Return the content of a file that a release made."""
    return gzip.decompress((FOLDER / version / f"{store}.db.gz").read_bytes())


def put_kept(version: str, directory: Path) -> dict[str, Path]:
    """Put the files that a release made into a directory; return their paths by store."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = {store: directory / f"{store}.db" for store in STORES}
    for store, path in paths.items():
        path.write_bytes(kept(version, store))
        path.chmod(0o600)
    return paths


def kept_facts(version: str) -> list[dict[str, Any]]:
    """Return the facts that the release itself printed of its files."""
    lines = (FOLDER / version / "facts.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def check_kept_facts(found: list[dict[str, Any]], version: str) -> None:
    """Check the facts of upgraded files: those of the release, and what the second law adds.

    One version says two languages. Neither replaces the other, so no lineage links them.
    """
    kept = kept_facts(version)
    ids = {fact["id"] for fact in kept}
    (added,) = (fact for fact in found if fact["id"] not in ids)
    for fact in kept:
        links = fact["lineage"]
        fact["lineage"] = [link for link in links if link.get("replaces") != added["id"]]
    assert added["payload"]["object"] == "Swedish"
    assert [fact for fact in found if fact is not added] == kept


def key_setting(directory: Path) -> str:
    """Write the file of the key into a directory; return the setting that names it."""
    file = directory / "ledger.key"
    file.write_text(KEY)
    file.chmod(0o600)
    return f"facts: {{key_file: {file}}}\n"


def episode(number: int, **metadata: Any) -> dict[str, Any]:
    """Return an episode as a line of `slumberd import`; its number gives id and instant."""
    owner = metadata.pop("user", "ann")
    return {
        "id": metadata.pop("id", f"e{number}"),
        "content": metadata.pop("content", "text"),
        "timestamp": f"2026-10-{number:02d}T10:00:00+00:00",
        "source_node": "chat",
        "agent": metadata.pop("agent", "a"),
        "user": owner,
        "session": metadata.pop("session", "s"),
        "metadata": {"subject": owner, **metadata} if "triples" not in metadata else metadata,
    }


FIRST = [
    episode(1, predicate="prefers", object="tea"),
    episode(2, predicate="prefers", object="coffee"),
    episode(3, predicate="lives_in", object="Rome"),
    episode(4, predicate="likes", object="jazz"),
    episode(5, predicate="likes", object="rock"),
    episode(6, predicate="owns", object="a boat", intent="sink"),
    episode(7, predicate="works_at", object="Acme"),
    episode(8, user="bob", predicate="prefers", object="water"),
    episode(9, user="zed", predicate="prefers", object="gin"),
    episode(10, user="bob", session="old", predicate="lives_in", object="Oslo"),
]
SECOND = [
    episode(1, predicate="prefers", object="green tea"),
    episode(11, predicate="works_at", intent="delete"),
    episode(12, predicate="owns", object="a bike", intent="update", replaces=["e3"]),
    episode(13, user="bob", predicate="prefers", object="wine"),
]
SPEAKS = [
    {"subject": "ann", "predicate": "speaks", "object": "Swedish"},
    {"subject": "ann", "predicate": "speaks", "object": "English"},
    {"subject": "ann", "predicate": "likes", "object": "tea"},
]
THIRD = [episode(14, triples=SPEAKS), episode(15, predicate="plays", object="chess")]
FOURTH = [episode(16, predicate="plays", object="go")]
DECLARED = (
    "d1", "ann", "a", b'{"subject":"ann","predicate":"knows","object":"bob"}',
    b'[{"rule_id":"host","source_episode_ids":["x"],"promotion_ts":"2026-10-01T00:00:00+00:00"}]',
    1.0, b"{}", "2026-10-01T00:00:00+00:00",
)  # fmt: skip


class Release:
    """The commands of a release, on a state directory."""

    def __init__(self, daemon: Path, python: str, directory: Path, *, keyed: bool) -> None:
        self._command = [python, "-m", "slumberd"]
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith("SLUMBERD")
        }
        self._environ = {**kept, "PYTHONPATH": str(daemon), "NO_COLOR": "1"}
        self._config = directory / "slumberd.yaml"
        self._config.write_text(CONFIG + (key_setting(directory) if keyed else ""))
        (directory / "rules.d").mkdir()
        (directory / "rules.d" / "rules.yaml").write_text(RULES)
        self.state = directory / "state"

    def run(self, *arguments: str, configured: bool = True) -> str:
        """Run a command; return what it prints."""
        config = ["--config", str(self._config)] if configured else []
        done = subprocess.run(
            [*self._command, *arguments, *config],
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{arguments}: {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def use(self, address: str) -> None:
        """Let the next commands work on a database."""
        self._config.write_text(f"{self._config.read_text()}store: {address}\n")

    def put(self, episodes: Sequence[Mapping[str, Any]]) -> None:
        """Import episodes."""
        file = self._config.with_name("put.jsonl")
        file.write_text("".join(f"{json.dumps(each)}\n" for each in episodes))
        self.run("import", str(file))

    def tell(self, episodes: Sequence[Mapping[str, Any]]) -> str:
        """Import episodes, and fire all rules; return the id of the last firing."""
        self.put(episodes)
        self.run("fire", "--all")
        with closing(sqlite3.connect(self.state / "facts.db")) as connection:
            number = connection.execute(
                "SELECT max(n) FROM slumberd_firings WHERE rule = 'profile'"
            ).fetchone()[0]
        return f"profile@{number}"


def make(release: Release, *, has_triples: bool) -> str:
    """Let a release write its files; return the facts that it prints."""
    release.tell(FIRST)
    release.tell(SECOND)
    release.tell(THIRD if has_triples else THIRD[1:])
    undone = release.tell(FOURTH)
    release.run("undo", undone)
    owner = ("--user", "ann", "--agent", "a", "--reason", "she said so")
    pinned = ("--subject", "ann", "--predicate", "lives_in", "--object", "Lisbon")
    release.run("pin", *owner, *pinned)
    release.run("pin", *owner, *_of("born_in", "1990"), "--id", "m1")
    release.run("unpin", "e5", "--reason", "she does not")
    with closing(sqlite3.connect(release.state / "facts.db")) as connection, connection:
        connection.execute("INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", DECLARED)
    release.run("fire", "--all")
    release.run("forget", "--user", "zed", "--yes")
    release.run("forget", "--user", "bob", "--session", "old", "--yes")
    release.run("audit", "verify")
    return release.run("facts", "--json")


def _of(predicate: str, value: str) -> Iterator[str]:
    yield from ("--subject", "ann", "--predicate", predicate, "--object", value)


AGENTS = "abcdefgh"
LATER = [
    *[
        episode(20, id=f"l{agent}", agent=agent, predicate="prefers", object="mate")
        for agent in AGENTS
    ],
    *[
        episode(21, id=f"b{agent}", user="bob", agent=agent, predicate="prefers", object=agent)
        for agent in AGENTS[:4]
    ],
    *[episode(22, id=f"u{n}", user=f"user/{n}", predicate="likes", object="tea") for n in range(9)],
    episode(23, id="lc2", agent="c", predicate="lives_in", object="Paris"),
    episode(23, id="lc3", agent="c", predicate="owns", object="a car", intent="sink"),
]
EDITED = [
    episode(24, id="la", agent="a", predicate="prefers", object="coffee"),
    episode(24, id="ub", user="user/0", agent="b", predicate="prefers", object="milk"),
]


def _in_postgres(release: Release, shards: int) -> bytes:
    """Return the statements that make a database with the schema and the rows of a release.

    With several shards, users have more than one agent, which lie in different shards.
    """
    with running_server() as server, server.empty_database() as name:
        address = server.address_of(name)
        release.run("postgres", "init", address, "--shards", str(shards), configured=False)
        release.run("copy", "--from", str(release.state), "--to", address)
        if shards > 1:
            release.use(address)
            release.put(LATER)
            release.run("fire", "--all")
            release.run("forget", "--user", "user/8", "--yes")
            release.run("forget", "--user", "bob", "--agent", "b", "--yes")
            release.put(EDITED)
            release.run("fire", "--all")
            release.put([episode(25, id="pending", predicate="plays", object="chess")])
        return gzip.compress(server.dump(name).encode(), mtime=0)


def kept_statements(version: str, *, shards: int = 1) -> str:
    """Return the statements that make the database of a release; its roles must exist."""
    file = _DATABASE.format(shards=shards)
    return gzip.decompress((FOLDER / version / file).read_bytes()).decode()


def main() -> None:
    """Make the files of one release."""
    parser = argparse.ArgumentParser()
    parser.add_argument("daemon", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--no-triples", action="store_true")
    parser.add_argument("--keyed", action="store_true", help="begin the ledger with a key")
    parser.add_argument("--postgres", action="store_true", help="copy them into a database, too")
    parser.add_argument("--shards", type=int, default=1, help="of the database")
    wanted = parser.parse_args()
    with TemporaryDirectory() as directory:
        release = Release(
            wanted.daemon.absolute(), wanted.python, Path(directory), keyed=wanted.keyed
        )
        facts = make(release, has_triples=not wanted.no_triples)
        wanted.target.mkdir(parents=True, exist_ok=True)
        for store in STORES:
            content = (release.state / f"{store}.db").read_bytes()
            packed = gzip.compress(content, mtime=0)
            (wanted.target / f"{store}.db.gz").write_bytes(packed)
        (wanted.target / "facts.jsonl").write_text(facts)
        if wanted.postgres:
            file = _DATABASE.format(shards=wanted.shards)
            (wanted.target / file).write_bytes(_in_postgres(release, wanted.shards))


if __name__ == "__main__":
    main()
