"""A wrong argument of a public call is an error of slumberd that names the remedy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from slumberd import (
    ConsolidationRule,
    EstimatedTokens,
    Fact,
    FactPattern,
    LadybugGraphStore,
    Linter,
    Memory,
    PostgresFactStore,
    PostgresMemoryStore,
    RuleBasedScorer,
    Searcher,
    SQLiteFactStore,
    SQLiteMemoryStore,
    SyncMemory,
)
from slumberd.client.transports import MOST_CALLS
from slumberd.model.errors import (
    FutureInstantError,
    MemoryScopeError,
    NoInputError,
    NotRunningError,
    RequestTooLargeError,
    SlumberdError,
    StoreError,
    UsageError,
)
from tests.support.builders import episode

pytestmark = pytest.mark.integration

Call = Callable[[Any], Any]

NESTED: dict[str, Any] = {}
_inner = NESTED
for _ in range(5_000):
    _inner["a"] = {}
    _inner = _inner["a"]
CYCLE: list[Any] = []
CYCLE.append(CYCLE)

MISTAKES: dict[str, tuple[Call, type[SlumberdError], str]] = {
    "no text": (lambda m: m.remember(None), UsageError, "text: text is needed, not null"),
    "bytes": (lambda m: m.remember(b"x"), UsageError, "cannot be written as JSON"),
    "half a character": (lambda m: m.remember("\ud800"), UsageError, "cannot be written as JSON"),
    "long text": (lambda m: m.remember("x" * 100_001), UsageError, "at most 100,000"),
    "no instant": (lambda m: m.remember("x", when="yesterday"), UsageError, "write a datetime"),
    "number for an instant": (lambda m: m.remember("x", when=5), UsageError, "5 is no instant"),
    "first instant": (
        lambda m: m.remember("x", when="0001-01-01T00:00+14:00"), UsageError, "is no instant",
    ),
    "last instant": (
        lambda m: m.remember("x", when="9998-12-31T00:00Z"), FutureInstantError, "still to come",
    ),
    "pair": (lambda m: m.remember("x", triples=[("a", "b")]), UsageError, "is no triple; write"),
    "six": (lambda m: m.remember("x", triples=[(1,) * 6]), UsageError, "is no triple; write"),
    "numbers": (lambda m: m.remember("x", triples=[(1, 2, 3)]), UsageError, "text is needed"),
    "no list": (lambda m: m.remember("x", triples=None), UsageError, "write a list of triples"),
    "intent": (
        lambda m: m.remember("x", triples=[("a", "b", "c", 1.0, "updat")]), UsageError,
        "did you mean 'update'",
    ),
    "metadata list": (lambda m: m.remember("x", metadata=[1]), UsageError, "write a dictionary"),
    "metadata text": (lambda m: m.remember("x", metadata="ab"), UsageError, "write a dictionary"),
    "metadata number": (lambda m: m.remember("x", metadata=5), UsageError, "write a dictionary"),
    "metadata set": (lambda m: m.remember("x", metadata={"a": {1}}), UsageError, "as JSON"),
    "metadata key": (lambda m: m.remember("x", metadata={1: 2}), UsageError, "must be str"),
    "metadata nested": (lambda m: m.remember("x", metadata=NESTED), UsageError, "too deep"),
    "metadata cycle": (lambda m: m.remember("x", metadata={"a": CYCLE}), UsageError, "Circular"),
    "metadata large": (
        lambda m: m.remember("x", metadata={"a": "x" * 5_000_000}), RequestTooLargeError,
        "at most 4,194,304",
    ),
    "many of nothing": (lambda m: m.put_many(None), UsageError, "write a list of dictionaries"),
    "many of a number": (lambda m: m.put_many(5), UsageError, "write a list of dictionaries"),
    "many of one": (
        lambda m: m.put_many({"text": "x"}), UsageError, "write a list of dictionaries",
    ),
    "many of a text": (lambda m: m.put_many("x"), UsageError, "write a list of dictionaries"),
    "many of texts": (lambda m: m.put_many(["x"]), UsageError, "is no episode; write"),
    "many with a number as key": (
        lambda m: m.put_many([{"text": "x", 5: 1}]), UsageError, "is no episode; write",
    ),
    "many with another's": (
        lambda m: m.put_many([{"text": "x", "user": "bob"}]), UsageError, "unknown key 'user'",
    ),
    "empty id": (lambda m: m.remember("x", id=""), UsageError, "id: text is needed, not ''"),
    "empty session": (lambda m: m.remember("x", session=""), UsageError, "session: text is"),
    "session of two lines": (
        lambda m: m.remember("x", session="a\nb"), MemoryScopeError,
        r"put in scope ('ada', 'a\nb', 'default'): session holds the control character",
    ),
    "no question": (lambda m: m.recall(""), UsageError, "the question is empty; write"),
    "blank question": (lambda m: m.recall(" \n"), UsageError, "the question is empty; write"),
    "unknown kind": (lambda m: m.recall("x", kinds="fakt"), UsageError, "'episode' or 'fact' is"),
    "no kind": (lambda m: m.recall("x", kinds=[]), UsageError, "at least one entry is needed"),
    "number for kinds": (lambda m: m.recall("x", kinds=5), UsageError, "'episode' or 'fact' is"),
    "null for kinds": (lambda m: m.recall("x", kinds=None), UsageError, "'episode' or 'fact' is"),
    "limit": (lambda m: m.recall("x", limit="5"), UsageError, "a whole number is needed"),
    "score": (lambda m: m.recall("x", min_score="high"), UsageError, "a number is needed"),
    "as of": (lambda m: m.recall("x", as_of=5), UsageError, "5 is no instant"),
    "budget": (lambda m: m.context("x", budget=1.5), UsageError, "a whole number is needed"),
    "skip": (lambda m: m.episodes(skip=-1), UsageError, "at least 0 is needed"),
    "cursor": (lambda m: m.facts(cursor="zzz"), UsageError, "is not a cursor"),
    "valid at": (lambda m: m.facts(valid_at="soon"), UsageError, "'soon' is no instant"),
    "correct nothing": (lambda m: m.correct(reason="r"), UsageError, "give the right object"),
    "no reason": (
        lambda m: m.correct(reason="", subject="a", predicate="b", object=1), UsageError, "reason",
    ),
    "retract": (
        lambda m: m.correct(reason="r", subject="a", predicate="b", retract="yes"), UsageError,
        "true or false is needed",
    ),
    "plan": (lambda m: m.forget(plan=5), UsageError, "plan: text is needed, not 5"),
    "explain": (lambda m: m.explain(None), UsageError, "id: text is needed, not null"),
    "explain unknown": (lambda m: m.explain("zz"), NoInputError, "'zz' does not exist"),
    "wait": (lambda m: m.wait_for("x", seconds="long"), UsageError, "a number is needed"),
    "wait for nothing": (lambda m: m.wait_for("x", seconds=None), UsageError, "a number is needed"),
}  # fmt: skip


async def refused(call: Any) -> str:
    """Return the class and the message of the error of slumberd that a call raises."""
    try:
        answer = await call if asyncio.iscoroutine(call) else call
    except SlumberdError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 # the test shows which
        return f"not of slumberd: {type(error).__name__}: {error}"
    return f"it works: {answer!r:.200}"


@pytest.mark.parametrize("way", ["in process", "by socket"])
async def test_mistake_in_a_call_is_an_error_with_its_remedy(tmp_path: Path, way: str) -> None:
    wrong = []

    async with Memory.open(tmp_path / "m", user="ada") as own:
        async with Memory.open(f"unix:{tmp_path / 'm'}", user="ada") as other:
            memory = own if way == "in process" else other
            for name, (call, error, says) in MISTAKES.items():
                found = await refused(call(memory))
                if not (issubclass_of(found, error) and says in found):
                    wrong.append(f"{name}: {found}")
        kept = await own.episodes()

    assert wrong == []
    assert kept == []


def issubclass_of(found: str, error: type[SlumberdError]) -> bool:
    """Return whether the class that a text begins with is an error, or one of its kind."""
    names = {error.__name__, *(each.__name__ for each in error.__subclasses__())}
    return found.partition(":")[0] in names


@pytest.mark.parametrize(
    ("given", "at"),
    [
        pytest.param("2026-01-01T12:00:00+01:00", datetime(2026, 1, 1, 11, tzinfo=UTC), id="text"),
        pytest.param("2026-01-01", datetime(2026, 1, 1).astimezone(), id="day"),
        pytest.param(date(2026, 1, 1), datetime(2026, 1, 1).astimezone(), id="date"),
        pytest.param("2026-01-01T12:00", datetime(2026, 1, 1, 12).astimezone(), id="local text"),
    ],
)
async def test_instant_may_be_a_text_or_a_date(tmp_path: Path, given: Any, at: datetime) -> None:
    async with Memory.open(tmp_path / "m", user="ada") as memory:
        await memory.remember("I moved to Oslo.", when=given)
        [stored] = await memory.episodes()
        before = await memory.context("Oslo", as_of=at - timedelta(days=1))

    assert stored.timestamp == at
    assert before.items == []


@pytest.mark.parametrize("kinds", ["fact", "facts", ["fact"], ("facts",), {"fact"}])
async def test_kinds_may_be_one_word_of_the_command_line_or_of_python(
    tmp_path: Path, kinds: Any
) -> None:
    async with Memory.open(tmp_path / "m", user="ada") as memory:
        put = await memory.remember("I live in Oslo.", triples=[("ada", "lives_in", "Oslo")])
        await memory.wait_for(put.id)

        found = await memory.recall("Oslo", kinds=kinds)

    assert {hit.kind for hit in found} == {"fact"}


@pytest.mark.parametrize(
    ("where", "says"),
    [
        pytest.param("", "names no directory; name a directory, unix: and", id="nothing"),
        pytest.param("unix:", "names no directory; name a directory, unix: and", id="no socket"),
        pytest.param("a\0b", "names no directory", id="NUL"),
        pytest.param(None, "None is no address; name a directory", id="null"),
        pytest.param(5, "5 is no address; name a directory", id="number"),
        pytest.param("{file}", "Not a directory; name a directory", id="file"),
        pytest.param("{file}/below", "name a directory", id="below a file"),
        pytest.param("x" * 5_000, "File name too long; name a directory", id="long"),
        pytest.param("ftp://host", "is no address; name a directory", id="scheme"),
        pytest.param("localhost:8750", "is no address; name a directory", id="no scheme"),
        pytest.param("10.0.0.1:8750/a", "is no address; name a directory", id="no scheme, path"),
        pytest.param("http:/host", "is no address; name a directory", id="one slash"),
        pytest.param("HTTPS:host", "is no address; name a directory", id="no slash"),
    ],
)
async def test_place_that_is_no_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    given = where.format(file=tmp_path / "file") if isinstance(where, str) else where

    with pytest.raises(UsageError) as caught:
        async with Memory.open(given, user="ada"):
            pass
    with pytest.raises(UsageError), SyncMemory.open(given, user="ada"):
        pass

    assert says in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("where", ["file", "x" * 5_000])
async def test_socket_that_cannot_be_says_that_no_daemon_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()

    async with Memory.open(f"unix:{where}", user="ada") as memory:
        with pytest.raises(NotRunningError, match="no slumberd runs on"):
            await memory.recall("x")


@pytest.mark.parametrize("part", ["user", "agent", "session"])
@pytest.mark.parametrize("value", ["", 5, ["x"], "a\nb"])
async def test_scope_of_a_memory_is_checked_when_it_opens(
    tmp_path: Path, part: str, value: Any
) -> None:
    scope: Mapping[str, Any] = {"user": "ada", part: value}

    with pytest.raises(MemoryScopeError, match=f"open in scope .*{part} "):
        async with Memory.open(f"unix:{tmp_path}", **scope):
            pass


@pytest.mark.parametrize("user", [None, "", 5, "a\nb"])
async def test_user_of_a_further_memory_is_checked_at_once(tmp_path: Path, user: Any) -> None:
    async with Memory.open(f"unix:{tmp_path}", user="ada") as memory:
        with pytest.raises(
            MemoryScopeError, match=r"for_user in scope .*(user is|control character)"
        ):
            memory.for_user(user)


async def test_directory_that_is_there_may_look_like_the_place_of_a_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "host:8750").mkdir()

    for where in ("host:8750", "./other:8750"):
        async with Memory.open(where, user="ada") as memory:
            assert await memory.episodes() == []


@pytest.mark.parametrize("address", ["{}", "unix:{}"])
async def test_several_event_loops_may_call_one_memory(tmp_path: Path, address: str) -> None:
    async with (
        Memory.open(tmp_path, user="ada"),
        Memory.open(address.format(tmp_path), user="ada") as memory,
    ):

        async def read_often() -> int:
            answers = await asyncio.gather(*(memory.episodes() for _ in range(2 * MOST_CALLS)))
            return len(answers)

        in_another = asyncio.to_thread(lambda: asyncio.run(read_often()))
        answers = await asyncio.gather(read_often(), in_another)
        assert set(answers) == {2 * MOST_CALLS}


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[tuple[SQLiteMemoryStore, SQLiteFactStore]]:
    async with (
        SQLiteMemoryStore(tmp_path / "memory.db") as memory,
        SQLiteFactStore(tmp_path / "facts.db") as facts,
    ):
        await memory.bootstrap()
        await facts.bootstrap()
        yield memory, facts


RULE = ConsolidationRule(id="r", cadence={"every": 1}, when_filter="", then_emits=["facts"])
BY = {"by": "ada", "reason": "so"}
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 # that is the mistake
ONE = episode("e1")
KNOWN = Fact(
    id="f1",
    user="ada",
    agent="desk",
    payload={"subject": "ada", "predicate": "likes", "object": "tea"},
    lineage=[
        {"rule_id": "r", "source_episode_ids": ["e1"], "promotion_ts": "2026-01-01T00:00:00Z"}
    ],
    confidence=1.0,
    pinned_at=datetime(2026, 1, 1, tzinfo=UTC),
)

OF_EPISODES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "put": (lambda s: s.put("x", user="u", session="s", agent="a"), "class Episode"),
    "put null": (lambda s: s.put(None, user="u", session="s", agent="a"), "class Episode"),
    "put many": (lambda s: s.put_many(ONE), "give a list of objects of the class Episode"),
    "put null many": (lambda s: s.put_many(None), "give a list of objects of the class Episode"),
    "put texts": (lambda s: s.put_many(["x"]), r"episodes[0] is 'x'; give an object"),
    "put a text": (lambda s: s.put_many("x"), "give a list of objects of the class Episode"),
    "recent": (lambda s: s.recent(5, limit=1), "user is 5, which is no text"),
    "recent of nobody": (lambda s: s.recent(None, limit=1), "user is None, which is no text"),
    "limit": (lambda s: s.recent("u", limit="1"), "limit is '1'; give a whole number"),
    "no limit": (lambda s: s.recent("u", limit=None), "limit is None; give a whole number"),
    "true": (lambda s: s.recent("u", limit=True), "limit is True; give a whole number"),
    "rule": (lambda s: s.consolidate("r"), "rule is 'r'; give an object of the class Cons"),
    "window": (lambda s: s.consolidate(RULE, window="x"), "window is 'x'; give an object of the"),
    "plan": (lambda s: s.migrate("x"), "plan is 'x'; give an object of the class MigrationPlan"),
}
OF_FACTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "query": (lambda s: s.query("x"), "pattern is 'x'; give an object of the class FactPattern"),
    "keys": (lambda s: s.query({"user": "u"}), "give an object of the class FactPattern"),
    "text for an instant": (
        lambda s: s.query(FactPattern(user="u"), valid_at="2026-01-01"),
        "valid_at is '2026-01-01'; give a datetime with a time zone",
    ),
    "no zone": (
        lambda s: s.query(FactPattern(user="u"), believed_at=NAIVE), "believed_at is datetime",
    ),
    "pin": (lambda s: s.pin({"id": "f"}), "give an object of the class Fact"),
    "unpin": (lambda s: s.unpin(["f"]), "fact_id is ['f']; give a text"),
    "delta": (lambda s: s.apply_delta("x"), "it is no delta"),
    "batch": (lambda s: s.apply_deltas(None), "batch is None; give an object of the class Delta"),
    "rule": (lambda s: s.next_window(None), "rule_id is None; give a text"),
    "limit": (lambda s: s.next_window("r", limit="x"), "limit is 'x'; give a whole number"),
    "correct": (lambda s: s.correct("x", **BY), "fact is 'x'; give an object of the class Fact"),
    "author": (lambda s: s.correct(KNOWN, by=None, reason="r"), "by is None; give a text"),
    "reason": (lambda s: s.correct(KNOWN, by="ada", reason=5), "reason is 5; give a text"),
    "retract": (lambda s: s.retract(["f"], **BY), "fact_ids is ['f']; give a text"),
    "why": (lambda s: s.why(5), "fact_id is 5; give a text"),
    "verify": (lambda s: s.verify(5), "against is 5; give a list"),
    "plan": (lambda s: s.migrate(None), "plan is None; give an object of the class MigrationPlan"),
}  # fmt: skip


OF_SEARCHES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "query": (lambda s: s.search(None, user="u"), "query is None; give a text"),
    "user": (lambda s: s.search("x", user=None), "user is None, which is no text"),
    "kinds": (lambda s: s.search("x", user="u", kinds=5), "kinds is 5; give a list"),
    "kind": (lambda s: s.search("x", user="u", kinds="dog"), "kind 'dog' is unknown; the kinds"),
    "limit": (lambda s: s.search("x", user="u", limit="5"), "limit is '5'; give a whole number"),
    "as of": (lambda s: s.search("x", user="u", as_of="2026"), "give a datetime with a time zone"),
    "question": (lambda s: s.context(5, user="u"), "question is 5; give a text"),
    "budget": (lambda s: s.context("x", user="u", budget=None), "budget is None; give a whole"),
    "no zone": (lambda s: s.context("x", user="u", as_of=NAIVE), "give a datetime with a time zo"),
    "about": (lambda s: s.facts_about(None, user="u"), "question is None; give a text"),
    "profile": (lambda s: s.profile(user="u", budget="x"), "budget is 'x'; give a whole number"),
}


async def test_mistake_in_a_call_of_a_searcher_is_an_error_with_its_remedy(
    stores: tuple[SQLiteMemoryStore, SQLiteFactStore],
) -> None:
    searcher, wrong = Searcher(*stores), []

    for name, (call, says) in OF_SEARCHES.items():
        found = await refused(call(searcher))
        if found.startswith(("it works", "not of slumberd")) or says not in found:
            wrong.append(f"{name}: {found}")

    assert wrong == []


async def test_mistake_in_a_call_of_a_store_is_an_error_with_its_remedy(
    stores: tuple[SQLiteMemoryStore, SQLiteFactStore],
) -> None:
    wrong = []

    for store, calls in zip(stores, (OF_EPISODES, OF_FACTS), strict=True):
        for name, (call, says) in calls.items():
            found = await refused(call(store))
            if found.startswith(("it works", "not of slumberd")) or says not in found:
                wrong.append(f"{name}: {found}")

    assert wrong == []


async def test_file_of_a_store_with_nul_cannot_be_opened() -> None:
    async with SQLiteMemoryStore("a\0b") as memory:
        with pytest.raises(StoreError, match=r"cannot be opened: the path holds NUL"):
            await memory.recent("u", limit=1)


@pytest.mark.parametrize("kind", [SQLiteMemoryStore, SQLiteFactStore, LadybugGraphStore])
@pytest.mark.parametrize("path", ["", None, 5])
def test_file_of_a_store_needs_a_path(kind: Any, path: Any) -> None:
    with pytest.raises(UsageError, match=r"is no path of a file; give a text or a Path"):
        kind(path)


@pytest.mark.parametrize("kind", [PostgresMemoryStore, PostgresFactStore])
@pytest.mark.parametrize("address", ["", None, 5, "mysql://x"])
def test_database_of_a_store_needs_an_address(kind: Any, address: Any) -> None:
    with pytest.raises(UsageError, match=r"an? address of a database|begins with 'postgresql://'"):
        kind(address)


async def test_pattern_and_scorer_refuse_plain_values() -> None:
    scorer: Any = RuleBasedScorer()
    tokens: Any = EstimatedTokens()
    pattern: Any = FactPattern(user="u")

    with pytest.raises(UsageError, match="give an object of the class Fact"):
        pattern.following("x")
    with pytest.raises(UsageError, match="give an object of the class SalienceContext"):
        await scorer.score(ONE, None)
    with pytest.raises(UsageError, match="text is 5; give a text"):
        tokens.count_tokens(5)


def test_linter_refuses_plain_values() -> None:
    kind: Any = Linter

    with pytest.raises(UsageError, match="procedures is 5; give a list"):
        kind(5)
    with pytest.raises(UsageError, match="cypher is None; give a text"):
        kind().requires_write(None)
