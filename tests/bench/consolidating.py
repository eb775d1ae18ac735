"""Bench: from pending episodes to committed facts, against the floor."""

from __future__ import annotations

import json
import shutil
import sys
from statistics import median

from tests.bench.databases import Workshop
from tests.bench.measuring import Cost, Line, Table, at_most, run

SECTION = "consolidate"
MOST_MEBIBYTES = 300 * 10**6 / 2**20


def measure(table: Table, shop: Workshop) -> None:
    """Fire on what is pending, every delta a line in a file, in turns with the floor.

    What the same command takes when nothing is pending is not the consolidation's, and is left
    out of the ratio.
    """
    starts = [_nothing_pending(shop) for _ in range(shop.times)]
    table.seconds(SECTION, "`fire`, nothing pending", starts)
    start = median(cost.wall for cost in starts)
    for count in (shop.middle, shop.large):
        pairs = [_pair(shop, count) for _ in range(shop.times)]
        ours, floor = [first for first, _ in pairs], [second for _, second in pairs]
        what = f"{count:,} episodes"
        table.seconds(SECTION, f"{what}, `fire`", ours)
        table.seconds(SECTION, f"{what}, floor", floor)
        walls = [cost.wall - start for cost in ours], [cost.wall for cost in floor]
        table.ratio(SECTION, f"{what}, times the floor", walls, at_most(2.5))
        resident = [cost.resident for cost in ours]
        table.add(Line(SECTION, f"{what}, memory", "MiB", resident, bound=at_most(MOST_MEBIBYTES)))


def _nothing_pending(shop: Workshop) -> Cost:
    home = shop.home(shop.consolidated(shop.small))
    cost = run(home.command("fire", "all"))
    shutil.rmtree(home.folder)
    return cost


def _pair(shop: Workshop, count: int) -> tuple[Cost, Cost]:
    home = shop.home(shop.pending(count))
    ours = run(home.command("fire", "all"))
    output = home.folder / "floor.json"
    facts = home.state / "facts.db"
    run([sys.executable, "-m", "tests.bench.floor", facts, home.folder / "floor.db"], to=output)
    shutil.rmtree(home.state)
    floor = Cost(**json.loads(output.read_bytes()))
    shutil.rmtree(home.folder)
    return ours, floor
