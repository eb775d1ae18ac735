"""The statements that read a scope's newest episodes, compared with plain Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.episode_tables import FLOORS, KEYS_OF_SCOPES, tables_of_episodes
from tests.support.statement_tables import (
    SEEDS,
    Oracles,
    Tables,
    values_of,
)

pytestmark = pytest.mark.integration

ORACLES = Oracles("recent")
EPISODE = ("id", "scope_key", "content", "timestamp", "metadata")
PLACEHOLDER = "/user/anon/session/default/agent/default/"
USERS = ["/user/alice/", "/user/al/", "/user/anon/", "/user/a/", "/user/x/"]
OF_AGENT = [{"user": user, "agent": agent} for user, agent in product(USERS, ["rag/", "web/"])]
AFTER_AGENT = [{"user": user, "last": last} for user, last in product(USERS, ["", "rag/", "x"])]
AFTER_KEY = [
    {"last": "/user/alice/session/s1/agent/", "end": "/user/alice/session/s1/agent0"},
    {"last": KEYS_OF_SCOPES[0], "end": "/user/alice/session/s1/agent0"},
    {"last": KEYS_OF_SCOPES[0], "end": KEYS_OF_SCOPES[1]},
    {"last": "/user/a", "end": "/user/b"},
    {"last": "", "end": "o"},
]
SPACE = [
    {"floor": floor, "upto": upto, "utc": utc}
    for (floor, upto), utc in product(
        [*((floor, "~") for floor in FLOORS), ("", FLOORS[2])], (0, 1)
    )
]
IS_UTC = re.compile(
    r"....-..-..T..:..:..\+00:00|.*T..:..:..\.......(?<!\.000000)\+00:00", re.DOTALL
)


def text_of(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def is_utc(row: SimpleNamespace) -> bool:
    return IS_UTC.fullmatch(text_of(row.timestamp)) is not None


def names_its_scope(row: SimpleNamespace) -> bool:
    return text_of(row.scope_key).count("/") == 7 and row.scope_key != PLACEHOLDER


def in_a_scope(t: Tables, *, utc: bool) -> list[SimpleNamespace]:
    """Return the rows whose key names a scope, the newest text first."""
    rows = [row for row in t.episodes if names_its_scope(row) and isinstance(row.timestamp, str)]
    return newest_first([row for row in rows if is_utc(row) == utc])


def newest_first(rows: list[SimpleNamespace]) -> list[SimpleNamespace]:
    return sorted(rows, key=lambda row: text_of(row.timestamp), reverse=True)


def user_of(row: SimpleNamespace) -> str:
    """Return the part of the key that names the user; a key that is no text names none."""
    if isinstance(row.scope_key, bytes):
        return ""
    return "/".join(text_of(row.scope_key).split("/")[:3]) + "/"


def agent_of(row: SimpleNamespace) -> str:
    return "/".join(text_of(row.scope_key).split("/")[6:])


def read(rows: list[SimpleNamespace]) -> list[Any]:
    return [values_of(row, *EPISODE) for row in rows]


def of_agent(t: Tables, user: str, agent: str, *, utc: bool) -> list[SimpleNamespace]:
    rows = in_a_scope(t, utc=utc)
    return [row for row in rows if (user_of(row), agent_of(row)) == (user, agent)]


def first_of_next_agent(t: Tables, user: str, last: str, *, utc: bool) -> list[Any]:
    rows = [row for row in in_a_scope(t, utc=utc) if user_of(row) == user and agent_of(row) > last]
    rows.sort(key=agent_of)
    return [[*values_of(row, *EPISODE), agent_of(row)] for row in rows[:1]]


def first_of_next_key(t: Tables, last: str, end: str, *, utc: bool) -> list[Any]:
    rows = [row for row in in_a_scope(t, utc=utc) if isinstance(row.scope_key, str)]
    rows = [row for row in rows if last < row.scope_key < end]
    rows.sort(key=lambda row: row.scope_key)
    return [[*values_of(row, *EPISODE), row.scope_key] for row in rows[:1]]


def of_key(t: Tables, key: str, *, utc: bool) -> list[SimpleNamespace]:
    rows = [row for row in t.episodes if row.scope_key == key and isinstance(row.timestamp, str)]
    return newest_first([row for row in rows if is_utc(row) == utc])


@ORACLES.rows(*({"key": key} for key in KEYS_OF_SCOPES))
def key_utc(t: Tables, key: str) -> list[Any]:
    return read(of_key(t, key, utc=True))


@ORACLES.rows(
    *(
        {"key": key, "upto": upto, "limit": limit}
        for key, upto, limit in product(KEYS_OF_SCOPES, FLOORS, (1, 50))
    )
)
def key_upto(t: Tables, key: str, upto: str, limit: int) -> list[Any]:
    return read([row for row in of_key(t, key, utc=True) if row.timestamp <= upto][:limit])


@ORACLES.rows(*({"key": key, "floor": floor} for key, floor in product(KEYS_OF_SCOPES, FLOORS)))
def key_other(t: Tables, key: str, floor: str) -> list[Any]:
    return read([row for row in of_key(t, key, utc=False) if row.timestamp >= floor])


@ORACLES.rows(*AFTER_KEY)
def next_key_utc(t: Tables, last: str, end: str) -> list[Any]:
    return first_of_next_key(t, last, end, utc=True)


@ORACLES.rows(*AFTER_KEY)
def next_key_other(t: Tables, last: str, end: str) -> list[Any]:
    return first_of_next_key(t, last, end, utc=False)


@ORACLES.rows(*OF_AGENT)
def agent_utc(t: Tables, user: str, agent: str) -> list[Any]:
    return read(of_agent(t, user, agent, utc=True))


@ORACLES.rows(*({**scope, "floor": floor} for scope, floor in product(OF_AGENT, FLOORS)))
def agent_other(t: Tables, user: str, agent: str, floor: str) -> list[Any]:
    return read([row for row in of_agent(t, user, agent, utc=False) if row.timestamp >= floor])


@ORACLES.rows(*AFTER_AGENT)
def next_agent_utc(t: Tables, user: str, last: str) -> list[Any]:
    return first_of_next_agent(t, user, last, utc=True)


@ORACLES.rows(*AFTER_AGENT)
def next_agent_other(t: Tables, user: str, last: str) -> list[Any]:
    return first_of_next_agent(t, user, last, utc=False)


@ORACLES.rows(*({"user": user} for user in USERS))
def any_other(t: Tables, user: str) -> list[Any]:
    rows = [row for row in t.episodes if names_its_scope(row) and not is_utc(row)]
    return [[any(user_of(row) == user for row in rows)]]


def owner_in(row: SimpleNamespace) -> tuple[str, str]:
    """Return user and session as the content names them last, each empty in another spelling."""
    content = text_of(row.content)
    found = re.search(r',"user":"', content)
    rest = content[found.start() :] if found else ""
    if '","session":"' not in rest or r"\u" in rest or rest.count('":') != 2:
        return "", ""
    return rest[: rest.index('","session":"') + 1], rest


def owned(t: Tables, agent: str, floor: str, upto: str, utc: int) -> list[SimpleNamespace]:
    rows = [row for row in t.episodes if not names_its_scope(row)]
    rows = [row for row in rows if isinstance(row.timestamp, str)]
    rows = [row for row in rows if floor <= row.timestamp <= upto]
    return newest_first(
        [row for row in rows if is_utc(row) == utc and agent in text_of(row.content)]
    )


OWNERS = [
    {"agent": agent, **space}
    for agent, space in product(('"agent":"rag"', '"agent":"web"', "{"), SPACE)
]
USERS_IN_CONTENT = [',"user":"alice"', ',"user":"bob"', ""]
SESSIONS_IN_CONTENT = [',"user":"alice","session":"s1"}', ',"user":"alice","session":"s2"}', ""]


@ORACLES.rows(*({"user": user, **rest} for user, rest in product(USERS_IN_CONTENT, OWNERS)))
def owned_user(t: Tables, user: str, **rest: Any) -> list[Any]:
    return read([row for row in owned(t, **rest) if owner_in(row)[0] == user])


@ORACLES.rows(*({"session": text, **rest} for text, rest in product(SESSIONS_IN_CONTENT, OWNERS)))
def owned_session(t: Tables, session: str, **rest: Any) -> list[Any]:
    return read([row for row in owned(t, **rest) if owner_in(row)[1] == session])


@ORACLES.rows(*({"user": user} for user in (*USERS_IN_CONTENT, ',"user":"x"')))
def any_owned(t: Tables, user: str) -> list[Any]:
    rows = [row for row in t.episodes if not names_its_scope(row)]
    return [[any(owner_in(row)[0] == user for row in rows)]]


@pytest.fixture(scope="module", params=SEEDS)
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    with tables_of_episodes(request.param) as opened:
        yield opened


@pytest.mark.parametrize("name", ORACLES.cases)
def test_statement_reads_what_its_oracle_computes(tables: Tables, name: str) -> None:
    ORACLES.cases[name].check(tables)


def test_every_statement_of_recent_episodes_has_an_oracle() -> None:
    assert ORACLES.without_oracle() == set()
