"""A request says who called it, and gives nobody more than its sender has."""

from __future__ import annotations

from typing import Any

import pytest

from slumberd.model.errors import NotAllowedError, UsageError
from slumberd.operations.caller import Caller, Right
from slumberd.operations.handlers import FIELD, Answer, for_forwarded, forward

pytestmark = pytest.mark.unit

HOST = Caller(name="ada@web1:7", pid=7)
READER = Caller(name="token ana", user="ana", agent="desk", rights=frozenset({Right.READ}))


class Handler:
    """Keeps what it was called with."""

    def __init__(self) -> None:
        self.called: list[tuple[dict[str, Any], Caller]] = []

    async def __call__(self, request: dict[str, Any], caller: Caller) -> Answer:
        self.called.append((request, caller))
        return {}


async def received(request: dict[str, Any], sender: Caller) -> tuple[dict[str, Any], Caller]:
    handler = Handler()
    await for_forwarded(handler)(request, sender)
    return handler.called[0]


async def test_request_without_a_caller_is_the_senders_own() -> None:
    assert await received(forward({"a": 1}), HOST) == ({"a": 1}, HOST)


async def test_caller_keeps_its_limits_at_the_other_end() -> None:
    request, caller = await received(forward({"a": 1}, READER), HOST)

    assert request == {"a": 1}
    assert (caller.user, caller.agent, caller.rights) == ("ana", "desk", READER.rights)
    assert (caller.name, caller.pid) == ("token ana via ada@web1:7", 7)


async def test_limited_sender_cannot_pass_on_more_than_it_has() -> None:
    wide = Caller(name="token wide")

    _, caller = await received(forward({}, wide), READER)

    assert (caller.user, caller.agent, caller.rights) == ("ana", "desk", READER.rights)
    for other in (Caller(name="x", user="bob"), Caller(name="x", user="ana", agent="other")):
        with pytest.raises(NotAllowedError):
            await received(forward({}, other), READER)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param("uid 0", id="text"),
        pytest.param({"rights": ["all"]}, id="unknown right"),
        pytest.param({"uid": 0}, id="unknown field"),
    ],
)
async def test_malformed_caller_is_refused(document: object) -> None:
    with pytest.raises(UsageError):
        await received({FIELD: document}, HOST)
