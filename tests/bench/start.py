"""Measure how long a daemon takes to be ready: ``python -m tests.bench.start [EPISODES [RULES]]``.

Each rule is in a file of its own and begins with what comes; the databases are in the directory for
temporary files. slumberd is installed as its users install it: from a wheel, in an environment of
its own, compiled. Prints the wall clock of each start, the first one with 0 watermarks.
"""

from __future__ import annotations

import sys
import tempfile
import time
import venv
from pathlib import Path

from tests.bench.measuring import run
from tests.bench.worlds import write_episodes
from tests.daemons import Home

STARTS = 8
ROOT = Path(__file__).parents[2]


def main(count: int, rules: int) -> None:
    """Measure, and print a line for each start."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder), python=installed(Path(folder, "environment")))
        for number in range(rules):
            condition = f"predicate = 'p{number}' AND confidence >= 0.5"
            home.rule(f"rule-{number}", cadence={"every": 100}, when_filter=condition, start="now")
        source = home.folder / "episodes.jsonl"
        write_episodes(source, count)
        run(home.command("import", source))
        for number in range(STARTS):
            began = time.monotonic()
            with home.daemon():
                took = time.monotonic() - began
            print(f"start {number + 1}: {took:.2f} s, with {rules} rules and {count} episodes")


def installed(folder: Path) -> Path:
    """Install this slumberd in a new environment; returns its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run([str(python), "-m", "pip", "install", "--quiet", str(ROOT)])
    return python


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    main(*(given + [1_000_000, 1_000][len(given) :]))
