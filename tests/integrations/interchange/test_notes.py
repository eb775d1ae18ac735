"""Notes of Claude and Codex become one episode for each memory."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from slumberd.integrations.interchange.formats import open_folder
from slumberd.integrations.interchange.notes import (
    read_claude_folder,
    read_codex_folder,
    read_header,
    read_note,
    sections,
)
from slumberd.integrations.interchange.records import Defaults, GivenScope, ImportedRecord
from slumberd.model.episode import Episode
from slumberd.model.errors import InputError, NoInputError, WrongFormatError
from tests.support.builders import START

pytestmark = pytest.mark.unit

ALICE = Defaults(GivenScope(user="alice"))
TOPIC = """\
---
name: slow-builds
description: "Why the build of the parser is slow"
metadata:
  type: project
  modified: 2026-03-04T05:06:07.000Z
---

The parser is generated twice.

## Remedy

Cache it.
"""
INDEX = """\
Start here.

# Conventions

Use tabs.

```sh
# no heading
```

## Tests

Run them twice.

# Empty

## Tests

Name them as sentences.
"""
RAW = """\
# Raw Memories

Merged memories:

## Thread `0199-a`
updated_at: 2026-02-03T04:05:06+00:00
cwd: /srv/parser

### Task 1

Built the parser.

## Thread `0199-b`

No header here: a sentence.
"""
ROLLOUT = (
    "thread_id: 0199-a\nupdated_at: 2026-02-03T04:05:06+00:00\n\n# Parser\n\n## Goal\n\nFaster.\n"
)


def make(folder: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, (START.timestamp(), START.timestamp()))
    return folder


def claude(folder: Path) -> list[ImportedRecord]:
    return list(read_claude_folder(open_folder(folder), ALICE))


def codex(folder: Path) -> list[ImportedRecord]:
    return list(read_codex_folder(open_folder(folder), ALICE))


def episodes_of(records: list[ImportedRecord]) -> list[Episode]:
    assert [record.problem for record in records if record.problem] == []
    return [episode for record in records for episode in record.episodes]


def test_note_with_front_matter_is_one_memory(tmp_path: Path) -> None:
    (found,) = episodes_of(claude(make(tmp_path / "p" / "memory", {"slow.md": TOPIC})))

    assert found.content == "The parser is generated twice.\n\n## Remedy\n\nCache it."
    assert found.timestamp == datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    assert (found.user, found.agent, found.session) == ("alice", "default", "p")
    assert found.metadata["title"] == "slow-builds"
    assert found.metadata["description"] == "Why the build of the parser is slow"
    assert found.metadata["claude-folder"]["type"] == "project"
    assert found.metadata["claude-folder"]["path"] == "slow.md"


def test_note_without_front_matter_has_a_memory_for_each_section(tmp_path: Path) -> None:
    records = claude(make(tmp_path, {"MEMORY.md": INDEX}))

    found = episodes_of(records)
    assert [one.metadata["title"] for one in found] == [
        "MEMORY.md",
        "Conventions",
        "Tests",
        "Tests",
    ]
    assert found[1].content == "# Conventions\n\nUse tabs.\n\n```sh\n# no heading\n```"
    assert [record.line for record in records] == [1, 3, 11, 17]
    assert {one.timestamp for one in found} == {START}
    assert len({one.id for one in found}) == 4


def test_section_that_changes_keeps_its_id(tmp_path: Path) -> None:
    before = episodes_of(claude(make(tmp_path, {"MEMORY.md": INDEX})))

    changed = INDEX.replace("Use tabs", "Use spaces").replace("Start here.", "")
    after = episodes_of(claude(make(tmp_path, {"MEMORY.md": changed})))

    assert [one.id for one in after] == [one.id for one in before[1:]]
    assert after[0].content != before[1].content


def test_two_projects_with_equal_notes_share_no_id(tmp_path: Path) -> None:
    ids = [
        {one.id for one in episodes_of(claude(make(tmp_path / name / "memory", {"M.md": INDEX})))}
        for name in ("parser", "printer")
    ]

    assert not ids[0] & ids[1]


def test_folder_of_codex_has_threads_groups_and_summaries(tmp_path: Path) -> None:
    files = {
        "MEMORY.md": "# Group: parser\n\n## Task 1\n\nCache it.\n\n# Group: docs\n\nNone.\n",
        "raw_memories.md": RAW,
        "rollout_summaries/2026-parser.md": ROLLOUT,
        "phase2_workspace_diff.md": "diff",
        "extensions/ad_hoc/instructions.md": "Read me.",
        "skills/build/SKILL.md": "---\nname: build\n---\nRun make.\n",
        ".git/HEAD.txt": "ref",
    }

    found = episodes_of(codex(make(tmp_path / "memories", files)))

    assert [(one.metadata["title"], one.session) for one in found] == [
        ("Group: parser", tmp_path.name),
        ("Group: docs", tmp_path.name),
        ("Raw Memories", tmp_path.name),
        ("Thread `0199-a`", "0199-a"),
        ("Thread `0199-b`", "0199-b"),
        ("rollout_summaries/2026-parser.md", "0199-a"),
        ("build", tmp_path.name),
    ]
    updated = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert [one.timestamp == updated for one in found] == [False] * 3 + [True, False, True, False]
    assert found[0].content.endswith("Cache it.")


def test_folder_of_codex_is_no_folder_of_claude(tmp_path: Path) -> None:
    make(tmp_path, {"MEMORY.md": INDEX, "raw_memories.md": RAW})

    with pytest.raises(WrongFormatError, match=r"raw_memories\.md is of Codex"):
        claude(tmp_path)


@pytest.mark.parametrize("files", [{"a.png": ""}, {}], ids=["other files", "no files"])
def test_folder_without_notes_is_a_wrong_format(tmp_path: Path, files: dict[str, str]) -> None:
    make(tmp_path, files)

    with pytest.raises(WrongFormatError, match=r"no file that ends in \.md"):
        claude(tmp_path)
    with pytest.raises(WrongFormatError, match=r"none of memory_summary\.md"):
        codex(tmp_path)


def test_bad_files_are_reported_and_the_others_are_read(tmp_path: Path) -> None:
    make(tmp_path, {"good.md": "Use tabs.", "picture.png": "", "old.md": TOPIC})
    (tmp_path / "bad.md").write_bytes(b"caf\xe9")
    (tmp_path / "link.md").symlink_to("good.md")
    make(tmp_path / "other", {"a.md": "Use tabs."})
    (tmp_path / "linked").symlink_to("other")
    (tmp_path / ".hidden").symlink_to("other")
    make(tmp_path, {"old.md": TOPIC.replace("2026-03-04T", "spring ")})

    records = {record.path: record for record in claude(tmp_path)}

    assert records["bad.md"].problem == "is not UTF-8, at byte 3"
    assert "is a link" in records["link.md"].problem
    assert "is a link" in records["linked"].problem
    assert ".hidden" not in records
    assert "is not ISO 8601" in records["old.md"].problem
    assert "is not read: it ends in none of .md" in records["picture.png"].incomplete
    assert records["good.md"].episodes[0].content == "Use tabs."


def test_folder_that_is_missing_or_a_file_is_refused(tmp_path: Path) -> None:
    make(tmp_path, {"a.md": ""})

    with pytest.raises(NoInputError, match="name a folder of notes"):
        open_folder(tmp_path / "none")
    with pytest.raises(InputError, match="is a file, and a folder is needed"):
        open_folder(tmp_path / "a.md")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("---\nname: x\n", id="never closed"),
        pytest.param("a\n---\nname: x\n---\n", id="not at the beginning"),
    ],
)
def test_text_that_looks_like_front_matter_stays(text: str) -> None:
    assert read_note(text).text == text
    assert read_note(text).fields == {}


def test_front_matter_has_the_fields_of_one_line() -> None:
    note = read_note("---\na: 'x: y'\nb: |\n  long\nlist:\n  - z\nurl: http://h\n---\n")

    assert note.fields == {"a": "x: y", "url": "http://h"}


def test_header_with_a_sentence_is_no_header() -> None:
    assert read_header("# T\nupdated_at: x\nA sentence.\n\ntext") == {}
    assert read_header("# T\nupdated_at: x\n\ntext: y") == {"updated_at": "x"}


def test_note_that_is_not_split_is_one_section() -> None:
    (found,) = sections(read_note(INDEX), 0)

    assert found.text == INDEX.strip()


def instants_of(folder: Path, files: dict[str, str]) -> list[tuple[datetime, str | None]]:
    found = episodes_of(claude(make(folder, files)))
    return [(one.timestamp, one.metadata.get("instant_from")) for one in found]


MAY = datetime(2024, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param("2024-05-01.md", "Tea.", id="name"),
        pytest.param("20240501_notes.md", "Tea.", id="compact name"),
        pytest.param("2024-05-01.MD", "Tea.", id="name in capitals"),
        pytest.param("journal/2024/05/01.md", "Tea.", id="names of folders"),
        pytest.param("2024-05-01/tea.md", "Tea.", id="name of a folder"),
        pytest.param("a.md", "# Log\n\n## 2024-05-01\n\nTea.", id="heading"),
        pytest.param("a.md", "## May 1, 2024: tea\n\nTea.", id="heading in words"),
        pytest.param("a.md", "# 2024-05-01\n\n## Drinks\n\nTea.", id="heading around it"),
        pytest.param("a.md", "# Log\n\n### 2024-04-01\n\nA.\n\n### 2024-05-01\n\nB.", id="within"),
        pytest.param("a.md", "---\nname: tea\ndate: 2024-05-01\n---\nTea.", id="front matter"),
        pytest.param("a.md", "---\nUpdated: May 1, 2024\n---\nTea.", id="front matter in words"),
        pytest.param("a.md", "---\nlast-modified: 2024-05-01\n---\nTea.", id="other field"),
        pytest.param(
            "a.md", "---\ncreated: x\n---\n# 2024-05-01\n\nTea.", id="field without a date"
        ),
        pytest.param("a.md", "# Tea\nDate: 2024-05-01\n\nTea.", id="header"),
        pytest.param("2023-01-01.md", "# 2024-05-01\n\nTea.", id="heading before name"),
        pytest.param("a.md", "# 2024-05-01\nmodified: often\n\nTea.", id="header without a date"),
        pytest.param("2023-01-01.md", "---\ndate: 2024-05-01\n---\nTea.", id="fields before name"),
    ],
)
def test_dated_note_has_its_date(tmp_path: Path, path: str, text: str) -> None:
    assert instants_of(tmp_path, {path: text}) == [(MAY, None)]


def test_note_without_a_date_has_the_time_of_its_file_and_says_so(tmp_path: Path) -> None:
    assert instants_of(tmp_path, {"tea.md": "Tea."}) == [(START, "file")]


def test_date_that_is_still_to_come_is_not_the_one_of_the_note(tmp_path: Path) -> None:
    make(tmp_path, {"a.md": "# Flight on 2031-05-01\n\nBook it."})
    defaults = ALICE._replace(latest=datetime(2026, 11, 28, tzinfo=UTC))

    (record,) = read_claude_folder(open_folder(tmp_path), defaults)

    assert record.episodes[0].timestamp == START


@pytest.mark.parametrize("name", [b"b\xff.md", b"f\xff/b.md"], ids=["file", "folder"])
def test_name_that_is_no_utf_8_is_reported_and_the_others_are_read(
    tmp_path: Path, name: bytes
) -> None:
    make(tmp_path, {"a.md": "A.", "c.md": "C."})
    bad = Path(os.fsdecode(bytes(tmp_path) + b"/" + name))
    bad.parent.mkdir(exist_ok=True)
    bad.write_text("B.")

    records = claude(tmp_path)

    assert [one.content for record in records for one in record.episodes] == ["A.", "C."]
    (problem,) = [record for record in records if record.problem]
    assert "the name is not UTF-8" in problem.problem
    assert problem.path == name.decode("utf-8", "backslashreplace")


def test_folder_whose_own_name_is_no_utf_8_is_read(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(bytes(tmp_path) + b"/f\xff"))

    (found,) = episodes_of(claude(make(folder, {"a.md": "A."})))

    assert found.session == "f\\xff"


def test_folder_that_cannot_be_read_is_reported_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, {"a.md": "A.", "closed/b.md": "B."})
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)

    first, second = claude(tmp_path)

    assert first.episodes[0].content == "A."
    assert (second.path, second.problem) == ("closed", "the folder cannot be read")
