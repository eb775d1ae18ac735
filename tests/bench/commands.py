"""Bench: the processor time of short commands, most of which is their start."""

from __future__ import annotations

import subprocess
import sys
from resource import RUSAGE_CHILDREN, getrusage

from tests.bench.databases import Workshop
from tests.bench.measuring import Line, Table, at_most

SECTION = "commands"

MOST_SECONDS = {
    "--help": 0.15,
    "version": 0.15,
    "facts --user mira": 0.3,
    "recent mira": 0.3,
    "why m10": 0.3,
    "status": 0.3,
}
"""The aim of each command, on the data of the demo."""


def measure(table: Table, shop: Workshop) -> None:
    """Run each command in turn, so that other load falls on all alike."""
    folder = shop.folder / "commands"
    _processor_seconds("demo", "--keep", str(folder))
    config = ["--config", str(folder / "slumberd.yaml")]
    values: dict[str, list[float]] = {words: [] for words in MOST_SECONDS}
    for _ in shop.turns():
        for words, seconds in values.items():
            seconds.append(_processor_seconds(*config, *words.split()))
    for words, seconds in values.items():
        limit = at_most(MOST_SECONDS[words])
        table.add(Line(SECTION, f"`slumberd {words}`", "s", seconds, bound=limit))


def _processor_seconds(*words: str) -> float:
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "slumberd", *words], check=True, capture_output=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
