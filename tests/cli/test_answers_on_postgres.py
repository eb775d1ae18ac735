"""Commands answer on a PostgreSQL database as on files, but for the recorded differences."""

from __future__ import annotations

import re
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.support.builders import at, triple
from tests.support.engine_differences import TOLD, differences, recorded_differences
from tests.support.recorded_answers import Form
from tests.support.trial_installation import TrialInstallation, rule, rules

pytestmark = pytest.mark.integration


@pytest.mark.cases(1)
@pytest.mark.parametrize(("name", "form"), TOLD)
def test_answers_differ_from_those_on_files_as_recorded_only(
    tmp_path: Path, postgres_address: str, name: str, form: Form
) -> None:
    found, expected = (
        differences(name, form, tmp_path, postgres_address),
        recorded_differences(name, form),
    )

    changes = list(unified_diff(expected, found, "recorded", "found", lineterm="", n=8))
    assert not changes, "\n".join(changes)


READS = (
    "export",
    "export --user bob",
    "export --kind facts",
    "export --kind facts --user alice --agent rag",
    "recent alice",
    "recent bob --session s1 --json",
    "search rum --user alice --json",
    "context alice tea",
    "report --json",
    "search content --user bob --json",
    "why-not e4 --json",
    "rules --json",
    "check --against-data --json",
)
"""Commands that read, of which the stories tell other forms or none."""


@pytest.fixture
def sites(tmp_path: Path, postgres_address: str) -> list[TrialInstallation]:
    """Return two installations with the same history: on files, and on a database."""
    found = []
    for name, store in (("files", ""), ("database", f"store: {postgres_address}\n")):
        (tmp_path / name).mkdir()
        site = TrialInstallation(tmp_path / name, rules(rule("all")))
        site.config.write_text(f"{site.config.read_text()}{store}")
        site.put(
            triple("e1", "ada", "likes", "tea", timestamp=at(1)),
            triple("e2", "ada", "likes", "rum", timestamp=at(2)),
            triple("e3", "bob", "is", "here", timestamp=at(3), user="bob"),
        )
        site.fire()
        site.put(triple("e4", "bob", "is", "away", timestamp=at(4), user="bob"))
        found.append(site)
    return found


@pytest.mark.nightly
def test_commands_that_read_print_the_same_of_both_engines(sites: list[TrialInstallation]) -> None:
    printed = []
    for site in sites:
        done = [site.call(*words.split()) for words in READS]
        assert [each.returncode for each in done] == [0] * len(READS)
        folder = str(site.config.parent)
        printed.append([_NOW.sub("<now>", each.stdout.replace(folder, "")) for each in done])

    on_files, on_database = printed
    assert dict(zip(READS, on_database, strict=True)) == dict(zip(READS, on_files, strict=True))
    assert [words for words, each in zip(READS, on_files, strict=True) if not each] == []


_NOW = re.compile(r"2(?!026-01-01)\d{3}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?|\b[a-z0-9]{12}\b")
"""Instants of this run, and the ids of its runs."""
