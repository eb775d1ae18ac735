"""Saved indexes: what is loaded finds the same as what was saved, and erasures leave no byte."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slumberd.model.episode import EpisodeVersion
from slumberd.model.feed import FeedPlace, NumberedVersion
from slumberd.model.firing import Position
from slumberd.model.scope import ScopeFilter
from slumberd.search.episode_index import EpisodeIndex
from slumberd.search.saved_indexes import (
    DIRECTORY,
    SavedIndexes,
    check_indexes,
    remove_indexes_of,
    size_of_indexes,
)
from slumberd.search.scope_vectors import VECTOR_ROWS
from tests.support.reachable_texts import reachable_texts

SCOPE = ScopeFilter.of("alice", None, None)
SESSION = ScopeFilter.of("alice", "s", None)
BOB = ScopeFilter.of("bob", None, None)
PLACE = FeedPlace(Position(7, "e7"), 3)
_PLAIN = "the tea coffee dog zebra bicycle orchestra violin Lisbon doctor and was here very often"
_OTHERS = "der die Hund ist nicht schön Straße und 東京に住んでいます el perro está aquí ''"
WORDS = f"{_PLAIN} {_OTHERS}".split()
QUESTIONS = ("dog zebra", "what did Ann say about the violin?", "Hund Straße", "東京", "tea", "''")

Change = dict[int, EpisodeVersion | None]


def saved_in(state: Path, *made_with: object, store: object = "one") -> SavedIndexes:
    return SavedIndexes(state, store=[store], made_with=made_with)


def save(saved: SavedIndexes, index: EpisodeIndex, place: FeedPlace = PLACE) -> bool:
    with saved.writing(index.scope.user) as writer:
        return writer is not None and writer.save(
            "episodes", index.scope, place.saved(), index.parts()
        )


def load(saved: SavedIndexes, *, language: str | None, vectors: bool) -> EpisodeIndex:
    found = saved.load("episodes", SCOPE)
    assert found is not None
    assert found.place == PLACE.saved()
    index = EpisodeIndex(SCOPE, language=language, vectors=vectors)
    index.load(found.parts)
    return index


def version(
    row: int, text: str, session: str = "s", speaker: str = "Ann", at: int = 0
) -> EpisodeVersion:
    metadata = {"speaker": speaker, **({"caption": "a zebra"} if row % 7 == 0 else {})}
    id = f"e{row}"
    return EpisodeVersion(row, id, "alice", session, "rag", at or row, text, "chat", metadata)


def index_of(*texts: str, language: str | None = "auto", vectors: bool = False) -> EpisodeIndex:
    index = EpisodeIndex(SCOPE, language=language, vectors=vectors)
    rows = range(1, len(texts) + 1)
    versions = [
        NumberedVersion(row, version(row, text)) for row, text in zip(rows, texts, strict=True)
    ]
    index.replace((), versions)
    return index


def replace(index: EpisodeIndex, change: Change) -> None:
    found = [NumberedVersion(row, one) for row, one in change.items() if one is not None]
    index.replace(change, found)


def found_by(index: EpisodeIndex) -> list[object]:
    """Return all that a search and a context read of an index."""
    hits = [index.index.search(question, limit=30) for question in QUESTIONS]
    before = [index.index.previous(hit.id) for some in hits for hit in some]
    kept = [index.kept[hit.id] for some in hits for hit in some]
    short = [index.is_short(hit.id) for some in hits for hit in some]
    newest = [index.newest(session, 20) for session in (None, "s", "t")]
    return [hits, before, kept, short, newest, index.latest_at, sorted(index.ids_after(10))]


texts = st.lists(st.sampled_from(WORDS), max_size=50).map(" ".join)
versions = st.builds(
    lambda row, text, session, speaker, at: (row, version(row, text, session, speaker, at)),
    st.integers(1, 25),
    texts,
    st.sampled_from(["s", "t", ""]),
    st.sampled_from(["Ann", "Ben", ""]),
    st.integers(1, 40),
)
changes = st.lists(versions | st.integers(1, 25).map(lambda row: (row, None)), max_size=20).map(
    dict
)


class Step(NamedTuple):
    """What happens to an index: some rows change, some ids are hidden, and it may be saved."""

    change: Change
    hidden: frozenset[str]
    is_saved: bool


steps = st.lists(
    st.builds(
        Step,
        changes,
        st.frozensets(st.integers(1, 25).map("e{}".format), max_size=3),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@given(steps, st.sampled_from(["auto", "english", None]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_loaded_index_finds_what_one_finds_that_was_never_saved(
    tmp_path: Path, history: Sequence[Step], language: str | None
) -> None:
    _check(tmp_path, history, language, vectors=False)


@pytest.mark.slow
@given(steps)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30
)
def test_loaded_index_finds_the_same_by_meaning(tmp_path: Path, history: Sequence[Step]) -> None:
    _check(tmp_path, history, "auto", vectors=True)


def _check(tmp_path: Path, history: Sequence[Step], language: str | None, *, vectors: bool) -> None:
    saved = saved_in(tmp_path)
    kept = EpisodeIndex(SCOPE, language=language, vectors=vectors)
    other = EpisodeIndex(SCOPE, language=language, vectors=vectors)
    rows: Change = {}
    for step in history:
        for index in (kept, other):
            replace(index, step.change)
            index.hide(step.hidden)
        rows |= step.change
        if step.is_saved:
            assert save(saved, other)
            other = load(saved, language=language, vectors=vectors)
        if vectors:  # both embed what is new now
            kept.parts()
            other.parts()
        assert found_by(other) == found_by(kept)
    if not vectors:
        fresh = EpisodeIndex(SCOPE, language=language, vectors=False)
        replace(fresh, rows)
        fresh.hide(history[-1].hidden)
        assert found_by(other)[:5] == found_by(fresh)[:5]


def test_saved_text_that_is_gone_is_no_exact_text_of_a_question(tmp_path: Path) -> None:
    saved = saved_in(tmp_path)
    assert save(saved, index_of("the tea", "the tea", "dog"))
    index = load(saved, language="auto", vectors=False)

    replace(index, {1: None})

    scores = {hit.id: hit.score for hit in index.index.search("the tea")}
    assert ({*scores}, scores["e2"]) == ({"e2", "e3"}, 1.0)


def test_index_that_is_not_there_is_not_loaded(tmp_path: Path) -> None:
    assert saved_in(tmp_path).load("episodes", SCOPE) is None


@pytest.mark.parametrize(
    ("saver", "loader", "scope"),
    [
        pytest.param(("one", "auto"), ("two", "auto"), SCOPE, id="store"),
        pytest.param(("one", "auto"), ("one", "english"), SCOPE, id="language"),
        pytest.param(
            ("one", "auto"), ("one", "auto"), ScopeFilter.of("bob", None, None), id="user"
        ),
        pytest.param(
            ("one", "auto"), ("one", "auto"), ScopeFilter.of("alice", "s", None), id="part"
        ),
    ],
)
def test_index_of_another_store_language_or_scope_is_not_loaded(
    tmp_path: Path, saver: tuple[str, str], loader: tuple[str, str], scope: ScopeFilter
) -> None:
    assert save(saved_in(tmp_path, saver[1], store=saver[0]), index_of("tea"))

    assert saved_in(tmp_path, loader[1], store=loader[0]).load("episodes", scope) is None


def test_file_of_another_user_is_not_loaded_under_a_wrong_name(tmp_path: Path) -> None:
    saved = saved_in(tmp_path)
    other = EpisodeIndex(BOB, language="auto", vectors=False)
    assert save(saved, index_of("tea"))
    assert save(saved, other)
    files = {one.path.parent: one.path for one in check_indexes(tmp_path)}
    first, second = files.values()

    first.write_bytes(second.read_bytes())

    assert [saved.load("episodes", SCOPE), saved.load("episodes", BOB)].count(None) == 1


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_damaged_file_is_not_loaded_or_finds_the_same(tmp_path: Path, data: st.DataObject) -> None:
    saved, index = saved_in(tmp_path), index_of("the tea", "the dog and the zebra", "violin")
    assert save(saved, index)
    [(path, _)] = check_indexes(tmp_path)
    whole = path.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytes([whole[place] ^ data.draw(st.integers(1, 255))])

    path.write_bytes(whole[:place] + damaged + whole[place + 1 :])

    is_used = saved.load("episodes", SCOPE) is not None
    assert not is_used or found_by(load(saved, language="auto", vectors=False)) == found_by(index)
    assert is_used == (not next(check_indexes(tmp_path)).problem)


@given(st.integers(0), st.integers(1, 255))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30
)
def test_damaged_vectors_are_refused(tmp_path: Path, place: int, flipped: int) -> None:
    saved, index = saved_in(tmp_path), index_of("the tea", "the dog", vectors=True)
    assert save(saved, index)
    [(path, _)] = check_indexes(tmp_path)
    whole = path.read_bytes()
    rows = bytes(index.parts()[VECTOR_ROWS])
    place = whole.index(rows) + place % len(rows)

    path.write_bytes(whole[:place] + bytes([whole[place] ^ flipped]) + whole[place + 1 :])

    with pytest.raises(ValueError, match="damaged"):
        load(saved, language="auto", vectors=True)
    assert [one.problem for one in check_indexes(tmp_path)] == ["is damaged"]


@given(st.floats(0, 1, exclude_max=True))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_cut_file_is_not_loaded(tmp_path: Path, share: float) -> None:
    saved = saved_in(tmp_path)
    assert save(saved, index_of("the tea", "the dog and the zebra"))
    [(path, _)] = check_indexes(tmp_path)

    os.truncate(path, int(share * path.stat().st_size))

    assert saved.load("episodes", SCOPE) is None
    assert [one.problem for one in check_indexes(tmp_path)] == ["is damaged"]


def test_only_the_owner_reads_the_files(tmp_path: Path) -> None:
    assert save(saved_in(tmp_path), index_of("tea"))

    modes = {path.stat().st_mode & 0o777 for path in tmp_path.glob("search/**/*")}
    assert modes == {0o700, 0o600}
    assert size_of_indexes(tmp_path) > 0


def test_erasure_leaves_no_byte_and_no_name_of_a_user(tmp_path: Path) -> None:
    saved = saved_in(tmp_path)
    bob = EpisodeIndex(BOB, language=None, vectors=False)
    assert save(saved, index_of("zeppelinism"))
    assert save(saved, bob)

    assert remove_indexes_of(tmp_path, "alice") == 1

    assert _bytes_in(tmp_path, b"zeppelinism") == []
    assert saved.load("episodes", SCOPE) is None
    assert saved.load("episodes", bob.scope) is not None
    assert remove_indexes_of(tmp_path, "alice") == 0


def test_index_that_was_read_before_an_erasure_is_not_saved_after_it(tmp_path: Path) -> None:
    saved, index = saved_in(tmp_path), index_of("zeppelinism")
    assert save(saved, index)

    with saved.writing("alice") as writer:
        assert writer is not None
        remove_indexes_of(tmp_path, "alice")
        assert not writer.save("episodes", SCOPE, PLACE.saved(), index.parts())

    assert _bytes_in(tmp_path, b"zeppelinism") == []
    assert [*(tmp_path / DIRECTORY).iterdir()] == []


def test_erasure_that_was_killed_is_finished_by_the_next_one(tmp_path: Path) -> None:
    assert save(saved_in(tmp_path), index_of("zeppelinism"))
    [directory] = (tmp_path / DIRECTORY).iterdir()
    directory.rename(directory.with_name(".gone-1"))

    remove_indexes_of(tmp_path, "bob")

    assert _bytes_in(tmp_path, b"zeppelinism") == []


def test_file_that_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    saved, index = saved_in(tmp_path), index_of("tea")
    assert save(saved, index)
    [(path, _)] = check_indexes(tmp_path)
    path.with_name(f"{path.name}.1.new").write_bytes(b"half")

    assert save(saved, index)

    assert [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize("prepare", [
    pytest.param(lambda state: state.joinpath(DIRECTORY).write_text("no directory"), id="file"),
    pytest.param(lambda state: state.rmdir(), id="missing"),
])  # fmt: skip
def test_directory_that_cannot_be_used_is_no_error(
    tmp_path: Path, prepare: Callable[[Path], object]
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    prepare(state)
    saved = saved_in(state)

    assert not save(saved, index_of("tea"))
    assert saved.load("episodes", SCOPE) is None
    assert size_of_indexes(state) == 0


def test_text_with_half_of_a_surrogate_pair_is_not_saved(tmp_path: Path) -> None:
    assert not save(saved_in(tmp_path), index_of("tea \ud800"))

    assert [*check_indexes(tmp_path)] == []


@pytest.mark.parametrize("vectors", [False, True])
def test_removed_text_of_a_loaded_index_is_gone_from_memory(
    tmp_path: Path, *, vectors: bool
) -> None:
    saved = saved_in(tmp_path)
    assert save(saved, index_of("the zeppelinism", "the tea", language=None, vectors=vectors))
    index = load(saved, language=None, vectors=vectors)
    found_by(index)

    replace(index, {1: None})

    assert reachable_texts(index, holding="zeppelin") == []
    assert [hit.id for hit in index.index.search("tea zeppelinism")] == ["e2"]


def test_long_texts_without_words_count_as_memory(tmp_path: Path) -> None:
    saved, index = saved_in(tmp_path), index_of(*(f"{n}" + "x" * 50_000 for n in range(20)))
    assert save(saved, index)
    loaded = load(saved, language="auto", vectors=False)

    assert 1_000_000 < index.size_bytes < 2_000_000
    assert 1_000_000 < loaded.size_bytes < 2_000_000

    for one in (index, loaded):
        replace(one, {row: version(row, "short") for row in range(1, 21)})
    assert index.size_bytes < 100_000
    assert found_by(loaded) == found_by(index)


def _bytes_in(state: Path, wanted: bytes) -> list[Path]:
    files = [path for path in state.glob("**/*") if path.is_file()]
    return [path for path in files if wanted in path.read_bytes()]
