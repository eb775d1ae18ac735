"""Measure all targets: ``python -m tests.bench [SECTION ...] [--json FILE] [--keep DIR]``.

The bench prints one table: each figure with its spread, its processor time and its target. Figures
that are compared are measured in turns, in one run; nothing else should run on the machine. The
bench exits with 1 when it misses a target. With ``--profile`` it measures nothing: it samples one
consolidation, and prints where the time was spent.
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from tests.bench import (
    auditing,
    commands,
    consolidating,
    firing,
    first_search,
    forgetting,
    hosts,
    http_clients,
    moving,
    postgres,
    profiling,
    putting,
    reading,
    reference,
    search,
    serving,
    staging,
    start,
)
from tests.bench.databases import Workshop
from tests.bench.measuring import Table

SECTIONS: dict[str, Callable[[Table, Workshop], None]] = {
    consolidating.SECTION: consolidating.measure,
    firing.SECTION: firing.measure,
    putting.SECTION: putting.measure,
    reading.SECTION: reading.measure,
    auditing.SECTION: auditing.measure,
    forgetting.SECTION: forgetting.measure,
    serving.SECTION: serving.measure,
    http_clients.SECTION: http_clients.measure,
    postgres.SECTION: postgres.measure,
    hosts.SECTION: hosts.measure,
    moving.SECTION: moving.measure,
    search.SECTION: search.measure,
    first_search.SECTION: first_search.measure,
    staging.SECTION: staging.measure,
    start.SECTION: start.measure,
    commands.SECTION: commands.measure,
    reference.SECTION: reference.measure,
}


def main(words: list[str]) -> int:
    """Measure as the command line says; return the exit code."""
    options = _parse(words)
    sizes = {"small": 100, "middle": 500, "large": 1_000} if options.tiny else {}
    table = Table()
    with TemporaryDirectory(prefix="slumberd-bench-") as spare:
        folder = options.keep or Path(spare)
        folder.mkdir(parents=True, exist_ok=True)
        shop = Workshop(folder, times=options.times, **sizes)
        if options.profile:
            profiling.profile(shop)
            return 0
        for name in options.sections or SECTIONS:
            SECTIONS[name](table, shop)
    if options.json:
        document = {"machine": _machine(), "lines": [line.document() for line in table.lines]}
        options.json.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    return int(not options.tiny and not all(line.kept for line in table.lines))


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--times", type=int, default=5, help="how often each thing is measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write all figures")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="use, and leave, databases here")
    parser.add_argument("--tiny", action="store_true", help="on a few episodes, to try it out")
    parser.add_argument("--profile", action="store_true", help="say where a firing's time goes")
    options = parser.parse_args(words)
    for name in options.sections:
        if name not in SECTIONS:
            parser.error(f"there is no section {name!r}; they are {', '.join(SECTIONS)}")
    return options


def _machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "processors": os.cpu_count(),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
