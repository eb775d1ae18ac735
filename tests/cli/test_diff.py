"""`slumberd diff`: the changes that candidate rules would make, computed on a copy."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from slumberd.clock import SystemClock
from slumberd.daemon.tenure import StateLock
from tests.support.builders import at, triple
from tests.support.trial_installation import TrialInstallation, rule, rules

pytestmark = pytest.mark.integration

TEA = triple("e1", "ada", "likes", "tea", timestamp=at(1))
COFFEE = triple("e2", "ada", "likes", "coffee", timestamp=at(2))
PORTO = triple("e3", "ada", "lives_in", "Porto", timestamp=at(3))
BOB = triple("e4", "bob", "likes", "rum", timestamp=at(4), user="bob")
ODD = triple("e5", "ada", "lives_in", "x", timestamp=at(5), metadata={"intent": "shout"})

LIKES = rule("likes", "predicate = 'likes'")
NO_COFFEE = rule("likes", "predicate = 'likes' AND object != 'coffee'")
ALL = rule("likes", "")
LIVES = rule("lives", "predicate = 'lives_in'")


@pytest.fixture
def trial(tmp_path: Path) -> TrialInstallation:
    """Return a site where coffee and rum are liked; the candidate is the same."""
    trial = TrialInstallation(tmp_path, rules(LIKES))
    trial.put(TEA, COFFEE, PORTO, BOB)
    trial.fire()
    return trial


def only_rule(summary: dict[str, Any]) -> dict[str, Any]:
    (found,) = summary["rules"]
    return dict(found)


def totals(summary: dict[str, Any]) -> tuple[int, ...]:
    return tuple(summary[name] for name in ("appear", "change", "disappear", "stay", "support"))


@pytest.mark.slow
def test_diff_of_the_same_rules_shows_no_change(trial: TrialInstallation) -> None:
    changes, summary = trial.diff()

    assert changes == []
    assert totals(summary) == (0, 0, 0, 2, 0)
    assert only_rule(summary)["change"] == "unchanged"


@pytest.mark.slow
def test_diff_backfills_a_rule_with_a_changed_filter(trial: TrialInstallation) -> None:
    trial.candidate.write_text(rules(NO_COFFEE))

    changes, summary = trial.diff()

    assert changes == [("changes", "e2", "e1")]
    assert totals(summary) == (0, 1, 0, 1, 0)
    assert only_rule(summary)["backfilled"]


@pytest.mark.slow
def test_diff_of_an_added_rule_shows_new_facts_and_new_support(
    trial: TrialInstallation,
) -> None:
    trial.candidate.write_text(rules(LIKES, LIVES, rule("rum", "object = 'rum'")))

    changes, summary = trial.diff()

    assert changes == [("appears", None, "e3"), ("supported", "e4", "e4")]
    assert totals(summary) == (1, 0, 0, 2, 1)


@pytest.mark.slow
def test_diff_consolidates_pending_episodes_on_both_sides(trial: TrialInstallation) -> None:
    trial.put(triple("e9", "ada", "likes", "milk", timestamp=at(9)))
    trial.candidate.write_text(rules(LIKES, LIVES))

    changes, _ = trial.diff()

    assert changes == [("appears", None, "e3")]


@pytest.mark.path
def test_facts_of_a_removed_rule_stay_and_are_counted(trial: TrialInstallation) -> None:
    trial.rules.write_text(rules(LIKES, rule("rum", "object = 'rum'"), LIVES))
    trial.candidate.write_text(rules(LIKES))

    changes, summary = trial.diff()

    assert changes == []
    resting = {given_rule["rule_id"]: given_rule["resting"] for given_rule in summary["rules"]}
    assert resting == {"likes": 0, "lives": 1, "rum": 0}
    shown = trial.look("diff", str(trial.candidate.parent)).stdout
    assert "1 fact comes from it alone, and stays" in shown


@pytest.mark.slow
def test_facts_in_a_channel_that_a_rule_no_longer_uses_stay(trial: TrialInstallation) -> None:
    trial.rules.write_text(rules(rule("likes", "predicate = 'likes'", "facts", "notes")))

    changes, _ = trial.diff()

    assert changes == []
    assert "into notes stays" in trial.look("diff", str(trial.candidate.parent)).stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "field"),
    [
        pytest.param({"cadence": "{every: 50}"}, "cadence", id="cadence"),
        pytest.param({"limits": "{max_deletes: 1}"}, "limits", id="limits"),
        pytest.param({"enabled": "false"}, "enabled", id="disabled"),
    ],
)
def test_diff_of_a_key_without_effect_on_facts_shows_no_change(
    trial: TrialInstallation, keys: dict[str, str], field: str
) -> None:
    trial.candidate.write_text(rules(rule("likes", "predicate = 'likes'", **keys)))

    changes, summary = trial.diff()

    assert changes == []
    assert (only_rule(summary)["fields"], only_rule(summary)["fired"]) == ([field], False)
    assert "changes no fact" in trial.look("diff", str(trial.candidate.parent)).stdout


def test_changed_rule_that_is_disabled_changes_no_fact(trial: TrialInstallation) -> None:
    trial.candidate.write_text(rules(rule("likes", "", enabled="false")))

    assert trial.diff()[0] == []


@pytest.mark.slow
def test_diff_fires_a_rule_that_the_candidate_enables(trial: TrialInstallation) -> None:
    off = rule("lives", "predicate = 'lives_in'", enabled="false")
    trial.rules.write_text(rules(LIKES, off))
    trial.candidate.write_text(rules(LIKES, LIVES))

    assert trial.diff()[0] == [("appears", None, "e3")]


@pytest.mark.slow
def test_keys_of_a_predicate_that_becomes_multi_valued_are_resolved_again(
    trial: TrialInstallation,
) -> None:
    trial.candidate.write_text(rules(LIKES, multi_valued="likes"))

    changes, summary = trial.diff()

    assert changes == [("appears", None, "e1")]
    assert summary["multi_valued"] == {"facts": {"in_force": [], "candidate": ["likes"]}}
    shown = trial.look("diff", str(trial.candidate.parent)).stdout
    assert "channel facts: multi_valued: [] -> multi_valued: [likes]" in shown


@pytest.mark.slow
def test_fact_that_a_person_retracted_or_replaced_does_not_appear(trial: TrialInstallation) -> None:
    trial.do("unpin", facts=["e4"], reason="he never said that")
    triple_of_fact = {"subject": "ada", "predicate": "lives_in", "object": "Rome"}
    trial.do("pin", user="alice", agent="rag", reason="she moved", **triple_of_fact)
    trial.candidate.write_text(rules(ALL))

    changes, summary = trial.diff()

    assert changes == []
    assert totals(summary)[3] == 2


@pytest.mark.slow
def test_undone_facts_appear_only_when_their_rule_is_backfilled(
    trial: TrialInstallation,
) -> None:
    (last,) = [row["firing_id"] for row in trial.lines("audit", "ls", "--kind", "firing")]
    trial.do("undo", firing=last)
    trial.candidate.write_text(rules(LIKES, LIVES))
    assert trial.diff()[0] == [("appears", None, "e3")]

    trial.candidate.write_text(rules(rule("likes", "predicate = 'likes' OR 1 = 2")))

    assert trial.diff()[0] == [("appears", None, "e2"), ("appears", None, "e4")]


@pytest.mark.slow
def test_unreadable_episode_does_not_appear_as_a_fact(trial: TrialInstallation) -> None:
    trial.put(ODD)
    trial.candidate.write_text(rules(LIKES, LIVES))

    assert trial.diff()[0] == [("appears", None, "e3")]


@pytest.mark.slow
def test_rows_of_another_program_are_evaluated_on_both_sides(trial: TrialInstallation) -> None:
    with closing(sqlite3.connect(trial.state / "facts.db")) as connection:
        connection.execute("DELETE FROM facts WHERE fact_id = 'e4'")
        # When the daemon reads this row, its fact replaces e2.
        connection.execute(
            "INSERT INTO facts SELECT 'x9', user, agent, replace(payload, 'coffee', 'gin'),"
            " lineage, confidence, metadata, ? FROM facts WHERE fact_id = 'e2'",
            (at(0).isoformat(),),
        )
        connection.commit()
    trial.candidate.write_text(rules(LIKES, LIVES))

    assert trial.diff()[0] == [("appears", None, "e3")]


@pytest.mark.slow
def test_diff_compares_unreadable_values(trial: TrialInstallation) -> None:
    with closing(sqlite3.connect(trial.state / "facts.db")) as connection:
        connection.execute("UPDATE facts SET payload = x'ff00', lineage = x'00'")
        connection.commit()
    trial.candidate.write_text(rules(LIKES, LIVES))

    assert trial.diff()[0] == [("appears", None, "e3")]


@pytest.mark.slow
def test_fact_with_another_object_under_the_same_id_changes(trial: TrialInstallation) -> None:
    triple_of_fact = {"subject": "ada", "predicate": "plays", "object": "go"}
    trial.do("pin", user="alice", agent="rag", reason="she moved", id="e7", **triple_of_fact)
    later = SystemClock().now() + timedelta(minutes=2)
    trial.put(triple("e7", "ada", "plays", "chess", timestamp=later))
    trial.candidate.write_text(rules(LIKES, rule("plays", "predicate = 'plays'")))

    assert trial.diff()[0] == [("changes", "e7", "e7")]
    assert "go -> chess" in trial.look("diff", str(trial.candidate.parent)).stdout


@pytest.mark.slow
def test_fact_does_not_replace_a_fact_of_another_user(trial: TrialInstallation) -> None:
    eve = triple("e8", "ada", "likes", "coffee", timestamp=at(8), user="eve")
    trial.put(eve)
    trial.rules.write_text(rules(rule("likes", "user = 'alice' AND object = 'coffee'")))
    trial.candidate.write_text(
        rules(rule("likes", "user = 'eve' OR user = 'bob' AND object = 'tea'"))
    )

    assert set(trial.diff("--user", "alice")[0]) == {("disappears", "e2", None)}
    assert ("appears", None, "e8") in trial.diff()[0]


@pytest.mark.slow
def test_diff_reports_a_batch_that_would_await_approval_and_continues(
    trial: TrialInstallation,
) -> None:
    gone = [
        triple(f"d{n}", "ada", "x", n, timestamp=at(20 + n),
               metadata={"intent": "delete", "replaces": eid})
        for n, eid in enumerate(["e2", "e4"])
    ]  # fmt: skip
    trial.put(*gone)
    trial.config.write_text(trial.config.read_text() + "limits: {max_deletes: 0}\n")
    trial.candidate.write_text(rules(LIKES, rule("takes", "intent = 'delete'")))

    changes, summary = trial.diff()

    assert changes == [("disappears", "e2", None)]
    assert summary["rules"][1]["exceeded_limits"] == [
        "this batch would delete 1 fact; the limit is 0 (max_deletes)"
    ]
    shown = trial.look("diff", str(trial.candidate.parent)).stdout
    assert (
        "takes would await approval: this batch would delete 1 fact; the limit is 0 (max_deletes)"
        in shown
    )


@pytest.mark.slow
def test_diff_counts_a_held_batch_as_approved_on_both_sides(
    trial: TrialInstallation,
) -> None:
    trial.put(triple("d1", "ada", "likes", "coffee", timestamp=at(20),
                     metadata={"intent": "delete"}))  # fmt: skip
    trial.config.write_text(trial.config.read_text() + "limits: {max_deletes: 0}\n")
    trial.fire()

    changes, summary = trial.diff()

    assert changes == []
    assert summary["exceeded_limits"] == {
        "likes": "this batch would delete 1 fact; the limit is 0 (max_deletes)"
    }
    assert "here it counts as approved" in trial.look("diff", str(trial.candidate.parent)).stdout


@pytest.mark.slow
def test_diff_backfills_an_added_rule_that_has_fired_before(
    trial: TrialInstallation,
) -> None:
    trial.rules.write_text(rules())
    trial.candidate.write_text(rules(NO_COFFEE))

    assert trial.diff()[0] == [("changes", "e2", "e1")]


@pytest.mark.slow
def test_several_facts_replaced_by_another_appear_and_disappear(trial: TrialInstallation) -> None:
    trial.put(triple("e6", "ada", "likes", "milk", timestamp=at(6)))
    trial.rules.write_text(
        rules(rule("likes", "object IN ('tea', 'coffee')"), multi_valued="likes")
    )
    trial.fire()
    trial.candidate.write_text(rules(rule("likes", "object = 'milk'"), multi_valued="likes"))

    changes, _ = trial.diff("--user", "alice")

    assert sorted(changes, key=str) == [
        ("appears", None, "e6"), ("disappears", "e1", None), ("disappears", "e2", None),
    ]  # fmt: skip


@pytest.mark.path
def test_diff_with_the_option_rule_takes_only_that_rule_from_the_candidate(
    trial: TrialInstallation,
) -> None:
    trial.candidate.write_text(rules(NO_COFFEE, LIVES, multi_valued="likes"))

    assert trial.diff("--rule", "lives")[0] == [("appears", None, "e3")]
    assert trial.diff("--rule", "likes", "--rule", "lives")[1]["multi_valued"] == {}
    refused = trial.look("diff", str(trial.candidate.parent), "--rule", "live")
    assert (refused.returncode, "no rule 'live' on either side" in refused.stderr) == (64, True)


GRAPH = """\
  - id: team
    kind: graph
    cadence: {cron: "0 3 * * *"}
    filter_cypher: "MATCH (s)-[f]->(o) RETURN s.name AS subject, f.predicate AS predicate"
    user: alice
    agent: rag
    enabled: false
"""


@pytest.mark.slow
@pytest.mark.parametrize("side", ["in force", "candidate", "both"])
def test_diff_refuses_the_option_rule_with_a_graph_rule_of_either_side(
    trial: TrialInstallation, side: str
) -> None:
    if side != "candidate":
        trial.rules.write_text(rules(LIKES, GRAPH))
    if side != "in force":
        trial.candidate.write_text(rules(LIKES, GRAPH))

    refused = trial.look("diff", str(trial.candidate.parent), "--rule", "team")

    assert refused.returncode == 64
    assert "rule 'team' is of kind graph and reads no episodes" in refused.stderr


@pytest.mark.slow
def test_diff_with_the_option_user_compares_only_the_facts_of_that_user(
    trial: TrialInstallation,
) -> None:
    trial.candidate.write_text(rules(rule("likes", "object = 'tea'")))
    assert totals(trial.diff()[1]) == (0, 1, 1, 0, 0)

    assert totals(trial.diff("--user", "bob")[1]) == (0, 0, 1, 0, 0)


def test_diff_prints_a_table_of_differences_and_their_totals(trial: TrialInstallation) -> None:
    trial.candidate.write_text(rules(rule("likes", "object = 'tea'"), LIVES))

    done = trial.look("diff", str(trial.candidate.parent))

    assert done.returncode == 1
    table = done.stdout.split("\n\n")[1].splitlines()
    assert [" ".join(line.split()) for line in table] == [
        "id user agent subject predicate object confidence",
        "~ e2 -> e1 alice rag ada likes coffee -> tea 1",
        "+ e3 alice rag ada lives_in Porto 1",
        "- e4 bob rag bob likes rum 1",
        "1 fact appears, 1 changes, 1 disappears, 0 stay",
    ]


@pytest.mark.slow
def test_limit_cuts_the_table_of_differences(trial: TrialInstallation) -> None:
    trial.candidate.write_text(rules(rule("likes", "object = 'tea'"), LIVES))

    shown = trial.look("diff", str(trial.candidate.parent), "--limit", "1").stdout

    assert "and 2 more" in shown
    assert len(trial.diff()[0]) == 3
    assert len(trial.diff("--limit", "1")[0]) == 1


@pytest.mark.parametrize(
    ("candidate", "problem"),
    [
        pytest.param(rules(rule("likes", "predicate == ")), "when_filter", id="mistake"),
        pytest.param(None, "cannot be read as a directory", id="no directory"),
    ],
)
def test_diff_with_mistakes_in_the_candidate_does_not_read_the_data(
    trial: TrialInstallation, candidate: str | None, problem: str
) -> None:
    if candidate is None:
        trial.candidate.unlink()
        trial.candidate.parent.rmdir()
    else:
        trial.candidate.write_text(candidate)

    done = trial.look("diff", str(trial.candidate.parent))

    assert (done.returncode, done.stdout) == (78, "")
    assert problem in done.stderr


def test_diff_without_episodes_exits_with_66(tmp_path: Path) -> None:
    trial = TrialInstallation(tmp_path, rules(LIKES))

    assert trial.look("diff", str(trial.candidate.parent)).returncode == 66


def test_diff_writes_nothing_and_runs_while_a_daemon_holds_the_directory(
    trial: TrialInstallation,
) -> None:
    trial.candidate.write_text(rules(ALL, multi_valued="likes"))
    with StateLock(trial.state):
        before = trial.files()

        assert trial.diff()[0]

        assert trial.files() == before


@pytest.mark.slow
def test_diff_writes_nothing_while_the_databases_are_open(trial: TrialInstallation) -> None:
    trial.candidate.write_text(rules(ALL))
    with closing(sqlite3.connect(trial.state / "facts.db")) as connection:
        connection.execute("UPDATE slumberd_numbers SET value = value + 1 WHERE name = 'epoch'")
        connection.commit()
        before = trial.files()

        assert trial.diff()[0]

        after = trial.files()
    # SQLite's index of the write-ahead log holds the marks of readers, and no data.
    assert {n: h for n, h in after.items() if not n.endswith("-shm")} == {
        n: h for n, h in before.items() if not n.endswith("-shm")
    }


def test_diff_and_check_work_on_a_database_without_an_episode_log(tmp_path: Path) -> None:
    trial = TrialInstallation(tmp_path, rules())
    trial.candidate.write_text(rules(LIKES))
    trial.state.mkdir()
    with closing(sqlite3.connect(trial.state / "memory.db")) as connection:
        connection.execute(
            "CREATE TABLE episodes (id TEXT PRIMARY KEY, scope_key TEXT NOT NULL,"
            " content BLOB NOT NULL, timestamp TEXT NOT NULL, metadata BLOB NOT NULL)"
        )
        connection.execute("INSERT INTO episodes VALUES (?, ?, ?, ?, ?)", episode_row("e1"))
        connection.commit()
    before = trial.files()

    changes, _ = trial.diff()

    assert changes == [("appears", None, "e1")]
    assert trial.files() == before
    assert list(before) == ["memory.db"]
    assert trial.against_data(str(trial.candidate))["likes"]["matches"] == 1


def episode_row(id: str) -> tuple[str, ...]:
    content = {"content": "", "source_node": "", "user": "a", "session": "s", "agent": "g"}
    metadata = {"subject": "a", "predicate": "likes", "object": "tea"}
    return (
        id, "/user/a/session/s/agent/g/", json.dumps(content), at(0).isoformat(),
        json.dumps(metadata),
    )  # fmt: skip


@pytest.mark.slow
def test_daemon_continues_while_diff_runs(trial: TrialInstallation) -> None:
    trial.candidate.write_text(rules(LIKES, LIVES))
    with trial.daemon():
        for number in range(5):
            trial.put(triple(f"n{number}", "cy", f"likes{number}", "x", timestamp=at(10 + number)))

            assert trial.diff()[0] == [("appears", None, "e3")]

        assert trial.lines("status")[0]["running"]
    assert trial.look("audit", "verify").returncode == 0
