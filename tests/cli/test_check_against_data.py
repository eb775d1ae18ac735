"""`slumberd check --against-data`: it shows the effect of rules, and does not change the data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slumberd.cli.commands.check import slip_in
from slumberd.daemon.tenure import StateLock
from slumberd.model.episode import Episode
from tests.support import builders
from tests.support.builders import at, triple
from tests.support.trial_installation import TrialInstallation, rule, rules

pytestmark = pytest.mark.integration

TEA = triple("e1", "ada", "likes", "tea", timestamp=at(1))
COFFEE = triple("e2", "ada", "likes", "coffee", timestamp=at(2))
PORTO = triple("e3", "ada", "lives_in", "Porto", timestamp=at(3))
ODD = triple("e4", "ada", "likes", "x", timestamp=at(4), metadata={"intent": "shout"})
LATE = triple("e5", "ada", "likes", "milk", timestamp=at(0))
GONE = triple("e6", "ada", "likes", "coffee", timestamp=at(6), metadata={"intent": "delete"})

LIKES = rule("likes", "predicate = 'likes'")
ALL = rule("all", "", "notes", "facts")


@pytest.fixture
def trial(tmp_path: Path) -> TrialInstallation:
    trial = TrialInstallation(tmp_path, rules(LIKES))
    trial.put(TEA, COFFEE)
    return trial


@pytest.mark.slow
def test_check_counts_the_episodes_a_rule_selects_and_the_deltas_of_its_firing(
    trial: TrialInstallation,
) -> None:
    trial.fire()
    trial.put(PORTO, ODD, LATE, GONE)

    report = trial.against_data()["likes"]

    assert (report["episodes"], report["matches"], report["pending"]) == (6, 5, 4)
    assert report["channels"]["facts"] == {
        "read": 4, "filtered": 1, "added": 0, "updated": 0, "deleted": 1, "noop": 1,
        "quarantined": 1, "restored": 0,
        "reasons": {"noop": {"stale": 1}, "quarantined": {"intent_unknown": 1}},
    }  # fmt: skip


@pytest.mark.path
def test_check_prints_the_reasons_beside_the_counts(trial: TrialInstallation) -> None:
    trial.fire()
    trial.put(ODD, LATE)

    shown = trial.look("check", "--against-data").stdout

    assert "1 (stale 1)" in shown
    assert "1 (intent_unknown 1)" in shown


@pytest.mark.slow
def test_check_counts_matches_as_episodes_and_pending_as_versions(trial: TrialInstallation) -> None:
    trial.fire()
    trial.put(TEA.model_copy(update={"content": "Tea again."}))
    trial.put(TEA.model_copy(update={"content": "Tea once more."}))

    report = trial.against_data()["likes"]

    assert (report["episodes"], report["matches"], report["pending"]) == (2, 2, 2)


def test_check_fires_rules_in_order_on_the_facts_of_earlier_rules(trial: TrialInstallation) -> None:
    trial.rules.write_text(rules(rule("b", "predicate = 'likes'"), rule("a", "object = 'tea'")))

    reports = trial.against_data()

    counts = {name: report["channels"]["facts"] for name, report in reports.items()}
    assert list(counts) == ["a", "b"]
    assert (counts["a"]["added"], counts["b"]["added"], counts["b"]["updated"]) == (1, 0, 2)


@pytest.mark.slow
def test_check_prints_reasons_by_channel(trial: TrialInstallation) -> None:
    trial.rules.write_text(rules(ALL))
    trial.fire()
    trial.put(GONE)
    trial.rules.write_text(rules(ALL, rule("more", "intent = 'delete'", "notes", "other")))

    channels = trial.against_data()["more"]["channels"]

    assert channels["other"]["reasons"]["noop"] == {"unresolved": 1}
    assert sum(channels["notes"]["reasons"]["noop"].values()) == channels["notes"]["noop"] == 1


def test_check_counts_but_does_not_fire_a_disabled_rule(trial: TrialInstallation) -> None:
    trial.rules.write_text(rules(rule("likes", "predicate = 'likes'", enabled="false")))

    report = trial.against_data()["likes"]

    assert (report["matches"], report["pending"], report["channels"]) == (2, 2, {})
    assert "(disabled)" in trial.look("check", "--against-data").stdout


def test_rule_that_starts_now_has_nothing_pending(trial: TrialInstallation) -> None:
    trial.rules.write_text(rules(rule("likes", "predicate = 'likes'", start="now")))

    report = trial.against_data()["likes"]

    assert (report["matches"], report["pending"]) == (2, 0)


@pytest.mark.slow
def test_check_reports_a_rule_whose_batch_would_await_approval(trial: TrialInstallation) -> None:
    trial.fire()
    trial.put(GONE)
    trial.config.write_text(trial.config.read_text() + "limits: {max_deletes: 0}\n")

    done = trial.look("check", "--against-data")

    assert (
        "likes awaits approval: this batch would delete 1 fact; the limit is 0 (max_deletes)"
        in done.stdout
    )
    assert trial.against_data()["likes"]["channels"]["facts"]["read"] == 0


def test_check_warns_of_a_rule_that_selects_nothing_and_names_a_likely_mistake(
    trial: TrialInstallation,
) -> None:
    trial.rules.write_text(rules(rule("likes", "intent = 'add'")))

    lines = trial.look("check", "--against-data").stdout.splitlines()

    assert "likes matches nothing of 2 episodes: intent = 'add'" in lines
    assert lines[-1].startswith("  perhaps: an episode that gives no intent has NULL there")


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        pytest.param("object = NULL", "IS NULL", id="equal to null"),
        pytest.param("confidence > 50", "0 to 1", id="percent"),
        pytest.param("intent IN ('add', 'x')", "ifnull", id="intent in"),
        pytest.param("metadata = 'x'", "json_extract", id="metadata as text"),
        pytest.param("predicate = 'Likes'", "case", id="case"),
        pytest.param("predicate = 'hates'", "", id="no known mistake"),
        pytest.param("confidence > 0.5 AND object IS NULL", "", id="correct filter"),
    ],
)
def test_common_mistake_in_a_filter_is_explained(filter: str, expected: str) -> None:
    correction = slip_in(builders.rule(when_filter=filter))

    assert expected in correction
    assert bool(expected) == bool(correction)


def test_check_reports_episodes_that_a_filter_fails_on(trial: TrialInstallation) -> None:
    trial.rules.write_text(rules(rule("likes", "json_extract(object, '$.x') IS NULL")))

    report = trial.against_data()["likes"]

    assert (report["matches"], report["failed"]) == (0, 2)
    assert "malformed JSON" in report["problem"]
    assert report["channels"]["facts"]["reasons"]["quarantined"] == {"filter_failed": 2}
    assert "likes fails on 2 episodes" in trial.look("check", "--against-data").stdout


def test_check_uses_given_rule_files_instead_of_the_configured_rules(
    trial: TrialInstallation,
) -> None:
    trial.candidate.write_text(rules(rule("other", "object = 'tea'")))

    reports = trial.against_data(str(trial.candidate))

    assert {name: report["matches"] for name, report in reports.items()} == {"other": 1}


def test_check_of_rule_files_does_not_change_the_channels(trial: TrialInstallation) -> None:
    trial.rules.write_text(rules(LIKES, multi_valued="likes"))
    trial.fire()
    trial.candidate.write_text(rules(rule("other", "predicate = 'likes'")))

    reports = trial.against_data(str(trial.candidate))

    assert reports["other"]["channels"]["facts"]["restored"] == 0
    assert reports["other"]["channels"]["facts"]["updated"] == 2


def test_check_of_rule_files_needs_no_configuration_and_no_data(tmp_path: Path) -> None:
    trial = TrialInstallation(tmp_path, rules(LIKES))
    trial.config.write_text("no configuration")

    assert trial.look("check", str(trial.candidate)).returncode == 0
    assert trial.look("check", str(trial.candidate), "--against-data").returncode == 78


@pytest.mark.parametrize("empty", [False, True], ids=["no database", "no episodes in it"])
def test_check_against_data_without_episodes_exits_with_66(tmp_path: Path, *, empty: bool) -> None:
    trial = TrialInstallation(tmp_path, rules(LIKES))
    if empty:
        trial.put()

    done = trial.look("check", "--against-data")

    assert (done.returncode, "`slumberd import` puts some" in done.stderr) == (66, True)


def test_check_with_mistakes_does_not_read_the_data(trial: TrialInstallation) -> None:
    trial.rules.write_text(rules(rule("likes", "predicate == ")))

    done = trial.look("check", "--against-data", "--json")

    assert done.returncode == 78
    assert "data" not in json.loads(done.stdout)


@pytest.mark.slow
def test_check_writes_nothing_and_runs_while_a_daemon_holds_the_directory(
    trial: TrialInstallation,
) -> None:
    trial.fire()
    trial.put(PORTO, ODD)
    with StateLock(trial.state):
        before = trial.files()

        assert trial.against_data()["likes"]["pending"] == 2

        assert trial.files() == before


@pytest.mark.slow
def test_check_against_data_of_a_keyed_ledger_needs_its_key(
    trial: TrialInstallation, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    trial.config.write_text(trial.config.read_text() + f"facts: {{key_file: {key}}}\n")
    trial.fire()
    trial.put(PORTO)

    assert trial.against_data()["likes"]["pending"] == 1

    trial.config.write_text(trial.config.read_text().split("facts:")[0])
    assert trial.look("check", "--against-data").returncode == 78


def many(predicate: str, count: int, *, user: str = "ada", objects: int = 100) -> list[Episode]:
    """Return episodes of one key that take turns with a number of objects."""
    return [
        triple(
            f"{user}-{predicate}-{n}", user, predicate, f"o{n % objects}",
            user=user, timestamp=at(n),
        )
        for n in range(count)
    ]  # fmt: skip


@pytest.mark.slow
def test_check_names_a_predicate_whose_objects_keep_replacing_each_other(tmp_path: Path) -> None:
    trial = TrialInstallation(tmp_path, rules(rule("all", "")))
    trial.put(*many("likes", 5), *many("likes", 4, user="bob"), *many("lives_in", 2))
    trial.fire()
    trial.put(*many("likes", 3, user="eve"), *many("works_at", 9, objects=2))

    shown = trial.look("check", "--against-data").stdout
    replaced = json.loads(trial.look("check", "--against-data", "--json").stdout)["replaced"]

    assert (
        "likes in channel facts: of 3 of 3 keys the objects keep replacing each other (up to 5"
        " different ones);\n  if they hold at once: channels: {facts: {multi_valued: [likes]}}\n"
    ) in shown
    assert [(line["channel"], line["predicate"], line["most"]) for line in replaced] == [
        ("facts", "likes", 5)
    ]


@pytest.mark.slow
def test_check_does_not_name_a_multi_valued_predicate(tmp_path: Path) -> None:
    trial = TrialInstallation(tmp_path, rules(rule("all", "")))
    trial.put(*many("likes", 5))
    trial.fire()
    trial.rules.write_text("channels: {facts: {multi_valued: [likes]}}\n" + rules(rule("all", "")))

    replaced = json.loads(trial.look("check", "--against-data", "--json").stdout)["replaced"]

    assert replaced == []


SPEAKERS = """\
rules:
  - id: chat
    cadence: {every: 1}
    when_filter: ""
    then_emits: [facts]
    stages:
      - extract: {with: conversation, speakers: {remember: "{user}", guest: "{user}"}}
"""


def test_check_warns_of_an_interface_among_the_speakers(trial: TrialInstallation) -> None:
    trial.rules.write_text(SPEAKERS)

    done = trial.look("check", str(trial.rules))
    document = json.loads(trial.look("check", str(trial.rules), "--json").stdout)

    assert done.returncode == 0
    assert "extract.speakers.remember: 'remember' names an interface" in done.stderr
    assert "guest" not in done.stderr
    [warning] = document["warnings"]
    assert warning["problem"] in done.stderr


def test_check_and_doctor_name_the_place_of_an_old_name(trial: TrialInstallation) -> None:
    trial.rules.write_text(
        SPEAKERS.replace(
            'conversation, speakers: {remember: "{user}", guest: "{user}"}', "heuristic"
        )
    )

    done = trial.look("check", str(trial.rules))
    found = json.loads(trial.look("doctor", "--json").stdout)["findings"]

    assert f"warning: {trial.rules}:7:25: " in done.stderr
    assert "'with: conversation'" in done.stderr
    [finding] = [one for one in found if one["id"] == "rules.outdated"]
    assert finding["subject"] == f"{trial.rules}:7:25"


def test_check_explains_that_a_source_node_is_no_speaker(trial: TrialInstallation) -> None:
    trial.rules.write_text(rules(rule("likes", "source_node = 'user'")))

    assert (
        "perhaps: source_node is what wrote the episode"
        in trial.look("check", "--against-data").stdout
    )


KRAKOW = builders.episode("c1", user="bob", source_node="user", content="I live in Krak\u00f3w.")
CHAT = rule("chat", "", stages="[{extract: {with: patterns, patterns: patterns/chat.yaml}}]")
PATTERNS = """\
patterns:
  - id: home
    when: 'I live in (?P<city>%s)'
    says: {subject: '{speaker}', predicate: lives_in, object: '{city}'}
"""


def _read_chat(trial: TrialInstallation, city: str) -> None:
    """Let a rule read a chat with a pattern of a city."""
    trial.rules.write_text(rules(CHAT))
    (trial.rules.parent / "patterns").mkdir(exist_ok=True)
    (trial.rules.parent / "patterns" / "chat.yaml").write_text(PATTERNS % city)


@pytest.mark.slow
def test_check_says_what_another_meaning_of_the_patterns_changes(trial: TrialInstallation) -> None:
    trial.put(KRAKOW)
    _read_chat(trial, "[A-Za-z]+")
    trial.fire()
    same = trial.look("check", "--against-data").stdout
    _read_chat(trial, r"\w+")

    changed = trial.look("check", "--against-data").stdout

    assert "otherwise" not in same
    assert (
        "chat extracts otherwise than before: `slumberd backfill chat` would update 1 fact;"
        " --dry-run names them\n"
    ) in changed
    assert trial.against_data()["chat"]["backfill"]["facts"]["updated"] == 1


@pytest.mark.slow
def test_check_says_what_a_removed_pattern_takes_along(trial: TrialInstallation) -> None:
    trial.put(KRAKOW)
    _read_chat(trial, r"\w+")
    trial.fire()
    _read_chat(trial, "Oslo")

    changed = trial.look("check", "--against-data").stdout

    assert "`slumberd backfill chat` would delete 1 fact; --dry-run names them" in changed
