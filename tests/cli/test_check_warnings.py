"""`slumberd check` prints warnings apart from mistakes, and `--strict` makes it fail for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.installation import Installation

pytestmark = pytest.mark.path

DOUBTFUL = """rules:
  - id: sure
    cadence: {every: 1}
    when_filter: "confidence >= 50"
    then_emits: [fact]
"""


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    site = Installation(tmp_path)
    site.rules.write_text(DOUBTFUL)
    return site


def test_warnings_are_on_standard_error_and_do_not_fail(site: Installation) -> None:
    done = site.look("check")

    assert done.returncode == 0
    assert done.stdout == "valid: 1 rule in 1 file: sure; 2 warnings\n"
    assert done.stderr.splitlines() == [
        f"slumberd: warning: {site.rules}:4:19: rules[0].when_filter: is never true:"
        " confidence is a number from 0 to 1",
        f"slumberd: warning: {site.rules}:5:18: rules[0].then_emits[0]: emits into channel"
        " 'fact', which nothing else names; did you mean 'facts'? The facts of a channel have ids"
        " of their own, and replace none of another channel",
    ]


def test_strict_fails_for_a_warning_only(site: Installation) -> None:
    strict = site.look("check", "--strict")
    site.rules.write_text(DOUBTFUL.replace("50", "0.5").replace("fact]", "facts]"))
    well = site.look("check", "--strict")

    assert (strict.returncode, well.returncode) == (78, 0)
    assert "warning: " in strict.stderr
    assert well.stderr == ""


def test_json_has_the_warnings_apart_from_the_mistakes(site: Installation) -> None:
    [answer] = site.lines("check")
    strict = json.loads(site.look("check", "--strict", "--json").stdout)

    assert (answer["ok"], answer["mistakes"], answer["rules"]) == (True, [], ["sure"])
    assert [(one["line"], one["path"]) for one in answer["warnings"]] == [
        (4, "rules[0].when_filter"),
        (5, "rules[0].then_emits[0]"),
    ]
    assert strict == {**answer, "ok": False}


@pytest.mark.parametrize("given", [True, False], ids=["PATH", "configuration"])
def test_directory_without_rule_files_is_a_warning(site: Installation, *, given: bool) -> None:
    site.rules.rename(site.rules.with_name("rules.txt"))

    done = site.look("check", *[str(site.rules.parent)] * given)

    assert done.returncode == 0
    assert f"warning: {site.rules.parent}: has no rule files" in done.stderr


def test_doctor_reports_what_check_warns_of(site: Installation) -> None:
    assert site.call("fire", "sure").returncode == 0

    found = json.loads(site.look("doctor", "--json").stdout)["findings"]

    doubtful = [one for one in found if one["id"] == "rules.doubtful"]
    assert [one["subject"] for one in doubtful] == [f"{site.rules}:4:19", f"{site.rules}:5:18"]
    assert {one["severity"] for one in doubtful} == {"warning"}
