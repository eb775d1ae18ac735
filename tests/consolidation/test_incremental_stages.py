"""Stages that look only at what is new, changed or due say what they would say of everything."""

from __future__ import annotations

import asyncio
import math
import random
import sqlite3
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.firing import FireRequest
from slumberd.consolidation.incoming import UNBOUNDED, Bounds, DeltaBatch
from slumberd.consolidation.protocols import EpisodeLog
from slumberd.consolidation.stage_runs import Retention
from slumberd.consolidation.stages.similar_texts import wording_of
from slumberd.model.episode import Episode, EpisodeVersion
from slumberd.model.errors import ForgottenError, MemoryScopeError, NothingKeptError
from slumberd.model.fact import FactPattern
from slumberd.model.firing import Report, Window
from slumberd.model.rule import ConsolidationRule
from slumberd.model.stages import Decay, Dedup, Importance, Stage, Summarise
from slumberd.rules.vocabulary_loader import conversation_extraction
from slumberd.storage.sqlite.stage_file import StageFile
from tests.consolidation.stages.test_duplicates import needs_rapidfuzz
from tests.daemon.test_erasure import (
    CANARY,
    OTHER,
    canary,
    files_with_canary,
    forget,
    leave_traces,
)
from tests.support.builders import START, at, rule
from tests.support.builders import episode as built
from tests.support.embedders import FakeEmbedder, WordSums
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import AnyMemoryStore, NewStores
from tests.support.sample_sizes import amount

pytestmark = pytest.mark.integration

HOUR = 3_600.0
OWNERS = [("ann", "chat"), ("ann", "web"), ("bob", "chat")]
IDS = [f"e{number}" for number in range(12)]
TEXTS = [
    "Ann likes green tea very much indeed and every single day",
    "Ann likes green tea very much indeed and every single night",
    "Ann likes green tea very much indeed or every single night",
    "ANN likes green tea very much indeed and every single day",
    "Bob has 2 cats",
    "Bob has 3 cats",
    "",
    "Ann liked grean tea very much indeeed and every single day",
    "brother came home",
    "bother came home",
    "mother came home",
    "Ann likes green tea very much indeed and single every day",
]
STAGES: list[tuple[Stage, ...]] = [
    (Dedup(), Decay(half_life=HOUR, threshold=0.2)),
    (Dedup(keep="oldest", similarity=0.7), Decay(action="reweight", half_life=HOUR)),
    (Decay(half_life=HOUR, threshold=0.2, protect_importance=0.6), Dedup(method="exact")),
    (Importance(below=0.4), Dedup(similarity=1.0), Decay(action="reweight", threshold=0.3)),
    (Summarise(when_more_than=2), Decay(half_life=2 * HOUR, threshold=0.2)),
    (Dedup(method="exact"), Dedup(similarity=0.6)),
    (Dedup(similarity=0.6), Summarise(when_more_than=1), Decay(half_life=HOUR, threshold=0.2)),
    (Decay(half_life=HOUR, threshold=0.2), Summarise(when_more_than=3), Dedup(method="exact")),
    (Importance(below=0.4), Summarise(when_more_than=1), Decay(action="reweight")),
    (Dedup(method="fuzzy", similarity=0.7), Decay(half_life=HOUR, threshold=0.2)),
    (Dedup(method="vectors", similarity=0.3), Decay(action="reweight", half_life=HOUR)),
    (Dedup(similarity=0.6), Dedup(method="vectors", keep="oldest"), Dedup(method="fuzzy")),
    (Dedup(method="fuzzy", keep="oldest", similarity=0.3), Summarise(when_more_than=1)),
]
COMPARES_TEXTS = range(9, 13)
"""The numbers of the stages that compare a text with all others of its owner."""

puts = st.tuples(
    st.just("put"),
    st.sampled_from(IDS),
    st.integers(0, len(TEXTS) - 1),
    st.integers(0, 6),
    st.sampled_from([None, 0.1, 0.5, 0.7, 1.0]),
    st.sampled_from([None, None, "s0", "s1"]),
)
fires = st.tuples(
    st.just("fire"), st.sampled_from(["first", "second"]), st.sampled_from([0, 1, 30, 60, 300])
)
numbers = st.integers(0, 9)
usual_steps = st.one_of(
    puts,
    puts,
    fires,
    fires,
    st.tuples(st.just("delete"), st.sampled_from(IDS)),
    st.tuples(
        st.just("end"), st.sampled_from(["marks", "weights", "summaries"]), st.integers(0, 9)
    ),
    st.tuples(st.just("undo"), st.integers(0, 3)),
    st.tuples(
        st.just("forget"), st.sampled_from(["user", "session", "episode"]), st.integers(0, 9)
    ),
    st.tuples(st.just("backfill"), st.sampled_from(["first", "second"])),
    st.tuples(st.just("change"), st.sampled_from(["first", "second"]), st.integers(0, 12)),
)
steps = st.one_of(
    usual_steps,
    st.tuples(st.just("file"), st.sampled_from(["lose", "damage", "lock", "unnote"])),
    st.tuples(st.just("break"), st.integers(0, 3)),
)
histories = st.lists(steps, min_size=6, max_size=40)


@dataclass
class Side:
    """Stores, and what their firings have reported."""

    home: OpenStores
    file: StageFile | None
    purged: list[list[str]] = field(default_factory=list)

    async def seen(self) -> dict[str, Any]:
        """Return all that must be equal."""
        facts = [
            fact
            for channel in ("facts", "marks", "summaries", "weights")
            for fact in await self.home.facts.query(FactPattern(channel=channel))
        ]
        return {"facts": facts, "lines": self.home.log.lines, "purged": self.purged}


class Story:
    """One history in two pairs of stores: only the first keeps notes of past episodes."""

    def __init__(self, sides: Sequence[Side], clock: FakeClock) -> None:
        self._sides = sides
        self._minutes = 20  # some episodes are still to come
        self._serial = 0
        self._stages = {"first": STAGES[0], "second": STAGES[4]}
        self._clock = clock
        for side in sides:
            side.home.facts.transactions.clock = self._clock
            side.home.consolidator.retention = Retention(2 * HOUR, lambda: ["first", "second"])

    def _rule(self, name: str) -> ConsolidationRule:
        selects = "" if name == "first" else "source_node = 'chat'"
        return rule(name, when_filter=selects, stages=self._stages[name], then_emits=[])

    async def take(self, step: tuple[Any, ...]) -> None:
        what, *rest = step
        for side in self._sides:
            try:
                await getattr(self, f"_{what}")(side, *rest)
            except OSError:  # the log was full after some batch was committed
                side.purged.append(["failed"])
        self._serial += 1
        first, second = [await side.seen() for side in self._sides]
        assert first == second, step

    def move(self, step: tuple[Any, ...]) -> None:
        """Change what is the same for both sides."""
        if step[0] in ("put", "forget", "file"):
            self._unlock()
        if step[0] == "fire":
            self._minutes += step[2]
        self._clock.set(self._now())
        if step[0] == "change":
            self._stages[step[1]] = STAGES[step[2]]

    async def _put(
        self,
        side: Side,
        id: str,
        text: int,
        hour: int,
        importance: float | None,
        session: str | None = None,
    ) -> None:
        user, agent = OWNERS[IDS.index(id) % len(OWNERS)]
        stated = {} if importance is None else {"importance": importance}
        # It may not be newer than the erasure of its scope, or be of another session.
        with suppress(ForgottenError, MemoryScopeError):
            await side.home.put(
                built(
                    id,
                    content=TEXTS[text],
                    timestamp=at(hour * 600 + IDS.index(id)),
                    user=user,
                    agent=agent,
                    session=session or f"s{IDS.index(id) % 2}",
                    metadata=stated,
                    source_node="chat" if text % 3 else "note",
                )
            )

    async def _fire(self, side: Side, name: str, _: int) -> None:
        request = FireRequest(self._rule(name), "cron", self._now())
        report: Report = await side.home.consolidator.fire(request)
        side.purged.append(report.purged)

    def _now(self) -> Any:
        return START + timedelta(minutes=self._minutes)

    async def _delete(self, side: Side, id: str) -> None:
        found = await side.home.memory.reread(self._rule("first"), [id], upto=2**62)
        await side.home.memory.purge({version.id: version.seq for version in found})

    async def _end(self, side: Side, channel: str, number: int) -> None:
        found = await side.home.facts.query(FactPattern(channel=channel))
        if found:
            fact = found[number % len(found)]
            await side.home.facts.retract(fact.id, by="ann", reason="still of use")

    async def _undo(self, side: Side, number: int) -> None:
        done = [
            batch.firing_id for batch in side.home.log.batches if batch.firing.rule_id[0] != "@"
        ]
        if done:
            firing = done[-1 - number % len(done)]
            await side.home.facts.ledger.undo(firing, at=self._now(), by="ann", dry_run=False)

    async def _forget(self, side: Side, what: str, number: int) -> None:
        id = IDS[number % len(IDS)]
        user, _ = OWNERS[number % len(OWNERS)]
        wanted: dict[str, Any] = {
            "user": {},
            "session": {"session": "s0"},
            "episode": {"episode": id},
        }[what]
        with suppress(NothingKeptError):
            await forget(side.home, user, **wanted)

    async def _backfill(self, side: Side, name: str) -> None:
        await side.home.consolidator.backfill(self._rule(name), self._now(), by="ann")

    async def _change(self, side: Side, name: str, number: int) -> None:
        """The rule has changed already."""

    async def _break(self, side: Side, calls: int) -> None:
        side.home.log.calls_until_fault = calls

    async def _file(self, side: Side, what: str) -> None:
        if side.file is None or not side.file.path.exists():
            return
        match what:
            case "lose":
                side.file.delete()
            case "damage":
                side.file.path.write_bytes(b"no database" * 99)
            case "unnote":  # as if the process of an erasure had ended before it noted the erasure
                with suppress(sqlite3.Error), closing(sqlite3.connect(side.file.path)) as notes:
                    notes.execute("DELETE FROM stage_erasures")
                    notes.commit()
            case "lock":  # as long as there is a directory of this name, no file can be there
                side.file.delete()
                side.file.path.mkdir()
            case _:
                tear(side.file.path, what)

    def _unlock(self) -> None:
        for side in self._sides:
            if side.file is not None and side.file.path.is_dir():
                side.file.path.rmdir()


def tear(path: Path, tree: str) -> None:
    """Damage the first page of a table or an index of notes."""
    with closing(sqlite3.connect(path)) as notes:
        notes.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        find = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (page,) = notes.execute(find, (tree,)).fetchone()
        (size,) = notes.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


async def run(new_stores: NewStores, history: Sequence[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as folder, new_stores() as first, new_stores() as second:
        async with AsyncExitStack() as stack:
            clock = FakeClock()
            homes = [
                await stack.enter_async_context(
                    open_stores(
                        one,
                        batch=3,
                        clock=clock,
                        embedding=WordSums,
                        future_tolerance_seconds=300,
                    )
                )
                for one in (first, second)
            ]
            file = StageFile(Path(folder, "stages.db"), "as always")
            homes[0].consolidator.note_stages_in(file)
            story = Story([Side(homes[0], file), Side(homes[1], None)], clock)
            ends = [("fire", name, 90) for name in ("first", "second", "first", "second")]
            for step in (*history, *ends):
                story.move(step)
                await story.take(step)


MANY = settings(
    max_examples=amount(60, full=6_000),
    deadline=None,
    # Each example makes its own stores.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
FEW = settings(MANY, max_examples=amount(6, full=600))


@pytest.mark.sampled
@pytest.mark.parametrize("new_stores", ["sqlite"], indirect=True)
@MANY
@given(history=histories)
def test_notes_change_nothing_of_what_stages_say(
    new_stores: NewStores, history: list[tuple[Any, ...]]
) -> None:
    asyncio.run(run(new_stores, history))


@pytest.mark.sampled
@FEW
@given(history=histories)
def test_notes_change_nothing_of_what_stages_say_on_a_database(
    new_databases: NewStores, history: list[tuple[Any, ...]]
) -> None:
    asyncio.run(run(new_databases, history))


OF_ONE_OWNER = IDS[:: len(OWNERS)]
NEAR_TEXTS = [0, 1, 7, 8, 9, 10]
"""The numbers of texts that may be duplicates by their characters or vectors."""

near_puts = st.tuples(
    st.just("put"),
    st.sampled_from(OF_ONE_OWNER),
    st.sampled_from(NEAR_TEXTS),
    st.integers(0, 1),
    st.sampled_from([None, 0.9]),
    st.none(),
)
changes_of_near_texts = st.lists(
    st.one_of(
        near_puts,
        near_puts,
        near_puts,
        st.tuples(st.just("delete"), st.sampled_from(OF_ONE_OWNER)),
        st.tuples(st.just("end"), st.just("marks"), numbers),
        st.tuples(st.just("undo"), st.integers(0, 3)),
        st.tuples(st.just("forget"), st.just("episode"), numbers),
        st.tuples(st.just("change"), st.just("first"), st.sampled_from(COMPARES_TEXTS)),
    ),
    min_size=2,
    max_size=10,
)


@needs_rapidfuzz
@pytest.mark.sampled
@pytest.mark.parametrize("new_stores", ["sqlite"], indirect=True)
@pytest.mark.parametrize("most", [0, 1, 100])
@settings(MANY, max_examples=amount(12, full=2_000))
@given(number=st.sampled_from(COMPARES_TEXTS), changes=changes_of_near_texts)
def test_compared_texts_change_nothing_of_what_stages_say(
    new_stores: NewStores, most: int, number: int, changes: list[tuple[Any, ...]]
) -> None:
    fire_after_each(new_stores, most, number, changes)


@needs_rapidfuzz
@pytest.mark.sampled
@pytest.mark.parametrize("most", [0, 1, 100])
@settings(MANY, max_examples=amount(3, full=500))
@given(number=st.sampled_from(COMPARES_TEXTS), changes=changes_of_near_texts)
def test_compared_texts_change_nothing_of_what_stages_say_on_a_database(
    new_databases: NewStores, most: int, number: int, changes: list[tuple[Any, ...]]
) -> None:
    fire_after_each(new_databases, most, number, changes)


def fire_after_each(
    new_stores: NewStores, most: int, number: int, changes: list[tuple[Any, ...]]
) -> None:
    """Make changes, and fire twice after each.

    Args:
        most: A firing with more texts looks at all.
    """
    history = [("change", "first", number), ("change", "second", 5)]
    for change in changes:
        history += [change, ("fire", "first", 0), ("fire", "first", 0)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slumberd.consolidation.owner_texts.MOST_COMPARED", most)

        asyncio.run(run(new_stores, history))


def settled(stages: int, *puts: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return a history after which nothing is due: the first rule has seen some episodes."""
    fires = [("fire", "first", 0)] * 3
    return [("change", "first", stages), ("change", "second", 5), *puts, *fires]


FUZZY, VECTORS = 9, 10
DAY, NIGHT, MISSPELLED = 0, 1, 7
BROTHER, BOTHER, MOTHER = 8, 9, 10
SWAPPED = 11


@needs_rapidfuzz
@pytest.mark.parametrize("most", [1, 100])
@pytest.mark.parametrize("stages", [FUZZY, VECTORS])
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([("put", "e3", MISSPELLED, 1, None)], id="a misspelled one comes"),
        pytest.param([("put", "e3", BOTHER, 1, None)], id="another one comes"),
        pytest.param(
            [
                ("put", "e3", MISSPELLED, 1, None),
                *[("fire", "first", 0)] * 3,
                ("put", "e0", MOTHER, 0, None),
            ],
            id="a marked one is edited",
        ),
        pytest.param(
            [
                ("put", "e3", MISSPELLED, 1, None),
                *[("fire", "first", 0)] * 3,
                ("put", "e3", MOTHER, 1, None),
            ],
            id="the kept one is edited",
        ),
        pytest.param(
            [
                ("put", "e3", BOTHER, 1, None),
                ("put", "e9", MOTHER, 2, None),
                *[("fire", "first", 0)] * 3,
                ("put", "e3", NIGHT, 1, None),
            ],
            id="one between two is edited",
        ),
        pytest.param(
            [
                ("put", "e3", MISSPELLED, 1, None),
                *[("fire", "first", 0)] * 3,
                ("delete", "e3"),
            ],
            id="the kept one is deleted",
        ),
    ],
)
async def test_texts_that_may_be_duplicates_are_looked_at_again(
    new_stores: NewStores,
    stages: int,
    most: int,
    steps: list[tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slumberd.consolidation.owner_texts.MOST_COMPARED", most)
    before = settled(stages, ("put", "e0", DAY, 0, None), ("put", "e6", BROTHER, 0, None))

    await run(new_stores, [*before, *steps])


@needs_rapidfuzz
async def test_former_text_leads_to_those_that_it_kept_from_being_compared(
    new_stores: NewStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slumberd.consolidation.stages.duplicates._MOST_SIMILAR", 1)
    puts = [
        ("put", "e0", MISSPELLED, 0, None),
        ("put", "e3", DAY, 1, None),
        ("put", "e6", SWAPPED, 2, None),  # it is similar to both, but its words say another thing
    ]

    await run(new_stores, [*settled(FUZZY, *puts), ("put", "e6", MOTHER, 2, None)])


KEPT_BY_ITS_DUPLICATE = [
    ("change", "first", 1),
    ("change", "second", 2),
    ("put", "e0", 4, 0, None),
    ("put", "e3", 4, 1, 0.5),
    ("put", "e6", 1, 0, None),
    ("put", "e9", 2, 1, 1.0),
    ("fire", "first", 0),
    ("fire", "first", 0),
    ("fire", "second", 60),
    ("fire", "second", 0),
]
"""Two duplicates, of which one protects the kept episode; all has settled, and nothing is due."""


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([("undo", 0), ("fire", "first", 1)], id="a firing is undone"),
        pytest.param([("end", "marks", 0), ("fire", "first", 60)], id="a person ends a mark"),
        pytest.param([("end", "marks", 1), ("fire", "second", 60)], id="that protected another"),
        pytest.param([("end", "weights", 0), ("fire", "first", 60)], id="a person ends a weight"),
        pytest.param([("delete", "e9"), ("fire", "second", 60)], id="a duplicate is deleted"),
        pytest.param([("delete", "e6"), ("fire", "first", 1)], id="a kept episode is deleted"),
        pytest.param([("put", "e6", 1, 0, 0.5), ("fire", "second", 60)], id="one is edited"),
        pytest.param([("put", "e9", 5, 0, 1.0), ("fire", "first", 1)], id="a duplicate is edited"),
        pytest.param([("put", "e9", 1, 1, 0.4), ("fire", "first", 1)], id="and still repeats it"),
        pytest.param([("fire", "second", 30), ("fire", "second", 60)], id="time passes"),
        pytest.param([("fire", "first", 60), ("fire", "first", 600)], id="weights fall"),
        pytest.param(
            [("put", "e9", 5, 0, 1.0), ("break", 0), ("fire", "first", 60), ("fire", "first", 1)],
            id="a firing fails after its first batch",
        ),
        pytest.param(
            [
                ("put", "e9", 5, 0, 1.0),
                ("put", "e0", 5, 0, 1.0),
                ("put", "e3", 4, 0, 1.0),
                ("break", 2),
                ("fire", "first", 60),
                ("fire", "first", 1),
            ],
            id="a firing fails between the batches of its stages",
        ),
        pytest.param([("forget", "user", 2), ("fire", "second", 60)], id="another user is erased"),
        pytest.param([("forget", "episode", 9), ("fire", "second", 60)], id="one is erased"),
    ],
)
async def test_what_changed_is_looked_at_again(
    new_stores: NewStores, steps: list[tuple[Any, ...]]
) -> None:
    await run(new_stores, [*KEPT_BY_ITS_DUPLICATE, *steps])


ALONE_IN_A_SESSION = [
    ("change", "first", 8),
    ("change", "second", 2),
    ("put", "e0", 4, 0, 0.9),
    ("fire", "first", 0),
    ("fire", "first", 0),
]
"""The stages of the first rule summarise a session of two; all has settled, and nothing is due."""

SUMMARISED = [
    *ALONE_IN_A_SESSION,
    ("put", "e6", 5, 1, 0.9),
    ("fire", "first", 0),
    ("fire", "first", 0),
]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([*ALONE_IN_A_SESSION, ("put", "e6", 5, 1, 0.9)], id="another one comes"),
        pytest.param(
            [
                *ALONE_IN_A_SESSION,
                ("change", "first", 6),
                ("put", "e3", 4, 0, 0.9),
                ("fire", "first", 0),
                ("put", "e6", 5, 1, 0.9),
                ("fire", "first", 0),
                ("fire", "first", 0),
                ("put", "e3", 2, 0, 0.9),
            ],
            id="one is no duplicate any more",
        ),
        pytest.param(
            [
                *ALONE_IN_A_SESSION,
                ("change", "first", 6),
                ("put", "e6", 0, 1, 0.9),
                ("put", "e9", 5, 1, 0.9, "s0"),
                ("fire", "first", 0),
                ("end", "summaries", 0),
                ("fire", "first", 0),
                ("fire", "first", 0),
                ("put", "e3", 4, 2, 0.9),
            ],
            id="the first one of an ended summary is a duplicate now",
        ),
        pytest.param(
            [
                *ALONE_IN_A_SESSION,
                ("put", "e6", 5, 1, 0.1),
                ("fire", "first", 0),
                ("fire", "first", 0),
                ("put", "e6", 5, 1, 0.9),
            ],
            id="an archived one is edited",
        ),
        pytest.param(
            [
                *ALONE_IN_A_SESSION,
                ("change", "first", 4),
                ("put", "e3", 5, 1, 0.9, "s0"),
                ("put", "e6", 5, 2, 0.9),
                ("fire", "first", 0),
                ("put", "e9", 5, 2, 0.9, "s0"),
                ("fire", "first", 0),
                ("fire", "first", 0),
                ("delete", "e3"),
                ("put", "e3", 2, 1, 0.9, "s1"),
            ],
            id="one leaves after a part was summarised",
        ),
        pytest.param([*SUMMARISED, ("put", "e6", 5, 2, 0.9)], id="one is edited"),
        pytest.param([*SUMMARISED, ("put", "e0", 4, 0, 0.1)], id="the first is unimportant"),
        pytest.param([*SUMMARISED, ("delete", "e0")], id="the first is deleted"),
        pytest.param(
            [*SUMMARISED, ("delete", "e0"), ("fire", "first", 0), ("put", "e6", 5, 2, 0.9)],
            id="the other one is edited after the first was deleted",
        ),
        pytest.param([*SUMMARISED, ("end", "marks", 0)], id="a person ends a mark"),
        pytest.param([*SUMMARISED, ("end", "summaries", 0)], id="a person ends the summary"),
        pytest.param([*SUMMARISED, ("undo", 0)], id="the summary is undone"),
        pytest.param([*SUMMARISED, ("change", "first", 0)], id="its rule summarises no more"),
    ],
)
async def test_a_session_is_looked_at_as_a_whole(
    new_stores: NewStores, steps: list[tuple[Any, ...]]
) -> None:
    await run(new_stores, [*steps, ("fire", "first", 0), ("fire", "second", 1)])


def turn(id: str, session: str, speaker: str, text: str, seconds: int) -> Episode:
    return built(
        id, content=text, session=session, metadata={"speaker": speaker}, timestamp=at(seconds)
    )


ASKED = [
    turn("q1", "s1", "assistant", "Where do you live?", 0),
    turn("a1", "s1", "user", "Porto.", 1),
    turn("q2", "s2", "assistant", "Where are you now?", 2),
    turn("a2", "s2", "user", "Porto.", 3),
]


@pytest.mark.parametrize("what", ["a question is edited", "a question is deleted"])
async def test_answer_is_looked_at_again_when_its_question_changes(
    new_stores: NewStores, tmp_path: Path, what: str
) -> None:
    people = rule(
        "people",
        when_filter="speaker = 'user'",
        extract=conversation_extraction({}),
        stages=(Dedup(method="exact"),),
    )
    found = []
    for file in (StageFile(tmp_path / "stages.db", "as always"), None):
        with new_stores() as stores:
            async with open_stores(stores) as home:
                if file is not None:
                    home.consolidator.note_stages_in(file)
                await home.put(*ASKED)
                for _ in range(2):
                    await home.fire(people)
                before = await home.facts.query(FactPattern(channel="marks"))
                if what == "a question is edited":
                    await home.put(turn("q2", "s2", "assistant", "Where do you live?", 2))
                else:
                    [gone] = await home.memory.reread(people, ["q1"], upto=2**62)
                    await home.memory.purge({gone.id: gone.seq})
                await home.fire(people)
                after = await home.facts.query(FactPattern(channel="marks"))
                found.append(([one.id for one in before], [one.id for one in after]))

    assert found[0] == found[1] == ([], ["@marks/a1"])


class Counted:
    """A store of episodes that counts which episodes are read for stages."""

    def __init__(self, episodes: AnyMemoryStore) -> None:
        self._episodes = episodes
        self.read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._episodes, name)

    async def ids_by_owner(self, rule: ConsolidationRule) -> dict[tuple[str, str], list[str]]:
        found = await self._episodes.ids_by_owner(rule)
        self.read += sum(map(len, found.values()))
        return found

    async def reread(
        self, rule: ConsolidationRule, eids: Sequence[str], *, upto: int
    ) -> list[EpisodeVersion]:
        self.read += len(eids)
        return await self._episodes.reread(rule, eids, upto=upto)

    async def consolidate(
        self, rule: ConsolidationRule, *, window: Window, bounds: Bounds = UNBOUNDED
    ) -> DeltaBatch:
        self.read += len(window.episodes or ())
        return await self._episodes.consolidate(rule, window=window, bounds=bounds)


@pytest.mark.parametrize("owners", [1, 20])
@pytest.mark.parametrize(
    "method", ["jaccard", pytest.param("fuzzy", marks=needs_rapidfuzz), "vectors"]
)
async def test_firing_reads_as_much_above_few_episodes_as_above_many(
    new_stores: NewStores, tmp_path: Path, owners: int, method: Any
) -> None:
    stages = Dedup(method=method), Decay(half_life=30 * 24 * HOUR)
    nightly = rule("nightly", stages=stages)
    read: list[list[int]] = []
    for count in (40, 800):
        with new_stores() as stores:
            async with open_stores(stores, embedding=OwnDirections) as home:
                counted = Counted(home.memory)
                episodes = cast("EpisodeLog", counted)
                consolidator = Consolidator(
                    episodes, home.facts, home.log, FakeClock(), batch=5_000
                )
                file = StageFile(tmp_path / f"{count}.db", "as always")
                consolidator.note_stages_in(file)
                await home.put(*(unlike(number, owners) for number in range(count)))
                steps = []
                for day, new in enumerate([0, 0, 0, 1, 0, 3]):
                    await home.put(*(unlike(9_000 + 10 * day + n, owners) for n in range(new)))
                    counted.read = 0
                    request = FireRequest(nightly, "cron", START + timedelta(days=1 + day))
                    await consolidator.fire(request)
                    steps.append(counted.read)
                read.append(steps)

    few, many = read
    assert few[0] == 2 * 40
    assert many[0] == 2 * 800
    assert few[1:] == many[1:] == [0, 0, 3, 0, 9]


@pytest.mark.parametrize(
    "method", ["jaccard", pytest.param("fuzzy", marks=needs_rapidfuzz), "vectors"]
)
@pytest.mark.parametrize("hides", [Summarise(when_more_than=3), Decay(half_life=HOUR)])
async def test_firing_does_not_read_similar_episodes_that_have_a_mark(
    new_stores: NewStores, tmp_path: Path, method: Any, hides: Stage
) -> None:
    nightly = rule("nightly", stages=(Dedup(method=method), hides))
    read = []
    with new_stores() as stores:
        async with open_stores(stores, embedding=OwnDirections) as home:
            counted = Counted(home.memory)
            consolidator = Consolidator(
                cast("EpisodeLog", counted), home.facts, home.log, FakeClock(), batch=5_000
            )
            consolidator.note_stages_in(StageFile(tmp_path / "stages.db", "as always"))
            for day in range(6):
                said = [built(f"a{day}", content="Ann likes green tea", user="u0")]
                said += [unlike(10 * day + number, 1) for number in range(5)]
                at_noon = {"timestamp": START + timedelta(days=day), "session": f"s{day}"}
                await home.put(*(one.model_copy(update=at_noon) for one in said))
                counted.read = 0
                for hour in (1, 20, 21):
                    at_hour = START + timedelta(days=day, hours=hour)
                    await consolidator.fire(FireRequest(nightly, "cron", at_hour))
                read.append(counted.read)
            marks = await home.facts.query(FactPattern(channel="marks", limit=99))

    assert len([fact for fact in marks if fact.id.startswith("@marks/a")]) == 6
    assert read[2:] == read[1:2] * 4


async def test_firing_keeps_no_text_in_memory(new_stores: NewStores) -> None:
    nightly = rule("nightly", stages=(Dedup(),))
    with new_stores() as stores:
        async with open_stores(stores) as home:
            consolidator = Consolidator(home.memory, home.facts, home.log, FakeClock(), batch=5_000)
            await home.put(built("e1", content="Ann likes tea"), built("e2", content="Bob runs"))
            remembered = wording_of("Ann likes tea")

            await consolidator.fire(FireRequest(nightly, "cron", START + timedelta(days=1)))

    assert wording_of("Ann likes tea") is not remembered


class OwnDirections(FakeEmbedder):
    """Gives different texts vectors that are not near to each other."""

    def embed(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        return [tuple(row) for row in map(_direction_of, texts)]


def _direction_of(text: str) -> list[float]:
    chance = random.Random(text)
    row = [chance.gauss(0, 1) for _ in range(64)]
    length = math.hypot(*row)
    return [number / length for number in row]


def unlike(number: int, owners: int) -> Episode:
    """Return an episode that no other one is similar to."""
    letters = "".join(chr(97 + int(digit)) for digit in str(number))
    words = (f"{word}{letters}" for word in "uvwxyz")
    return built(
        f"n{number}", content=" ".join(words), user=f"u{number % owners}", timestamp=at(number)
    )


async def test_firing_after_an_erasure_reads_the_rest_of_that_user_only(
    new_stores: NewStores, tmp_path: Path
) -> None:
    nightly = rule("nightly", stages=(Dedup(), Decay(half_life=30 * 24 * HOUR)))
    with new_stores() as stores:
        async with open_stores(stores) as home:
            counted = Counted(home.memory)
            consolidator = Consolidator(
                cast("EpisodeLog", counted), home.facts, home.log, FakeClock(), batch=5_000
            )
            for one in (home.consolidator, consolidator):
                one.note_stages_in(StageFile(tmp_path / "stages.db", "as always"))
            await home.put(*(unlike(number, 20) for number in range(400)))
            read = []
            erasures: list[dict[str, Any]] = [
                {}, {"user": "u3"}, {"user": "u4", "episode": "n4"}, {"user": "u19"}, {}
            ]  # fmt: skip
            for day, erased in enumerate(erasures):
                if erased:
                    await forget(home, **erased)
                counted.read = 0
                request = FireRequest(nightly, "cron", START + timedelta(days=1 + day))
                await consolidator.fire(request)
                read.append(counted.read)

    assert read[1:] == [0, 3 * 19, 0, 0]


async def test_firing_looks_at_all_after_an_erasure_that_was_not_noted(
    new_stores: NewStores, tmp_path: Path
) -> None:
    nightly = rule("nightly", stages=(Dedup(), Decay(half_life=30 * 24 * HOUR)))
    with new_stores() as stores:
        async with open_stores(stores) as home:
            counted = Counted(home.memory)
            consolidator = Consolidator(
                cast("EpisodeLog", counted), home.facts, home.log, FakeClock(), batch=5_000
            )
            consolidator.note_stages_in(StageFile(tmp_path / "stages.db", "as always"))
            await home.put(*(unlike(number, 20) for number in range(400)))
            read = []
            for day in range(3):
                counted.read = 0
                request = FireRequest(nightly, "cron", START + timedelta(days=1 + day))
                await consolidator.fire(request)
                read.append(counted.read)
                if day == 0:  # the other consolidator has no notes, so nobody notes the erasure
                    await forget(home, "u3")

    assert read[1:] == [2 * 380, 0]


async def test_episode_of_the_future_is_looked_at_once_when_it_is_due(
    new_stores: NewStores, tmp_path: Path
) -> None:
    staged = rule("nightly", stages=(Dedup(method="exact"),))
    with new_stores() as stores:
        async with open_stores(stores, future_tolerance_seconds=300) as home:
            counted = Counted(home.memory)
            consolidator = Consolidator(
                cast("EpisodeLog", counted), home.facts, home.log, FakeClock(), batch=5_000
            )
            consolidator.note_stages_in(StageFile(tmp_path / "stages.db", "as always"))
            await home.put(
                built("now", content="the same words", timestamp=START),
                built("then", content="the same words", timestamp=START + timedelta(hours=9)),
            )
            read = []
            for minutes in (1, 2, 3, 9 * 60 - 6, 9 * 60 - 5):
                counted.read = 0
                request = FireRequest(staged, "cron", START + timedelta(minutes=minutes))
                await consolidator.fire(request)
                read.append(counted.read)
            marks = await home.facts.query(FactPattern(channel="marks"))

    assert read[1:4] == [0, 0, 0]
    assert read[4] > 0
    assert [fact.id for fact in marks] == ["@marks/now"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["jaccard", pytest.param("fuzzy", marks=needs_rapidfuzz)])
async def test_erasure_removes_a_user_from_the_notes(tmp_path: Path, method: Any) -> None:
    stages = Dedup(method=method), Dedup(method="vectors"), Decay(half_life=HOUR)
    staged = rule("staged", stages=stages)
    async with open_stores(tmp_path, embedding=OwnDirections) as home:
        home.consolidator.note_stages_in(StageFile(tmp_path / "stages.db", "as always"))
        await leave_traces(home)
        for hours in (1, 1, 98):
            await home.fire(staged, when=START + timedelta(hours=hours))
        # The notes keep texts and vectors of episodes without a mark only.
        late = {"id": "late", "timestamp": START + timedelta(hours=99)}
        await home.put(
            canary("5", "cocoa", timestamp=late["timestamp"]), OTHER.model_copy(update=late)
        )
        for _ in range(2):
            await home.fire(staged, when=START + timedelta(hours=99))
        assert "stages.db" in "".join(files_with_canary(tmp_path))
        with closing(sqlite3.connect(tmp_path / "stages.db")) as notes:
            find = "SELECT text, vector FROM stage_texts"
            vectors = [vector for text, vector in notes.execute(find) if CANARY in text or vector]
        assert vectors

        certificate = await forget(home)

        left = b"".join(file.read_bytes() for file in tmp_path.glob("stages.db*"))
        assert sum(vector in left for vector in vectors) == 1  # that of another user

        assert certificate["stage_notes"] > 0
        assert files_with_canary(tmp_path) == []
        await home.fire(staged, when=START + timedelta(hours=100))
        assert files_with_canary(tmp_path) == []
