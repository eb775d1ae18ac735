"""Rules of kind ``graph`` in the daemon and on the command line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.firing import FireRequest
from slumberd.model.errors import FiringTimeoutError, GraphStoreError, PromotionError
from slumberd.model.fact import FactPattern
from slumberd.model.firing import START as BEGINNING
from slumberd.model.graph import ResultSet
from slumberd.model.rule import ConsolidationRule
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from slumberd.workers.graph.ladybug_store import LadybugGraphStore
from slumberd.workers.graph.promotion import Promoter
from tests.support.builders import START, rule, triple
from tests.support.catalogue_check import problems_of_lines
from tests.support.daemons import Home
from tests.support.fakes import FakeClock, FakeDeltaLog
from tests.support.graph_stores import QUERY, FakeGraphStore, row
from tests.support.installation import jsonl

pytestmark = pytest.mark.integration

NIGHTLY = {"cron": "0 3 * * *"}


def graph_rule(id: str = "team", **fields: Any) -> ConsolidationRule:
    given = {"kind": "graph", "filter_cypher": QUERY, "user": "alice", "agent": "rag"}
    return rule(id, **({"cadence": NIGHTLY, "when_filter": "0"} | given | fields))


def write_rule(home: Home, id: str = "team", **fields: Any) -> None:
    given = {"kind": "graph", "filter_cypher": QUERY, "user": "alice", "agent": "rag"}
    written = {"id": id, "cadence": NIGHTLY, **given, **fields}
    (home.rules / f"{id}.yaml").write_bytes(orjson.dumps({"rules": [written]}))


def fill(path: Path, *triples: tuple[str, str, str], confidence: float = 1.0) -> None:
    async def write() -> None:
        graph = LadybugGraphStore(path)
        await graph.bootstrap()
        for parts in triples:
            await graph.add_triple(*parts, confidence=confidence)
        await graph.close()

    asyncio.run(write())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path, {"graph": {"path": "graph.lbug"}})
    found.state.mkdir()
    fill(found.state / "graph.lbug", ("alice", "likes", "tea"), ("alice", "works_at", "Acme"))
    write_rule(found)
    return found


def events(text: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in text.splitlines() if line.startswith("{")]


def objects(home: Home) -> set[object]:
    return {fact["payload"]["object"] for fact in home.facts()}


@pytest.mark.slow
def test_commands_fire_explain_and_undo_a_graph_rule(home: Home) -> None:
    assert home.call("check").stdout.startswith("valid: 1 rule in 1 file: team")

    fired = home.call("fire", "team", "--verbose")

    assert objects(home) == {"tea", "Acme"}
    lines = events(fired.stderr)
    assert problems_of_lines(fired.stderr.encode().splitlines()) == []
    (promoted,) = (line for line in lines if line["event"] == "graph.promoted")
    assert (promoted["rows"], promoted["added"], promoted["withheld"]) == (2, 2, {})
    assert [line["event"] for line in lines].count("delta.applied") == 2
    firing = promoted["firing_id"]
    assert firing == "@graph/team@1"

    again = home.call("fire", "team")
    assert "nothing was pending" in again.stdout

    fact = home.facts("--predicate", "likes")[0]["id"]
    why = home.call("why", fact).stdout
    assert "alice likes tea" in why
    assert firing in why
    assert "rule:team" in why

    home.call("undo", firing)
    assert home.facts() == []
    assert "@graph/team@1 was undone" in home.call("why", fact).stdout
    home.call("fire", "team")
    assert home.facts() == []
    assert home.call("audit", "verify").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("by", ["run", "since"])
def test_undo_finds_a_graph_rule_by_run_or_by_name(home: Home, by: str) -> None:
    fired = orjson.loads(home.call("fire", "team", "--json").stdout)
    words = {"run": ["--run", fired["run"]], "since": ["team", "--since", "2026-01-01"]}

    undone = orjson.loads(home.call("undo", *words[by], "--json").stdout)

    assert undone["undone"] == ["@graph/team@1"]
    assert home.facts() == []


@pytest.mark.slow
def test_dry_run_reports_the_deltas_of_the_firing_that_follows(home: Home) -> None:
    (home.folder / "episodes.jsonl").write_bytes(jsonl(triple("e1", "bob", "likes", "mate")))
    home.call("import", home.folder / "episodes.jsonl")
    dry = orjson.loads(home.call("fire", "team", "--dry-run", "--json").stdout)

    assert not (home.state / "facts.db").exists()
    (report,) = dry["reports"]
    assert [delta["kind"] for delta in report["deltas"]] == ["add", "add"]
    home.call("fire", "team")
    assert objects(home) == {"tea", "Acme"}


@pytest.mark.slow
def test_rules_status_and_next_show_a_graph_rule_without_pending_episodes(home: Home) -> None:
    home.rule("tea", cadence={"every": 1})
    (home.folder / "episodes.jsonl").write_bytes(jsonl(triple("e1", "bob", "likes", "mate")))
    home.call("import", home.folder / "episodes.jsonl")
    home.call("fire", "team")

    rules = {line["id"]: line for line in events(home.call("rules", "--json").stdout)}
    assert (rules["team"]["kind"], rules["team"]["pending"]) == ("graph", None)
    assert rules["tea"]["pending"] == 1
    assert rules["team"]["fired_at"] is not None
    assert rules["team"]["last_success"] is not None
    assert rules["team"]["last_outcome"]["added"] == 2
    assert "MATCH (s:Entity)" in home.call("rules").stdout
    assert "team" in home.call("status").stdout
    assert "03:00" in home.call("next", "team").stdout
    assert home.call("rules", "--removed", "--json").stdout == ""
    assert "team" not in home.call("why-not", "e1").stdout
    assert "team" not in home.call("check", "--against-data").stdout.split("\n", 1)[1]


@pytest.mark.parametrize(
    "words",
    [
        ("backfill", "team"),
        ("quarantine", "retry", "--rule", "team"),
        ("diff", "rules.d", "--rule", "team"),
    ],
)
def test_command_about_episodes_refuses_a_graph_rule(home: Home, words: Any) -> None:
    (home.folder / "episodes.jsonl").write_bytes(jsonl(triple("e1", "bob", "likes", "mate")))
    home.call("import", home.folder / "episodes.jsonl")
    command = [str(home.rules) if word == "rules.d" else word for word in words]

    refused = home.call(*command, check=False)

    assert refused.returncode == 64
    assert "rule 'team' is of kind graph and reads no episodes" in refused.stderr
    assert "`slumberd fire team`" in refused.stderr


def test_command_about_all_rules_skips_a_graph_rule(home: Home) -> None:
    home.rule("tea", cadence={"every": 1})
    (home.folder / "episodes.jsonl").write_bytes(jsonl(triple("e1", "bob", "likes", "mate")))
    home.call("import", home.folder / "episodes.jsonl")

    assert home.call("quarantine", "retry").returncode == 0
    assert home.call("diff", home.rules).returncode == 0


@pytest.mark.parametrize("named", [True, False])
def test_test_file_refuses_a_graph_rule(home: Home, named: bool) -> None:
    case_episode = {"id": "e1", "subject": "a", "predicate": "b", "object": "c"}
    case = {"name": "x", "episodes": [case_episode], "expect": {"facts": []}}
    case |= {"rules": ["team"]} if named else {}
    (home.rules / "team.test.yaml").write_bytes(orjson.dumps({"tests": [case]}))

    refused = home.call("test", check=False)

    assert refused.returncode == 78
    assert "team reads no episodes, but a graph" in refused.stderr


def test_missing_graph_is_reported_with_a_remedy(home: Home) -> None:
    (home.state / "graph.lbug").unlink()

    refused = home.call("fire", "team", check=False)

    assert refused.returncode == 74
    assert "the file does not exist; check 'graph.path'" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_graph_rule_without_a_configured_graph_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path)
    write_rule(home)

    refused = home.call("check", check=False)

    assert refused.returncode == 78
    assert "rules[0].kind: there is no graph to promote" in refused.stdout


@pytest.mark.nightly
def test_daemon_fires_graph_rules_by_cron_although_another_rule_fails(home: Home) -> None:
    home.rule("tea", cadence={"every": 1})
    write_rule(home, "broken", filter_cypher="MATCH (n:Nowhere) RETURN n.x AS subject")
    asyncio.run(_set_last_served_long_ago(home, "team", "broken"))

    with home.daemon() as daemon:
        promoted = daemon.wait_for("graph.promoted")
        failed = daemon.wait_for("firing.failed", lambda line: line["rule_id"] == "broken")
        (home.folder / "episodes.jsonl").write_bytes(jsonl(triple("e1", "bob", "likes", "mate")))
        home.call("import", home.folder / "episodes.jsonl")
        daemon.wait_for("firing.completed", lambda line: line["rule_id"] == "tea")
        assert objects(home) == {"tea", "Acme", "mate"}
        again = home.call("fire", "team")
        assert "nothing was pending" in again.stdout
    assert promoted["rule_id"] == "team"
    assert (failed["error"], failed["retry_seconds"] is not None) == ("GraphStoreError", True)


async def _set_last_served_long_ago(home: Home, *rules: str) -> None:
    async with SQLiteFactStore(home.state / "facts.db") as facts:
        await facts.bootstrap()
        for rule_id in rules:
            await facts.watermarks.begin(rule_id, BEGINNING, served=START - timedelta(days=400))
    async with SQLiteMemoryStore(home.state / "memory.db") as memory:
        await memory.bootstrap()


class SlowGraph(FakeGraphStore):
    """Answers after the test has set `may_go_on`."""

    def __init__(self, *rows: Mapping[str, Any]) -> None:
        super().__init__(*rows)
        self.begun, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def query(self, cypher: str, params: Mapping[str, Any] | None = None) -> ResultSet:
        self.begun.set()
        await self.may_go_on.wait()
        return await super().query(cypher, params)


@pytest.fixture
async def facts(tmp_path: Path) -> AsyncIterator[SQLiteFactStore]:
    async with SQLiteFactStore(tmp_path / "f.db", synchronous="normal", clock=FakeClock()) as store:
        await store.bootstrap()
        yield store


def promoter(
    facts: SQLiteFactStore, graph: FakeGraphStore, log: FakeDeltaLog | None = None
) -> Promoter:
    clock = FakeClock()
    memory = SQLiteMemoryStore(facts.path.with_name("memory.db"))
    consolidator = Consolidator(memory, facts, log or FakeDeltaLog(), clock, batch=10)
    return Promoter(lambda: graph, facts, consolidator, clock)


async def test_firing_counts_every_row(facts: SQLiteFactStore) -> None:
    rows = [row("a", "is", "x", triple_id=str(n)) for n in range(3)] + [row("b", "is", "y")]
    graph, log = FakeGraphStore(*rows), FakeDeltaLog()

    report = await promoter(facts, graph, log).fire(
        FireRequest(graph_rule(), "cron", START, by="uid 1000", reason="it was late")
    )

    (counts,) = report.channels.values()
    assert (counts.read, counts.added, counts.noop) == (4, 4, 0)
    assert report.firing_ids == ["@graph/team@1"]
    assert graph.closed == 1
    assert [record.kind for record in log.lines] == ["add"] * 4
    explained = await facts.why((await facts.query(FactPattern()))[0].id)
    assert {line.row.by for line in explained.assertions} == {"rule:team, uid 1000"}
    assert {line.row.trigger for line in explained.assertions} == {"cron"}
    assert {line.row.firing_reason for line in explained.assertions} == {"it was late"}


async def test_facts_go_to_the_channel_of_the_rule(facts: SQLiteFactStore) -> None:
    graph = FakeGraphStore(row("a", "is", "x"))

    report = await promoter(facts, graph).fire(
        FireRequest(graph_rule(then_emits=["org"]), "cron", START)
    )

    (fact,) = await facts.query(FactPattern())
    assert fact.id.startswith("@org/graph:")
    assert list(report.channels) == ["org"]


async def test_stop_cancels_the_query_and_promotes_nothing(facts: SQLiteFactStore) -> None:
    graph, stop = SlowGraph(row("a", "is", "x")), asyncio.Event()
    firing = asyncio.ensure_future(
        promoter(facts, graph).fire(FireRequest(graph_rule(), "cron", START, stop=stop))
    )
    await graph.begun.wait()

    stop.set()
    report = await firing

    assert (report.cut_short, report.firing_ids, graph.closed) == (True, [], 1)
    assert await facts.reads.ledger_rows() == 0


async def test_firing_that_is_not_stopped_is_not_delayed(facts: SQLiteFactStore) -> None:
    graph, stop = FakeGraphStore(row("a", "is", "x")), asyncio.Event()

    report = await promoter(facts, graph).fire(FireRequest(graph_rule(), "cron", START, stop=stop))

    assert (report.cut_short, len(report.firing_ids)) == (False, 1)


async def test_firing_that_exceeds_the_timeout_of_its_rule_fails(
    facts: SQLiteFactStore,
) -> None:
    graph = SlowGraph(row("a", "is", "x"))

    with pytest.raises(FiringTimeoutError, match=r"timeout of 0\.05 s"):
        await promoter(facts, graph).fire(FireRequest(graph_rule(timeout=0.05), "cron", START))

    assert graph.closed == 1
    assert await facts.reads.ledger_rows() == 0


async def test_graph_that_fails_is_closed_and_nothing_is_promoted(
    facts: SQLiteFactStore,
) -> None:
    graph = FakeGraphStore(row("a", "is", "x"))
    graph.fails = True

    with pytest.raises(GraphStoreError, match="not available"):
        await promoter(facts, graph).fire(FireRequest(graph_rule(), "cron", START))

    assert graph.closed == 1


async def test_incomplete_row_is_refused_with_its_rule(facts: SQLiteFactStore) -> None:
    graph = FakeGraphStore(row("a", "is", None))

    with pytest.raises(PromotionError, match="rule 'team': row 1 of the graph's answer: 'object'"):
        await promoter(facts, graph).fire(FireRequest(graph_rule(), "cron", START))


async def test_preview_reports_the_rows_that_a_firing_would_write(facts: SQLiteFactStore) -> None:
    graph = FakeGraphStore(row("a", "is", "x"))

    report = await promoter(facts, graph).preview(graph_rule(), START)

    assert [record.kind for record in report.records] == ["firing", "add"]
    assert (report.dry_run, report.firing_ids) == (True, [])
    assert await facts.reads.ledger_rows() == 0
