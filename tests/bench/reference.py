"""Bench: the real Stargraph 0.8.0 does the same work, in the same run, in turns.

Stargraph works in a process of its own, on Python 3.13, and writes each delta to a log as slumberd
does. The start of a process counts on neither side, except where a line says so. Each call of
Stargraph opens the file again and sets WAL and synchronous=NORMAL. Slumberd has the same in
memory.db, and FULL in facts.db. Stargraph takes longer for a fact the more facts there are. So it
is measured on few episodes, which favours it, and rates are compared. The place of the files
matters, too: each call of Stargraph closes the file, which syncs a disk, but not a directory in
memory.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.bench.databases import Workshop
from tests.bench.measuring import Cost, Table, at_least, rates, run, timed
from tests.support.builders import rule
from tests.support.daemons import Home
from tests.support.stargraph import VERSION, NoStargraphError, Stargraph, stargraph

SECTION = "stargraph"


def few(shop: Workshop) -> int:
    """Return on how many episodes Stargraph is measured."""
    return shop.small // 5


@contextmanager
def reference(section: str) -> Iterator[Stargraph | None]:
    """Run Stargraph for the block; yield None and print why when it does not run here."""
    with ExitStack() as stack:
        try:
            theirs = stack.enter_context(stargraph())
        except NoStargraphError as error:
            print(f"{section}: Stargraph {VERSION} was not measured: {error}", flush=True)
            yield None
            return
        yield theirs


def measure(table: Table, shop: Workshop) -> None:
    """Consolidate what is pending on both sides, with every delta applied and in a log."""
    count, many = few(shop), shop.middle
    with reference(SECTION) as host:
        if host is None:
            return
        shop.pending(count)
        shop.pending(many)
        turns = [(*_pair(shop, count, host), _command(shop, many)) for _ in shop.turns()]
        _measure_calls(table, shop, host)
    ours, theirs, commands = map(list, zip(*turns, strict=True))
    table.rate(SECTION, f"{count:,} episodes by Stargraph", count, theirs)
    table.rate(SECTION, f"{count:,} episodes", count, ours)
    table.rate(SECTION, f"{many:,} episodes, the command `fire`", many, commands)
    theirs_rates = rates(count, theirs)
    for number, costs in ((count, ours), (many, commands)):
        pair = rates(number, costs), theirs_rates
        table.ratio(SECTION, f"{number:,}, of Stargraph's rate at {count:,}", pair, at_least(50))


def _measure_calls(table: Table, shop: Workshop, host: Stargraph) -> None:
    """Call `consolidate` of the library on either side, on the same file, in turns."""
    count = shop.small
    home = shop.home(shop.pending(count))
    host.ask("bootstrap", home.state)
    ours, theirs = [], []
    for _ in shop.turns():
        ours.append(_called(home))
        theirs.append(Cost(**host.ask("timed_read", home.state)))
    _remove(home)
    table.rate(SECTION, f"{count:,} episodes, `consolidate` by Stargraph", count, theirs)
    table.rate(SECTION, f"{count:,} episodes, `consolidate`", count, ours)
    pair = rates(count, ours), rates(count, theirs)
    table.ratio(SECTION, f"{count:,}, `consolidate`, of Stargraph's rate", pair, at_least(1))


def _called(home: Home) -> Cost:
    with asyncio.Runner() as runner:
        memory = SQLiteMemoryStore(home.state / "memory.db")
        runner.run(memory.bootstrap())
        deltas, cost = timed(lambda: runner.run(memory.consolidate(rule("all"))))
        assert deltas
        runner.run(memory.close())
        return cost


def _pair(shop: Workshop, count: int, host: Stargraph) -> tuple[Cost, Cost]:
    """Consolidate the same episodes on either side, in processes that run already."""
    our_home, their_home = (shop.home(shop.pending(count)) for _ in range(2))
    _, ours = timed(lambda: our_home.call("fire", "all"))
    host.ask("bootstrap", their_home.state)
    log = str(their_home.folder / "deltas.log")
    theirs = Cost(**host.ask("timed_consolidate", their_home.state, log=log))
    assert _facts(our_home) == _facts(their_home) > 0
    _remove(our_home, their_home)
    return ours, theirs


def _command(shop: Workshop, count: int) -> Cost:
    home = shop.home(shop.pending(count))
    cost = run(home.command("fire", "all"))
    _remove(home)
    return cost


def _facts(home: Home) -> int:
    with closing(sqlite3.connect(home.state / "facts.db")) as connection:
        count: int = connection.execute("SELECT COUNT(*) FROM facts").fetchone()[0]
    return count


def _remove(*homes: Home) -> None:
    for home in homes:
        shutil.rmtree(home.folder)
