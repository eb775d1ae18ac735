"""The container image and the compose file: linted, and their commands run without an engine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
import yaml

from slumberd.rules.settings import load_settings
from tests.support.daemons import Daemon
from tests.support.repository import ROOT
from tests.support.waiting import PATIENCE_SECONDS

FILES = ROOT / "container"
IMAGE, COMPOSE, CONFIGURATION = (
    FILES / name for name in ("Containerfile", "compose.yaml", "slumberd.yaml")
)
SCRIPTS = Path(sysconfig.get_path("scripts"))
BUILD_SECONDS = 600

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(not FILES.is_dir(), reason="not a checkout"),
]


class Instruction(NamedTuple):
    """One instruction of an image.

    Attributes:
        stage: The number of its stage, from 0.
        name: Such as ``RUN``.
        text: The rest of it, in one line.
    """

    stage: int
    name: str
    text: str


def instructions() -> Iterator[Instruction]:
    """Yield the instructions of the image."""
    lines = [line for line in IMAGE.read_text().splitlines() if not line.startswith("#")]
    stage = -1
    for line in "\n".join(lines).replace("\\\n", "").splitlines():
        name, _, text = line.strip().partition(" ")
        if name:
            stage += name == "FROM"
            yield Instruction(stage, name, " ".join(text.split()))


def texts(name: str, stage: int) -> list[str]:
    """Return the texts of the instructions of one name in a stage."""
    return [each.text for each in instructions() if each[:2] == (stage, name)]


def lint(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


@pytest.fixture
def service() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]["slumberd"]
    return found


def test_image_has_no_findings() -> None:
    found = lint(SCRIPTS / "hadolint", IMAGE)

    assert (found.returncode, found.stdout) == (0, "")


def test_linter_finds_a_mistake_in_the_image(tmp_path: Path) -> None:
    wrong = tmp_path / "Containerfile"
    wrong.write_text(IMAGE.read_text().replace("-slim AS build", " AS build\nRUN cd /tmp"))

    assert "DL3003" in lint(SCRIPTS / "hadolint", wrong).stdout


@pytest.mark.slow
def test_compose_file_follows_the_schema_of_compose(tmp_path: Path) -> None:
    check = (SCRIPTS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec")
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE.read_text().replace("read_only:", "read_olny:"))

    assert lint(*check, COMPOSE).returncode == 0
    assert "read_olny" in lint(*check, wrong).stdout


def test_compose_reads_its_file() -> None:
    command = next(
        (
            words
            for words in (["docker", "compose"], ["podman", "compose"])
            if shutil.which(words[0]) and lint(*words, "version").returncode == 0
        ),
        None,
    )
    if command is None:
        pytest.skip("no compose is here")

    found = lint(*command, "-f", COMPOSE, "config")

    assert found.returncode == 0, found.stderr


def test_everything_that_the_image_copies_exists_and_is_sent_to_the_build() -> None:
    ignore = Path(f"{IMAGE}.dockerignore").read_text().splitlines()
    allowed = [line[1:] for line in ignore if line.startswith("!")]
    copied = [
        source
        for each in instructions()
        if each.name == "COPY" and not each.text.startswith("--from")
        for source in each.text.split()[:-1]
        if source != "."
    ]

    assert copied
    assert all((ROOT / source).exists() for source in [*copied, *allowed])
    assert all(any(fnmatch(source, f"{one}*") for one in allowed) for source in copied)


def test_process_has_no_rights_and_writes_to_volumes_only(service: Mapping[str, Any]) -> None:
    assert texts("USER", 1) == ["900:900"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["network_mode"] == "none"
    assert "privileged" not in service
    written = {volume.split(":")[1] for volume in service["volumes"]}
    assert written == {"/var/lib/slumberd", "/run/slumberd"}


def test_image_and_compose_file_have_the_same_health_check(service: Mapping[str, Any]) -> None:
    [check] = texts("HEALTHCHECK", 1)
    options, _, command = check.partition(" CMD ")
    found = dict(option.removeprefix("--").split("=") for option in options.split())

    given = service["healthcheck"]
    assert orjson.loads(command) == given["test"][1:]
    assert found == {
        "interval": given["interval"],
        "timeout": given["timeout"],
        "start-period": given["start_period"],
    }


def test_container_is_stopped_later_than_the_daemon_gives_up(service: Mapping[str, Any]) -> None:
    settings = load_settings(CONFIGURATION, overrides={}, environ={})

    assert float(service["stop_grace_period"].removesuffix("s")) > settings.stop_seconds


def test_configuration_names_the_paths_of_the_image(tmp_path: Path) -> None:
    environ = {"RUNTIME_DIRECTORY": str(tmp_path)}
    settings = load_settings(CONFIGURATION, overrides={}, environ=environ)

    assert settings.state_dir == Path("/var/lib/slumberd")
    assert settings.rules_dir == Path("/etc/slumberd/rules.d")
    assert settings.http_socket_path == tmp_path / "http.sock"
    assert any("RUNTIME_DIRECTORY=/run/slumberd" in text for text in texts("ENV", 1))


@pytest.mark.nightly
def test_commands_of_the_image_build_a_daemon_that_runs(tmp_path: Path) -> None:
    """Run the commands of the build in directories of its own, then the command of the image."""
    places = {"/opt/": f"{tmp_path}/opt/", "/src": f"{tmp_path}/src"}
    build_image(tmp_path, places)
    shutil.rmtree(tmp_path / "src")
    state, run, rules = (tmp_path / name for name in ("state", "run", "rules.d"))
    for made in (state, run):
        made.mkdir(mode=0o770)
    shutil.copytree(ROOT / "rules", rules)
    configuration = tmp_path / "slumberd.yaml"
    configuration.write_text(
        CONFIGURATION.read_text()
        .replace("/var/lib/slumberd", str(state))
        .replace("/etc/slumberd/rules.d", str(rules))
    )
    environment = {
        "PATH": f"{tmp_path}/opt/slumberd/bin:{os.environ['PATH']}",
        "RUNTIME_DIRECTORY": str(run),
        "SLUMBERD_CONFIG": str(configuration),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    [entry], [command] = texts("ENTRYPOINT", 1), texts("CMD", 1)
    [check] = texts("HEALTHCHECK", 1)

    process = subprocess.Popen(
        orjson.loads(entry) + orjson.loads(command), stderr=subprocess.PIPE, env=environment
    )
    daemon = Daemon(process)
    try:
        daemon.wait_for("daemon.ready")
        healthy = subprocess.run(
            orjson.loads(check.partition(" CMD ")[2]), env=environment, capture_output=True,
            text=True, check=False, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        served = (run / "http.sock").is_socket()
        stopped = daemon.stop()
    finally:
        process.kill()
        process.wait()
        daemon.close()

    assert (healthy.returncode, healthy.stdout) == (0, "")
    assert served
    assert stopped == 0


def build_image(folder: Path, places: Mapping[str, str]) -> None:
    """Run the instructions of the first stage, with other directories for those of the image."""
    work = folder / "src"
    work.mkdir()
    (folder / "opt").mkdir()
    for each in instructions():
        if each.stage != 0:
            return
        text = each.text
        for place, other in places.items():
            text = text.replace(place, other)
        if each.name == "COPY":
            *sources, target = text.split()
            copy_sources(sources if sources != ["."] else sent_sources(), work, target)
        elif each.name == "RUN":
            words = text.replace("python -m venv", f"{sys.executable} -m venv")
            done = subprocess.run(
                ["/bin/sh", "-c", words], cwd=work, capture_output=True, text=True, check=False,
                timeout=BUILD_SECONDS,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr[-3_000:]


def sent_sources() -> list[str]:
    """Return what is sent to the build."""
    lines = Path(f"{IMAGE}.dockerignore").read_text().splitlines()
    return [line[1:] for line in lines if line.startswith("!")]


def copy_sources(sources: list[str], work: Path, target: str) -> None:
    leave_out = shutil.ignore_patterns("__pycache__", "*.db")
    for source in sources:
        found = ROOT / source
        place = work / (source if target == "." else f"{target}{found.name}")
        place.parent.mkdir(parents=True, exist_ok=True)
        if found.is_dir():
            shutil.copytree(found, place, ignore=leave_out)
        else:
            shutil.copy(found, place)
