"""The README: what it shows is run, what it lists is all there is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from slumberd.cli import call
from slumberd.cli.registry import ENTRIES
from tests.support.calling import called
from tests.support.commands import every_command

pytestmark = pytest.mark.integration

README = Path(__file__).parents[2] / "README.md"


def blocks(section: str) -> dict[str, str]:
    """Return the fenced blocks of a section by language; the plain one by nothing."""
    text = README.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which `slumberd` is this one, and nothing is configured."""
    command = tmp_path / "bin" / "slumberd"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m slumberd "$@"\n')
    command.chmod(0o755)
    ours = {k: v for k, v in os.environ.items() if not k.startswith("SLUMBERD_")}
    config = tmp_path / "empty.yaml"
    config.write_text("rules_dir: state/rules.d\n")
    path = f"{command.parent}:{os.environ['PATH']}"
    return {**ours, "PATH": path, "SLUMBERD_CONFIG": str(config)}


@pytest.mark.parametrize("program", ["sh", "bash"])
def test_quickstart_of_the_readme_can_be_pasted_whole_into_a_shell(
    tmp_path: Path, shell: dict[str, str], program: str
) -> None:
    shown = blocks("Quickstart")

    # A shell reads what is pasted from its standard input, as the commands in it do.
    done = subprocess.run(
        [program],
        input=shown["sh"].encode(),
        cwd=tmp_path,
        env=shell,
        check=True,
        capture_output=True,
    )

    assert done.stdout.decode().endswith(shown[""])
    assert "1 test: 1 passed, 0 failed" in done.stdout.decode()


def test_rule_put_and_fact_of_the_readme_are_as_it_says(
    tmp_path: Path, shell: dict[str, str]
) -> None:
    shown = blocks("A rule, a put and a fact")
    rules = tmp_path / "state" / "rules.d"
    rules.mkdir(parents=True)
    (rules / "tastes.yaml").write_text(shown["yaml"])

    subprocess.run([sys.executable, "-c", shown["python"]], cwd=tmp_path, env=shell, check=True)
    done = subprocess.run(
        ["/bin/sh", "-ec", shown["sh"]], cwd=tmp_path, env=shell, check=True, capture_output=True
    )

    assert done.stdout.decode().endswith(shown[""])


def test_test_of_the_readme_passes_and_fails_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = blocks("Test your rules")
    rules = tmp_path / "state" / "rules.d"
    rules.mkdir(parents=True)
    tastes = blocks("A rule, a put and a fact")["yaml"]
    (rules / "tastes.yaml").write_text(tastes)
    (rules / "tastes.test.yaml").write_text(shown["yaml"])
    monkeypatch.chdir(tmp_path)
    command = shown["sh"].split()[1:]

    passed = call(command)
    capsys.readouterr()
    (rules / "tastes.yaml").write_text(tastes.replace("0.5", "0.3"))
    failed = call(command)

    assert (passed, failed, capsys.readouterr().out) == (0, 1, shown[""])


@pytest.mark.parametrize("name", ["demo", "test"])
def test_command_that_ci_runs_is_marked(name: str) -> None:
    marked = rf"^<!-- ci: {name} -->\n```sh\npython3 -m venv "

    assert re.search(marked, README.read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", [entry.name for entry in ENTRIES])
def test_every_command_is_in_the_table(name: str) -> None:
    table = [line for line in README.read_text().splitlines() if line.startswith("| `slumberd")]

    assert any(f"`slumberd {name}" in line for line in table)


def test_every_file_that_the_readme_names_is_there() -> None:
    named = re.findall(r"`((?:tests|config|rules|systemd)/[\w./]*)`", README.read_text())

    assert [path for path in named if not (README.parent / path).exists()] == []


WITHOUT_JSON = {"run", "demo", "init", "logs", "audit export"}
"""Commands of which the README says that they take no ``--json``."""


@pytest.mark.parametrize("name", sorted(set(every_command()) - WITHOUT_JSON))
def test_every_other_command_takes_json(name: str) -> None:
    assert "--json" in called(*name.split(), "--help").stdout
