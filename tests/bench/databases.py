"""The data of a bench: episodes, and databases of them that are built once and copied."""

from __future__ import annotations

import random
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson

from tests.bench.measuring import run
from tests.support.builders import START
from tests.support.daemons import Home
from tests.year.stream import Size

USERS = 1_000
REPEATED = 0.25

PATIENCE_SECONDS = 60.0
"""After this time a measurement is not repeated."""


def episodes(count: int, *, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Yield episodes: ids at random, a quarter of the keys repeated, of 1,000 users."""
    chance = random.Random(seed)
    for number in range(count):
        again = chance.random() < REPEATED
        thing = chance.randrange(number) if again and number else number
        yield {
            "id": uuid.UUID(int=chance.getrandbits(128)).hex,
            "content": f"Something was said about thing {thing}, and it was worth a sentence.",
            "timestamp": (START + timedelta(milliseconds=number)).isoformat(),
            "source_node": "chat",
            "agent": "agent",
            "user": f"user-{thing % USERS}",
            "session": f"session-{number // 100}",
            "metadata": {"subject": f"thing {thing}", "predicate": "is", "object": f"v {number}"},
        }


def write_episodes(path: Path, count: int) -> None:
    """Write episodes as JSON lines; hold none, because it would count as memory of a child."""
    with path.open("wb") as file:
        file.writelines(orjson.dumps(episode) + b"\n" for episode in episodes(count))


@dataclass(slots=True)
class Workshop:
    """The directory of a bench, and the databases in it.

    Attributes:
        folder: Holds all files; the databases of an earlier run are used again.
        small: How many episodes are few.
        middle: How many are many.
        large: How many are very many.
        times: How often each thing is measured.
        patience: After so many seconds a measurement is not repeated.
        year: How large the simulated year is.
    """

    folder: Path
    small: int = 10_000
    middle: int = 100_000
    large: int = 1_000_000
    times: int = 5
    patience: float = PATIENCE_SECONDS
    year: Size = field(default_factory=Size)
    _homes: int = field(default=0, init=False)

    def turns(self) -> Iterator[int]:
        """Yield the number of each turn of a measurement: `times`, or fewer when they take long.

        Build the databases of a measurement before: the time of its first turn counts, too.
        """
        began = time.monotonic()
        for number in range(self.times):
            if number and time.monotonic() - began > self.patience:
                return
            yield number

    def pending(self, count: int) -> Path:
        """Return a state directory with so many episodes and no facts; only to be copied."""
        folder = self.folder / f"pending-{count}"
        if not folder.exists():
            building = self._home("building", logged=False)
            source = building.folder / "episodes.jsonl"
            write_episodes(source, count)
            run(building.command("import", source))
            building.state.rename(folder)
            shutil.rmtree(building.folder)
        return folder

    def consolidated(self, count: int) -> Path:
        """Return a state directory with so many episodes, and their facts; only to be copied."""
        folder = self.folder / f"consolidated-{count}"
        if not folder.exists():
            building = self.home(self.pending(count), logged=False)
            run(building.command("fire", "all"))
            building.state.rename(folder)
            shutil.rmtree(building.folder)
        return folder

    def home(
        self,
        state: Path | None = None,
        *,
        logged: bool = True,
        settings: Mapping[str, Any] | None = None,
        **rule: Any,
    ) -> Home:
        """Return a new home with a copy of a state, and one rule ``all`` that promotes it."""
        self._homes += 1
        home = self._home(f"home-{self._homes}", logged=logged, settings=settings)
        home.rule("all", **{"cadence": {"every": 1}, **rule})
        if state is not None:
            shutil.rmtree(home.state, ignore_errors=True)
            shutil.copytree(state, home.state)
        return home

    def _home(self, name: str, *, logged: bool, settings: Mapping[str, Any] | None = None) -> Home:
        shutil.rmtree(self.folder / name, ignore_errors=True)
        logging = {"file": "deltas.log"} if logged else {"level": "error"}
        further = settings or {}
        return Home(self.folder / name, {"logging": {"format": "json", **logging}, **further})
