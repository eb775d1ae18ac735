"""The file in which the stages of rules keep notes of past episodes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from slumberd.consolidation.protocols import StagePlace
from slumberd.model.errors import StoreError
from slumberd.model.firing import Position
from slumberd.model.record import Checkpoint
from slumberd.model.stages import ALWAYS_DUE, ComparedText, StagedEntry
from slumberd.storage.sqlite.stage_file import RuleNotes, StageFile

pytestmark = pytest.mark.integration

ANN, BOB = ("ann-canary", "chat"), ("bob", "chat")
PLACE = StagePlace("as it is", Position(7, "e7-canary"), 3, Checkpoint(9, b"chain"), 50)
TEXT = ComparedText(-7, "text-canary", b"vector-canary")
OLD = StagedEntry("e1-canary", 40, "e2", (-5, 2**62), 30, TEXT)
NEW = StagedEntry("e2", ALWAYS_DUE, "", (-5,))


@pytest.fixture
def file(tmp_path: Path) -> StageFile:
    return StageFile(tmp_path / "stages.db", "as always")


@pytest.fixture
def notes(file: StageFile) -> Iterator[RuleNotes]:
    with closing(file.open("nightly", writes=True)) as notes:
        notes.save(ANN, [OLD, NEW], [])
        notes.save(BOB, [OLD], [])
        notes.finish(PLACE)
    with closing(file.open("nightly", writes=True)) as notes:
        yield notes


def test_notes_say_what_was_saved(notes: RuleNotes) -> None:
    assert notes.place() == PLACE
    assert sorted(notes.due(39)) == [(ANN, "e2")]
    assert sorted(notes.due(40)) == [(ANN, "e1-canary"), (ANN, "e2"), (BOB, "e1-canary")]
    assert sorted(notes.owners_of(["e1-canary", "e9"])) == [
        ("e1-canary", ANN), ("e1-canary", BOB),
    ]  # fmt: skip
    assert notes.entries(ANN, ["e1-canary", "e2", "e3"]) == [OLD, NEW]
    assert sorted(notes.traced(ANN, [-5])) == [(-5, "e1-canary"), (-5, "e2")]
    assert notes.traced(BOB, [2**62]) == [(2**62, "e1-canary")]
    assert notes.texts(ANN, -7) == [("e1-canary", "text-canary", b"vector-canary")]
    assert (notes.texts(ANN, 7), notes.texts(("bob", "web"), -7)) == ([], [])
    assert (notes.archived(29), sorted(notes.archived(30))) == ([], ["e1-canary"] * 2)
    assert (notes.eids(ANN), notes.eids(("ann-canary", "web"))) == ({"e1-canary", "e2"}, set())


def test_saving_replaces_what_was_kept(notes: RuleNotes, file: StageFile) -> None:
    notes.save(ANN, [NEW._replace(id="e1-canary", traces=(8,))], ["e2"])
    notes.finish(PLACE)

    assert notes.eids(ANN) == {"e1-canary"}
    assert notes.traced(ANN, [-5, 2**62, 8]) == [(8, "e1-canary")]
    assert notes.traced(BOB, [-5]) == [(-5, "e1-canary")]
    assert (len(notes.texts(ANN, -7)), len(notes.texts(BOB, -7))) == (0, 1)
    assert file.find_problem() == ""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="it is compared no more"),
        pytest.param(TEXT._replace(assertion=8), id="another assertion"),
        pytest.param(TEXT._replace(text="tea"), id="another text"),
        pytest.param(TEXT._replace(vector=b""), id="another vector"),
    ],
)
def test_saving_replaces_a_compared_text(
    notes: RuleNotes, file: StageFile, text: ComparedText | None
) -> None:
    changed = OLD._replace(compared=text)

    notes.save(ANN, [changed], [])
    notes.finish(PLACE)

    assert notes.entries(ANN, [OLD.id]) == [changed]
    rows = [row for assertion in (-7, 8) for row in notes.texts(ANN, assertion)]
    assert rows == ([] if text is None else [(OLD.id, text.text, text.vector)])
    assert file.find_problem() == ""


def test_entry_that_is_gone_takes_its_compared_text_with_it(
    notes: RuleNotes, file: StageFile
) -> None:
    notes.save(ANN, [], [OLD.id])
    notes.finish(PLACE)

    assert notes.texts(ANN, -7) == []
    assert file.find_problem() == ""


def test_text_of_an_unknown_episode_is_a_problem(notes: RuleNotes, file: StageFile) -> None:
    notes.close()
    with closing(sqlite3.connect(file.path)) as damaged, damaged:
        damaged.execute("UPDATE stage_texts SET assertion = 3 WHERE owner = 1")

    assert file.find_problem() == "has 1 texts of unknown episodes"


def test_what_is_not_finished_is_dropped(notes: RuleNotes, file: StageFile) -> None:
    notes.save(ANN, [], ["e1-canary", "e2"])
    notes.close()

    with closing(file.open("nightly", writes=False)) as again:
        assert again.eids(ANN) == {"e1-canary", "e2"}


def test_rules_have_their_own_notes(notes: RuleNotes, file: StageFile) -> None:
    notes.close()
    with closing(file.open("other", writes=True)) as other:
        found = other.place(), other.eids(ANN), other.due(99), other.owners_of(["e2"])
        other.clear()

    assert found == (None, set(), [], [])
    with closing(file.open("nightly", writes=False)) as again:
        assert again.eids(BOB) == {"e1-canary"}


def test_cleared_notes_are_empty_even_if_nothing_is_finished(
    notes: RuleNotes, file: StageFile
) -> None:
    notes.clear()
    notes.close()

    with closing(file.open("nightly", writes=False)) as again:
        assert (again.place(), again.eids(ANN), again.traced(ANN, [-5])) == (None, set(), [])
        assert again.texts(ANN, -7) == []


def test_erasure_leaves_no_byte_of_a_user(notes: RuleNotes, file: StageFile) -> None:
    notes.close()

    erased = [file.erase("ann-canary", ["e1-canary"]), file.erase("bob", ["e7-canary"])]

    assert erased == [2, 1]
    left = b"".join(one.read_bytes() for one in file.path.parent.iterdir())
    assert b"canary" not in left
    with closing(file.open("nightly", writes=True)) as again:
        assert (again.place(), again.due(99), again.erasures()) == (
            PLACE._replace(position=Position(7, "")), [], {},
        )  # fmt: skip


def test_erasure_leaves_no_copy_of_a_note_that_was_moved_between_pages(file: StageFile) -> None:
    with closing(file.open("nightly", writes=True)) as notes:
        for first in range(0, 600, 40):  # so that the pages of both users' notes are split
            for owner, name in ((ANN, "canary"), (BOB, "e")):
                some = range(first, first + 40)
                kept = [StagedEntry(f"{name}-{n * 7 % 600}", n, "", (n % 50, n)) for n in some]
                notes.save(owner, kept, [])
        notes.finish(PLACE)

    assert file.erase("ann-canary", ["e7-canary"]) == 600

    left = b"".join(one.read_bytes() for one in file.path.parent.iterdir())
    assert b"canary" not in left
    with closing(file.open("nightly", writes=False)) as again:
        assert len(again.eids(BOB)) == 600


def test_erasure_leaves_what_is_kept_of_other_users(notes: RuleNotes, file: StageFile) -> None:
    notes.close()

    file.erase("ann-canary", ["e2"])
    file.note_erasure(7, b"chain", "ann-canary")

    with closing(file.open("nightly", writes=True)) as again:
        assert (again.eids(ANN), again.eids(BOB)) == (set(), {"e1-canary"})
        assert again.erasures() == {7: (b"chain", "ann-canary")}
        again.finish(PLACE)
        assert again.erasures() == {}


def test_second_erasure_removes_the_name_that_the_first_noted(
    notes: RuleNotes, file: StageFile
) -> None:
    notes.close()
    file.erase("ann-canary", [])
    file.note_erasure(7, b"chain", "ann-canary")

    file.erase("ann-canary", ["e7-canary"])
    file.erase("bob", [])

    left = b"".join(one.read_bytes() for one in file.path.parent.iterdir())
    assert b"canary" not in left
    with closing(file.open("nightly", writes=True)) as again:
        assert again.erasures() == {7: (b"chain", None)}


def test_erasure_deletes_a_file_that_another_process_reads(
    notes: RuleNotes, file: StageFile
) -> None:
    notes.close()
    with closing(file.open("nightly", writes=False)) as reader:
        assert reader.eids(ANN)

        file.erase("ann-canary", [])
        file.note_erasure(7, b"chain", None)

        assert [*file.path.parent.iterdir()] == []


@pytest.mark.parametrize("content", [b"no database" * 99, b""])
def test_damaged_file_is_made_again(file: StageFile, content: bytes) -> None:
    file.path.write_bytes(content)

    with closing(file.open("nightly", writes=True)) as notes:
        assert notes.place() is None
        notes.save(ANN, [OLD], [])
        notes.finish(PLACE)

    assert file.find_problem() == ""


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.95])
def test_damaged_page_is_found_at_the_latest_when_it_is_read(
    notes: RuleNotes, file: StageFile, share: float
) -> None:
    many = [StagedEntry(f"e{number}", traces=(number,)) for number in range(9_999)]
    notes.save(ANN, many, [])
    notes.finish(PLACE)
    notes.close()
    with file.path.open("r+b") as damaged:
        damaged.seek(int(file.path.stat().st_size * share) // 4_096 * 4_096)
        damaged.write(b"\xff" * 4_096)
    assert "damaged" in file.find_problem()

    with suppress(StoreError), closing(file.open("nightly", writes=True)) as again:
        again.entries(ANN, [one.id for one in many])
        again.traced(ANN, range(9_999))
        again.owners_of([one.id for one in many])

    with closing(file.open("nightly", writes=True)) as again:
        assert again.place() is None
    assert file.find_problem() == ""


def test_file_of_another_version_is_made_again(notes: RuleNotes, file: StageFile) -> None:
    notes.close()
    with closing(sqlite3.connect(file.path)) as other:
        other.execute("PRAGMA user_version = 99")

    with closing(file.open("nightly", writes=True)) as again:
        assert again.place() is None


def test_missing_file_has_no_notes(file: StageFile) -> None:
    with pytest.raises(StoreError):
        file.open("nightly", writes=False)

    file.erase("ann-canary", [])
    file.note_erasure(7, b"chain", None)
    assert file.find_problem() == ""
    assert not file.path.exists()


def test_search_for_problems_leaves_nothing_beside_the_file(
    notes: RuleNotes, file: StageFile
) -> None:
    notes.close()

    assert file.find_problem() == ""

    assert [*file.path.parent.iterdir()] == [file.path]
