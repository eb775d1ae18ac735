"""Bench: a simulated year through a real daemon, with what must not grow in it.

Its figures are written to ``year.json`` in the directory of the bench. ``python -m tests.year
FILE`` takes such a file into the documentation, and draws its picture.
"""

from __future__ import annotations

import shutil

from tests.bench.databases import Workshop
from tests.bench.measuring import Bound, Line, Table, commit
from tests.year.figures import Figures, laws
from tests.year.run import Month, YearRun

SECTION = "year"
FILE = "year.json"


def measure(table: Table, shop: Workshop) -> None:
    """Run a year, write its figures, and compare them with the laws."""
    folder = shop.folder / "year"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    year = YearRun(folder, shop.year, turns=shop.times, show=_show)
    figures = Figures(shop.year, year.run(), year.grown, year.compared, commit())
    figures.write(shop.folder / FILE)
    print(f"{SECTION}: the figures are in {shop.folder / FILE}")
    for law in laws(figures):
        bound = Bound("at most", law.most)
        table.add(Line(SECTION, law.name, law.unit, [law.value], bound=bound))
    shutil.rmtree(folder)


def _show(month: Month) -> None:
    print(
        f"{SECTION}: month {month.month}: {month.put:,} versions, firing {month.firing:.1f} ms,"
        f" nightly {month.nightly:.0f} ms, {month.resident:.0f} MiB",
        flush=True,
    )
