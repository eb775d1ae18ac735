"""Facts on both clocks, and the explanations of a fact and of its episode, of one scope only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from slumberd import Memory
from slumberd.client.transports import OwnTransport, Transport
from slumberd.model.errors import NoInputError, UsageError
from slumberd.operations.caller import Caller, Right
from slumberd.operations.handlers import Dispatcher

pytestmark = pytest.mark.integration

OF_ADA = {"user": "ada", "agent": "desk"}
MOVES = (("2026-03-01", "Oslo"), ("2026-03-05", "Lisbon"), ("2026-03-03", "Rome"))


@pytest.fixture
async def transport(tmp_path: Path) -> AsyncIterator[Transport]:
    """Run a daemon in which a user has moved; it learned the last move late."""
    async with Memory.open(tmp_path / "memory", user="host") as host:
        memory = Memory(host._transport, user="ada", agent="desk", session="s")
        for day, place in MOVES:
            await host._transport.call(
                "remember",
                {
                    **OF_ADA,
                    "id": place,
                    "text": f"to {place}",
                    "when": f"{day}T12:00:00+00:00",
                    "triples": [{"subject": "ada", "predicate": "lives_in", "object": place}],
                },
            )
            await memory.wait_for(place)
        yield host._transport


async def recorded_at(transport: Transport, place: str) -> str:
    """Return when the ledger recorded a move."""
    rows = (await transport.call("changes", OF_ADA))["changes"]
    return next(str(row["at"]) for row in rows if row["fact_id"] == place)


async def places(transport: Transport, **request: Any) -> list[str]:
    page = await transport.call("facts", {**OF_ADA, **request})
    return [fact["payload"]["object"] for fact in page["facts"]]


@pytest.mark.slow
async def test_facts_are_those_believed_at_an_instant(transport: Transport) -> None:
    first, second = [await recorded_at(transport, place) for place in ("Oslo", "Lisbon")]

    assert await places(transport, believed_at="2026-01-01T00:00:00+00:00") == []
    assert await places(transport, believed_at=first) == ["Oslo"]
    assert await places(transport, believed_at=second) == ["Lisbon"]


async def test_both_clocks_answer_what_was_known_then_about_an_instant(
    transport: Transport,
) -> None:
    second, third = [await recorded_at(transport, place) for place in ("Lisbon", "Rome")]
    valid_at = "2026-03-04T00:00:00+00:00"

    assert await places(transport, valid_at=valid_at) == ["Rome"]
    assert await places(transport, valid_at=valid_at, believed_at=second) == ["Oslo"]
    assert await places(transport, valid_at=valid_at, believed_at=third) == ["Rome"]


@pytest.mark.slow
async def test_pages_of_an_earlier_belief_hold_each_fact_once(transport: Transport) -> None:
    for number in range(5):
        pinned = {"subject": "ada", "predicate": f"p{number}", "object": number, "reason": "so"}
        await transport.call("pin", {**OF_ADA, **pinned})
    (fact,) = (await transport.call("facts", {**OF_ADA, "predicate": "p4"}))["facts"]
    request: dict[str, Any] = {**OF_ADA, "believed_at": fact["pinned_at"], "limit": 2}
    await transport.call("unpin", {"facts": [fact["id"]], "reason": "no"})

    found, cursor = [], None
    while True:
        page = await transport.call("facts", {**request, "cursor": cursor})
        found += [one["payload"]["predicate"] for one in page["facts"]]
        if (cursor := page["next"]) is None:
            break

    assert sorted(found) == ["lives_in", *(f"p{number}" for number in range(5))]


async def test_explanation_has_the_history_of_the_key(transport: Transport) -> None:
    answer = await transport.call("explain", {**OF_ADA, "id": "Lisbon"})

    history = answer["explanation"]["history"]
    assert answer["kind"] == "fact"
    assert [(row["kind"], row["said"]["object"], row["replaces"]) for row in history] == [
        ("add", "Oslo", []),
        ("update", "Lisbon", ["Oslo"]),
        ("noop", "Rome", []),
    ]
    assert [row["said_at"][:10] for row in history] == [day for day, _ in MOVES]
    assert [row["at"] for row in history] == [
        await recorded_at(transport, place) for _, place in MOVES
    ]


async def test_fact_that_is_not_current_is_explained_as_a_fact(transport: Transport) -> None:
    of_episode = await transport.call("explain", {**OF_ADA, "id": "Oslo"})
    of_fact = await transport.call("explain", {**OF_ADA, "id": "Oslo", "kind": "fact"})

    assert of_episode["kind"] == "episode"
    assert of_fact["kind"] == "fact"
    assert of_fact["explanation"]["current"] is False
    assert of_fact["explanation"]["removal"] == "Lisbon replaced it"
    assert len(of_fact["explanation"]["history"]) == 3


async def test_episode_of_a_current_fact_is_explained_as_an_episode(transport: Transport) -> None:
    answer = await transport.call("explain", {**OF_ADA, "id": "Lisbon", "kind": "episode"})

    assert answer["kind"] == "episode"
    rules = answer["explanation"]["rules"]
    assert {rule["rule_id"]: rule["outcome"] for rule in rules} == {
        "said": "filtered", "stated": "update",
    }  # fmt: skip


@pytest.mark.parametrize("scope", [{"user": "eve"}, {"user": "ada", "agent": "phone"}])
@pytest.mark.parametrize("id", ["Oslo", "Lisbon"])
async def test_fact_of_another_scope_is_explained_to_nobody(
    transport: Transport, scope: dict[str, str], id: str
) -> None:
    with pytest.raises(NoInputError):
        await transport.call("explain", {**scope, "id": id, "kind": "fact"})


async def test_unknown_kind_is_refused(transport: Transport) -> None:
    with pytest.raises(UsageError, match="kind"):
        await transport.call("explain", {**OF_ADA, "id": "Oslo", "kind": "rule"})


@pytest.mark.parametrize(
    "form",
    [
        pytest.param("Rome", id="text"),
        pytest.param({"prefix": "Ro"}, id="prefix"),
        pytest.param({"glob": "*m?"}, id="glob"),
        pytest.param({"equals": "Rome"}, id="equals"),
        pytest.param({"one_of": [1, "Rome"]}, id="one of"),
    ],
)
async def test_facts_are_selected_by_a_form_of_a_slot(
    transport: Transport, form: dict[str, Any] | str
) -> None:
    where = {"where": {"object": form}, "valid_at": "2026-03-04T00:00:00+00:00"}

    assert await places(transport, **where) == ["Rome"]
    assert await places(transport, **{**where, "valid_at": "2026-03-02T00:00:00+00:00"}) == []


async def test_order_and_bounds_of_a_page_are_those_of_the_request(transport: Transport) -> None:
    for number in (1, 2):
        pinned = {"subject": "ada", "predicate": "age", "object": number, "id": f"p{number}"}
        owner = {"user": "ada", "agent": f"a{number}"}
        await transport.call("pin", {**owner, **pinned, "reason": "so"})
    request: dict[str, Any] = {"user": "ada", "order": "pinned_at", "descending": True, "limit": 2}

    page = await transport.call("facts", request)

    assert [fact["id"] for fact in page["facts"]] == ["p2", "p1"]
    assert await places(transport, said_until="2026-03-05T12:00:00+00:00") == []
    assert await places(transport, said_since="2026-03-05T12:00:00+00:00") == ["Lisbon"]
    assert await places(transport, channel="notes") == []
    assert await places(transport, max_confidence=0.5) == []


async def test_operator_without_a_user_reads_the_facts_of_all(transport: Transport) -> None:
    pinned = {"subject": "bo", "predicate": "is", "object": "up", "id": "p1", "reason": "so"}
    await transport.call("pin", {"user": "bo", "agent": "desk", **pinned})

    page = await transport.call("facts", {})
    of_bo = await transport.call("facts", {"where": {"user": {"prefix": "b"}}})

    assert [fact["user"] for fact in page["facts"]] == ["ada", "bo"]
    assert [fact["id"] for fact in of_bo["facts"]] == ["p1"]


@pytest.mark.parametrize(
    ("caller", "request_"),
    [
        pytest.param(Caller(name="ada", user="ada"), {}, id="by its connection"),
        pytest.param(Caller(name="operator"), {"user": "ada"}, id="by the request"),
    ],
)
async def test_condition_cannot_name_another_user(
    transport: Transport, caller: Caller, request_: dict[str, Any]
) -> None:
    call = partial(dispatcher_of(transport).call, "facts", caller=caller)

    with pytest.raises(UsageError, match="where: user: the request says it already"):
        await call(request={**request_, "where": {"user": {"prefix": ""}}})
    assert [fact["user"] for fact in (await call(request=request_))["facts"]] == ["ada"]


@pytest.mark.parametrize("operation", ["facts", "explain"])
async def test_caller_who_is_no_operator_names_a_user(transport: Transport, operation: str) -> None:
    request = {"explain": {"id": "Lisbon"}}.get(operation, {})
    readers = [
        Caller(name="reader", rights=frozenset({Right.READ})),
        Caller(name="of one agent", agent="other"),
    ]

    for caller in readers:
        with pytest.raises(UsageError, match="name a user"):
            await dispatcher_of(transport).call(operation, {**request}, caller)


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        pytest.param(
            {"subject": {"one_of": [1]}}, "only an object can be other than a text", id="no text"
        ),
        pytest.param({"subject": {"equals": "ada"}}, "one_of, not keys", id="of an object"),
        pytest.param({"object": {"glob": "a", "prefix": "a"}}, "one_of or equals", id="two forms"),
        pytest.param({"object": 5}, "a text is needed, or one key", id="a number"),
    ],
)
async def test_condition_that_cannot_be_read_is_refused(
    transport: Transport, where: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        await places(transport, where=where)


async def test_operator_asks_why_without_a_user_and_without_texts(transport: Transport) -> None:
    for kind in ("fact", "episode"):
        asked = {"id": "Oslo", "kind": kind}

        assert await transport.call("explain", asked) == await transport.call(
            "explain", {**OF_ADA, **asked}
        )
    answer = await transport.call("explain", {"id": "Lisbon", "content": False})
    assert "to Lisbon" not in str(answer)
    assert "to Lisbon" in str(await transport.call("explain", {"id": "Lisbon"}))


def dispatcher_of(transport: Transport) -> Dispatcher:
    assert isinstance(transport, OwnTransport)
    return transport._daemon.served.dispatcher
