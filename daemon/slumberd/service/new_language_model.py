"""Check a language model before `slumberd init` writes rules that ask it."""

from __future__ import annotations

from slumberd.config.file_access import is_installed
from slumberd.errors import (
    ExtraMissingError,
    ModelNotCheckedError,
    ModelRequestError,
    ModelUnavailableError,
    UsageError,
)
from slumberd.extraction.language_model import answer_schema, messages_for
from slumberd.language_models.recorder import ChatRequest
from slumberd.model.extraction import ModelSettings, Question, Turn
from slumberd.service.new_state_directory import NewModel

SECONDS = 60.0
"""How long the answer to the check may take: a server may load its model first."""

_PARAMETERS = {"temperature": 0, "max_tokens": 200}


def require_extra() -> None:
    """Check that language models can be asked here.

    Raises:
        ExtraMissingError: The extra is not installed.
    """
    if not is_installed("llm"):
        raise ExtraMissingError("llm", "a language model cannot be asked")


async def check_model(url: str, name: str | None, secret: str | None) -> NewModel:
    """Ask a language model about one short sentence; return it with its name.

    Args:
        url: The address of the server, up to ``/v1``.
        name: The name of the model; None takes the only one that the server has.
        secret: The secret that the server asks for; None without one.

    Raises:
        ModelNotCheckedError: There is no answer.
        UsageError: The server has several models, or none, and no name is given.
    """
    # The extra may be missing, so only those who name a language model import its client.
    from slumberd.language_models.openai_client import OpenAIClient

    try:
        async with OpenAIClient(url, secret, SECONDS) as client:
            chosen = name or _only_one(await client.models())
            answer = await client.complete(_question(chosen))
    except ModelUnavailableError as error:
        raise ModelNotCheckedError(url, error.problem) from error
    except ModelRequestError as error:
        raise ModelNotCheckedError(url, f"HTTP {error.status}: {error.problem}") from error
    if not answer.text and answer.complete:
        raise ModelNotCheckedError(url, f"{chosen!r} says nothing")
    return NewModel(url, chosen, secret)


def _only_one(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    known = f"the server has {', '.join(names)}" if names else "the server names no model"
    raise UsageError(f"which model? {known}; name one with --model-name")


def _question(model: str) -> ChatRequest:
    settings = ModelSettings(model, ("lives_in",), parameters=_PARAMETERS)
    turn = Turn("check", "check", "user", "I live in Oslo.", 0, "ada", "helper", is_person=True)
    asked = [Question("", turn, None)]
    return ChatRequest(
        model, messages_for(settings, asked), answer_schema(settings, 1), _PARAMETERS
    )
