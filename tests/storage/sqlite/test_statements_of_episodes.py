"""The statements on episodes, their log and their accesses, compared with plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from slumberd.model.scope import scope_of
from slumberd.sql_statements import statements
from tests.support.episode_tables import FLOORS, KEYS_OF_SCOPES, tables_of_episodes
from tests.support.statement_tables import (
    SEEDS,
    Oracles,
    Tables,
    changed,
    values_of,
)

pytestmark = pytest.mark.integration

LOG = Oracles("episode_log")
ERASED = Oracles("erased_scopes")
EPISODES = Oracles("episodes")
ACCESSES = Oracles("accesses")
REPORTS = Oracles("inspection")
CONTENT = Oracles("erased_content")
ANSWERS = Oracles("extractions")

EPISODE = ("rid", "id", "scope_key", "content", "timestamp", "metadata")
SOME_IDS = {"ids": ["e03", "e01", "e20", *(f"e{n}" for n in range(25, 40)), "gone", "unknown"]}
EIDS = {"eids": [*SOME_IDS["ids"]]}
ROWIDS = {"rowids": [9, 3, 1, 900]}
LARGE = 1_000
LATEST = "2026-01-01T12:00:00+00:00"


def by_rowid(t: Tables, rid: int | None, eid: str) -> SimpleNamespace | None:
    return next((row for row in t.episodes if row.rid == rid and row.id == eid), None)


def last_seq(t: Tables, episode: SimpleNamespace) -> int | None:
    found = [row.seq for row in t.episode_log if (row.rid, row.eid) == (episode.rid, episode.id)]
    return max(found, default=None)


@LOG.rows()
def newest(t: Tables) -> list[Any]:
    return [values_of(t.episode_log[-1], "seq", "eid")]


@LOG.rows({"seq": 1}, {"seq": 9}, {"seq": 900})
def episode_at(t: Tables, seq: int) -> list[Any]:
    return [[row.eid] for row in t.episode_log if row.seq == seq]


@LOG.rows(
    *(
        {"after": after, "at_most": most, "rule": "any"}
        for after in (0, 7, 900)
        for most in (1, 5, LARGE)
    )
)
def pending(t: Tables, after: int, at_most: int, rule: str) -> list[Any]:
    del rule  # no user ever arrives in a file from another shard
    return [[min(at_most, len([row for row in t.episode_log if row.seq > after]))]]


@LOG.rows(*({"after": after, "rule": "any"} for after in range(62)))
def oldest_timestamp(t: Tables, after: int, rule: str) -> list[Any]:
    del rule
    later = [by_rowid(t, row.rid, row.eid) for row in t.episode_log if row.seq > after]
    return [[episode.timestamp] for episode in later if episode][:1]


@LOG.rows(*({"after": after, "limit": limit} for after in (0, 7) for limit in (1, 5, LARGE)))
def window(t: Tables, after: int, limit: int) -> list[Any]:
    found = []
    for row in [row for row in t.episode_log if row.seq > after][:limit]:
        episode = by_rowid(t, row.rid, row.eid)
        read = (
            [None] * 7 if episode is None else [last_seq(t, episode), *values_of(episode, *EPISODE)]
        )
        found.append([row.seq, row.eid, row.rid is None, *read])
    return found


@LOG.rows({"seq": 1}, {"seq": 9}, {"seq": 900})
def is_inside(t: Tables, seq: int) -> list[Any]:
    seqs = [row.seq for row in t.episode_log]
    return [[min(seqs) < seq < max(seqs)]]


@LOG.rows(
    *(
        {"after": after, "upto": upto, "limit": limit}
        for after in (0, 7)
        for upto in (20, 900)
        for limit in (5, LARGE)
    )
)
def prunable(t: Tables, after: int, upto: int, limit: int) -> list[Any]:
    ids = {row.id for row in t.episodes}
    known = {row.rid for row in t.episode_deletions}

    def is_prunable(row: SimpleNamespace) -> bool:
        later = [one.seq for one in t.episode_log if one.rid == row.rid and one.seq > row.seq]
        is_deleted = row.eid is not None and row.eid not in ids
        if later and row.rid is not None:
            return is_deleted and min(later) <= upto
        return is_deleted and (row.rid is None or row.rid not in known)

    rows = [row for row in t.episode_log[1:] if after < row.seq <= upto][:limit]
    return [[row.seq, is_prunable(row)] for row in rows]


@LOG.table("episode_log", {"rows": [2, 7, 900]})
def prune(t: Tables, rows: list[int]) -> list[Any]:
    return [values_of(row) for row in t.episode_log if row.seq not in rows]


@LOG.rows(SOME_IDS, in_any_order=True)
def moved(t: Tables, ids: list[str]) -> list[Any]:
    episodes = [row for row in t.episodes if row.id in ids]
    return [[last_seq(t, episode), *values_of(episode, *EPISODE)] for episode in episodes]


@ERASED.rows()
def exists(_: Tables) -> list[Any]:
    return [[1]]


@ERASED.rows()
def has_key(t: Tables) -> list[Any]:
    return [[1]]


@ERASED.table("erasure_key", (b"another",))
def add_key(t: Tables, _: bytes) -> list[Any]:
    return [values_of(row) for row in t.erasure_key]


@ERASED.rows()
def key(t: Tables) -> list[Any]:
    return [[row.key] for row in t.erasure_key]


@ERASED.rows(in_any_order=True)
def moments(t: Tables) -> list[Any]:
    return [values_of(row) for row in t.erased_scopes]


@ERASED.rows((b"\x01",), (b"\x02",), (b"\x09",))
def moment(t: Tables, digest: bytes) -> list[Any]:
    return [[row.moment] for row in t.erased_scopes if row.digest == digest]


@ERASED.table("erased_scopes", (b"\x02", 1), (b"\x02", 9), (b"\x09", 4))
def add_moment(t: Tables, digest: bytes, at: int) -> list[Any]:
    known = {row.digest: row.moment for row in t.erased_scopes}
    return [*{**known, digest: max(at, known.get(digest, at))}.items()]


@ERASED.rows(
    {"escaped": "/al", "plain": b'"bob"'},
    {"escaped": "/user/bo", "plain": b'{"agent":"web"'},
    in_any_order=True,
)
def episodes_that_may_name(t: Tables, escaped: str, plain: bytes) -> list[Any]:
    return [
        values_of(row, *EPISODE)
        for row in t.episodes
        if isinstance(row.scope_key, bytes)
        or isinstance(row.content, str)
        or escaped in row.scope_key
        or plain in row.content
        or b"\\" in row.content
    ]


@ERASED.rows(ROWIDS, in_any_order=True)
def episodes_at(t: Tables, rowids: list[int]) -> list[Any]:
    return [values_of(row, *EPISODE) for row in t.episodes if row.rid in rowids]


@ERASED.rows({"seq": 0}, {"seq": 30}, {"seq": 900}, in_any_order=True)
def written_since(t: Tables, seq: int) -> list[Any]:
    return [*{(row.rid,) for row in t.episode_log if row.seq > seq and row.rid is not None}]


@ERASED.rows(EIDS, in_any_order=True)
def episodes_of(t: Tables, eids: list[str]) -> list[Any]:
    return [values_of(row, *EPISODE) for row in t.episodes if row.id in eids]


@ERASED.table("episodes", ROWIDS)
def drop_episodes(t: Tables, rowids: list[int]) -> list[Any]:
    return [values_of(row) for row in t.episodes if row.rid not in rowids]


@ERASED.table("episode_log", EIDS)
def blank_log(t: Tables, eids: list[str]) -> list[Any]:
    kept = {row.id for row in t.episodes}
    return [
        changed(row, rid=None, eid="")
        if row.eid in eids and row.eid not in kept
        else values_of(row)
        for row in t.episode_log
    ]


@EPISODES.rows()
def probe(_: Tables) -> list[Any]:
    return []


@EPISODES.rows(("e03",), ("unknown",))
def by_id(t: Tables, eid: str) -> list[Any]:
    return [values_of(row, *EPISODE[1:]) for row in t.episodes if row.id == eid]


@EPISODES.rows(SOME_IDS, {"ids": ["gone"]})
def any_of_ids(t: Tables, ids: list[str]) -> list[Any]:
    return [[1] for row in t.episodes if row.id in ids][:1]


@EPISODES.table("episodes", ("new", "key", b"{}", "2026", b"[]"))
def insert(t: Tables, *values: Any) -> list[Any]:
    return [*map(values_of, t.episodes), (t.episodes[-1].rid + 1, *values)]


@EPISODES.table("episodes", (b"new", "2027", b"[]", "e03"), (b"new", "2027", b"[]", "unknown"))
def update(t: Tables, content: bytes, timestamp: str, metadata: bytes, eid: str) -> list[Any]:
    new = {"content": content, "timestamp": timestamp, "metadata": metadata}
    return [changed(row, **new) if row.id == eid else values_of(row) for row in t.episodes]


@EPISODES.rows(*({"after": after, "limit": limit} for after in (0, 7) for limit in (1, 5, LARGE)))
def page(t: Tables, after: int, limit: int) -> list[Any]:
    return [values_of(row, *EPISODE) for row in t.episodes if row.rid > after][:limit]


@EPISODES.rows(*((after, limit) for after in (0, 7) for limit in (1, 5, LARGE)))
def rowids(t: Tables, after: int, limit: int) -> list[Any]:
    return [[row.rid] for row in t.episodes if row.rid > after][:limit]


NOTED = [
    {"noted": [["e03", 2, 7], ["unknown", 1, 1], *([f"e{n}", 3, n % 10] for n in range(10, 40))]}
]


@ACCESSES.table("accesses", *NOTED)
def read(t: Tables, noted: list[list[Any]]) -> list[Any]:
    rows = {row.eid: row for row in t.accesses}
    keys = {row.id: row.scope_key for row in t.episodes}
    for eid, count, last in noted:
        if eid not in keys:
            continue
        row = rows.get(eid, SimpleNamespace(scope_key=None, held=0))
        same = row.scope_key == keys[eid]
        latest = max(row.last or 0, last) if same else last
        total = row.count + count if same else count
        rows[eid] = SimpleNamespace(
            eid=eid, scope_key=keys[eid], count=total, last=latest, held=row.held
        )
    return [*map(values_of, rows.values())]


@ACCESSES.table("accesses", SOME_IDS)
def hold(t: Tables, ids: list[str]) -> list[Any]:
    rows = {row.eid: values_of(row) for row in t.accesses}
    for episode in (row for row in t.episodes if row.id in ids):
        eid, scope = episode.id, episode.scope_key
        _, known, count, last, _ = rows.get(eid, (eid, None, 0, None, 0))
        rows[eid] = (eid, scope, count, last, 1) if known == scope else (eid, scope, 0, None, 1)
    return [*rows.values()]


@ACCESSES.rows(SOME_IDS, in_any_order=True)
def accesses(t: Tables, ids: list[str]) -> list[Any]:
    keys = {row.id: row.scope_key for row in t.episodes}
    rows = [row for row in t.accesses if row.eid in ids and row.count > 0]
    return [
        values_of(row, "eid", "count", "last") for row in rows if keys.get(row.eid) == row.scope_key
    ]


@ACCESSES.table("episode_log", SOME_IDS)
def log_again(t: Tables, ids: list[str]) -> list[Any]:
    held = {row.eid for row in t.accesses if row.held} & {row.id for row in t.episodes}
    again = [eid for eid in ids if eid in held]
    return [*map(values_of, t.episode_log), *((61 + n, None, eid) for n, eid in enumerate(again))]


@ACCESSES.table("accesses", SOME_IDS)
def let_go(t: Tables, ids: list[str]) -> list[Any]:
    return [changed(row, held=0) if row.eid in ids else values_of(row) for row in t.accesses]


@ACCESSES.table("accesses", SOME_IDS)
def erase(t: Tables, ids: list[str]) -> list[Any]:
    kept = {row.id for row in t.episodes}
    return [values_of(row) for row in t.accesses if row.eid not in ids or row.eid in kept]


ANSWER = {
    "model": "new", "status": "ok", "triples": "[1]", "dropped": 3, "problem": "", "answer": "a",
    "attempts": 2, "at": 70,
}  # fmt: skip
ANSWERED = [
    {"key": key, "eid": eid, **ANSWER}
    for key, eid in (("k1", "e03"), ("k9", "e08"), ("k9", "gone"), ("k4", "gone"))
]


@ANSWERS.rows({"keys": ["k3", "k1", "k7"]}, {"keys": []}, in_any_order=True)
def recorded(t: Tables, keys: list[str]) -> list[Any]:
    found = [row for row in t.extractions if row.key in keys]
    return [values_of(row, "key", "status", "triples", "problem") for row in found]


@ANSWERS.table("extractions", *ANSWERED)
def record(t: Tables, key: str, eid: str, attempts: int, model: str, **new: Any) -> list[Any]:
    rows = {row.key: row for row in t.extractions}
    if eid in {row.id for row in t.episodes}:
        old = rows.get(key, SimpleNamespace(key=key, eid=eid, model=model, attempts=0))
        kept = {"eid": old.eid, "model": old.model, "attempts": old.attempts + attempts}
        rows[key] = SimpleNamespace(key=key, **{**new, **kept})
    order = list(vars(t.extractions[0]))
    return [values_of(rows[name], *order) for name in sorted(rows)]


SUMMARY = {
    "model": "new", "status": "invalid", "text": "t", "problem": "p", "attempts": 2, "at": 70,
}  # fmt: skip
WRITTEN = [
    {"key": key, "episode_id": eid, **SUMMARY}
    for key, eid in (("s1", "e03"), ("s9", "e08"), ("s9", "gone"))
]


@ANSWERS.rows({"ids": ["e03", "e08"]}, {"ids": []}, in_any_order=True)
def summaries(t: Tables, ids: list[str]) -> list[Any]:
    return [values_of(row) for row in t.model_summaries if row.eid in ids]


@ANSWERS.table("model_summaries", *WRITTEN)
def record_summary(t: Tables, key: str, episode_id: str, **new: Any) -> list[Any]:
    rows = {row.key: row for row in t.model_summaries}
    if episode_id in {row.id for row in t.episodes}:
        old = rows.get(key, SimpleNamespace(eid=episode_id, model=new["model"], attempts=0))
        attempts = old.attempts + new["attempts"]
        kept = {"eid": old.eid, "model": old.model, "attempts": attempts}
        rows[key] = SimpleNamespace(key=key, **{**new, **kept})
    order = list(vars(t.model_summaries[0]))
    return [values_of(rows[name], *order) for name in sorted(rows)]


@ANSWERS.table("model_summaries", SOME_IDS)
def erase_summaries(t: Tables, ids: list[str]) -> list[Any]:
    kept = {row.id for row in t.episodes}
    return [values_of(row) for row in t.model_summaries if row.eid not in ids or row.eid in kept]


@ANSWERS.table("model_summaries", ())
def remove_orphaned_summaries(t: Tables) -> list[Any]:
    kept = {row.id for row in t.episodes}
    return [values_of(row) for row in t.model_summaries if row.eid in kept]


@ANSWERS.rows({"ids": ["e01", "gone", "e05"]}, {"ids": []}, in_any_order=True)
def lost_turns(t: Tables, ids: list[str]) -> list[Any]:
    kept = {row.id for row in t.episodes}
    return [(id,) for id in ids if id not in kept]


REQUEST = {"scope_key": "s", "key": "k7", "request": "new"}


@ANSWERS.table("model_requests", {"eid": "e03", "key": "k1"}, {"eid": "e03", "key": "k2"})
def release_key(t: Tables, eid: str, key: str) -> list[Any]:
    return [
        changed(row, key="") if (row.eid, row.key) == (eid, key) else values_of(row)
        for row in t.model_requests
    ]


@ANSWERS.table(
    "model_requests",
    {"eid": "e03", "id": "r2", **REQUEST},
    {"eid": "e09", "id": "r2", **REQUEST},
)
def record_request(t: Tables, eid: str, id: str, **new: Any) -> list[Any]:
    rows = {(row.eid, row.id): row for row in t.model_requests}
    old = rows.get((eid, id), SimpleNamespace(eid=eid, id=id, scope_key=new["scope_key"]))
    kept = {**vars(old), "key": new["key"], "request": new["request"]}
    rows[eid, id] = SimpleNamespace(**kept)
    return [values_of(rows[place]) for place in sorted(rows)]


def requests_that_show(t: Tables, ids: list[str]) -> set[str]:
    """Return the ids of the requests with words of some episodes that are gone."""
    kept = {row.id for row in t.episodes}
    return {row.id for row in t.model_requests if row.eid in ids and row.eid not in kept}


@ANSWERS.table("model_requests", SOME_IDS, {"ids": ["e01", "gone", "lost"]})
def blank_requests(t: Tables, ids: list[str]) -> list[Any]:
    found = requests_that_show(t, ids)
    return [
        changed(row, request="") if row.id in found else values_of(row) for row in t.model_requests
    ]


@ANSWERS.table("extractions", SOME_IDS, {"ids": ["e05", "gone"]})
def blank_answers(t: Tables, ids: list[str]) -> list[Any]:
    shown = {row.id for row in t.model_requests if row.eid in ids}
    keys = {row.key for row in t.model_requests if row.id in shown}
    return [changed(row, answer="") if row.key in keys else values_of(row) for row in t.extractions]


@ANSWERS.table("model_requests", SOME_IDS, {"ids": ["e01", "gone", "lost"]})
def drop_sources(t: Tables, ids: list[str]) -> list[Any]:
    kept = {row.id for row in t.episodes}
    return [values_of(row) for row in t.model_requests if row.eid not in ids or row.eid in kept]


@ANSWERS.table("model_requests", ())
def remove_orphaned_requests(t: Tables) -> list[Any]:
    kept = {row.id for row in t.episodes}
    asked = {row.id for row in t.model_requests if row.key and row.eid in kept}
    return [values_of(row) for row in t.model_requests if row.id in asked]


USAGE = {"calls": 1, "tokens_in": 2, "tokens_out": 3, "cost_micros": 4}


@ANSWERS.table("model_usage", {"day": "2026-01-01", **USAGE}, {"day": "2026-01-02", **USAGE})
def spend(t: Tables, day: str, **more: int) -> list[Any]:
    days = {row.day: list(values_of(row))[1:] for row in t.model_usage}
    known = days.get(day, [0, 0, 0, 0])
    days[day] = [old + new for old, new in zip(known, more.values(), strict=True)]
    return [(name, *days[name]) for name in sorted(days)]


@ANSWERS.rows(("2026-01-01",), ("2026-01-02",))
def spent(t: Tables, day: str) -> list[Any]:
    columns = ("calls", "tokens_in", "tokens_out", "cost_micros")
    return [values_of(row, *columns) for row in t.model_usage if row.day == day]


@ANSWERS.table("extractions", SOME_IDS)
def erase_(t: Tables, ids: list[str]) -> list[Any]:
    kept = {row.id for row in t.episodes}
    return [values_of(row) for row in t.extractions if row.eid not in ids or row.eid in kept]


@ANSWERS.table("extractions", ())
def remove_orphans(t: Tables) -> list[Any]:
    kept = {row.id for row in t.episodes}
    return [values_of(row) for row in t.extractions if row.eid in kept]


@REPORTS.rows(
    *({"floor": floor, "latest": LATEST} for floor in ("", FLOORS[2], "2026-01-03")),
    in_any_order=True,
)
def future(t: Tables, floor: str, latest: str) -> list[Any]:
    rows = [row for row in t.episodes if isinstance(row.timestamp, str) and row.timestamp > floor]
    # An offset may move the instant by more than half a day, so a reader has to look again.
    slack = {True: timedelta(), False: timedelta(days=0.6)}
    return [
        values_of(row, *EPISODE[1:])
        for row in rows
        if row.timestamp == "soon"
        or instant_of(row.timestamp) > instant_of(latest) - slack[row.timestamp.endswith("+00:00")]
    ]


@REPORTS.rows()
def origin_of_slumberd_episode_log(t: Tables) -> list[Any]:
    return [[t.episode_log[0].eid]]


@REPORTS.rows({"limit": LARGE}, {"limit": 2})
def users_of_episodes(t: Tables, limit: int) -> list[Any]:
    keys = sorted({row.scope_key for row in t.episodes if isinstance(row.scope_key, str)})
    users = {key.split("/")[2]: None for key in keys if scope_of(key)}
    return [[user] for user in users][:limit]


@REPORTS.rows()
def count_episodes(t: Tables) -> list[Any]:
    return [[len(t.episodes)]]


@REPORTS.rows({"limit": 9})
def count_unnumbered(_: Tables, limit: int) -> list[Any]:
    return [[0]]


@REPORTS.rows()
def oldest_unnumbered(_: Tables) -> list[Any]:
    return [[None]]


@CONTENT.rows(in_any_order=True)
def ids(t: Tables) -> list[Any]:
    return [[row.id, row.scope_key] for row in t.episodes]


@CONTENT.rows(in_any_order=True)
def scope_keys(t: Tables) -> list[Any]:
    return [[key] for key in {row.scope_key for row in t.episodes}]


@CONTENT.rows(*((key,) for key in KEYS_OF_SCOPES), in_any_order=True)
def timestamps(t: Tables, key: str) -> list[Any]:
    return [[row.timestamp] for row in t.episodes if row.scope_key == key]


ALL = (LOG, ERASED, EPISODES, ACCESSES, REPORTS, CONTENT, ANSWERS)
CASES = {case.name: case for oracles in ALL for case in oracles.cases.values()}


@pytest.fixture(scope="module", params=SEEDS)
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    with tables_of_episodes(request.param) as opened:
        yield opened


@pytest.fixture
def fresh() -> Iterator[Tables]:
    with tables_of_episodes(0) as opened:
        yield opened


@pytest.mark.parametrize("name", CASES)
def test_statement_does_what_its_oracle_computes(tables: Tables, name: str) -> None:
    CASES[name].check(tables)


def test_log_is_filled_by_instant_then_by_id(fresh: Tables) -> None:
    fresh.run("DELETE FROM slumberd_episode_log")
    fresh.run("DELETE FROM episodes WHERE id IS NULL OR timestamp = 'soon'")
    fresh.run("UPDATE episodes SET timestamp = '2026-01-02T00:00:00Z' WHERE id < 'e05'")
    fresh.run("UPDATE episodes SET timestamp = '2026-01-01T23:00:00-01:00' WHERE id = 'e03'")
    instants = {
        row.id: (instant_of(row.timestamp), row.timestamp, row.id) for row in fresh.episodes
    }

    fresh.run(statements("episode_log")["log_every_episode"])

    assert [row.eid for row in fresh.episode_log] == sorted(instants, key=lambda eid: instants[eid])


def instant_of(timestamp: str | bytes) -> datetime:
    text = timestamp.decode() if isinstance(timestamp, bytes) else timestamp
    return datetime.fromisoformat(text if text[19:] else f"{text}+00:00")


COLUMNS = ("rowid", "id", "scope_key", "content", "timestamp", "metadata")


@pytest.mark.parametrize("column", COLUMNS)
def test_log_notes_an_episode_of_which_one_column_changes(fresh: Tables, column: str) -> None:
    fresh.run(statements("episode_log")["create_update_trigger"])
    before = len(fresh.episode_log)

    fresh.run(f"UPDATE episodes SET {column} = {column} WHERE id = 'e03'")
    unchanged = len(fresh.episode_log)
    fresh.run(f"UPDATE episodes SET {column} = 900 WHERE id = 'e03'")

    (changed_row,) = (row for row in fresh.episodes if "900" in map(str, vars(row).values()))
    last = fresh.episode_log[-1]
    assert (unchanged, len(fresh.episode_log)) == (before, before + 1)
    assert (last.rid, last.eid) == (changed_row.rid, changed_row.id)


def test_log_notes_a_new_episode(fresh: Tables) -> None:
    fresh.run(statements("episode_log")["create_insert_trigger"])

    fresh.run("INSERT INTO episodes VALUES ('new', 'key', x'00', '2026', x'00')")

    last = fresh.episode_log[-1]
    assert (last.rid, last.eid) == (fresh.episodes[-1].rid, "new")


def test_log_follows_the_rowids_of_episodes(fresh: Tables) -> None:
    fresh.run("UPDATE episodes SET rowid = rowid + 100 WHERE id < 'e20'")
    rows = {row.id: row.rid for row in fresh.episodes}
    wanted = [
        (row.seq, row.rid and rows.get(row.eid, row.rid), row.eid) for row in fresh.episode_log
    ]

    assert fresh.rows_after("episode_log.renumber_log", (), "episode_log") == wanted


REWRITING = ("begin_rewriting", "is_renumbered", "rewriting_begun_at")
"""What `tests/storage/sqlite/test_rewriting.py` tests."""


def test_every_statement_has_an_oracle_or_a_test_of_its_own() -> None:
    left = {name for oracles in ALL[:4] for name in oracles.without_oracle()}
    schema = {name for name in left if name.startswith(("create_", "drop_"))}

    assert left - schema == {"objects", "log_every_episode", "renumber_log", *REWRITING}
