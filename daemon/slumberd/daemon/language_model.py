"""Connect the configured language model: its client, its budget, and the worker that asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from slumberd.clock import Clock
from slumberd.model.rule import ConsolidationRule
from slumberd.operations.handlers import Answer
from slumberd.operations.stores import Stores
from slumberd.operations.writes.model_worker import ModelWorker
from slumberd.rules.file_access import is_installed, read_token
from slumberd.rules.settings import Settings
from slumberd.workers.language_models.budget import Budget, Spending
from slumberd.workers.language_models.recorder import AnswerRecorder

_MICRO = 1_000_000
_NO_CLIENT = "the extra llm is not installed"


def model_worker_of(
    stores: Stores,
    recorder: AnswerRecorder | None,
    *,
    rules: Callable[[], Sequence[ConsolidationRule]],
    clock: Clock,
    recorded: Callable[[str], None] = lambda _: None,
) -> ModelWorker | None:
    """Return the worker of open stores; None without a recorder.

    The arguments are those of `ModelWorker`.
    """
    if recorder is None:
        return None
    return ModelWorker(
        stores.memory,
        stores.facts,
        stores.facts.watermarks,
        stores.memory.answers,
        recorder,
        rules=rules,
        clock=clock,
        recorded=recorded,
    )


async def read_model_state(
    settings: Settings, stores: Stores, worker: ModelWorker | None, clock: Clock
) -> Answer | None:
    """Return what the language model cost today, and whether it answers; None without one.

    Args:
        stores: The open stores.
        worker: Asks the model; None when its extra is not installed.
        clock: Says which day it is.
    """
    wanted = settings.language_model
    if wanted.base_url is None:
        return None
    day = clock.now().date().isoformat()
    spent = await stores.memory.answers.spent(day)
    return {
        "day": day,
        "calls": spent.calls,
        "tokens": spent.tokens_in + spent.tokens_out,
        "cost": spent.cost_micros / _MICRO,
        "budget": wanted.budget.model_dump(),
        "problem": _NO_CLIENT if worker is None else worker.problem,
    }


@asynccontextmanager
async def answer_recorder(
    settings: Settings, stores: Stores, clock: Clock
) -> AsyncIterator[AnswerRecorder | None]:
    """Open the client of the configured language model; yield None without one.

    Raises:
        ConfigurationError: The file with the secret cannot be read.
    """
    wanted = settings.language_model
    if wanted.base_url is None or not is_installed("llm"):
        yield None
        return
    # The extra may be missing, so only those who configure a language model import its client.
    from slumberd.workers.language_models.openai_client import OpenAIClient

    token = None
    if wanted.key_file is not None:
        token = read_token(
            wanted.key_file,
            credentials=settings.credentials_dir,
            setting="language_model.key_file",
        )
    budget = Budget(
        **wanted.budget.model_dump(), price_in=wanted.price_in, price_out=wanted.price_out
    )
    answers = stores.memory.answers
    async with OpenAIClient(wanted.base_url, token, wanted.timeout_seconds) as client:
        yield AnswerRecorder(answers, client, Spending(answers, budget, clock), clock)
