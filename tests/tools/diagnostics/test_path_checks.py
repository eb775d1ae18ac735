"""`slumberd check` and `slumberd doctor` name each path with which the daemon does not start."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from slumberd.rules.settings import Settings, load_settings
from slumberd.tools.diagnostics.host_checks import Account, Machine
from slumberd.tools.diagnostics.path_checks import (
    account_of,
    find_path_mistakes,
    find_unreadable_files,
)
from slumberd.web.http.access import read_tokens
from tests.support.installation import Installation
from tests.support.repository import ROOT as REPOSITORY

pytestmark = pytest.mark.integration

ROOT = Account("root", 0, frozenset({0}))
STRANGER = Account("stranger", 54_321, frozenset({54_321}))
EXTRACTING = """
rules:
  - id: booking
    cadence: {every: 1}
    when_filter: ""
    then_emits: [facts]
    stages:
      - extract: {with: patterns, patterns: patterns.d/own.yaml}
"""
NOWHERE = Machine(systemd=Path("/nowhere"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file, and with directories of rules and of the state."""
    (tmp_path / "a-file").write_text("no token")
    (tmp_path / "rules.d").mkdir()
    (tmp_path / "state").mkdir()
    return tmp_path


def settings_in(folder: Path, *lines: str, environ: dict[str, str] | None = None) -> Settings:
    file = folder / "slumberd.yaml"
    file.write_text("\n".join(["state_dir: state", *lines, ""]).replace("HERE", str(folder)))
    return load_settings(file, overrides={}, environ=environ or {})


def mistakes_in(settings: Settings, account: Account = ROOT) -> list[tuple[int, str, str]]:
    file = settings.rules_dir.with_name("slumberd.yaml")
    found = find_path_mistakes(
        settings, file, read_tokens=read_tokens, account=account, machine=NOWHERE
    )
    return [(mistake.line, mistake.path, mistake.problem) for mistake in found]


def let_everybody_enter(folder: Path) -> None:
    """Let everybody read a folder, and enter those around it, as far as tests have made them."""
    for each in (folder, *folder.parents):
        if each.stat().st_mode & 0o1005 == 0:
            each.chmod(0o755)


REFUSED = {
    "logging: {file: none/x.log}": "does not exist; make it",
    "logging: {file: HERE/a-file/x.log}": "is no directory; make it",
    "logging: {file: HERE/state}": "is a directory, not a file",
    "memory: {path: HERE/a-file/m.db}": "is a file; name another place",
    "memory: {path: HERE/state}": "is a directory, not a file",
    "facts: {path: HERE/a-file/f.db}": "is a file; name another place",
    "facts: {key_file: key}": "write an absolute path",
    "facts: {key_file: HERE/none}": "cannot be read: No such file",
    "provenance: {sink: file, file: HERE/state}": "is a directory, not a file",
    "metrics: {textfile: HERE/none/x.prom}": "does not exist; make it",
    "serve: {enabled: true, tokens_file: tokens}": "write an absolute path",
    "serve: {enabled: true, tokens_file: HERE/none}": "cannot be read: No such file",
    "serve: {enabled: true, tokens_file: HERE/a-file}": "chmod 600 it",
    "serve: {enabled: true, socket: HERE/none/http.sock}": "does not exist; make it",
}


@pytest.mark.parametrize("line", REFUSED)
def test_path_that_the_daemon_refuses_is_a_mistake_at_its_line(folder: Path, line: str) -> None:
    [found] = mistakes_in(settings_in(folder, line))

    section, key = line.partition(": {")[0], line.rpartition(": ")[0].split("{")[-1].split(", ")[-1]
    assert found[:2] == (2, f"{section}.{key}")
    assert REFUSED[line] in found[2]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([], id="nothing set"),
        pytest.param(["logging: {file: x.log}"], id="a log in the state directory"),
        pytest.param(["memory: {path: new/m.db}"], id="a directory that the daemon makes"),
        pytest.param(["serve: {tokens_file: tokens}"], id="no interface"),
        pytest.param(["serve: {enabled: true}"], id="the usual socket"),
        pytest.param(["graph: {path: none.lbug}"], id="a graph that comes later"),
        pytest.param(["provenance: {file: HERE/state}"], id="no sink"),
    ],
)
def test_path_that_the_daemon_uses_is_no_mistake(folder: Path, lines: list[str]) -> None:
    assert mistakes_in(settings_in(folder, *lines)) == []


@pytest.mark.parametrize("target", ["none/x.log", "a-file/x.log"])
def test_link_that_leads_to_no_place_for_a_file_is_a_mistake(folder: Path, target: str) -> None:
    (folder / "link.log").symlink_to(folder / target)

    [(_, path, problem)] = mistakes_in(settings_in(folder, "logging: {file: HERE/link.log}"))

    assert path == "logging.file"
    assert str(folder / target.partition("/")[0]) in problem


def test_link_to_a_file_that_comes_later_is_no_mistake(folder: Path) -> None:
    (folder / "link.log").symlink_to(folder / "later.log")

    assert mistakes_in(settings_in(folder, "logging: {file: HERE/link.log}")) == []


@pytest.mark.parametrize(
    ("place", "problem"),
    [("a-file", "is a file, not a directory"), ("a-file/state", "is a file; name another place")],
)
def test_state_directory_that_cannot_be_one_is_a_mistake(
    folder: Path, place: str, problem: str
) -> None:
    settings = settings_in(folder)
    settings = settings.model_copy(update={"state_dir": folder / place})

    [(_, path, found)] = mistakes_in(settings)

    assert path == "state_dir"
    assert problem in found


def test_tokens_file_with_mistakes_is_a_mistake(folder: Path) -> None:
    tokens = folder / "tokens"
    tokens.write_text("tokens: [{name: a}]\n")
    tokens.chmod(0o600)

    [*found] = mistakes_in(settings_in(folder, "serve: {enabled: true, tokens_file: HERE/tokens}"))

    assert {(line, path) for line, path, _ in found} == {(2, "serve.tokens_file")}


@pytest.fixture
def unit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A host with systemd, and a unit whose state directory is that of the settings."""
    (folder / "systemd").mkdir()
    (folder / "slumberd.service").write_text("[Service]\nUser=nobody\n")
    monkeypatch.setattr("slumberd.tools.diagnostics.host_checks.SYSTEM_STATE", folder / "state")
    return Machine(
        systemd=folder / "systemd", units=(folder,), shipped=folder / "none", clock_command=()
    )


def test_secret_that_the_unit_gives_to_the_daemon_is_no_mistake(
    folder: Path, unit: Machine
) -> None:
    settings = settings_in(folder, "serve: {enabled: true, tokens_file: tokens}")
    missing = find_path_mistakes(settings, None, account=ROOT, machine=unit)
    with (folder / "slumberd.service").open("a") as file:
        file.write("LoadCredential=tokens:/etc/slumberd/tokens\n")

    assert [mistake.path for mistake in missing] == ["serve.tokens_file"]
    assert find_path_mistakes(settings, None, account=ROOT, machine=unit) == []


def test_state_directory_that_systemd_makes_is_no_mistake(folder: Path, unit: Machine) -> None:
    settings = settings_in(folder, "memory: {path: deep/m.db}", "logging: {file: none/x.log}")
    (folder / "state").rmdir()
    folder.chmod(0o755)

    found = find_path_mistakes(settings, None, machine=unit)

    assert [mistake.path for mistake in found] == ["logging.file"]


def test_credential_of_this_process_is_read(folder: Path) -> None:
    given = folder / "credentials"
    given.mkdir()
    environ = {"CREDENTIALS_DIRECTORY": str(given)}
    settings = settings_in(folder, "facts: {key_file: key}", environ=environ)
    missing = mistakes_in(settings)
    (given / "key").write_bytes(b"k" * 32)

    assert [path for _, path, _ in missing] == ["facts.key_file"]
    assert mistakes_in(settings) == []


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("logging: {file: HERE/other/x.log}", "logging.file"),
        ("memory: {path: HERE/other/m.db}", "memory.path"),
        ("serve: {enabled: true, socket: HERE/other/x.sock}", "serve.socket"),
        ("facts: {key_file: HERE/other/key}", "facts.key_file"),
    ],
)
def test_path_that_another_user_owns_is_a_mistake(folder: Path, line: str, key: str) -> None:
    let_everybody_enter(folder)
    (folder / "state").chmod(0o777)
    other = folder / "other"
    other.mkdir(mode=0o755)
    (other / "key").write_bytes(b"k" * 32)
    (other / "key").chmod(0o600)

    [(_, path, problem)] = mistakes_in(settings_in(folder, line), STRANGER)

    assert path == key
    assert ": user 'stranger', whom the daemon runs as, cannot" in problem


def test_files_that_the_daemon_cannot_read_are_mistakes(folder: Path) -> None:
    let_everybody_enter(folder)
    settings = settings_in(folder)
    rule = folder / "rules.d" / "a.yaml"
    rule.write_text("rules: []\n")
    rule.chmod(0o600)
    config = folder / "slumberd.yaml"

    found = list(find_unreadable_files(settings, config, STRANGER))
    config.chmod(0o600)
    both = list(find_unreadable_files(settings, config, STRANGER))

    assert [mistake.file for mistake in found] == [str(rule)]
    assert f"run `chmod o+rX {rule}`" in found[0].problem
    assert [mistake.file for mistake in both] == [str(config), str(rule)]
    assert list(find_unreadable_files(settings, config, ROOT)) == []


def test_daemon_runs_as_the_owner_of_the_state_directory(folder: Path) -> None:
    settings = settings_in(folder)

    assert account_of(settings, NOWHERE).uid == (folder / "state").stat().st_uid
    (folder / "state").rmdir()
    assert account_of(settings, NOWHERE).uid == os.geteuid()


@pytest.mark.path
def test_check_and_doctor_name_the_line_and_the_remedy(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    site.config.write_text("state_dir: state\nrules_dir: rules.d\nlogging: {file: none/x.log}\n")

    checked, daemon = site.call("check"), site.call("run")
    document = json.loads(site.call("check", "--json").stdout)
    found = json.loads(site.call("doctor", "--json").stdout)["findings"]

    place = f"{site.config}:3:17: logging.file: "
    assert (checked.returncode, daemon.returncode) == (78, 78)
    assert place in checked.stdout
    assert "make it, or name another place" in checked.stdout
    assert [mistake["line"] for mistake in document["mistakes"]] == [3]
    [finding] = [one for one in found if one["id"] == "config.invalid"]
    assert finding["subject"] == str(site.config)
    assert "3:17: logging.file: " in finding["problem"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_check_names_a_rule_file_that_the_daemon_cannot_read(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    let_everybody_enter(site.rules.parent)
    site.state.mkdir(exist_ok=True)
    for file, mode in ((site.state, 0o700), (site.config, 0o644), (site.rules, 0o640)):
        file.chmod(mode)
    os.chown(site.state, 54_321, 54_321)

    checked = site.call("check")
    os.chown(site.rules, -1, 54_321)
    well = site.call("check")

    assert (checked.returncode, well.returncode) == (78, 0)
    assert f"{site.rules}: user '54321', whom the daemon runs as, cannot read it" in checked.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_check_and_doctor_name_a_pattern_file_that_the_daemon_cannot_read(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    let_everybody_enter(site.rules.parent)
    site.state.mkdir(exist_ok=True)
    patterns = site.rules.parent / "patterns.d" / "own.yaml"
    patterns.parent.mkdir()
    patterns.write_text((REPOSITORY / "docs/examples/booking.yaml").read_text())
    site.rules.write_text(EXTRACTING)
    for file, mode in ((site.state, 0o700), (site.config, 0o644), (site.rules, 0o644)):
        file.chmod(mode)
    patterns.parent.chmod(0o755)
    patterns.chmod(0o600)
    os.chown(site.state, 54_321, 54_321)

    checked = site.call("check")
    found = json.loads(site.call("doctor", "--json").stdout)["findings"]
    patterns.chmod(0o644)
    well = site.call("check")

    assert (checked.returncode, well.returncode) == (78, 0)
    assert f"{patterns}: user '54321', whom the daemon runs as, cannot read it" in checked.stdout
    assert any(one["subject"] == str(patterns) for one in found if one["id"] == "config.invalid")
