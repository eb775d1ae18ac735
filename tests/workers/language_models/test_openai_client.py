"""The client of a server of chat completions, against a scripted server."""

from __future__ import annotations

import asyncio
import socket

import orjson
import pytest

from slumberd.model.errors import ModelRequestError, ModelUnavailableError
from slumberd.workers.language_models.openai_client import OpenAIClient
from slumberd.workers.language_models.recorder import ChatAnswer, ChatRequest
from tests.support.model_server import ModelServer, Reply, completion, model_server

pytestmark = pytest.mark.integration

REQUEST = ChatRequest(
    "tiny", [{"role": "user", "content": "x" * 40}], {"type": "object"}, {"temperature": 0}
)


async def ask(server: ModelServer, *, key: str | None = None, seconds: float = 5) -> ChatAnswer:
    async with OpenAIClient(server.url, key, seconds) as client:
        return await client.complete(REQUEST)


@pytest.mark.slow
async def test_client_sends_the_request_and_reads_the_answer() -> None:
    async with model_server([completion('{"triples": []}')]) as server:
        answer = await ask(server, key="secret")

    assert answer == ChatAnswer('{"triples": []}', tokens_in=100, tokens_out=10)
    [sent] = server.requests
    form = {"name": "triples", "strict": True, "schema": {"type": "object"}}
    assert sent == {
        "temperature": 0,
        "model": "tiny",
        "messages": [{"role": "user", "content": "x" * 40}],
        "response_format": {"type": "json_schema", "json_schema": form},
    }
    assert server.headers[0].startswith("POST /v1/chat/completions HTTP/1.1\r\n")
    assert "authorization: bearer secret" in server.headers[0].lower()


@pytest.mark.slow
async def test_client_without_a_key_sends_none() -> None:
    async with model_server() as server:
        server.otherwise = lambda _: completion("")
        await ask(server)

    assert "authorization" not in server.headers[0].lower()


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        pytest.param(
            completion("cut", finish="length"),
            ChatAnswer("cut", complete=False, tokens_in=100, tokens_out=10),
            id="cut",
        ),
        pytest.param(
            completion("", refusal="I cannot"),
            ChatAnswer("I cannot", refused=True, tokens_in=100, tokens_out=10),
            id="refusal",
        ),
        pytest.param(
            completion("", finish="content_filter"),
            ChatAnswer("", refused=True, tokens_in=100, tokens_out=10),
            id="filtered",
        ),
        pytest.param(
            Reply(body=b'{"choices": [{"message": {"content": "eight ch"}}]}'),
            ChatAnswer("eight ch", tokens_in=10, tokens_out=2),
            id="no usage",
        ),
        pytest.param(
            Reply(body=b'{"choices": [{"message": {"content": "a\\ud800"}}], "usage": {}}'),
            ChatAnswer("a\ufffd", tokens_in=10, tokens_out=1),
            id="surrogate",
        ),
        pytest.param(Reply(413, b""), ChatAnswer("", too_long=True), id="too large"),
        pytest.param(
            Reply(400, b'{"error": {"message": "exceeds the maximum context length"}}'),
            ChatAnswer("", too_long=True),
            id="too long",
        ),
        *(
            pytest.param(Reply(body=body), ChatAnswer("", tokens_in=10), id=body.decode())
            for body in (
                b"[]",
                b'{"choices": []}',
                b'{"choices": [7]}',
                b'{"choices": [{"message": 7}]}',
                b'{"choices": [{"message": {"content": null}}], "usage": 7}',
                b'{"usage": {"prompt_tokens": -1, "completion_tokens": "x"}}',
            )
        ),
    ],
)
async def test_client_reads_any_json(reply: Reply, expected: ChatAnswer) -> None:
    async with model_server([reply]) as server:
        assert await ask(server) == expected


@pytest.mark.parametrize(
    ("reply", "problem", "pause"),
    [
        pytest.param(
            Reply(429, b'{"error": {"message": "slow\\ndown"}}', ("Retry-After: 7",)),
            "HTTP 429: slow down", 7.0, id="429",
        ),
        pytest.param(
            Reply(429, b"", ("Retry-After: Mon, 09 Mar 2026 10:00:00 GMT",)),
            "HTTP 429: no message", None, id="date",
        ),
        pytest.param(Reply(500, b"boom"), "HTTP 500: boom", None, id="500"),
        pytest.param(Reply(503, b'{"error": "busy"}'), "HTTP 503: busy", None, id="503"),
        pytest.param(Reply(body=b"<html>"), "its response is not JSON", None, id="html"),
        pytest.param(
            Reply(body=b'{"choices": [1, 2]}', cut=True), "RemoteProtocolError", None, id="cut off"
        ),
    ],
)  # fmt: skip
async def test_client_says_why_there_is_no_answer_now(
    reply: Reply, problem: str, pause: float | None
) -> None:
    async with model_server([reply]) as server:
        with pytest.raises(ModelUnavailableError) as caught:
            await ask(server)

    assert problem in caught.value.problem
    assert caught.value.retry_seconds == pause
    assert caught.value.where == server.url
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 301])
async def test_client_says_that_the_request_is_not_accepted(status: int) -> None:
    reply = Reply(status, orjson.dumps({"error": {"message": "no model 'tiny'"}}))
    async with model_server([reply]) as server:
        with pytest.raises(ModelRequestError) as caught:
            await ask(server)

    assert (caught.value.status, caught.value.problem) == (status, "no model 'tiny'")


async def test_client_gives_up_a_slow_server() -> None:
    never = asyncio.Event()
    async with model_server([Reply(until=never)]) as server:
        with pytest.raises(ModelUnavailableError, match="did not answer in time"):
            await ask(server, seconds=0.1)
        never.set()


async def test_client_reads_no_endless_response() -> None:
    async with (
        model_server([Reply(body=b"x" * 2_000)]) as server,
        OpenAIClient(server.url, max_bytes=1_000) as client,
    ):
        with pytest.raises(ModelUnavailableError, match="more than 1000 bytes"):
            await client.complete(REQUEST)


async def test_client_finds_no_server() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = ModelServer(f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
        with pytest.raises(ModelUnavailableError, match="ConnectError"):
            await ask(server)


async def test_client_ignores_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with model_server([completion("here")]) as server:
        assert (await ask(server)).text == "here"
