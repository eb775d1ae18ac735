"""A rule whose function fails for an episode, at the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.builders import at, episode
from tests.support.functions import FIND, MODULE, importable, write_module
from tests.support.trial_installation import TrialInstallation, rule, rules

pytestmark = pytest.mark.integration

FUNCTION = f"python:{MODULE}:find"
STAGES = f'[{{extract: {{with: "{FUNCTION}"}}}}]'
FAILS = FIND + '    if "lava" in word:\n        raise ValueError("nobody drinks lava")\n'


@pytest.fixture(autouse=True)
def modules(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "modules"
    write_module(folder, FAILS)
    with importable(folder):
        yield folder


@pytest.fixture
def site(tmp_path: Path) -> TrialInstallation:
    """Return a site with an episode that the function cannot read, and one that it can."""
    trial = TrialInstallation(tmp_path, rules(rule("drinks", stages=STAGES)))
    trial.put(
        episode("e1", content="Ada drinks tea", timestamp=at(1)),
        episode("e2", content="Ada drinks lava", timestamp=at(2)),
    )
    return trial


PROBLEM = f"extraction_failed: {FUNCTION} raised ValueError: nobody drinks lava"


@pytest.mark.slow
def test_failure_is_shown_and_ends_with_a_retry_after_the_repair(
    site: TrialInstallation, modules: Path
) -> None:
    site.fire()
    listed = site.call("quarantine", "ls").stdout
    why_not = site.call("why-not", "e2").stdout
    write_module(modules, FIND)

    retried = site.call("quarantine", "retry", "e2")

    assert "extraction_failed" in listed
    assert f"{FUNCTION} raised ValueError: nobody drinks lava" in " ".join(listed.split())
    assert PROBLEM in " ".join(why_not.split())
    assert retried.returncode == 0, retried.stderr
    facts = [(fact["id"], fact["payload"]["object"]) for fact in site.lines("facts")]
    assert facts == [("e2#1", "lava")]
    assert site.call("quarantine", "ls", "--json").stdout == ""


def test_check_reports_a_function_that_does_not_exist(
    site: TrialInstallation, modules: Path
) -> None:
    write_module(modules, "")

    checked = site.call("check")

    assert checked.returncode == 78
    assert f"module {MODULE!r} has no function 'find'" in checked.stderr + checked.stdout


@pytest.mark.slow
def test_preview_counts_what_the_function_cannot_read(site: TrialInstallation) -> None:
    report = site.against_data()

    assert report["drinks"]["channels"]["facts"]["reasons"]["quarantined"] == {
        "extraction_failed": 1
    }
