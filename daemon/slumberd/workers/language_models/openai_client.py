"""Ask a server that speaks OpenAI's chat completions: Ollama, vLLM, llama-server and others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import httpx2

from slumberd.consolidation.extraction.sentences import replace_surrogates
from slumberd.model.errors import ModelRequestError, ModelUnavailableError
from slumberd.workers.language_models.recorder import ChatAnswer, ChatRequest

MAX_BYTES = 4 * 1024 * 1024
"""A longer response is not read, by default."""

_TRANSIENT = frozenset({408, 409, 425, 429})
"""The codes below 500 after which the same request may succeed later."""

_CHARACTERS_OF_A_TOKEN = 4
_MOST_OF_A_MESSAGE = 300


class OpenAIClient:
    """A client of one server; implements ``LanguageModel``. It repeats no request.

    Args:
        base_url: The address before ``/chat/completions``, such as ``http://127.0.0.1:11434/v1``.
        key: The secret that the server asks for; None without one.
        timeout_seconds: How long one answer may take.
        max_bytes: A longer response is not read.
    """

    def __init__(
        self,
        base_url: str,
        key: str | None = None,
        timeout_seconds: float = 60,
        *,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._where = base_url
        self._max_bytes = max_bytes
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._models_url = base_url.rstrip("/") + "/models"
        # Proxies of the environment are ignored: the configuration says where episodes go.
        self._client = httpx2.AsyncClient(
            headers=headers, timeout=timeout_seconds, trust_env=False, follow_redirects=False
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    async def complete(self, request: ChatRequest) -> ChatAnswer:
        """Return the answer to a request; ask once only."""
        response, content = await self._exchange("POST", self._url, _body_of(request))
        if _is_too_long(response.status_code, content):
            return ChatAnswer("", too_long=True)
        return _answer_in(self._document(response, content), request)

    async def models(self) -> list[str]:
        """Return the names of the models that the server has.

        Raises:
            ModelUnavailableError: There is no answer now.
            ModelRequestError: The server does not tell.
        """
        document = self._document(*await self._exchange("GET", self._models_url))
        listed = document.get("data") if isinstance(document, Mapping) else None
        found = [one.get("id") for one in listed or () if isinstance(one, Mapping)]
        return sorted(name for name in found if isinstance(name, str))

    async def _exchange(
        self, method: str, url: str, body: object = None
    ) -> tuple[httpx2.Response, bytes]:
        try:
            async with self._client.stream(method, url, json=body) as response:
                return response, await self._read(response)
        except httpx2.TimeoutException as error:
            raise ModelUnavailableError(self._where, "it did not answer in time") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ModelUnavailableError(self._where, _describe(error)) from error

    async def _read(self, response: httpx2.Response) -> bytes:
        content = bytearray()
        async for some in response.aiter_bytes():
            content += some
            if len(content) > self._max_bytes:
                problem = f"it sent more than {self._max_bytes} bytes"
                raise ModelUnavailableError(self._where, problem)
        return bytes(content)

    def _document(self, response: httpx2.Response, content: bytes) -> object:
        """Return the JSON of a response that has what was asked for."""
        status = response.status_code
        if status >= 500 or status in _TRANSIENT:
            problem = f"HTTP {status}: {_message_in(content)}"
            pause = _seconds_in(response.headers.get("retry-after"))
            raise ModelUnavailableError(self._where, problem, pause)
        if status != 200:
            raise ModelRequestError(self._where, status, _message_in(content))
        try:
            document: object = json.loads(content)
        except ValueError as error:
            raise ModelUnavailableError(self._where, "its response is not JSON") from error
        return document


def _is_too_long(status: int, content: bytes) -> bool:
    """Return whether a response says that the request exceeds the context of the model."""
    text = content[:2_000].lower().replace(b"_", b" ")
    return status == 413 or (status in (400, 422) and b"context length" in text)


def _body_of(request: ChatRequest) -> dict[str, Any]:
    form = {"name": "triples", "strict": True, "schema": request.schema}
    return {
        **request.parameters,
        "model": request.model,
        "messages": [*request.messages],
        "response_format": {"type": "json_schema", "json_schema": form},
    }


def _answer_in(document: object, request: ChatRequest) -> ChatAnswer:
    """Return the answer in a response; a response of another form is an answer that is invalid."""
    response = document if isinstance(document, Mapping) else {}
    choices = response.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    choice = choice if isinstance(choice, Mapping) else {}
    message = choice.get("message")
    message = message if isinstance(message, Mapping) else {}
    content, refusal = message.get("content"), message.get("refusal")
    text = content if isinstance(content, str) else ""
    ended = choice.get("finish_reason")
    refused = bool(refusal) or ended == "content_filter"
    sent = sum(len(one["content"]) for one in request.messages)
    return ChatAnswer(
        text=replace_surrogates(str(refusal) if refusal else text),
        refused=refused,
        complete=ended != "length",
        tokens_in=_tokens(response, "prompt_tokens", sent),
        tokens_out=_tokens(response, "completion_tokens", len(text)),
    )


def _tokens(response: Mapping[str, Any], key: str, characters: int) -> int:
    """Return the tokens that a response states; an estimate when it states none."""
    usage = response.get("usage")
    stated = usage.get(key) if isinstance(usage, Mapping) else None
    if isinstance(stated, int) and stated >= 0:
        return stated
    return -(-characters // _CHARACTERS_OF_A_TOKEN)


def _seconds_in(header: str | None) -> float | None:
    """Return the pause in a header ``Retry-After``; None for a date, which nothing needs here."""
    try:
        return None if header is None else max(0.0, float(header))
    except ValueError:
        return None


def _message_in(content: bytes) -> str:
    """Return the error message of a response, in one line."""
    text = content[:2_000].decode(errors="replace")
    try:
        error = json.loads(content).get("error")
        found = error.get("message") if isinstance(error, Mapping) else error
        text = found if isinstance(found, str) else text
    except (ValueError, AttributeError):
        pass
    return " ".join(text.split())[:_MOST_OF_A_MESSAGE] or "no message"


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")
