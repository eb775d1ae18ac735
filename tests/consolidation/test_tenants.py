"""A tenant reads equal bytes with and without a hostile other tenant."""

from __future__ import annotations

import os
import sqlite3
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from slumberd.consolidation import claim
from slumberd.consolidation.state import KnownState
from slumberd.model import scope
from slumberd.model.episode import Episode
from slumberd.model.scope import escape
from slumberd.storage.episodes.rows import decode, episode_of
from slumberd.storage.ledger import fact_rows
from slumberd.storage.sqlite import session as sqlite_session
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.hostile_tenant import MINE, Look, Owner, Step, Story, play
from tests.support.sample_sizes import amount
from tests.support.tenant_views import current_view, everything, printed

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.filterwarnings("ignore:Generating overly large repr"),
]

USERS = ("alice", "caf\u00e9", "a_i%ce", "al/ice")
MOST = 65_536
PLANTED = settings(
    max_examples=300,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # to find the fault is enough
    suppress_health_check=[HealthCheck.too_slow],
    report_multiple_bugs=False,
)


def look_alikes(text: str) -> list[str]:
    """Return texts that resemble a text, or are patterns that match it."""
    found = [
        *(text.upper(), text.title(), text.casefold()),
        *(unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC", "NFKD")),
        *("%", "_" * len(text), f"{text}%", f"{text[:-1]}_", f"%{text[1:]}", "%25", "*", "?"),
        *(f"{text}/", f"/{text}", f"{text}/session/s1/agent/rag", f"../{text}", "/"),
        *(quote(text, safe=""), text.replace("/", "%2F"), text.replace("%", "%25")),
        *(text[:-1], f"{text}2", f"{text} ", f" {text}", f"{text}\u200b", f"\ufeff{text}"),
        *(text.replace("a", "\u0430"), text.replace("e", "\uff45"), f"{text}\u202e"),
        *(f"{text}\0", f"{text}\n", f"{text}\x7f"),  # no user may have such a name
        f"{text}'; DROP TABLE facts; --",
        text + "x" * MOST,
    ]
    return [other for other in dict.fromkeys(found) if other not in ("", text)]


@st.composite
def owners(draw: st.DrawFn) -> tuple[Owner, Owner]:
    """Return two tenants that differ in the user, or in the agent alone."""
    tenant = Owner(draw(st.sampled_from(USERS)), "rag")
    if draw(st.integers(0, 2)):
        user = draw(st.sampled_from(look_alikes(tenant.user)))
        return tenant, Owner(user, draw(st.sampled_from(["rag", "Rag", "%", "rag/"])))
    return tenant, Owner(tenant.user, draw(st.sampled_from(look_alikes(tenant.agent))))


THEIRS = ("b1", "b2", "@notes/e1.", *(f"{resembling}." for resembling in look_alikes("e1")[:-1]))
"""Ids of the other tenant's episodes; no id is shared, as its first user would hold it."""

SESSIONS = ("s1", "s/2")
SECONDS = st.integers(0, 5)


@st.composite
def metadata_of(draw: st.DrawFn, own: tuple[str, ...]) -> dict[str, Any]:
    """Return metadata of an episode; it shares keys with the tenant, and may name ids of both."""
    predicate = draw(st.sampled_from(["is", "is", "likes"]))
    metadata: dict[str, Any] = {"subject": "s", "predicate": predicate}
    if draw(st.integers(0, 5)):
        metadata["object"] = draw(st.sampled_from("abc"))
    intent = draw(st.sampled_from([None, None, "update", "delete", "delete", "noop", "?"]))
    if intent:
        metadata["intent"] = intent
    if intent in ("update", "delete") and draw(st.integers(0, 3)):
        named = st.sampled_from([*MINE, *own])
        metadata["replaces"] = draw(st.lists(named, min_size=1, max_size=3))
    return metadata


MY_ID, THEIR_ID = st.sampled_from(MINE), st.sampled_from(THEIRS)
STEPS: st.SearchStrategy[Step] = st.one_of(
    *[st.tuples(st.just("put"), MY_ID, st.sampled_from(SESSIONS), SECONDS, metadata_of(THEIRS))]
    * 4,
    *[st.tuples(st.just("fire"))] * 3,
    st.tuples(st.just("undo"), st.integers(0, 9)),
    st.tuples(st.just("backfill"), st.sampled_from(["all", "likes"])),
    st.tuples(st.just("retry")),
    st.tuples(st.just("pin"), st.sampled_from(["p1", "e1"]), st.sampled_from("ab")),
    st.tuples(st.just("unpin"), st.sampled_from([*MINE, "p1", "@notes/e_"])),
    st.tuples(st.just("forget"), st.sampled_from(SESSIONS)),
    st.tuples(st.just("forget_named"), st.sampled_from(["episode", "fact"]), MY_ID),
)
ROWS = st.tuples(
    st.just("row"),
    THEIR_ID,
    st.sampled_from(["one", "other"]),
    st.just("other"),
    st.one_of(
        metadata_of(THEIRS).map(lambda metadata: orjson.dumps(metadata).decode()), st.just('{"a": ')
    ),
    st.sampled_from(["2026-01-01T12:00:03+00:00", "9999-12-31T23:59:59+00:00", "now"]),
)
OTHERS: st.SearchStrategy[Step] = st.one_of(
    *[
        st.tuples(
            st.just("put"),
            THEIR_ID,
            st.sampled_from([*SESSIONS, *look_alikes("s1")]),
            st.sampled_from([0, 3, 5, 10**9, -(10**9)]),
            metadata_of(THEIRS),
            st.sampled_from([*MINE, "chat"]),
        )
    ]
    * 5,
    ROWS,
    st.tuples(st.just("restate"), MY_ID),
    st.tuples(st.just("steal"), MY_ID),
    st.tuples(st.just("pin"), st.sampled_from(["b1", "q1", "@notes/b1"]), st.sampled_from("ab")),
    st.tuples(st.just("unpin"), st.sampled_from(["b1", "q1", "@notes/b1"])),
    st.tuples(st.just("delta"), THEIR_ID, st.lists(MY_ID, min_size=1, max_size=2)),
    st.tuples(st.just("edit"), st.sampled_from(["b3", "@notes/b3"])),
    st.tuples(st.just("fire_and_undo"), st.booleans()),
    st.tuples(st.just("forget"), st.sampled_from([None, *SESSIONS])),
    st.tuples(
        st.just("forget_named"),
        st.sampled_from(["episode", "fact"]),
        st.sampled_from([*MINE, *THEIRS, "p1", "b1"]),
    ),
)


@st.composite
def stories(draw: st.DrawFn, /, **fields: Any) -> Story:
    """Return a story of some steps, and between them the hostile steps of the other tenant."""
    steps = draw(st.lists(STEPS, min_size=3, max_size=9))
    between = [draw(st.lists(OTHERS, min_size=1, max_size=4)) for _ in steps]
    return Story(*draw(owners()), steps, between, **fields)


def check(story: Story, look: Look) -> None:
    alone, beside = (play(story, hostile=hostile, look=look) for hostile in (False, True))

    for name in alone:
        assert _bytes(alone[name]) == _bytes(beside[name]), name


def _bytes(seen: Any) -> bytes:
    return orjson.dumps(seen, option=orjson.OPT_INDENT_2)


EXAMPLES = int(os.environ.get("SLUMBERD_TEST_TENANTS", amount(2, full=20)))
"""The number of stories of the first test; other tests of this module play a fraction of it."""


def examples(count: int) -> settings:
    # No shrinking: it would take many minutes, and the stories are short already.
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    return settings(max_examples=count, phases=phases, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.path
@pytest.mark.sampled
@examples(EXAMPLES)
@given(stories())
def test_a_tenant_reads_the_same_beside_a_hostile_tenant(story: Story) -> None:
    check(story, everything)


@pytest.mark.slow
@examples(max(1, EXAMPLES // 5))
@given(stories(held=True))
def test_a_tenant_reads_the_same_when_each_deletion_is_held_and_approved(story: Story) -> None:
    check(story, everything)


@pytest.mark.slow
@examples(max(1, EXAMPLES // 5))
@given(stories(batch=2))
def test_a_tenant_has_the_same_facts_at_any_batch_boundary_of_the_other(story: Story) -> None:
    check(story, current_view)


@pytest.mark.slow
@examples(max(1, EXAMPLES // 10))
@given(stories())
def test_the_command_line_shows_a_tenant_the_same_beside_a_hostile_tenant(story: Story) -> None:
    check(story, printed)


async def recent_by_pattern(
    self: SQLiteMemoryStore,
    user: str,
    session: str | None = None,
    agent: str | None = None,
    *,
    limit: int,
) -> list[Episode]:
    """Read as Stargraph does: by LIKE, with a key without escapes."""
    pattern = f"/user/{user}/session/{session or '%'}/agent/{agent or '%'}/"
    with closing(sqlite3.connect(self.path)) as connection:
        rows = connection.execute(
            "SELECT id, scope_key, content, timestamp, metadata FROM episodes"
            " WHERE scope_key LIKE ? ORDER BY timestamp DESC LIMIT ?",
            (pattern[:40_000], limit),
        ).fetchall()
    return [episode_of(decode(0, row, mismatch="trust_episode")) for row in rows]


def read_by_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SQLiteMemoryStore, "recent", recent_by_pattern)


def search_by_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    changed: dict[str, sqlite_session._Statement] = {}
    for name in ("find_facts_of_user", "find_facts_of_user_and_agent"):
        found = sqlite_session._find_statement(f"facts.{name}")
        by_pattern = found.sql.replace("user = :user", "user LIKE :user")
        assert by_pattern != found.sql
        changed[f"facts.{name}"] = found._replace(sql=by_pattern)
    find = sqlite_session._find_statement
    monkeypatch.setattr(
        sqlite_session, "_find_statement", lambda name: changed.get(name) or find(name)
    )
    monkeypatch.setattr(fact_rows, "_equal_to", lambda _: lambda _: True)


def normalise_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    def normal(part: str) -> str:
        return escape(unicodedata.normalize("NFKC", part).casefold().strip())

    monkeypatch.setattr(scope, "escape", normal)
    scope.owner_of.cache_clear()


def replace_facts_of_any_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    def targets(self: KnownState, retraction: claim.Claim) -> list[claim.Claim]:
        found = [
            effective.claim
            for name in retraction.names
            for effective in self.effective_claims(name)
        ]
        return [target for target in found if target.asserts]

    monkeypatch.setattr(KnownState, "targets", targets)


@pytest.fixture
def cleared_owner_cache() -> Iterator[None]:
    """Clear the cache of owners after the test: a planted fault fills it with wrong owners."""
    yield
    scope.owner_of.cache_clear()


@pytest.mark.nightly
@pytest.mark.usefixtures("cleared_owner_cache")
@pytest.mark.parametrize(
    "plant", [read_by_pattern, search_by_pattern, normalise_owners, replace_facts_of_any_owner]
)
def test_these_tests_detect_a_planted_leak_between_tenants(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    caught: list[Story] = []

    @settings(PLANTED)
    @given(stories())
    def look_for_it(story: Story) -> None:
        try:
            check(story, everything)
        except AssertionError:
            caught.append(story)
            raise

    plant(monkeypatch)

    with pytest.raises(AssertionError):
        look_for_it()

    assert caught
