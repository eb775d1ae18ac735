"""Saved indexes: what is loaded finds the same as what was saved, and erasures leave no byte."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slumberd.model.construct import construct
from slumberd.model.episode import EpisodeVersion
from slumberd.model.fact import Fact
from slumberd.model.feed import FeedPlace, NumberedFact, NumberedVersion
from slumberd.model.firing import Position
from slumberd.model.scope import ScopeFilter
from slumberd.search.columns import VECTOR_ROWS
from slumberd.search.episode_index import EpisodeIndex
from slumberd.search.fact_index import FactIndex
from slumberd.search.hits import Kind
from slumberd.search.saved_indexes import (
    DIRECTORY,
    SavedIndexes,
    check_indexes,
    remove_indexes_of,
    size_of_indexes,
)
from slumberd.search.terms import forget_words
from tests.support.builders import START
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


def save(saved: SavedIndexes, index: EpisodeIndex | FactIndex) -> bool:
    kind: Kind = "episode" if isinstance(index, EpisodeIndex) else "fact"
    with saved.writing(index.scope.user) as writer:
        return writer is not None and writer.save(kind, index.scope, PLACE.saved(), index.parts())


def load(saved: SavedIndexes, *, language: str | None, vectors: bool) -> EpisodeIndex:
    found = saved.load("episode", SCOPE)
    assert found is not None
    assert found[0] == PLACE.saved()
    index = EpisodeIndex(SCOPE, language=language, vectors=vectors)
    index.load(found[1])
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
    assert saved_in(tmp_path).load("episode", SCOPE) is None


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

    assert saved_in(tmp_path, loader[1], store=loader[0]).load("episode", scope) is None


def test_file_of_another_user_is_not_loaded_under_a_wrong_name(tmp_path: Path) -> None:
    saved = saved_in(tmp_path)
    other = EpisodeIndex(BOB, language="auto", vectors=False)
    assert save(saved, index_of("tea"))
    assert save(saved, other)
    files = {path.parent: path for path, _ in check_indexes(tmp_path)}
    first, second = files.values()

    first.write_bytes(second.read_bytes())

    assert [saved.load("episode", SCOPE), saved.load("episode", BOB)].count(None) == 1


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

    is_used = saved.load("episode", SCOPE) is not None
    assert not is_used or found_by(load(saved, language="auto", vectors=False)) == found_by(index)
    assert is_used == (not next(check_indexes(tmp_path))[1])


@given(st.integers(0), st.integers(1, 255))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30
)
def test_damaged_vectors_are_refused(tmp_path: Path, place: int, flipped: int) -> None:
    saved, index = saved_in(tmp_path), index_of("the tea", "the dog", vectors=True)
    assert save(saved, index)
    [(path, _)] = check_indexes(tmp_path)
    whole = path.read_bytes()
    rows = cast("bytes", index.parts()[VECTOR_ROWS])
    place = whole.index(rows) + place % len(rows)

    path.write_bytes(whole[:place] + bytes([whole[place] ^ flipped]) + whole[place + 1 :])

    with pytest.raises(ValueError, match="damaged"):
        load(saved, language="auto", vectors=True)
    assert [problem for _, problem in check_indexes(tmp_path)] == ["is damaged"]


@given(st.floats(0, 1, exclude_max=True))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_cut_file_is_not_loaded(tmp_path: Path, share: float) -> None:
    saved = saved_in(tmp_path)
    assert save(saved, index_of("the tea", "the dog and the zebra"))
    [(path, _)] = check_indexes(tmp_path)

    os.truncate(path, int(share * path.stat().st_size))

    assert saved.load("episode", SCOPE) is None
    assert [problem for _, problem in check_indexes(tmp_path)] == ["is damaged"]


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
    assert saved.load("episode", SCOPE) is None
    assert saved.load("episode", bob.scope) is not None
    assert remove_indexes_of(tmp_path, "alice") == 0


def test_index_that_was_read_before_an_erasure_is_not_saved_after_it(tmp_path: Path) -> None:
    saved, index = saved_in(tmp_path), index_of("zeppelinism")
    assert save(saved, index)

    with saved.writing("alice") as writer:
        assert writer is not None
        remove_indexes_of(tmp_path, "alice")
        assert not writer.save("episode", SCOPE, PLACE.saved(), index.parts())

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
    assert saved.load("episode", SCOPE) is None
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


def fact(id: str, payload: dict[str, Any], **others: Any) -> NumberedFact:
    """Return a fact as it is read from a row that any program wrote."""
    given = {"user": "alice", "agent": "rag", "lineage": [], "confidence": 0.5, "pinned_at": START}
    return NumberedFact(id, construct(Fact, {"id": id, "payload": payload, **given, **others}))


def fact_index_of(*facts: NumberedFact, vectors: bool = False) -> FactIndex:
    index = FactIndex(SCOPE, language="auto", vectors=vectors)
    index.replace((), facts)
    return index


def load_facts(saved: SavedIndexes, *, vectors: bool = False) -> FactIndex:
    found = saved.load("fact", SCOPE)
    assert found is not None
    index = FactIndex(SCOPE, language="auto", vectors=vectors)
    index.load(found[1])
    return index


ANN = {"subject": "Ann", "predicate": "likes", "object": "tea"}
FACTS = [
    fact("f1", ANN, lineage=[{"rule_id": "r", "source_episode_ids": ["e1", "e2"]}]),
    fact("f2", {"subject": "Will", "predicate": "alias", "object": ["Johansson", "Bettina"]}),
    fact("f3", {"content": "it is 東京"}, confidence=1),
    fact("f4", ANN, confidence="high", pinned_at=datetime.fromisoformat("2026-01-01T08:00+05:30")),
    fact("f5", {**ANN, "timestamp": "2026-01-01T08:00:00.000001+01:00"}, confidence=None),
    fact("@marks/e7", {"subject": "e7", "predicate": "is", "object": "duplicate"}),
]


def test_loaded_facts_are_those_of_any_program_that_were_saved(tmp_path: Path) -> None:
    saved, index = saved_in(tmp_path), fact_index_of(*FACTS)
    assert save(saved, index)

    loaded = load_facts(saved)

    assert loaded.kept == index.kept
    assert [one.at.isoformat() for one in loaded.kept.values()] == [
        one.at.isoformat() for one in index.kept.values()
    ]
    assert (loaded.aliases, loaded.hidden) == (index.aliases, index.hidden)
    assert loaded.search("Who is Johanson?", limit=9) == index.search("Who is Johanson?", limit=9)
    assert [*loaded.named_in("What does Betina like?", loaded.kept)] == ["f2"]


def test_loaded_facts_that_change_equal_new_ones(tmp_path: Path) -> None:
    saved, change = saved_in(tmp_path), fact("f1", {**ANN, "object": "Will"})
    assert save(saved, fact_index_of(*FACTS))
    loaded = load_facts(saved)
    gone = ["f1", "f2", "@marks/e7"]

    loaded.replace(gone, [change])

    assert save(saved, loaded)
    fresh = fact_index_of(*(one for one in FACTS if one.row not in gone), change)
    for index in (loaded, load_facts(saved)):
        assert (index.kept, index.hidden, index.aliases) == (fresh.kept, frozenset(), [])
        for question in ("Will", "Johanson", "What does Ann like, tea?"):
            assert index.search(question, limit=9) == fresh.search(question, limit=9)


@pytest.mark.parametrize("infinite", [float("inf"), float("nan")], ids=str)
def test_fact_with_a_confidence_that_json_has_not_is_not_saved(
    tmp_path: Path, infinite: float
) -> None:
    assert not save(saved_in(tmp_path), fact_index_of(fact("f1", ANN, confidence=infinite)))


@pytest.mark.parametrize("vectors", [False, True])
def test_removed_fact_of_a_loaded_index_is_gone_from_memory(
    tmp_path: Path, *, vectors: bool
) -> None:
    saved, gone = saved_in(tmp_path), {"subject": "Zeppelin", "predicate": "is", "object": "gone"}
    assert save(saved, fact_index_of(*FACTS, fact("f9", gone), vectors=vectors))
    index = load_facts(saved, vectors=vectors)
    assert [hit.id for hit in index.search("Zepelin", limit=1)] == ["f9"]

    index.replace(["f9"], ())
    forget_words()

    assert reachable_texts(index, holding="eppelin") == []


def test_index_that_changes_before_it_is_written_is_saved_as_it_was(tmp_path: Path) -> None:
    saved, facts = saved_in(tmp_path), fact_index_of(*FACTS)
    episodes = index_of("the tea", "the dog and the zebra", "violin")
    seen_episodes, seen_facts = found_by(episodes), {**facts.kept}
    parts = episodes.parts(), facts.parts()

    replace(episodes, {1: None, 2: version(2, "zebra orchestra"), 9: version(9, "dog violin tea")})
    facts.replace([one.row for one in FACTS], [fact("f1", ANN), fact("f8", {"content": "dog"})])
    with saved.writing("alice") as writer:
        assert writer is not None
        assert writer.save("episode", SCOPE, PLACE.saved(), parts[0])
        assert writer.save("fact", SCOPE, [], parts[1])

    loaded = load_facts(saved)
    assert found_by(load(saved, language="auto", vectors=False)) == seen_episodes
    assert ({**loaded.kept}, loaded.hidden) == (seen_facts, frozenset(["e7"]))
    assert loaded.search("tea", limit=9) == fact_index_of(*FACTS).search("tea", limit=9)


def age(path: Path, seconds: int) -> None:
    """Let a file have been used so long after 1970."""
    os.utime(path, (seconds, seconds))


def test_files_that_were_used_longest_ago_go_when_all_take_too_much(tmp_path: Path) -> None:
    saved, paths = saved_in(tmp_path), dict[str, Path]()
    for used, user in enumerate(["alice", "bob", "carla", "dora"], start=1):
        scope = ScopeFilter.of(user, None, None)
        with saved.writing(user) as writer:
            assert writer is not None
            assert writer.save("episode", scope, PLACE.saved(), {"part": bytes(1_000)})
        [paths[user]] = {path for path, _ in check_indexes(tmp_path)} - {*paths.values()}
        age(paths[user], used)
    most = 3 * paths["alice"].stat().st_size
    bounded = SavedIndexes(tmp_path, store=["one"], made_with=[], most_bytes=most)

    assert bounded.load("episode", SCOPE) is not None  # is used now
    assert bounded.remove_oldest() == 1

    assert {user for user, path in paths.items() if path.exists()} == {"alice", "carla", "dora"}
    assert not paths["bob"].parent.exists()
    assert size_of_indexes(tmp_path) <= most
    assert bounded.remove_oldest() == 0


def test_index_that_is_larger_than_all_files_may_be_is_not_saved(tmp_path: Path) -> None:
    index = index_of("tea")
    assert save(saved_in(tmp_path), index)
    [(path, _)] = check_indexes(tmp_path)
    before = path.stat().st_ino
    bounded = SavedIndexes(tmp_path, store=["one"], made_with=[], most_bytes=100)

    assert not save(bounded, index)

    assert path.stat().st_ino == before


def _bytes_in(state: Path, wanted: bytes) -> list[Path]:
    files = [path for path in state.glob("**/*") if path.is_file()]
    return [path for path in files if wanted in path.read_bytes()]
