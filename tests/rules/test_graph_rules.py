"""Rules of kind graph: their keys, and the place of every mistake."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from slumberd.daemon.rules import make_cypher_check
from slumberd.model.errors import ConfigurationError, ExtraMissingError
from slumberd.model.rule import ConsolidationRule, Cron
from slumberd.rules.rule_loader import CheckCypher, RuleSet, load_rules
from tests.support.builders import rule

pytestmark = pytest.mark.unit

QUERY = "MATCH (s)-[f]->(o) RETURN s.name AS subject, f.predicate AS predicate, o.name AS object"
TEAM = f"""
rules:
  - id: team
    kind: graph
    cadence: {{cron: "0 3 * * *"}}
    filter_cypher: "{QUERY}"
    user: alice
    agent: rag
"""


def _accept(*_: str) -> None:
    """Check nothing."""


def _load(directory: Path, text: str, check: CheckCypher | None = None) -> RuleSet:
    (directory / "a.yaml").write_text(textwrap.dedent(text).lstrip())
    return load_rules(
        directory,
        check_filter=_accept,
        check_cron=_accept,
        timezone="UTC",
        check_cypher=check or make_cypher_check(graph=True),
    )


def _mistakes(directory: Path, text: str, check: CheckCypher | None = None) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        _load(directory, text, check)
    return [str(mistake).removeprefix(f"{directory}/") for mistake in caught.value.mistakes]


def test_graph_rule_has_a_cron_cadence_an_owner_and_a_query(tmp_path: Path) -> None:
    (team,) = _load(tmp_path, TEAM).rules

    assert not team.reads_episodes
    assert (team.filter_cypher, team.user, team.agent) == (QUERY, "alice", "rag")
    assert (team.then_emits, team.due) == (["facts"], Cron("0 3 * * *"))


def test_graph_rule_selects_no_episode(tmp_path: Path) -> None:
    rules = _load(tmp_path, TEAM)

    assert rules.rules[0].when_filter == "0"
    assert rules.of_episodes().rules == ()


def test_rule_without_kind_reads_episodes_and_keeps_its_hash() -> None:
    plain = rule("tea")

    assert plain.reads_episodes
    assert plain.content_hash == rule("tea", kind="episodes").content_hash
    assert plain.content_hash == "69fa2d996b6ab84b"


@pytest.mark.parametrize(
    ("was", "now", "mistake"),
    [
        ("user: alice", "", "a.yaml:2:5: rules[0]: key 'user' is missing"),
        ("agent: rag", "", "a.yaml:2:5: rules[0]: key 'agent' is missing"),
        ("filter_cypher", "filter_cyphr", "did you mean 'filter_cypher'?"),
        ("user: alice", "user: ''", "a.yaml:6:11: rules[0].user: it is empty"),
        ("user: alice", 'user: "a\\tb"', "a.yaml:6:11: rules[0].user: it holds the control"),
        ("user: alice", "user: 5", "rules[0].user: text is needed, not 5"),
        ("kind: graph", "kind: grph", "'episodes' or 'graph' is needed, not 'grph'"),
        ('cron: "0 3 * * *"', "every: 5", "4:14: rules[0].cadence: a rule of kind 'graph'"),
        ("agent: rag", "agent: rag\n    when_filter: ''", "unknown key 'when_filter'"),
        ("agent: rag", "agent: rag\n    start: now", "unknown key 'start'"),
        ("agent: rag", "agent: rag\n    limits: {max_deletes: 1}", "unknown key 'limits'"),
        ("agent: rag", "agent: rag\n    then_emits: [a, b]", "exactly one channel is needed, not"),
        ("agent: rag", "agent: rag\n    then_emits: []", "exactly one channel is needed, not 0"),
    ],
)  # fmt: skip
def test_loader_reports_a_mistake_in_a_graph_rule_with_its_place(
    tmp_path: Path, was: str, now: str, mistake: str
) -> None:
    found = _mistakes(tmp_path, TEAM.replace(was, now, 1))

    assert mistake in "\n".join(found)


def test_keys_of_a_graph_rule_are_unknown_in_an_episode_rule(tmp_path: Path) -> None:
    text = """
    rules:
      - {id: tea, cadence: {every: 1}, when_filter: "", then_emits: [facts], user: alice}
    """

    (mistake,) = _mistakes(tmp_path, text)

    assert mistake.startswith("a.yaml:2:74: rules[0].user: unknown key 'user'; known are id, ")


@pytest.mark.parametrize(
    ("query", "mistake"),
    [
        ("MATCH (a) RETURN my.fn(a)", "5:38: rules[0].filter_cypher: unknown-function: 'my.fn'"),
        ("MATCH (a)", "5:20: rules[0].filter_cypher: write-in-promotion: only queries that read"),
        (
            "MATCH (a) DELETE a",
            "5:31: rules[0].filter_cypher: write-in-promotion: only queries that read",
        ),
        ("DROP INDEX foo", "5:21: rules[0].filter_cypher: schema-change"),
        ("CALL a.b()", "5:26: rules[0].filter_cypher: unknown-procedure"),
    ],
)
def test_loader_reports_a_mistake_in_a_query_with_its_place(
    tmp_path: Path, query: str, mistake: str
) -> None:
    found = _mistakes(tmp_path, TEAM.replace(QUERY, query))

    assert mistake in "\n".join(found)


def test_loader_reports_a_mistake_in_a_query_of_several_lines_with_its_line(tmp_path: Path) -> None:
    block = f'filter_cypher: "{QUERY}"'
    text = TEAM.replace(block, "filter_cypher: |\n      MATCH (a)\n      RETURN my.fn(a)")

    (mistake,) = _mistakes(tmp_path, text)

    assert mistake.startswith("a.yaml:7:14: rules[0].filter_cypher: unknown-function")


def test_graph_rule_without_a_configured_graph_is_a_mistake(tmp_path: Path) -> None:
    (mistake,) = _mistakes(tmp_path, TEAM, make_cypher_check(graph=False))

    assert mistake == (
        "a.yaml:3:11: rules[0].kind: there is no graph to promote; set 'graph.path' in the"
        " configuration"
    )


def _missing(_: str) -> None:
    raise ExtraMissingError("graph", "Cypher cannot be read")


def test_loader_reports_the_extra_that_a_graph_rule_needs(tmp_path: Path) -> None:
    (mistake,) = _mistakes(tmp_path, TEAM, _missing)

    assert mistake == (
        "a.yaml:3:11: rules[0].kind: Cypher cannot be read: install it with `pip install"
        " 'slumberd[graph]'`"
    )


@pytest.mark.parametrize("check", [_missing, make_cypher_check(graph=False)])
def test_disabled_graph_rule_needs_neither_graph_nor_extra(
    tmp_path: Path, check: CheckCypher
) -> None:
    rules = _load(tmp_path, TEAM + "    enabled: false\n", check)

    assert [each.enabled for each in rules.rules] == [False]


def test_hash_of_a_graph_rule_covers_every_key(tmp_path: Path) -> None:
    (team,) = _load(tmp_path, TEAM).rules
    others = [
        team.model_copy(update={key: "other"}) for key in ("filter_cypher", "user", "agent", "id")
    ]

    assert len({variant.content_hash for variant in (team, *others)}) == 5
    assert isinstance(team, ConsolidationRule)
