"""`slumberd import --audit` reports what is wrong with a file, and puts nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slumberd.cli.commands import import_audit
from tests.support.builders import episode, triple
from tests.support.installation import Installation, jsonl

pytestmark = pytest.mark.integration


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


def write(tmp_path: Path, content: bytes) -> str:
    (tmp_path / "some").write_bytes(content)
    return str(tmp_path / "some")


def audit(site: Installation, *arguments: str) -> dict[str, Any]:
    done = site.call("import", "--audit", *arguments, "--json")
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if document["findings"] else 0)
    return document


def test_good_file_has_no_finding_and_is_not_put(site: Installation, tmp_path: Path) -> None:
    file = write(tmp_path, jsonl(episode("e1"), episode("e2")))

    done = site.call("import", file, "--audit")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "2 records, 2 episodes: nothing is wrong\n"
    assert not site.state.exists()


def test_findings_are_a_table_and_a_sentence(site: Installation, tmp_path: Path) -> None:
    file = write(tmp_path, jsonl(episode("e1", content="x"), episode("e2", content="x")) + b"{}\n")

    done = site.call("import", file, "--audit")

    assert done.returncode == 1
    heading, first, second, *_, last = done.stdout.splitlines()
    assert heading.split() == ["finding", "place", "earlier", "user", "agent", "detail"]
    assert first.split() == ["duplicate", "text", "line", "2", "line", "1", "alice", "rag", "x"]
    assert second.split()[:4] == ["unreadable", "line", "3", "-"]
    assert last == "3 records, 2 episodes: 1 unreadable record, 1 duplicate text"


def test_declared_predicates_do_not_contradict(site: Installation, tmp_path: Path) -> None:
    some = [
        triple(f"{predicate}-{value}", "mira", predicate, value)
        for predicate in ("likes", "lives_in")
        for value in ("a", "b")
    ]

    found = audit(site, write(tmp_path, jsonl(*some)))["findings"]

    assert [(one["finding"], one["line"], one["earlier_line"], one["detail"]) for one in found] == [
        ("contradiction", 4, 3, "mira lives_in b")
    ]


def test_observations_of_mcp_memory_do_not_contradict(site: Installation, tmp_path: Path) -> None:
    entity = {"type": "entity", "name": "M", "entityType": "p", "observations": ["a", "b"]}

    found = audit(
        site, write(tmp_path, json.dumps(entity).encode()), "--format", "mcp-memory", "--user", "m"
    )

    assert found["findings"] == []


def test_overlapping_facts_of_graphiti_contradict(site: Installation, tmp_path: Path) -> None:
    edges = [
        {
            "uuid": place,
            "name": "lives_in",
            "fact": place,
            "group_id": "mira",
            "source_node_name": "mira",
            "target_node_name": place,
            "valid_at": valid_at,
            "invalid_at": invalid_at,
        }
        for place, valid_at, invalid_at in (
            ("Porto", "2025-01-01T00:00:00Z", "2025-06-01T00:00:00Z"),
            ("Faro", "2025-05-01T00:00:00Z", "2025-09-01T00:00:00Z"),
            ("Braga", "2025-09-01T00:00:00Z", None),
        )
    ]

    found = audit(site, write(tmp_path, json.dumps(edges).encode()), "--format", "graphiti")

    assert [(one["finding"], one["path"], one["earlier_path"]) for one in found["findings"]] == [
        ("contradiction", "[1]", "[0]")
    ]
    assert (found["format"], found["records"], found["episodes"]) == ("graphiti", 3, 5)


def test_first_findings_of_a_kind_are_listed_and_all_are_counted(
    site: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_audit, "MOST_LISTED", 2)
    file = write(tmp_path, b"{}\n" * 5)

    found = audit(site, file)
    done = site.call("import", "--audit", file)

    assert (found["counts"]["unreadable"], len(found["findings"])) == (5, 2)
    assert done.stdout.splitlines()[-2:] == [
        "and 3 more findings",
        "5 records, 0 episodes: 5 unreadable records",
    ]


def test_page_of_several_is_not_right(site: Installation, tmp_path: Path) -> None:
    memory = {"id": "m", "memory": "x", "user_id": "u", "created_at": "2025-01-01T00:00:00Z"}
    page = {"next_cursor": "b", "results": [memory]}
    file = write(tmp_path, json.dumps(page).encode())

    done = site.call("import", "--audit", file, "--format", "mem0")

    assert done.returncode == 1
    assert done.stdout.endswith("1 record, 1 episode: 1 part that is not there\n")


def test_file_that_is_not_read_is_not_right(site: Installation, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "2025-01-01.md").write_text("x")
    (tmp_path / "notes" / "a.pdf").touch()
    call = (str(tmp_path / "notes"), "--format", "claude-folder", "--user", "u")

    found = audit(site, *call)["findings"]

    assert [(one["finding"], one["path"]) for one in found] == [("incomplete", "a.pdf")]


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        pytest.param({"intent": "destroy"}, "quarantined", id="unknown intent"),
        pytest.param({"triples": 7}, "quarantined", id="triples"),
        pytest.param({"Subject": "x"}, "doubt", id="misspelled key"),
    ],
)
def test_what_an_import_would_not_take_as_it_is_is_not_right(
    site: Installation, tmp_path: Path, metadata: dict[str, Any], kind: str
) -> None:
    found = audit(site, write(tmp_path, jsonl(episode("e1", metadata=metadata))))["findings"]

    assert [one["finding"] for one in found] == [kind]


def test_episode_that_an_import_refuses_is_not_right(site: Installation, tmp_path: Path) -> None:
    found = audit(site, write(tmp_path, jsonl(episode("e1", user="a\nb"))))["findings"]

    assert [one["finding"] for one in found] == ["unreadable"]


def test_remarks_are_said_instead_of_nothing(site: Installation, tmp_path: Path) -> None:
    file = write(tmp_path, b'[{"id": "m", "memory": "x", "user_id": "u"}]')

    done = site.call("import", "--audit", file, "--format", "mem0")

    assert done.returncode == 0
    assert done.stdout == "1 record, 1 episode: 1 episode has only the time of its file\n"


@pytest.mark.parametrize(
    "at", ["2025-01-01T00:00:00Z[UTC]", "Wed, 01 Jan 2025 00:00:00 GMT", 1735689600000000]
)
def test_timestamp_of_a_line_may_have_another_form(
    site: Installation, tmp_path: Path, at: str | int
) -> None:
    line = json.loads(jsonl(episode("e1"))) | {"timestamp": at}

    done = site.call("import", write(tmp_path, json.dumps(line).encode()))

    assert (done.returncode, done.stderr) == (0, "")
    (found,) = site.lines("recent", "alice")
    assert found["timestamp"] == "2025-01-01T00:00:00.000000Z"


def test_audit_needs_no_rules(site: Installation, tmp_path: Path) -> None:
    site.rules.unlink()
    site.rules.parent.rmdir()

    assert audit(site, write(tmp_path, jsonl(episode())))["findings"] == []
