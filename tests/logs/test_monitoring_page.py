"""The monitoring page documents each alert; its commands parse and its recipes run."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slumberd.cli.registry import program
from slumberd.logs.event_catalogue import CATALOGUE
from tests.support.builders import at, triple
from tests.support.installation import Installation, environment
from tests.support.lists import of_each
from tests.support.monitoring import KIT, PAGE, alerts, event_entry

pytestmark = pytest.mark.unit


def headings() -> set[str]:
    return {*re.findall(r"^#+ (.*)$", PAGE.read_text(), re.MULTILINE)}


def section(heading: str) -> str:
    return PAGE.read_text().split(f"\n### {heading}\n")[1].split("\n### ")[0]


@of_each(alerts)
def test_every_alert_has_a_section_with_meaning_and_remedy(name: str) -> None:
    annotations = alerts()[name].annotations

    assert annotations["runbook"] == f"README.md#{name.lower()}"
    assert name in headings()
    assert re.findall(r"^\* \*\*(\w+)\*\* ", section(name), re.MULTILINE) == ["Means", "Look", "Do"]
    assert {*annotations} == {"summary", "description", "runbook"}


def test_runbook_lists_exactly_the_alerts() -> None:
    assert {heading for heading in headings() if heading.startswith("Slumberd")} == {*alerts()}


def code_of_page() -> str:
    """Return the code blocks and code spans of the page, one per line."""
    text = PAGE.read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    spans = re.findall(r"`([^`\n]+)`", prose)
    return "\n".join([*blocks, *spans])


def commands() -> list[str]:
    """Return each call of slumberd that the page shows."""
    parts = re.split(r"\n|\||&&|\$\(", code_of_page())
    return sorted({part.strip() for part in parts if re.match(r"\s*slumberd [a-z]", part)})


@pytest.mark.slow
@of_each(commands)
def test_every_command_of_the_page_parses(command: str) -> None:
    context: Any = program().make_context("slumberd", shlex.split(command)[1:])
    path = ["slumberd"]
    while hasattr(context.command, "resolve_command"):
        left = [*context._protected_args, *context.args]
        if not left and context.command.invoke_without_command:
            break
        name, found, words = context.command.resolve_command(context, left)
        context = found.make_context(name, words, parent=context)
        path.append(name)

    assert shlex.split(command)[: len(path)] == path
    assert len(path) > 1


def test_runbook_reads_the_journal_of_the_daemon_only_for_its_standard_error() -> None:
    page = PAGE.read_text()
    runbook = page[page.index("## Runbook") :]

    lines = [line for line in runbook.splitlines() if "journalctl -u slumberd " in line]

    assert all("standard error" in line for line in lines)


def test_page_restarts_a_collector_after_usermod() -> None:
    joined = [line for line in PAGE.read_text().splitlines() if line.startswith("usermod ")]

    assert len(joined) == 2
    assert all("systemctl restart" in line for line in joined)


def test_page_shows_commands() -> None:
    assert len(commands()) > 25


def test_page_links_existing_files_events_and_headings() -> None:
    text = PAGE.read_text()

    for link in re.findall(r"\]\(([^)#h][^)]*)\)", text):
        assert (KIT / link).exists(), link
    for anchor in re.findall(r"\]\(#([\w-]+)\)", text):
        assert anchor in {heading.lower().replace(" ", "-") for heading in headings()}
    events = {name.split(".")[0] for name in CATALOGUE} - {"daemon", "rule", "logs"}
    named = re.findall(rf"\b((?:{'|'.join(events)})\.[a-z_]+)\b", code_of_page())
    assert {*named} - {*CATALOGUE} == {"config.alloy", "metrics.textfile"}


RULES = """\
rules:
  - id: profile
    cadence: {every: 1}
    when_filter: ""
    then_emits: [facts]
    limits: {max_deletes: 0}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An installation whose log has a result for each recipe; two lines are generated."""
    site = Installation(tmp_path_factory.mktemp("site"))
    site.rules.write_text(RULES)
    odd = triple("e2", "alice", "likes", "cake", metadata={"intent": "shout"})
    taken = triple("e3", "alice", "likes", "tea", timestamp=at(9), metadata={"intent": "delete"})
    for episodes in ([triple("e1", "alice", "likes", "tea"), odd], [taken]):
        site.put(*episodes)
        site.call("fire", "profile")
    later = [event_entry(1, "daemon.heartbeat"), event_entry(2, "firing.failed", rule_id="profile")]
    with (site.state / "slumberd.log").open("a") as log:
        log.write("".join(f"{entry.line.strip()}\n" for entry in later) + "Traceback (no JSON)\n")
    return site


def recipes() -> list[Any]:
    text = PAGE.read_text().split("\n## Recipes\n")[1].split("\n## ")[0]
    found = re.findall(r"^([^\n]+):\n\n```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [
        pytest.param(
            recipe, id=title, marks=[pytest.mark.slow] * bool(re.search(r"[(|] ?slumberd", recipe))
        )
        for title, recipe in found
    ]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("jq") is None, reason="the recipes were not run: no jq is here")
@pytest.mark.parametrize("recipe", recipes())
def test_recipe_finds_something_in_a_real_log(
    recipe: str, site: Installation, tmp_path: Path
) -> None:
    command = tmp_path / "slumberd"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m slumberd "$@"\n')
    command.chmod(0o755)
    here = environment({"SLUMBERD_CONFIG": str(site.config)})
    journal = f"cat {shlex.quote(str(site.state / 'slumberd.log'))} "

    done = subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", re.sub(r"journalctl [^|]*", journal, recipe)],
        env={**here, "PATH": f"{tmp_path}:{here['PATH']}"},
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


def test_page_has_ten_recipes() -> None:
    assert len(recipes()) == 10
