"""`slumberd doctor` compares the notes of stages with a look at all episodes."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from slumberd.cli.commands import status
from slumberd.daemon import stage_notes
from slumberd.model.episode import Episode
from slumberd.rules.settings import Settings
from tests.support.builders import at, episode
from tests.support.installation import Installation

pytestmark = pytest.mark.integration

RULES = """\
rules:
  - id: tidy
    cadence: {cron: "0 3 * * *"}
    when_filter: ""
    then_emits: [notes]
    stages:
      - dedup: {method: jaccard}
      - decay: {half_life: 30d, protect_importance: 0.6}
"""


def said(id: str, content: str, importance: float = 0.5) -> Episode:
    metadata = {"importance": importance}
    return episode(id, content=content, timestamp=at(60), metadata=metadata)


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    """Return an installation whose notes say that an old episode and a duplicate have marks."""
    found = Installation(tmp_path)
    found.rules.write_text(RULES)
    found.put(
        said("e1", "Ann likes green tea", 0.9),
        said("e2", "Ann likes green tea", 0.9),
        said("e3", "Bob lives in Oslo"),
        said("e4", "Ann lives in Rome", 0.9),
    )
    for _ in range(2):  # at first, what was marked is looked at again
        assert found.call("fire", "tidy").returncode == 0
    return found


def findings(site: Installation, *options: str) -> list[str]:
    done = site.call("doctor", "--json", *options)
    found = json.loads(done.stdout)
    return [
        *(one["problem"] for one in found["findings"] if one["id"] == "stage_notes.damaged"),
        *(one for one in found["unfinished"] if "stages.db" in one),
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param("", None, id="nothing"),
        pytest.param(
            "UPDATE stage_entries SET due = 9e17 WHERE eid = 'e4'",
            "the note of 'e4' has a wrong due",
            id="an instant",
        ),
        pytest.param(
            "UPDATE stage_entries SET archived_at = NULL, kept = '' WHERE eid = 'e1'",
            "the note of 'e1' has a wrong kept and archived_at",
            id="what is kept, and since when",
        ),
        pytest.param(
            "DELETE FROM stage_entries WHERE eid = 'e4'; DELETE FROM stage_traces WHERE eid = 'e4'",
            "the note of 'e4' is missing",
            id="a note is lost",
        ),
        pytest.param(
            "INSERT INTO stage_entries SELECT owner, 'e9', rule, NULL, '', x'', NULL, NULL"
            " FROM stage_entries WHERE eid = 'e4'",
            "the note of 'e9' is of no use: no stage sees the episode",
            id="a note of nothing",
        ),
    ],
)
def test_doctor_names_the_first_wrong_note(
    site: Installation, change: str, problem: str | None
) -> None:
    path = site.state / "stages.db"
    with closing(sqlite3.connect(path)) as notes:
        notes.executescript(change)
    before = path.read_bytes()

    found = findings(site)

    assert found == ([] if problem is None else [f"rule 'tidy': {problem}"])
    assert path.read_bytes() == before


def test_doctor_passes_over_what_the_next_firing_looks_at(site: Installation) -> None:
    with closing(sqlite3.connect(site.state / "stages.db")) as notes, notes:
        notes.execute("UPDATE stage_entries SET due = 9e17 WHERE eid = 'e4'")

    site.put(said("e4", "Ann lives in Rome again"))

    assert findings(site) == []


def test_doctor_compares_nothing_when_the_next_firing_looks_at_all(site: Installation) -> None:
    with closing(sqlite3.connect(site.state / "stages.db")) as notes, notes:
        notes.execute("UPDATE stage_entries SET due = 9e17 WHERE eid = 'e4'")

    site.rules.write_text(RULES.replace("30d", "31d"))

    assert findings(site) == []


def test_doctor_says_when_the_comparison_takes_too_long(
    site: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "QUICK_SECONDS", 1e-9)

    assert findings(site) == [f"notes in {str(site.state / 'stages.db')!r}"]
    assert findings(site, "--deep") == []


def test_doctor_compares_nothing_of_a_rule_that_has_not_fired(site: Installation) -> None:
    site.rules.write_text(RULES + RULES.replace("rules:\n", "").replace("tidy", "other"))

    assert findings(site) == []


@pytest.mark.parametrize("library", ["numpy", "rapidfuzz", "wordllama"])
@pytest.mark.parametrize("is_installed", [True, False])
def test_notes_of_another_version_of_a_library_are_not_used(
    library: str, is_installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(state_dir=tmp_path, rules_dir=tmp_path)
    before = stage_notes.stage_file_of(settings)

    def other(name: str) -> str:
        if name != library:
            return version(name)
        if not is_installed:
            raise PackageNotFoundError(name)
        return "0.0.1"

    monkeypatch.setattr(stage_notes, "version", other)
    after = stage_notes.stage_file_of(settings)

    assert before is not None
    assert after is not None
    assert before.reading != after.reading
