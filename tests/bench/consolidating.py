"""Bench: from pending episodes, or from a file, to committed facts, against the floor."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from tests.bench.databases import Workshop, write_episodes
from tests.bench.floor import write_fewest, write_own
from tests.bench.measuring import Cost, Line, Table, at_most, run, total
from tests.bench.putting import put_by_library

SECTION = "consolidate"
FLOORS: dict[str, tuple[Callable[[Path, Path, Path], Cost], float | None]] = {
    "floor of its own rows": (write_own, 2.2),
    "floor of the fewest rows": (write_fewest, 3.5),
    "floor of these without slumberd's indexes": (partial(write_fewest, indexed=False), None),
}
"""What writes the rows with bare SQLite, and the limit of an import, or puts, with a firing to it.

The limits are of processor time: other programs change the wall time.
"""

MOST_MEBIBYTES = 300 * 10**6 / 2**20


def measure(table: Table, shop: Workshop) -> None:
    """Fire on what is pending, every delta a line in a file, in turns with the floor.

    What the same command takes when nothing is pending is not the consolidation's, and is left
    out of the ratio.
    """
    shop.consolidated(shop.small)
    starts = [_nothing_pending(shop) for _ in shop.turns()]
    table.seconds(SECTION, "`fire`, nothing pending", starts)
    start = median(cost.wall for cost in starts)
    for count in (shop.middle, shop.large):
        shop.pending(count)
        pairs = [_pair(shop, count) for _ in shop.turns()]
        ours, floor = [first for first, _ in pairs], [second for _, second in pairs]
        what = f"{count:,} episodes"
        table.seconds(SECTION, f"{what}, `fire`", ours)
        table.seconds(SECTION, f"{what}, floor", floor)
        walls = [cost.wall - start for cost in ours], [cost.wall for cost in floor]
        table.ratio(SECTION, f"{what}, times the floor", walls, at_most(2.5))
        resident = [cost.resident for cost in ours]
        table.add(Line(SECTION, f"{what}, memory", "MiB", resident, bound=at_most(MOST_MEBIBYTES)))
    processor = median(cost.processor for cost in starts)
    _measure_whole(table, shop, Cost(start, processor))


def _measure_whole(table: Table, shop: Workshop, start: Cost) -> None:
    """Put episodes and fire, in turns with what SQLite alone takes for the rows of both.

    They are put by the library, and by the command `import`, which also seeks secrets. The starts
    of commands are left out.

    Args:
        start: What a command takes that has nothing to do.
    """
    what = f"{shop.middle:,} episodes"
    found = [_import_and_fire(shop, shop.middle, start) for _ in shop.turns()]
    put, imported, fired, *floors = map(list, zip(*found, strict=True))
    by_name = dict(zip(FLOORS, floors, strict=True))
    parts = {"`put_many`": put, "`import`": imported, "`fire` after it": fired, **by_name}
    for name, costs in parts.items():
        table.seconds(SECTION, f"{what}, {name}", costs)
    for way, first in {"put and fire": put, "import and fire": imported}.items():
        whole = [total(pair) for pair in zip(first, fired, strict=True)]
        for name, (_, bound) in FLOORS.items():
            pair = [[cost.processor for cost in side] for side in (whole, by_name[name])]
            limit = None if bound is None else at_most(bound)
            table.ratio(SECTION, f"{what}, {way}, to {name}", (pair[0], pair[1]), limit)


def _import_and_fire(shop: Workshop, count: int, start: Cost) -> tuple[Cost, ...]:
    """Return the costs of `put_many`, `import` and `fire`, and of each floor."""
    put = put_by_library(shop, count)
    home = shop.home()
    source = home.folder / "episodes.jsonl"
    write_episodes(source, count)
    imported = _without(run(home.command("import", source)), start)
    fired = _without(run(home.command("fire", "all")), start)
    stores = home.state / "memory.db", home.state / "facts.db"
    floors = []
    for write, _ in FLOORS.values():
        target = home.folder / "floor"
        target.mkdir()
        floors.append(write(*stores, target))
        shutil.rmtree(target)
    shutil.rmtree(home.folder)
    return put, imported, fired, *floors


def _without(cost: Cost, start: Cost) -> Cost:
    return Cost(cost.wall - start.wall, cost.processor - start.processor, cost.resident)


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
