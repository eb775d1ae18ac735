"""The index of one scope's episodes: what is newest, and what is short, as rows change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slumberd.model.episode import EpisodeVersion
from slumberd.model.feed import NumberedVersion
from slumberd.model.scope import ScopeFilter
from slumberd.retrieval.indexes import EpisodeIndex


def index() -> EpisodeIndex:
    return EpisodeIndex(ScopeFilter.of("alice", None, None), language=None, vectors=False)


def version(
    id: str, at: int = 1, *, row: int = 1, session: str = "s", content: str = "tea"
) -> NumberedVersion:
    one = EpisodeVersion(row, id, "alice", session, "rag", at, content, "chat", {})
    return NumberedVersion(row, one)


@given(
    st.lists(
        st.dictionaries(
            st.integers(1, 20),
            st.none() | st.tuples(st.integers(1, 5), st.sampled_from("st")),
            max_size=20,
        ),
        max_size=5,
    ),
    st.frozensets(st.integers(1, 20).map("e{}".format), max_size=5),
)
def test_newest_episodes_are_those_of_all_rows_in_the_order_of_time(
    steps: list[dict[int, tuple[int, str] | None]], hidden: frozenset[str]
) -> None:
    episodes, rows = index(), dict[int, tuple[int, str]]()
    episodes.hide(hidden)
    for changes in steps:
        rows = {row: said for row, said in {**rows, **changes}.items() if said is not None}
        found = [
            version(f"e{row}", said[0], row=row, session=said[1])
            for row, said in changes.items()
            if said is not None
        ]
        episodes.replace(changes, found)

    for session in (None, "s"):
        expected = sorted(
            (
                (at, f"e{row}")
                for row, (at, own) in rows.items()
                if session in (None, own) and f"e{row}" not in hidden
            ),
            reverse=True,
        )
        newest = [(one.at, one.id) for one in episodes.newest(session, 10)]
        assert newest == expected[:10]


def test_episode_in_another_row_has_its_new_place_in_time() -> None:
    episodes = index()
    episodes.replace([1, 2], [version("a", 1), version("b", 2, row=2)])

    episodes.replace([3], [version("a", 3, row=3)])

    assert [(one.id, one.at) for one in episodes.newest(None, 10)] == [("a", 3), ("b", 2)]


def test_edited_episode_is_short_by_its_new_text() -> None:
    episodes = index()
    episodes.replace([1], [version("a", content="tea " * 41)])
    before = episodes.is_short("a")

    episodes.replace([1], [version("a", content="tea " * 40)])

    assert (before, episodes.is_short("a")) == (False, True)


def test_newest_of_many_episodes_that_came_at_once_are_in_the_order_of_time() -> None:
    episodes = index()

    episodes.replace(
        range(100), [version(f"e{at}", at, row=at) for at in sorted(range(100), key=str)]
    )

    assert [one.at for one in episodes.newest(None, 3)] == [99, 98, 97]
