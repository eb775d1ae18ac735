"""`slumberd import` of other formats: a second import of a file changes nothing."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from slumberd.integrations.interchange.formats import FORMATS
from slumberd.integrations.interchange.records import without
from tests.support.builders import episode
from tests.support.installation import Installation, jsonl

pytestmark = pytest.mark.integration

MEMORY = {"id": "m1", "memory": "likes tea", "user_id": "mira", "created_at": "2025-01-01T00:00Z"}
EDGE = {
    "uuid": "u1",
    "name": "LIKES",
    "fact": "Mira likes tea",
    "group_id": "mira",
    "source_node_name": "Mira",
    "target_node_name": "tea",
    "valid_at": "2025-01-01T00:00:00Z",
    "invalid_at": "2025-02-01T00:00:00Z",
}
ENTITY = {"type": "entity", "name": "Mira", "entityType": "person", "observations": ["likes tea"]}
ITEM = {
    "namespace": ["memories", "mira"],
    "key": "k",
    "value": {"text": "likes tea"},
    "updated_at": "2025-01-01T00:00:00Z",
}
USER = ("--user", "mira")

SAMPLES: dict[str, tuple[dict[str, str], tuple[str, ...], int]] = {
    "episodes": ({"a": jsonl(episode(user="mira")).decode()}, (), 1),
    "mem0": ({"a": json.dumps({"results": [MEMORY]})}, (), 1),
    "graphiti": ({"a": json.dumps([EDGE])}, (), 2),
    "mcp-memory": ({"a": json.dumps(ENTITY)}, USER, 1),
    "langgraph": ({"a": json.dumps([ITEM])}, ("--user-at", "2"), 1),
    "claude-folder": ({"MEMORY.md": "likes tea"}, USER, 1),
    "codex-folder": ({"memory_summary.md": "v1\n\n## User\n\nlikes tea"}, USER, 2),
}
"""Files, arguments, and the number of their episodes, by format."""


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


def sample(folder: Path, name: str) -> list[str]:
    """Write the sample of a format, and return the arguments that import it."""
    files, arguments, _ = SAMPLES[name]
    inputs = folder / "inputs"
    inputs.mkdir()
    for file, text in files.items():
        (inputs / file).write_text(text)
    place = inputs if name.endswith("-folder") else inputs / "a"
    return ["import", str(place), "--format", name, *arguments]


def test_every_format_has_a_sample() -> None:
    assert {*SAMPLES} == {*FORMATS}


@pytest.mark.parametrize("name", FORMATS)
def test_second_import_changes_nothing(site: Installation, tmp_path: Path, name: str) -> None:
    call, count = sample(tmp_path, name), SAMPLES[name][2]

    first, second = site.call(*call), site.call(*call)

    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert first.stdout == f"imported {count} (new {count}, changed 0, unchanged 0), rejected 0\n"
    assert second.stdout == f"imported {count} (new 0, changed 0, unchanged {count}), rejected 0\n"
    assert len(site.lines("recent", "mira")) == count


@pytest.mark.parametrize("name", FORMATS)
def test_given_scope_replaces_that_of_the_records(
    site: Installation, tmp_path: Path, name: str
) -> None:
    call = [*sample(tmp_path, name), "--user", "bob", "--agent", "cook", "--session", "s9"]

    assert site.call(*call).returncode == 0

    found = site.lines("recent", "bob", "--agent", "cook", "--session", "s9")
    assert len(found) == SAMPLES[name][2]


@pytest.mark.parametrize("name", ["mcp-memory", "claude-folder", "codex-folder", "langgraph"])
def test_format_without_users_needs_one(site: Installation, tmp_path: Path, name: str) -> None:
    call = sample(tmp_path, name)[:4]

    done = site.call(*call)

    assert done.returncode == 64
    assert "--user" in done.stderr
    assert not site.state.exists()


def test_place_of_the_user_is_for_langgraph_only(site: Installation, tmp_path: Path) -> None:
    done = site.call(*sample(tmp_path, "mem0"), "--user-at", "1")

    assert (done.returncode, done.stdout) == (64, "")
    assert "--user-at is for the format langgraph" in done.stderr


def test_unknown_format_is_a_usage_error_that_names_the_formats(site: Installation) -> None:
    done = site.call("import", "-", "--format", "mem1")

    assert done.returncode == 64
    assert f"'mem1' is not one of {', '.join(FORMATS)}" in done.stderr


@pytest.mark.parametrize(
    ("content", "name", "place"),
    [
        pytest.param("# Notes\n", "mem0", "line 1", id="notes as mem0"),
        pytest.param('\n{\n  "items": []\n}', "graphiti", "line 4", id="langgraph as graphiti"),
        pytest.param('{\n"results": []\n}', "mcp-memory", "line 3", id="mem0 as mcp-memory"),
    ],
)
def test_file_in_another_format_is_refused_with_its_line_and_a_remedy(
    site: Installation, tmp_path: Path, content: str, name: str, place: str
) -> None:
    (tmp_path / "a").write_text(content)

    done = site.call("import", str(tmp_path / "a"), "--format", name, *USER)

    assert (done.returncode, done.stdout) == (65, "")
    assert done.stderr.startswith(f"slumberd: {place} is not in the format '{name}': ")
    assert done.stderr.endswith("name the format of the input with --format\n")


def test_file_without_a_readable_record_has_a_hint(site: Installation, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(json.dumps({"results": [MEMORY]}))

    done = site.call("import", str(tmp_path / "a"))

    assert done.returncode == 65
    assert "if the file is in another format, name it with --format" in done.stderr


def bad_and_good(tmp_path: Path) -> str:
    file = tmp_path / "a.json"
    records: list[Any] = [MEMORY | {"id": 3}, MEMORY]
    file.write_text(json.dumps({"results": records}, indent=1))
    return str(file)


def test_bad_record_is_listed_with_line_and_path_and_the_others_are_put(
    site: Installation, tmp_path: Path
) -> None:
    done = site.call("import", bad_and_good(tmp_path), "--format", "mem0")

    assert done.returncode == 65
    assert done.stdout == "imported 1 (new 1, changed 0, unchanged 0), rejected 1\n"
    assert done.stderr == "slumberd: results[0], line 3: key 'id' holds no text\n"


def test_bad_record_is_listed_in_json(site: Installation, tmp_path: Path) -> None:
    done = site.call("import", bad_and_good(tmp_path), "--format", "mem0", "--json")

    assert json.loads(done.stdout) == {
        "new": 1,
        "changed": 0,
        "unchanged": 0,
        "erased": 0,
        "rejected": [{"line": 3, "reason": "key 'id' holds no text", "path": "results[0]"}],
        "warnings": [],
        "replacing": 0,
        "masked": {},
        "incomplete": [],
        "remarks": {
            "instant_of_file": 0,
            "instant_of_update": 0,
            "ended": 0,
            "ended_only": 0,
            "at_limit": 0,
        },
    }


def test_file_of_a_folder_that_is_not_read_is_reported(site: Installation, tmp_path: Path) -> None:
    call = sample(tmp_path, "claude-folder")
    (tmp_path / "inputs" / "picture.png").touch()

    done, listed = site.call(*call), site.call(*call, "--json")

    assert (done.returncode, listed.returncode) == (65, 65)
    assert done.stdout == "imported 1 (new 1, changed 0, unchanged 0), rejected 0\n"
    assert done.stderr.startswith("slumberd: picture.png: is not read: ")
    (found,) = json.loads(listed.stdout)["incomplete"]
    assert found["path"] == "picture.png"


def test_name_that_is_no_utf_8_does_not_end_the_import(site: Installation, tmp_path: Path) -> None:
    call = sample(tmp_path, "claude-folder")
    Path(os.fsdecode(bytes(tmp_path) + b"/inputs/b\xff.md")).write_text("likes coffee")

    done, audited = site.call(*call), site.call(*call, "--audit")

    assert done.returncode == 65
    assert done.stdout == "imported 1 (new 1, changed 0, unchanged 0), rejected 1\n"
    assert "b\\xff.md, line 1: the name is not UTF-8" in done.stderr
    assert audited.returncode == 1
    assert "1 unreadable record" in audited.stdout


@pytest.mark.parametrize("form", ["claude-folder", "mcp-memory"])
def test_file_that_is_written_again_states_nothing_new(
    site: Installation, tmp_path: Path, form: str
) -> None:
    call = sample(tmp_path, form)
    files = [file for file in (tmp_path / "inputs").rglob("*") if file.is_file()]
    for file in files:
        os.utime(file, (1_700_000_000, 1_700_000_000))
    site.call(*call)
    before = site.call("export", "-").stdout
    for file in files:
        os.utime(file, (1_750_000_000, 1_750_000_000))
    again = site.call(*call)

    assert "(new 0, changed 0, unchanged " in again.stdout
    assert site.call("export", "-").stdout == before


def test_item_that_is_put_again_with_an_equal_value_states_nothing_new(
    site: Installation, tmp_path: Path
) -> None:
    file, call = tmp_path / "a", ["import", str(tmp_path / "a"), "--format", "langgraph", *USER]
    created = ITEM | {"created_at": ITEM["updated_at"]}
    later = created | {"updated_at": "2025-03-01T00:00:00Z"}
    edited = later | {"value": {"text": "likes coffee"}}
    done = []
    for item in (created, later, edited):
        file.write_text(json.dumps({"items": [item]}))
        done.append(site.call(*call).stdout)

    assert [text[11:41] for text in done] == [
        "(new 1, changed 0, unchanged 0", "(new 0, changed 0, unchanged 1",
        "(new 0, changed 1, unchanged 0",
    ]  # fmt: skip


PAGE = {"count": 9, "next": "https://mem.example/?page=2", "results": [MEMORY]}


def test_first_page_of_several_is_put_and_reported(site: Installation, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(json.dumps(PAGE))

    done = site.call("import", str(tmp_path / "a"), "--format", "mem0")

    assert done.returncode == 65
    assert done.stdout == "imported 1 (new 1, changed 0, unchanged 0), rejected 0\n"
    assert "says that it is one page of several: it holds 1 of 9 records" in done.stderr


@pytest.mark.parametrize(("count", "told"), [(9, False), (10, True), (11, False)])
def test_input_as_long_as_a_search_returns_may_be_a_part(
    site: Installation, tmp_path: Path, count: int, told: bool
) -> None:
    items = [ITEM | {"key": f"k{n}", "created_at": ITEM["updated_at"]} for n in range(count)]
    (tmp_path / "a").write_text(json.dumps(items))

    done = site.call("import", str(tmp_path / "a"), "--format", "langgraph", "--user-at", "2")

    assert done.returncode == 0
    assert ("1 input has as many records as its program returns" in done.stderr) is told


def test_instants_of_files_and_ends_are_counted(site: Installation, tmp_path: Path) -> None:
    ended = MEMORY | {"id": "m2", "expiration_date": "2025-02-01"}
    (tmp_path / "a").write_text(json.dumps([without(MEMORY, ["created_at"]), ended]))

    done = site.call("import", str(tmp_path / "a"), "--format", "mem0")

    assert done.returncode == 0
    assert done.stderr == (
        "slumberd: 1 episode has only the time of its file\n"
        "slumberd: 1 record has an end, at which it is retracted\n"
    )


def test_records_without_an_instant_get_that_of_the_file(
    site: Installation, tmp_path: Path
) -> None:
    call = sample(tmp_path, "mcp-memory")
    os.utime(tmp_path / "inputs" / "a", (86_400, 86_400))

    assert site.call(*call).returncode == 0

    (found,) = site.lines("recent", "mira")
    assert found["timestamp"] == "1970-01-02T00:00:00.000000Z"


@pytest.mark.slow
def test_records_without_an_instant_are_refused_from_a_pipe(site: Installation) -> None:
    done = site.run(
        "import", "-", "--format", "mcp-memory", *USER, stdin=json.dumps(ENTITY).encode()
    )

    assert done.returncode == 65
    assert "line 1: the record has no instant; name a file" in done.stderr


def test_compressed_document_is_read(site: Installation, tmp_path: Path) -> None:
    file = tmp_path / "mem0.json.gz"
    file.write_bytes(gzip.compress(json.dumps({"results": [MEMORY]}).encode()))

    done = site.call("import", str(file), "--format", "mem0")

    assert done.stdout.startswith("imported 1 (new 1,")


def test_same_memory_for_another_user_is_refused(site: Installation, tmp_path: Path) -> None:
    call = sample(tmp_path, "mem0")
    assert site.call(*call).returncode == 0

    done = site.call(*call, "--user", "bob")

    assert done.returncode == 65
    assert "episode 'mem0:m1' belongs to another scope" in done.stderr


@pytest.mark.parametrize("several", [True, False])
def test_relations_that_stand_side_by_side_are_all_facts(
    site: Installation, tmp_path: Path, several: bool
) -> None:
    """Also where the channel holds one value; the import says what it would replace."""
    targets = [["Gatherum", "Opal"], ["Redwood"]]
    channel = "{values: many}" if several else "{multi_valued: [likes]}"
    site.rules.write_text(f"channels: {{facts: {channel}}}\n{RULES}")
    for number, names in enumerate(targets):
        edges = [
            without(EDGE, ["invalid_at"])
            | {"uuid": f"u{number}{name}", "target_node_name": name, "name": "WORKED_AT"}
            | {"valid_at": f"202{number}-01-01T00:00:00Z"}
            for name in names
        ]  # fmt: skip
        (tmp_path / f"{number}.json").write_text(json.dumps(edges))
    both = [edge for n in range(2) for edge in json.loads((tmp_path / f"{n}.json").read_text())]
    (tmp_path / "both.json").write_text(json.dumps(both))

    first = site.call("import", str(tmp_path / "0.json"), "--format", "graphiti")
    assert "replace each other" not in first.stderr
    second = site.call("import", str(tmp_path / "both.json"), "--format", "graphiti")
    assert ("1 statement would replace each other" in second.stderr) is not several
    site.call("fire", "--all")

    objects = {fact["payload"]["object"] for fact in site.lines("facts", "--user", "mira")}
    assert objects == ({"Gatherum", "Opal", "Redwood"} if several else {"Redwood"})


RULES = """\
rules:
  - {id: all, cadence: {every: 1}, when_filter: "predicate IS NOT NULL", then_emits: [facts]}
"""
