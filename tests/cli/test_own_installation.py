"""A message about a missing extra has the command that installs it where slumberd runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from slumberd.cli import own_installation
from slumberd.cli.own_installation import install_command, name_own_pip, own_program

pytestmark = pytest.mark.unit


class Recorded:
    """The record that pip keeps of an installed distribution."""

    def __init__(self, text: str | None) -> None:
        self._text = text

    def read_text(self, name: str) -> str | None:
        """Return the text of a file of the record."""
        assert name == "direct_url.json"
        return self._text


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with an environment in it that is not active, as the README makes it."""
    project = tmp_path / "a project"
    for name in ("pip", "slumberd"):
        program = project / ".venv" / "bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(project / ".venv"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(project)
    return project


def installed_from(monkeypatch: pytest.MonkeyPatch, **record: Any) -> None:
    text = json.dumps(record) if record else None
    monkeypatch.setattr(own_installation, "distribution", lambda _: Recorded(text))


def test_local_project_is_installed_by_the_pip_of_its_environment(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed_from(monkeypatch, url=project.as_uri(), dir_info={})

    assert install_command("serve") == ".venv/bin/pip install '.[serve]'"
    assert own_program() == ".venv/bin/slumberd"


def test_from_another_directory_the_paths_are_absolute(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed_from(monkeypatch, url=project.as_uri(), dir_info={"editable": True})
    monkeypatch.chdir("/usr")

    assert install_command("serve") == f"'{project}/.venv/bin/pip' install -e '{project}[serve]'"
    assert own_program() == f"'{project}/.venv/bin/slumberd'"


def test_active_environment_needs_no_path(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed_from(monkeypatch, url=project.as_uri(), dir_info={})
    monkeypatch.setenv("PATH", f"{project}/.venv/bin:/usr/bin:/bin")

    assert install_command("serve") == "pip install '.[serve]'"
    assert own_program() == "slumberd"


@pytest.mark.parametrize(
    "record",
    [
        pytest.param({}, id="from an index"),
        pytest.param({"url": "https://example.org/x.whl"}, id="from an address"),
        pytest.param({"url": "file:///nowhere/at/all", "dir_info": {}}, id="the project is gone"),
    ],
)
def test_without_a_local_project_the_package_is_named(
    project: Path, monkeypatch: pytest.MonkeyPatch, record: dict[str, Any]
) -> None:
    installed_from(monkeypatch, **record)

    assert install_command("llm") == ".venv/bin/pip install 'slumberd[llm]'"


def test_environment_without_pip_names_pip(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed_from(monkeypatch)
    (project / ".venv/bin/pip").unlink()

    assert install_command("llm") == "pip install 'slumberd[llm]'"


def test_command_in_a_message_is_replaced(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed_from(monkeypatch, url=project.as_uri(), dir_info={})

    message = name_own_pip("no: install it with `pip install 'slumberd[graph]'`; 2 more need it")

    assert message == "no: install it with `.venv/bin/pip install '.[graph]'`; 2 more need it"
