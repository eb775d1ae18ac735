"""Kill commands at each of their boundaries, and compare with a run that was not killed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from time import monotonic
from typing import Any

from slumberd.model.episode import Episode
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.daemons import Home
from tests.support.failpoints import KILLED, begin
from tests.support.forked_commands import FORKS
from tests.support.installation import jsonl
from tests.support.planted_faults import Plant
from tests.support.scripted_histories import (
    EDIT,
    FIRST,
    LATER,
    MEANWHILE,
    State,
    last_firing_in,
    lowest_watermark_in,
    newest_in,
    unlogged,
)
from tests.support.waiting import PATIENCE_SECONDS

SETTINGS = {
    "logging": {"format": "json", "file": "slumberd.log"},
    "facts": {"batch": 9},
    "limits": {"max_deletes": None, "max_delete_fraction": None},
}


STAGES = [{"summarise": {"when_more_than": 1}}, {"decay": {}}]

RULES: dict[str, dict[str, Any]] = {
    "all": {},
    "likes": {"when_filter": "predicate = 'likes'", "then_emits": ["notes"], "stages": STAGES},
    "tidy": {"then_emits": [], "stages": [{"dedup": {}}, {"decay": {"action": "reweight"}}]},
}


@dataclass(frozen=True)
class Scenario:
    """A command that is killed, and what was done before it.

    Attributes:
        words: The command with its arguments.
        fired: Episodes that are put, and that the rules have evaluated.
        put: Episodes that are put then.
        then: A further command, before the one that is killed.
        serves: Whether it runs until it gets SIGTERM.
        alone: Whether the episodes of the other writer are put afterwards; keeps their order.
        repeats: Whether the command runs again even when its work was committed.
        recounts: Whether the second run counts the same reads again.
        erased: What no database may hold afterwards.
    """

    words: tuple[str, ...]
    fired: Sequence[Episode] = ()
    put: Sequence[Episode] = ()
    then: tuple[str, ...] = ()
    serves: bool = False
    alone: bool = False
    repeats: bool = True
    recounts: bool = False
    erased: bytes = b""

    @property
    def meanwhile(self) -> Sequence[Episode]:
        """What is put while the command runs, or once it is done."""
        return [*MEANWHILE, EDIT] if self.fired else MEANWHILE


FIRE = ("fire", "--all")
FORGET = ("forget", "--user", "bob", "--yes")
FORGET_EPISODE = ("forget", "--episode", "e9", "--user", "bob", "--yes")
MANUAL = ("--user", "alice", "--agent", "rag", "--reason", "because")
TRIPLE = ("--id", "p1", "--subject", "alice", "--predicate", "owns", "--object", "a fan")

SCENARIOS = {
    "the first firing": Scenario(FIRE, put=FIRST),
    "a later firing": Scenario(FIRE, FIRST, LATER),
    "a daemon that begins": Scenario(("run",), put=FIRST, serves=True),
    "a daemon that goes on": Scenario(("run",), FIRST, LATER, serves=True),
    "the first import": Scenario(("import", "episodes.jsonl"), alone=True),
    "a later import": Scenario(("import", "episodes.jsonl"), LATER, alone=True),
    "an undoing": Scenario(("undo", "all@1"), FIRST, LATER, repeats=False),
    "a pin": Scenario(("pin", *MANUAL, *TRIPLE), FIRST, LATER, repeats=False),
    "an unpin": Scenario(("unpin", "e2", "--reason", "because"), FIRST, LATER, repeats=False),
    "a backfill": Scenario(
        ("backfill", "all"), [*FIRST, *LATER], then=("undo", "all@1"), alone=True, recounts=True
    ),
    "a forgetting": Scenario(FORGET, [*FIRST, *LATER], erased=b"Faro"),
    "a forgetting of an episode": Scenario(FORGET_EPISODE, [*FIRST, *LATER], erased=b"a ship"),
}


class Killing:
    """A command in a state directory; a test kills it at any of its boundaries.

    Attributes:
        points: The boundaries that it passes, in order.
        wanted: The state at the end when nothing kills the command.

    Args:
        folder: Empty.
        scenario: The command, and the state before it.
        plant: Breaks slumberd while the command runs.
    """

    def __init__(self, folder: Path, scenario: Scenario, plant: Plant | None = None) -> None:
        self._scenario, self._plant = scenario, plant
        self._base = folder / "base"
        self._home = Home(folder / "home", SETTINGS)
        for id, fields in RULES.items():
            self._home.rule(id, cadence={"every": 1}, **fields)
        self._words = [self._file(word) for word in scenario.words]
        self._again = FIRE if scenario.serves else self._words
        self._prepare()
        self.points = self._passed(folder / "passed")
        self.wanted = self._unkilled()

    def _file(self, word: str) -> str:
        if not word.endswith(".jsonl"):
            return word
        path = self._home.folder / word
        path.write_bytes(jsonl(*FIRST))
        return str(path)

    def _prepare(self) -> None:
        self._home.state.mkdir()
        for episodes in (self._scenario.fired, self._scenario.put):
            if self._facts.exists() or self._memory.exists():
                self._home.call(*FIRE)
            if episodes:
                asyncio.run(_put(self._memory, episodes))
        if self._scenario.fired and not self._scenario.put:
            self._home.call(*FIRE)
        if self._scenario.then:
            self._home.call(*self._scenario.then)
        shutil.copytree(self._home.state, self._base)

    @property
    def _facts(self) -> Path:
        return self._home.state / "facts.db"

    @property
    def _memory(self) -> Path:
        return self._home.state / "memory.db"

    def _passed(self, passed: Path) -> list[str]:
        assert self._run("", passed) == 0
        return passed.read_text().splitlines()

    def _unkilled(self) -> State:
        self._restore()
        self._home.call(*self._again)
        if not self._scenario.alone:
            asyncio.run(_put(self._memory, self._scenario.meanwhile))
        self._complete()
        return State.of(self._facts)

    def _restore(self) -> None:
        shutil.rmtree(self._home.state)
        shutil.copytree(self._base, self._home.state)

    def _run(self, fatal: str, passed: Path | None = None) -> int | None:
        given = (self._home.words(self._words), fatal, passed, self._plant)
        child = FORKS.Process(target=begin, args=given, daemon=True)
        child.start()
        if self._scenario.serves:
            self._stop_when_done(child, writing=not passed)
        child.join(PATIENCE_SECONDS)
        code = child.exitcode
        child.kill()  # if it hangs: nothing of it may be left
        return code

    def _stop_when_done(self, child: ForkServerProcess, *, writing: bool) -> None:
        """Stop a daemon once its rules have evaluated all episodes, also those of the writer."""
        last = newest_in(self._base / "memory.db") + len(self._scenario.meanwhile) * writing
        ends_at = monotonic() + PATIENCE_SECONDS
        while child.is_alive() and lowest_watermark_in(self._facts, len(RULES)) < last:
            assert monotonic() < ends_at, "the rules did not read to the end"
            child.join(0.02)
        child.terminate()

    def kill_at(self, point: str) -> list[str]:
        """Kill the command there while another writes; return what is wrong in the end."""
        meanwhile = () if self._scenario.alone else self._scenario.meanwhile
        self._restore()
        with _writing(self._memory, meanwhile):
            killed = self._run(point) == KILLED
        if not killed:
            # What was put meanwhile came into the same batch, which then is written otherwise.
            self._restore()
            assert self._run(point) == KILLED, point
            asyncio.run(_put(self._memory, meanwhile))
        self._finish()
        return list(self._problems())

    def _finish(self) -> None:
        if self._scenario.repeats or self._is_undone():
            self._home.call(*self._again)
        self._complete()

    def _complete(self) -> None:
        """Put what was not put meanwhile, and fire all rules to the end."""
        if self._scenario.alone:
            asyncio.run(_put(self._memory, self._scenario.meanwhile))
        self._home.call(*FIRE)

    def _is_undone(self) -> bool:
        return last_firing_in(self._facts) == last_firing_in(self._base / "facts.db")

    def _problems(self) -> Iterator[str]:
        state = State.of(self._facts)
        for name, wanted in vars(self.wanted).items():
            recounted = name == "accounts" and self._scenario.recounts
            if vars(state)[name] != wanted and not recounted:
                yield f"{name}: {vars(state)[name]} is not {wanted}"
        verified = self._home.call("audit", "verify", check=False)
        if verified.returncode:
            yield verified.stdout + verified.stderr
        yield from unlogged(self._facts, self._home.state / "slumberd.log")
        if erased := self._scenario.erased:
            files = self._home.state.glob("*.db*")
            yield from (f"{file.name} holds it" for file in files if erased in file.read_bytes())


async def _put(path: Path, episodes: Sequence[Episode]) -> None:
    if not episodes:
        return
    async with SQLiteMemoryStore(path) as memory:
        for episode in episodes:
            await memory.put(
                episode, user=episode.user, session=episode.session, agent=episode.agent
            )


@contextmanager
def _writing(path: Path, episodes: Sequence[Episode]) -> Iterator[None]:
    """Put episodes while the block runs; they are all put at its end."""
    with ThreadPoolExecutor(1) as pool:
        putting = pool.submit(asyncio.run, _put(path, episodes))
        yield
        putting.result()
