"""Measure all targets: ``python -m tests.bench [SECTION ...] [--json FILE] [--keep DIR]``.

The bench prints one table: each figure with its spread, its processor time and its target. Figures
that are compared are measured in turns, in one run; nothing else should run on the machine. The
bench exits with 1 when it misses a target. It prints the commit, and the load of the machine before
and after. What a run leaves out has a row that says so. Each thing is measured ``--times`` times,
but not again when that has taken ``--patience`` seconds. The section ``year`` takes hours, so it
runs only when it is named. ``python -m tests.bench.figures FILE`` takes the figures of a run into
the documentation. With ``--profile`` the bench measures nothing: it samples one consolidation, and
prints where the time was spent.
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
    chats,
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
    year,
)
from tests.bench.databases import PATIENCE_SECONDS, Workshop
from tests.bench.measuring import Table, commit
from tests.year.stream import Size

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
    chats.SECTION: chats.measure,
    search.SECTION: search.measure,
    first_search.SECTION: first_search.measure,
    staging.SECTION: staging.measure,
    start.SECTION: start.measure,
    commands.SECTION: commands.measure,
    reference.SECTION: reference.measure,
    year.SECTION: year.measure,
}

LONG = {year.SECTION}
"""The sections that run only when the command names them."""

AIMS = {
    consolidating.SECTION: {
        "to floor of the fewest rows": "at most 3.5 x",
        "to floor of its own rows": "at most 2.2 x",
    },
    firing.SECTION: {"ids at random, processor": "at most 1.2 x"},
    putting.SECTION: {"64 at once": "at least 50 x"},
    auditing.SECTION: {"rows, `verify`": "at least 100,000 rows/s"},
    forgetting.SECTION: {"1 user of": "follows the user's data"},
    serving.SECTION: {"longest gap, its own": "at most 30 ms"},
    search.SECTION: {
        "a user with 100,000": "at most 20 ms",
        "beside": "at most 2 x",
        "memory": "has a bound in bytes",
    },
    "first-search": {"the saved index": "under 0.15 s"},
    staging.SECTION: {"one new episode": "at most 1.3 x, and under 50 ms of processor time"},
    commands.SECTION: {"slumberd facts": "at most 0.3 s of processor time"},
    year.SECTION: {"last month to first": "at most 1.3 x"},
}
"""What costs must follow what is new: by section, a part of the names of its rows, and the aim."""


def main(words: list[str]) -> int:
    """Measure as the command line says; return the exit code."""
    options = _parse(words)
    sizes: dict[str, Any] = {"year": _year(options.year_share)}
    if options.tiny:
        sizes = {"small": 100, "middle": 500, "large": 1_000, "year": Size(5, 300, 6, 2)}
    table, machine = Table(), _machine()
    print(f"commit {machine['commit']}, load {_in_words(machine['load'])}", flush=True)
    with TemporaryDirectory(prefix="slumberd-bench-") as spare:
        folder = options.keep or Path(spare)
        folder.mkdir(parents=True, exist_ok=True)
        shop = Workshop(folder, times=options.times, patience=options.patience, **sizes)
        if options.profile:
            profiling.profile(shop)
            return 0
        for name in options.sections or [name for name in SECTIONS if name not in LONG]:
            SECTIONS[name](table, shop)
    _show_left_out(table)
    machine["load_after"] = os.getloadavg()
    print(f"load afterwards {_in_words(machine['load_after'])}")
    if options.json:
        document = {"machine": machine, "lines": [line.document() for line in table.lines]}
        options.json.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    return int(not options.tiny and not all(line.kept for line in table.lines))


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--times", type=int, default=5, help="how often each thing is measured")
    parser.add_argument(
        "--patience",
        type=float,
        default=PATIENCE_SECONDS,
        metavar="SECONDS",
        help="a measurement is not repeated after so long",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write all figures")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="use, and leave, databases here")
    parser.add_argument("--tiny", action="store_true", help="on a few episodes, to try it out")
    parser.add_argument(
        "--year-share", type=float, default=1.0, help="of the users and episodes of the year"
    )
    parser.add_argument("--profile", action="store_true", help="say where a firing's time goes")
    options = parser.parse_args(words)
    for name in options.sections:
        if name not in SECTIONS:
            parser.error(f"there is no section {name!r}; they are {', '.join(SECTIONS)}")
    return options


def _year(share: float) -> Size:
    whole = Size()
    return Size(round(whole.users * share), round(whole.episodes * share))


def _show_left_out(table: Table) -> None:
    """Print a row for each section, and each aim, that no line of the table is about."""
    for section in dict.fromkeys([*SECTIONS, *AIMS]):
        names = [line.name for line in table.lines if line.section == section]
        if not names and section not in AIMS:
            table.leave_out(section, "all", "")
        for part, aim in AIMS.get(section, {}).items():
            if not any(part in name for name in names):
                table.leave_out(section, part, aim)


def _in_words(load: tuple[float, float, float]) -> str:
    return ", ".join(f"{part:.1f}" for part in load)


def _machine() -> dict[str, Any]:
    return {
        "commit": commit(),
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "processors": os.cpu_count(),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
