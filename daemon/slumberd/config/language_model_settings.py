"""The settings of the server that runs language models, and of what its calls may cost."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from slumberd.config.validation import FilePath, Form


def check_url(url: str) -> str:
    """Return the address of a server.

    Raises:
        ValueError: It is malformed, or holds more than an address.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an address such as http://127.0.0.1:11434/v1 is needed")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("leave out user, password and query; 'key_file' names the secret")
    return url


Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class BudgetSettings(Form):
    """What the calls of language models may cost in a day, UTC. Failed calls count, too.

    When it is spent, episodes wait until the next day; nothing is lost.

    Attributes:
        calls: The most requests, 0 or more; null means no limit. Default: 200.
        tokens: The most tokens of requests and answers, 0 or more; null means no limit. The last
            call may exceed it. Default: 500000.
        cost: The most cost, in the currency of ``price_in`` and ``price_out``; null (default) means
            no limit. The last call may exceed it.
    """

    calls: int | None = Field(default=200, ge=0)
    tokens: int | None = Field(default=500_000, ge=0)
    cost: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class LanguageModelSettings(Form):
    """The server that the stage ``extract: {with: openai}`` of rules asks.

    Attributes:
        base_url: The address of a server with OpenAI's chat completions, up to ``/v1``. null
            (default) means none: then no rule may ask a language model.
        key_file: A file with the server's secret, one line. A relative path is relative to
            $CREDENTIALS_DIRECTORY. null (default) means no secret.
        timeout_seconds: How many seconds one answer may take, 0.1 to 3600. Default: 60.
        price_in: The price of a million tokens of requests, 0 or more. Default: 0.
        price_out: The price of a million tokens of answers, 0 or more. Default: 0.
        budget: What the calls may cost in a day.
    """

    base_url: Annotated[str, AfterValidator(check_url)] | None = None
    key_file: FilePath | None = None
    timeout_seconds: float = Field(default=60.0, ge=0.1, le=3600, allow_inf_nan=False)
    price_in: Price = 0.0
    price_out: Price = 0.0
    budget: BudgetSettings = BudgetSettings()
