"""What a shard asks of its server. A database that distributes schemas must offer all of it.

The lists name what Citus limits for a distributed schema. After a change of a list, change
`docs/how-to/grow.md` too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
import pytest

from slumberd.sql_statements import statements
from slumberd.storage.postgres.session import PACKAGE, _find_statement
from tests.support.postgres_server import PostgresServer
from tests.support.sql_files import files_of

pytestmark = pytest.mark.integration

ADMINISTRATION = {"installation", "upgrade", "gathering", "shard_additions"}
"""Modules whose statements an administrator runs, with the daemons stopped or on a new schema."""

_SCHEMA = re.compile(r"(?<![\w'])(slumberd(?:_\d+)?|\{schema\}|\{\w*\})\.\"?[a-z{]")
_SQL = re.compile(
    r"\s*(WITH|SELECT|INSERT|UPDATE|DELETE|LOCK|LISTEN|NOTIFY|COPY|VACUUM|ALTER|CREATE|TRUNCATE) \S"
)
_TABLE = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE|ONLY)\s+([a-z_]+)\b(?![.(])")
_CHANGE = re.compile(r"\b(?:(?<!FOR )UPDATE (?!SET\b)|DELETE FROM )[a-z{]")


@cache
def statements_of_shards() -> dict[str, str]:
    """Return the statements that a daemon runs, by name: of files, and of Python."""
    named = {
        f"{file}.{name}": _find_statement(f"{file}.{name}").sql
        for file in files_of(PACKAGE)
        for name in statements(file, PACKAGE)
    }
    for path in sorted(Path(str(files(PACKAGE))).rglob("*.py")):
        if path.stem not in ADMINISTRATION:
            named |= dict(_statements_in(path))
    return named


def _statements_in(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each statement of a module, with the module and the name that is nearest."""
    for owner in ast.parse(path.read_text()).body:
        inner = owner.body if isinstance(owner, ast.ClassDef) else [owner]
        for one in inner:
            text = "\n".join(_texts(one))
            if text:
                yield f"{path.stem}.{_name_of(one)}", text


def _name_of(node: ast.stmt) -> str:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return getattr(node, "name", "")


def _texts(node: ast.AST) -> Iterator[str]:
    """Yield the texts beneath a node that are statements; a value in an f-string is ``{NAME}``."""
    if isinstance(node, ast.JoinedStr):
        text = "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"{{{_value_of(part)}}}"
            for part in node.values
        )
    elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        text = node.value.decode() if isinstance(node.value, bytes) else node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from _texts(child)
        return
    if _SQL.match(text) or "{schema}." in text:
        yield text


def _value_of(part: ast.expr) -> str:
    value = part.value if isinstance(part, ast.FormattedValue) else None
    return value.id if isinstance(value, ast.Name) else ""


def named_with(pattern: str) -> list[str]:
    found = re.compile(pattern)
    return sorted(name for name, sql in statements_of_shards().items() if found.search(sql))


@pytest.fixture(scope="module")
def catalogue(postgres: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    """Provide a connection to a database with one shard."""
    with postgres.database() as name, psycopg.connect(postgres.address_of(name)) as connection:
        yield connection


def test_statement_names_one_schema_at_most() -> None:
    named = {name: set(_SCHEMA.findall(sql)) for name, sql in statements_of_shards().items()}

    assert {name: schemas for name, schemas in named.items() if len(schemas) > 1} == {}


def test_statement_on_the_map_names_no_table_of_a_shard() -> None:
    of_map = {name: sql for name, sql in statements_of_shards().items() if "slumberd." in sql}

    assert "shard_map._USERS" in of_map
    assert {name: found for name, sql in of_map.items() if (found := _TABLE.findall(sql))} == {}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        # Those of watch, and _HOLDER, _RENEW and _RENEWED, are joined for all shards of a server.
        pytest.param(
            r"\{schema\}\.",
            [
                "lease._CLAIM", "lease._HOLDER", "lease._RELEASE",
                "lease._RENEW", "lease._RENEWED", "lease._SHORTEN", "requests._ANSWER",
                "requests._FORGET", "requests._GIVE_BACK", "requests._TAKE", "watch._LOOK",
            ],
            id="one connection serves all shards of a server",
        ),
        pytest.param(
            r"\bNOTIFY\b|\bpg_notify\b",
            ["engine._notify", "moves.notify", "requests.add", "requests.answer_request"],
            id="notifications are sent",
        ),
        pytest.param(r"\bLISTEN\b", ["requests.wait", "watch._run"], id="sessions listen"),
        pytest.param(
            r"\bLOCK TABLE\b",
            ["moves.lock_map", "moves.lock_users", "session.exclude_other_writers"],
            id="tables are locked",
        ),
        pytest.param(r"\bpg_advisory_", ["rule_sets._LOCK"], id="locks have a number"),
        pytest.param(
            r"\bpg_current_snapshot\b|\bbackend_xmin\b",
            ["hosts.oldest_transaction", "hosts.open_snapshots", "watch._SNAPSHOT"],
            id="snapshots of the server are read",
        ),
        pytest.param(
            r"\b(VACUUM|TRUNCATE|ALTER TABLE|CREATE) ",
            [
                "column_migrations._add", "scrubbing._keeps_old_versions",
                "whole_tables.log_episodes", "whole_tables.log_no_episodes",
            ],
            id="commands change tables",
        ),
        pytest.param(
            r"\bnextval\(",
            ["moves.new_rids", "whole_tables.continue_episode_numbers"],
            id="numbers come from a sequence",
        ),
    ],
)  # fmt: skip
def test_what_statements_use_is_listed(pattern: str, expected: list[str]) -> None:
    assert named_with(pattern) == expected


def test_changes_whose_function_is_volatile_are_listed(
    catalogue: psycopg.Connection[Any],
) -> None:
    volatile = catalogue.execute(
        "SELECT DISTINCT proname FROM pg_proc WHERE provolatile = 'v'"
        " AND pronamespace IN ('pg_catalog'::regnamespace, 'slumberd_0'::regnamespace)"
    )
    calls = re.compile(rf"\b({'|'.join(re.escape(name) for (name,) in volatile)})\(")

    found = {
        name: set(calls.findall(sql))
        for name, sql in statements_of_shards().items()
        if _CHANGE.search(sql) and "slumberd." not in sql and calls.search(sql)
    }

    # Citus refuses each of them on a table that it distributes.
    assert sorted(found) == [
        "lease._CLAIM", "lease._RELEASE", "lease._RENEW", "lease._SHORTEN", "moves.arrive",
        "requests._ANSWER", "requests._FORGET", "requests._GIVE_BACK", "requests._TAKE",
        "requests._TOUCH",
    ]  # fmt: skip
    assert set.union(*found.values()) == {"clock_timestamp"}


OBJECTS = {
    "trigger": (
        "SELECT format('%s %s', tgname, CASE WHEN tgtype & 1 = 1 THEN 'row' ELSE 'statement' END)"
        " FROM pg_trigger WHERE NOT tgisinternal",
        [
            *["check_inserted statement"] * 2,
            *["check_updated statement"] * 2,
            "record_deleted statement",
            "record_inserted statement",
            "record_updated statement",
        ],
    ),
    "foreign key": (
        "SELECT conname::text FROM pg_constraint"
        " WHERE contype = 'f' AND connamespace = 'slumberd_0'::regnamespace",
        [],
    ),
    "no table, index or sequence": (
        "SELECT relname::text FROM pg_class"
        " WHERE relnamespace = 'slumberd_0'::regnamespace AND relkind NOT IN ('r', 'i', 't', 'S')",
        [],
    ),
    "table that inherits": ("SELECT inhrelid::regclass::text FROM pg_inherits", []),
    "table without a primary key": (
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'slumberd_0'::regnamespace"
        " AND relkind = 'r' AND NOT EXISTS"
        " (SELECT 1 FROM pg_index WHERE indrelid = pg_class.oid AND indisprimary)",
        [],
    ),
    "sequence": (
        "SELECT format('%s %s', sequencename, data_type) FROM pg_sequences"
        " WHERE schemaname = 'slumberd_0'",
        ["episode_numbers bigint", "inbox_n_seq bigint", "requests_number_seq bigint"],
    ),
    "identity column": (
        "SELECT format('%s.%s', table_name, column_name) FROM information_schema.columns"
        " WHERE table_schema = 'slumberd_0' AND is_identity = 'YES'",
        ["inbox.n", "requests.number"],
    ),
    "policy": (
        "SELECT format('%s.%s', tablename, policyname) FROM pg_policies"
        " WHERE schemaname = 'slumberd_0'",
        ["episodes.readers", "episodes.writers", "facts.readers", "facts.writers"],
    ),
    "function that is volatile": (
        "SELECT proname::text FROM pg_proc"
        " WHERE pronamespace = 'slumberd_0'::regnamespace AND provolatile = 'v'",
        [
            "check_users",
            "number_inbox",
            "put",
            "put_one",
            "record_deletions",
            "record_versions",
        ],
    ),
    "function that names another schema": (
        "SELECT proname::text FROM pg_proc WHERE pronamespace = 'slumberd_0'::regnamespace"
        " AND prosrc ~ '\\mslumberd(_[1-9][0-9]*)?\\.' AND proname != 'may_read'",
        [],
    ),
}
"""What a schema of a shard has: the question to the catalogue, and its answer."""


@pytest.mark.parametrize("kind", OBJECTS)
def test_what_the_schema_of_a_shard_has_is_listed(
    kind: str, catalogue: psycopg.Connection[Any]
) -> None:
    question, expected = OBJECTS[kind]

    assert sorted(name for (name,) in catalogue.execute(question.encode())) == expected
