"""The locks pin every installed package with hashes, and name no index, URL or path."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.repository import ROOT
from tests.support.supply_chain import LOCKS, missing, pinned, verdict, version_of

EXTRAS = {
    "run": (),
    "container": ("otlp", "postgres", "regex", "serve"),
    "test": ("test", "lint"),
    "english": ("english",),
    "docs": ("docs",),
    "release": ("release",),
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

pytestmark = [pytest.mark.unit, pytest.mark.skipif(not LOCKS.is_dir(), reason="not a checkout")]


@pytest.fixture(params=EXTRAS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lock(name: str) -> str:
    return Path(LOCKS, f"{name}.txt").read_text()


def of_extras(names: Iterable[str]) -> Iterator[Requirement]:
    """Yield the requirements of extras; an extra of slumberd counts as its own requirements."""
    for name in names:
        for wanted in map(Requirement, PROJECT["optional-dependencies"][name]):
            if wanted.name == PROJECT["name"]:
                yield from of_extras(wanted.extras)
            else:
                yield wanted


def test_lock_pins_every_dependency_within_its_bounds(name: str, lock: str) -> None:
    direct = [*map(Requirement, PROJECT["dependencies"]), *of_extras(EXTRAS[name])]
    pins = {canonicalize_name(pin.name): version_of(pin) for pin, _ in pinned(lock)}

    for wanted in direct:
        assert wanted.specifier.contains(pins[canonicalize_name(wanted.name)]), wanted


def test_every_pin_of_a_lock_has_hashes(lock: str) -> None:
    for pin, hashes in pinned(lock):
        assert version_of(pin)
        assert hashes, pin
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in hashes), pin


def test_lock_names_no_index_url_or_path(lock: str) -> None:
    assert not re.search(r"://|index-url|find-links|\s@\s|file:|(?<!\w)/", lock)


def test_locks_pin_the_packages_of_the_daemon_alike() -> None:
    pins_of: dict[str, set[str]] = {}
    for name in EXTRAS:
        for pin, _ in pinned(Path(LOCKS, f"{name}.txt").read_text()):
            pins_of.setdefault(f"{canonicalize_name(pin.name)};{pin.marker}", set()).add(str(pin))
    run = {canonicalize_name(pin.name) for pin, _ in pinned(Path(LOCKS, "run.txt").read_text())}

    several = [package for package, pins in pins_of.items() if len(pins) > 1]
    assert not [package for package in several if package.split(";")[0] in run]


def bill(*components: tuple[str, str]) -> dict[str, Any]:
    listed = [{"name": name, "version": version} for name, version in components]
    return {"bomFormat": "CycloneDX", "components": listed}


def test_bill_of_materials_lists_every_pin_with_its_version() -> None:
    wanted = {"a-b": "1", "c": "2"}

    assert missing(bill(("A_B", "1"), ("c", "2"), ("more", "3")), wanted) == []
    assert missing(bill(("A.B", "1")), wanted) == ["c 2: not there"]
    assert missing(bill(("a-b", "1"), ("c", "3")), wanted) == ["c 2: 3"]


def report(*dependencies: dict[str, Any]) -> str:
    return json.dumps({"dependencies": dependencies, "fixes": []})


CLEAN = {"name": "a", "version": "1", "vulns": []}
KNOWN = {"name": "b", "version": "1", "vulns": [{"id": "V-1"}]}
UNKNOWN = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("output", "code", "message"),
    [
        pytest.param(report(CLEAN), 0, "no known vulnerability in 1 packages", id="clean"),
        pytest.param(report(CLEAN, KNOWN), 1, "known vulnerabilities: b V-1", id="known"),
        pytest.param(
            report(KNOWN, UNKNOWN), 1, "known vulnerabilities: b V-1", id="known, unknown"
        ),
        pytest.param(
            report(CLEAN, UNKNOWN), 0, "skipped: the database here knows nothing of c", id="unknown"
        ),
        pytest.param("", 0, "skipped: the database cannot be asked: no way", id="no network"),
    ],
)
def test_audit_reports_vulnerabilities_and_packages_that_it_skipped(
    output: str, code: int, message: str
) -> None:
    assert verdict(output, "some\nno way") == (code, message)
