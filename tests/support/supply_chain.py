"""Check the packages of a release.

``python -m tests.support.supply_chain bill FILE`` checks a bill of materials;
``python -m tests.support.supply_chain audit PIP-AUDIT`` looks for known vulnerabilities.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.repository import ROOT
from tests.support.waiting import PATIENCE_SECONDS

LOCKS = ROOT / "requirements"
HASH = "--hash=sha256:"


def pinned(lock: str) -> list[tuple[Requirement, list[str]]]:
    """Return what a lock pins, each with its hashes."""
    entries = [line.split() for line in lock.replace("\\\n", " ").splitlines()]
    return [
        (
            Requirement(" ".join(word for word in words if not word.startswith(HASH))),
            [word.removeprefix(HASH) for word in words if word.startswith(HASH)],
        )
        for words in entries
        if words and words[0] != "#"
    ]


def version_of(pin: Requirement) -> str:
    """Return the one version that a pin lets through."""
    (only,) = pin.specifier
    assert only.operator == "==", pin
    return only.version


def versions(lock: str) -> dict[str, str]:
    """Return the version of each package that a lock pins for this very machine."""
    pins = [pin for pin, _ in pinned(lock) if pin.marker is None or pin.marker.evaluate()]
    return {str(canonicalize_name(pin.name)): version_of(pin) for pin in pins}


def missing(bill: dict[str, Any], wanted: dict[str, str]) -> list[str]:
    """Return what a bill of materials does not list of what is pinned, or lists otherwise."""
    assert bill["bomFormat"] == "CycloneDX", bill.get("bomFormat")
    listed = {
        str(canonicalize_name(component["name"])): component.get("version")
        for component in bill["components"]
    }
    return [
        f"{name} {version}: {listed.get(name, 'not there')}"
        for name, version in wanted.items()
        if listed.get(name) != version
    ]


def verdict(report: str, error: str) -> tuple[int, str]:
    """Return an exit code, and in words what an audit found; no audit is no finding.

    Args:
        report: What pip-audit prints as JSON; nothing when it could not.
        error: What it wrote to standard error.
    """
    try:
        found = json.loads(report)["dependencies"]
    except (ValueError, KeyError):
        return 0, f"skipped: the database cannot be asked: {(error.splitlines() or ['?'])[-1]}"
    known = [
        f"{package['name']} {vulnerability['id']}"
        for package in found
        for vulnerability in package.get("vulns", ())
    ]
    if known:
        return 1, f"known vulnerabilities: {', '.join(known)}"
    if unchecked := [package["name"] for package in found if "skip_reason" in package]:
        return 0, f"skipped: the database here knows nothing of {', '.join(unchecked)}"
    return 0, f"no known vulnerability in {len(found)} packages"


def audit(program: str) -> int:
    """Look the pinned packages up in the database of vulnerabilities; return an exit code."""
    lock = str(LOCKS / "run.txt")
    command = [program, "--require-hashes", "--disable-pip", "-f", "json", "-r", lock]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    code, summary = verdict(done.stdout, done.stderr)
    print(summary)
    return code


def check(bill: str) -> int:
    """Print what a bill of materials lacks of the pinned packages; return an exit code."""
    own = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = versions((LOCKS / "run.txt").read_text()) | {own["name"]: own["version"]}
    wrong = missing(json.loads(Path(bill).read_text()), wanted)
    print("\n".join(wrong) or f"the bill lists all {len(wanted)} packages")
    return bool(wrong)


if __name__ == "__main__":
    what, subject = sys.argv[1:]
    sys.exit({"bill": check, "audit": audit}[what](subject))
