"""Sessions end in time, their number is bounded, and a form is sent once."""

from __future__ import annotations

import pytest

from slumberd.api.access import hash_of
from slumberd.console.sessions import LIFETIME_SECONDS, MOST, MOST_FORMS, Sessions
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


def test_oldest_session_ends_when_there_are_too_many(clock: FakeClock) -> None:
    sessions = Sessions(clock)
    secrets = [sessions.begin(uid=number) for number in range(MOST + 1)]

    assert sessions.find(secrets[0]) is None
    assert sessions.find(secrets[1]) is not None


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
