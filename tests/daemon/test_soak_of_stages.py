"""The soak finds wrong marks, wrong extracted facts and wrongly deleted episodes."""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
from contextlib import closing
from itertools import combinations, count, islice
from pathlib import Path

import orjson
import pytest

from slumberd.consolidation import marks as mark_candidates
from slumberd.model.episode import EpisodeVersion
from tests.soak.chat import AGENT, FINAL_STAGES, UNPINNED, Chat, Marked, chats, expected_marks
from tests.soak.checks import BrokenPromise, Expected, check_facts, journals
from tests.soak.soak_run import BOOKING
from tests.soak.stage_checks import (
    check_extracted,
    check_marks,
    check_marks_have_causes,
    check_owners_of_marks,
    check_purged,
    count_mark_rows,
)
from tests.soak.writers import episode_of
from tests.support.daemons import Home

pytestmark = pytest.mark.acceptance

SAID = [chat for chat in islice(chats("dot", random.Random(7)), 260) if chat["user"] != UNPINNED]
NEWEST = {chat["id"]: chat for chat in SAID}
MARKS = expected_marks(NEWEST.values())


def write(home: Home, *said: Chat) -> None:
    """Import chat episodes, and write them to the journal of their writer."""
    file = home.folder / "put.jsonl"
    file.write_bytes(b"\n".join(episode_of(one).model_dump_json().encode() for one in said))
    home.call("import", file)
    with (home.folder / "dot.journal").open("ab") as journal:
        journal.writelines(orjson.dumps(one) + b"\n" for one in said)


@pytest.fixture(scope="module")
def consolidated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a home whose stages have worked, for tests that copy it."""
    home = Home(tmp_path_factory.mktemp("consolidated"))
    only_chat = f"agent = '{AGENT}'"
    home.rule(
        "chat", cadence={"every": 1}, when_filter=only_chat, then_emits=["heard"],
        stages=FINAL_STAGES,
    )  # fmt: skip
    patterns = {"with": "patterns", "patterns": str(BOOKING)}
    home.rule(
        "wants", cadence={"every": 1}, when_filter=only_chat, then_emits=["wants"],
        stages=[{"extract": patterns}],
    )  # fmt: skip
    for first in range(0, len(SAID), 100):
        write(home, *SAID[first : first + 100])
        home.call("fire", "--all")
    home.call("backfill", "chat")
    return home.folder


@pytest.fixture
def home(consolidated: Path, tmp_path: Path) -> Home:
    shutil.copytree(consolidated, tmp_path, dirs_exist_ok=True)
    return Home(tmp_path)


def change(home: Home, name: str, sql: str, *parameters: object) -> None:
    with closing(sqlite3.connect(home.state / name)) as database, database:
        assert database.execute(sql, parameters).rowcount > 0


def first_with(kind: str) -> tuple[str, Marked]:
    """Return the first episode with a mark of a kind, and the mark."""
    return next((eid, mark) for eid, mark in sorted(MARKS.items()) if mark.kind == kind)


def test_no_two_texts_of_the_soak_are_similar() -> None:
    words = {frozenset(re.findall(r"\w+", one["content"].casefold())) for one in SAID}
    limit = FINAL_STAGES[1]["dedup"]["similarity"]

    near = [(a, b) for a, b in combinations(words, 2) if len(a & b) / len(a | b) >= limit]

    assert near == []


@pytest.mark.path
def test_soak_reports_no_problem_when_the_stages_work(home: Home) -> None:
    check_owners_of_marks(home)
    check_marks_have_causes(home)
    rows = count_mark_rows(home)
    home.call("fire", "chat")

    assert count_mark_rows(home) == rows
    assert {mark.kind for mark in MARKS.values()} == {"archived", "duplicate_of", "summarised_into"}
    assert check_marks(home, journals(home.folder), set()) == len(MARKS)
    assert check_extracted(home, journals(home.folder)) > 5
    assert check_facts(home, journals(home.folder), Expected()) > 5
    assert check_purged(home, journals(home.folder), set()) == 0


def test_soak_finds_a_mark_of_another_user(home: Home) -> None:
    eid, _ = first_with("archived")
    change(home, "facts.db", "UPDATE facts SET user = 'c9' WHERE fact_id = ?", f"@marks/{eid}")

    with pytest.raises(BrokenPromise, match=f"'c9' is about '{eid}'"):
        check_owners_of_marks(home)


def test_soak_finds_a_mark_that_names_an_unknown_episode(home: Home) -> None:
    eid, _ = first_with("duplicate_of")
    object_of = "UPDATE facts SET payload = json_set(payload, '$.object', 'x-1') WHERE fact_id = ?"
    change(home, "facts.db", object_of, f"@marks/{eid}")

    with pytest.raises(BrokenPromise, match="'x-1', which never existed"):
        check_owners_of_marks(home)


def test_soak_finds_a_mark_that_was_written_twice(home: Home) -> None:
    eid, _ = first_with("archived")
    again = (
        "INSERT INTO slumberd_ledger SELECT 1000000, delta, firing, what, kind, reason, version,"
        " key_id, at, fact_id, replaces, salt, payload, commitment, chain FROM slumberd_ledger"
        " WHERE fact_id = ? ORDER BY seq DESC LIMIT 1"
    )
    change(home, "facts.db", again, f"@marks/{eid}")

    with pytest.raises(BrokenPromise, match="was written twice"):
        check_marks_have_causes(home)


@pytest.mark.nightly
def test_idle_firings_write_marks_when_their_digest_is_not_stable(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = count()

    def another(version: EpisodeVersion) -> str:
        return f"{version.id}-{next(numbers)}"

    monkeypatch.setattr(mark_candidates, "_digest_of", another)
    before = count_mark_rows(home)

    home.call("fire", "chat")

    assert count_mark_rows(home) > before


def test_soak_finds_a_missing_mark(home: Home) -> None:
    eid, _ = first_with("archived")
    change(home, "facts.db", "DELETE FROM facts WHERE fact_id = ?", f"@marks/{eid}")

    with pytest.raises(BrokenPromise, match="1 marks differ"):
        check_marks(home, NEWEST, set())


def test_soak_finds_a_repeat_of_an_episode_that_is_gone(home: Home) -> None:
    _, mark = first_with("duplicate_of")
    change(home, "memory.db", "DELETE FROM episodes WHERE id = ?", mark.object)

    with pytest.raises(BrokenPromise, match="which is gone"):
        check_marks(home, NEWEST, set())


def test_soak_finds_a_repeat_of_a_repeat(home: Home) -> None:
    repeat = "UPDATE facts SET payload = json_set(payload, '$.object', ?) WHERE fact_id = ?"
    eid, other = next(
        pair
        for pair in combinations(sorted(MARKS), 2)
        if MARKS[pair[0]].kind == "duplicate_of" and MARKS[pair[0]] == MARKS[pair[1]]
    )
    change(home, "facts.db", repeat, other, f"@marks/{eid}")

    with pytest.raises(BrokenPromise, match="which is itself a repeat"):
        check_marks(home, NEWEST, set())


def test_soak_finds_a_missing_summary(home: Home) -> None:
    _, mark = first_with("summarised_into")
    change(home, "facts.db", "DELETE FROM facts WHERE fact_id = ?", mark.object)

    with pytest.raises(BrokenPromise, match="summaries differ"):
        check_marks(home, NEWEST, set())


@pytest.mark.parametrize(
    "path", [pytest.param("$.extracted.span[1]", id="span"), pytest.param("$.object", id="object")]
)
def test_soak_finds_a_fact_that_its_episode_does_not_say(home: Home, path: str) -> None:
    wrong = "UPDATE facts SET payload = json_set(payload, ?, 999) WHERE fact_id LIKE '@heard/%#1'"
    change(home, "facts.db", wrong, path)

    with pytest.raises(BrokenPromise, match="and its episode says"):
        check_extracted(home, NEWEST)


def test_soak_finds_a_missing_extracted_fact(home: Home) -> None:
    change(home, "facts.db", "DELETE FROM facts WHERE fact_id LIKE '@heard/%#1'")

    with pytest.raises(BrokenPromise, match="facts differ"):
        check_facts(home, NEWEST, Expected())


def test_soak_finds_a_deleted_episode_that_had_no_mark(home: Home) -> None:
    eid = next(id for id in NEWEST if id not in MARKS)
    change(home, "memory.db", "DELETE FROM episodes WHERE id = ?", eid)

    with pytest.raises(BrokenPromise, match=f"'{eid}' is gone, and its mark is ''"):
        check_purged(home, NEWEST, set())


def test_soak_finds_a_deleted_episode_that_a_person_had_edited(home: Home) -> None:
    eid, _ = first_with("archived")
    write(home, NEWEST[eid] | {"content": "Something else"})
    change(home, "memory.db", "DELETE FROM episodes WHERE id = ?", eid)

    with pytest.raises(BrokenPromise, match=f"'{eid}' changed after its mark, and is gone"):
        check_purged(home, NEWEST, set())


def test_soak_finds_a_deleted_episode_that_a_fact_cites(home: Home) -> None:
    cited = {fact["id"].partition("/")[2].partition("#")[0] for fact in home.facts()}
    eid = next(id for id in sorted(cited) if id in MARKS and MARKS[id].kind != "summarised_into")
    change(home, "memory.db", "DELETE FROM episodes WHERE id = ?", eid)

    with pytest.raises(BrokenPromise, match="facts cite 1 deleted episodes"):
        check_purged(home, NEWEST, set())
