"""Bench: the time until a daemon is ready, installed from a wheel as its users have it."""

from __future__ import annotations

import shutil
import sys
import time
import venv
from pathlib import Path

from tests.bench.databases import Workshop
from tests.bench.measuring import Cost, Table, at_most, run
from tests.support.daemons import Home, processor_seconds
from tests.support.repository import ROOT

SECTION = "start"
RULES = 1_000

_FULL = 100_000
"""With fewer episodes this is a trial run, for which nothing is installed."""


def measure(table: Table, shop: Workshop) -> None:
    """Start with many rules, each in a file of its own; the first start gives them watermarks."""
    folder = shop.folder / "started"
    shutil.rmtree(folder, ignore_errors=True)
    is_trial = shop.large < _FULL
    home = Home(
        folder, python=sys.executable if is_trial else installed(shop.folder / "environment")
    )
    shutil.copytree(shop.pending(shop.large), home.state)
    for number in range(RULES):
        condition = f"predicate = 'p{number}' AND confidence >= 0.5"
        home.rule(f"rule-{number}", cadence={"every": 100}, when_filter=condition, start="now")
    first, *others = [_started(home) for _ in range(1 + shop.times)]
    name = f"{RULES:,} rules, {shop.large:,} episodes"
    table.seconds(SECTION, f"{name}, the first", [first])
    table.seconds(SECTION, f"{name}, to READY", others, at_most(1))
    shutil.rmtree(folder)


def _started(home: Home) -> Cost:
    began = time.monotonic()
    with home.daemon() as daemon:
        return Cost(time.monotonic() - began, processor_seconds(daemon.process.pid))


def installed(folder: Path) -> Path:
    """Install this slumberd in an environment of its own; returns its Python."""
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    run([str(python), "-m", "pip", "install", "--quiet", str(ROOT)])
    return python
