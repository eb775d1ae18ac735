"""A simulated year keeps its laws, and its checks find what breaks them."""

from __future__ import annotations

import sqlite3
import xml.etree.ElementTree as ET
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.soak.checks import BrokenPromise
from tests.year.figures import (
    FIXED_FILES,
    PAGE,
    PICTURE,
    Figures,
    Law,
    draw,
    laws,
    panels,
    read_figures,
    table,
)
from tests.year.run import MEMORY, Growth, Month, YearRun
from tests.year.set_clock import SetClock
from tests.year.stream import Size, Year, expected_facts

TINY = Size(users=5, episodes=300, days=6, months=2)
SMALL = Size(users=20, episodes=24_000, days=72, months=12)

NAMES = ("memory.db", "facts.db", "stages.db", "largest write-ahead log", *FIXED_FILES)
FILES = dict.fromkeys(NAMES, 1_000_000)
COMPARED = {"a firing with new claims": (5.0, 5.5), MEMORY: (60.0, 61.0)}
ROWS = {
    "memory.db: episodes": 500,
    "memory.db: slumberd_episode_deletions": 10_000,
    "facts.db: slumberd_ledger": 1_000,
    "facts.db: slumberd_quarantine": 0,
}


def month(number: int) -> Month:
    """Return a month like every other one."""
    return Month(
        month=number, put=1_000, firing=5.0, nightly=9.0, nights=9.0, search=3.0,
        first_search=9.0, start=600.0, status=500.0, resident=80.0, anonymous=60.0, peak=90.0,
        open_files=20, threads=10, files=dict(FILES), log_bytes=10_000, log_lines=100,
        rows=dict(ROWS),
    )  # fmt: skip


def figures(**changes: Any) -> Figures:
    """Return the figures of a year without growth, but for the last month."""
    compared = {**COMPARED, **changes.pop("compared", {})}
    months = [month(number) for number in range(1, 12)]
    months.append(replace(month(12), **changes))
    return Figures(TINY, months, Growth(0.1, 0, 0), compared, "abc")


def broken(found: Figures) -> list[str]:
    return [law.name for law in laws(found) if law.value > law.most]


# the stream


@pytest.mark.unit
def test_a_seed_gives_the_same_year_each_time() -> None:
    assert Year(TINY).day(3) == Year(TINY).day(3)
    assert Year(TINY).day(3) != Year(replace(TINY, seed=2)).day(3)


@pytest.mark.unit
def test_nobody_says_anything_after_the_own_erasure() -> None:
    year = Year(TINY)
    gone = TINY.user(TINY.erased_number(0), 0)

    later = [one.user for day in range(TINY.days_of_month, TINY.days) for one in year.day(day)]

    assert gone in {one.user for day in range(TINY.days_of_month) for one in year.day(day)}
    assert gone not in later


@pytest.mark.unit
def test_expected_facts_have_the_edited_objects_and_no_deleted_key() -> None:
    year = Year(TINY)
    users = {TINY.user(number, TINY.days) for number in range(TINY.users)}
    edits = {
        one.id for day in range(TINY.days) for one in year.day(day) if one.content[-7:] == "Edited."
    }
    deletions = {
        one.id for day in range(TINY.days) for one in year.day(day)
        if one.metadata.get("intent") == "delete"
    }  # fmt: skip

    facts = expected_facts(year, users, [], 0)

    assert edits
    assert all(str(facts[id]).endswith(", edited") for id in edits & facts.keys())
    assert deletions
    assert not deletions & facts.keys()


@pytest.mark.unit
def test_a_clock_is_set_forward_and_back(tmp_path: Path) -> None:
    clock = SetClock(tmp_path / "clock")

    for instant in (datetime(2031, 1, 1, tzinfo=UTC), datetime(1999, 1, 1, tzinfo=UTC)):
        clock.set(instant)

        assert instant <= clock.now() < instant + timedelta(hours=1)
    clock.close()


# the laws


@pytest.mark.unit
def test_a_year_without_growth_breaks_no_law() -> None:
    assert broken(figures()) == []


@pytest.mark.unit
@pytest.mark.parametrize(
    ("changes", "law"),
    [
        (
            {"compared": {"a firing with new claims": (5.0, 7.0)}},
            "a firing with new claims, last month to first",
        ),
        ({"compared": {MEMORY: (60.0, 80.0)}}, f"{MEMORY}, last month to first"),
        ({"open_files": 23}, "open files, most to fewest of a month"),
        ({"threads": 17}, "threads, most to fewest of a month"),
        ({"log_bytes": 12_000}, "bytes of a line of the log, last month to first"),
        (
            {"files": FILES | {"largest write-ahead log": 65 * 2**20}},
            "largest write-ahead log",
        ),
        (
            {"files": FILES | {"facts.db": 1_200_000}},
            "bytes of `facts.db` for a row of the ledger, last month to middle",
        ),
        (
            {"files": FILES | {"stages.db": 1_400_000}},
            "bytes of `stages.db` for a stored episode, last month to middle",
        ),
        ({"files": FILES | {"search": 257 * 2**20}}, "saved indexes of search"),
        ({"files": FILES | {"core": 1}}, "files that were not there before ['core']"),
        (
            {"rows": ROWS | {"memory.db: slumberd_episode_deletions": 10_001}},
            "rows of `memory.db: slumberd_episode_deletions`",
        ),
        (
            {"rows": ROWS | {"facts.db: slumberd_quarantine": 2}},
            "new rows of `facts.db: slumberd_quarantine`",
        ),
        (
            {"rows": ROWS | {"facts.db: slumberd_later": 2}},
            "new rows of `facts.db: slumberd_later`",
        ),
    ],
)
def test_growth_breaks_a_law(changes: dict[str, Any], law: str) -> None:
    assert broken(figures(**changes)) == [law]


@pytest.mark.unit
def test_memory_of_further_requests_breaks_a_law() -> None:
    found = replace(figures(), grown=Growth(3.0, 3, 0))

    assert broken(found) == [
        "memory after more equal requests",
        "open files after more equal requests",
    ]


# the picture


@pytest.mark.unit
def test_picture_has_each_line_as_text_and_in_its_description() -> None:
    found = figures(firing=7.0)

    root = ET.fromstring(draw(found))  # noqa: S314 # our own

    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    (description,) = root.iter("{http://www.w3.org/2000/svg}desc")
    assert description.text is not None
    for panel in panels(found):
        assert panel.title in texts
        for name, values in panel.lines.items():
            assert name in texts
            assert f"{panel.title}, {name}: " in description.text
            assert len(values) == len(found.months)


@pytest.mark.unit
def test_documented_picture_shows_the_documented_figures() -> None:
    assert PICTURE.read_text("utf-8") == draw(read_figures())
    assert table(read_figures()) in PAGE.read_text("utf-8")


@pytest.mark.unit
def test_figures_are_read_as_they_were_written(tmp_path: Path) -> None:
    figures().write(tmp_path / "year.json")

    assert read_figures(tmp_path / "year.json") == figures()


# the run


def allowed(law: Law, share: float) -> float:
    """Return the most that a law allows, where processor times of a busy machine may be wrong."""
    return law.most * share if law.is_time else law.most


@pytest.mark.acceptance
def test_a_tiny_year_keeps_its_laws(tmp_path: Path) -> None:
    year = YearRun(tmp_path, TINY, rounds=20, turns=1)

    months = year.run()

    found = laws(Figures(TINY, months, year.grown, year.compared, ""))
    assert [month.month for month in months] == [1, 2]
    assert [law for law in found if law.value > allowed(law, 3.0)] == []


@pytest.mark.acceptance
@pytest.mark.nightly
@pytest.mark.timing
def test_a_small_year_keeps_its_laws(tmp_path: Path) -> None:
    year = YearRun(tmp_path, SMALL)

    months = year.run()

    found = laws(Figures(SMALL, months, year.grown, year.compared, ""))
    assert [law for law in found if law.value > allowed(law, 1.2)] == []


class YearWithLostEpisode(YearRun):
    """A year in which another program deletes an episode and its row of the log."""

    def _restart(self, how: Any, day: int) -> float:
        with closing(sqlite3.connect(self.home.state / "memory.db", timeout=60)) as memory, memory:
            memory.execute("DELETE FROM slumberd_episode_log WHERE eid = ?", (f"{day:03}-00001",))
            memory.execute("DELETE FROM episodes WHERE id = ?", (f"{day:03}-00001",))
        return super()._restart(how, day)


class YearWithOtherFact(YearRun):
    """A year in which the daemon gets another correction than the oracle."""

    def _correct(self, day: int) -> None:
        super()._correct(day)
        self._corrections = [replace(one, object="something else") for one in self._corrections]


@pytest.mark.acceptance
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("year", "problem"),
    [
        (YearWithLostEpisode, "lost: .'001-00001'"),
        (YearWithOtherFact, "facts differ"),
    ],
)
def test_a_year_finds_a_planted_fault(tmp_path: Path, year: type[YearRun], problem: str) -> None:
    with pytest.raises(BrokenPromise, match=problem):
        year(tmp_path, TINY, rounds=1, turns=1).run()
