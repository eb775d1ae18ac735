"""Sessions end in time, their number is bounded, and a form is sent once."""

from __future__ import annotations

from typing import Any

import pytest

from slumberd.web.console.visit import LIFETIME_SECONDS, MOST_EACH, MOST_FORMS, Sessions
from slumberd.web.http.access import hash_of
from tests.support.fakes import FakeClock

pytestmark = pytest.mark.unit

HASH = hash_of("slumberd_x")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_session_is_found_by_its_own_secret(clock: FakeClock) -> None:
    sessions = Sessions(clock)
    first, second = sessions.begin(token_hash=HASH), sessions.begin(uid=1000)

    found = sessions.find(first)
    other = sessions.find(second)

    assert found is not None
    assert other is not None
    assert (found.token_hash, found.uid) == (HASH, None)
    assert (other.token_hash, other.uid) == (None, 1000)
    assert sessions.find("another") is None


def test_session_ends_after_its_lifetime(clock: FakeClock) -> None:
    sessions = Sessions(clock)
    secret = sessions.begin(uid=1000)

    clock.advance(LIFETIME_SECONDS - 1)
    assert sessions.find(secret) is not None
    clock.advance(1)
    assert sessions.find(secret) is None


@pytest.mark.parametrize(
    "owner",
    [pytest.param({"token_hash": HASH}, id="token"), pytest.param({"uid": 7}, id="account")],
)
def test_too_many_sessions_of_one_owner_end_only_its_oldest(
    clock: FakeClock, owner: dict[str, Any]
) -> None:
    sessions = Sessions(clock)
    others = [sessions.begin(uid=1000), sessions.begin(token_hash=hash_of("slumberd_y"))]

    secrets = [sessions.begin(**owner) for _ in range(MOST_EACH + 1)]

    assert sessions.find(secrets[0]) is None
    assert sessions.find(secrets[1]) is not None
    assert all(sessions.find(secret) is not None for secret in others)


def test_ended_session_is_not_found(clock: FakeClock) -> None:
    sessions = Sessions(clock)
    secret = sessions.begin(uid=1000)

    sessions.end(secret)
    sessions.end("another")

    assert sessions.find(secret) is None


def test_form_is_sent_once(clock: FakeClock) -> None:
    sessions = Sessions(clock)
    session = sessions.find(sessions.begin(uid=1000))
    assert session is not None
    number = session.issue_form()

    assert [session.use_form(number), session.use_form(number), session.use_form("x")] == [
        True, False, False,
    ]  # fmt: skip


def test_session_forgets_the_oldest_forms(clock: FakeClock) -> None:
    sessions = Sessions(clock)
    session = sessions.find(sessions.begin(uid=1000))
    assert session is not None
    numbers = [session.issue_form() for _ in range(MOST_FORMS + 1)]

    assert not session.use_form(numbers[0])
    assert session.use_form(numbers[1])
