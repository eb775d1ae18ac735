"""Report what the language model cost today, and find rules that wait for its answers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from slumberd.config.settings import Settings
from slumberd.config.settings_schema import BudgetSettings
from slumberd.diagnostics.store_checks import DoctorContext, paused_or_none, started_recently
from slumberd.errors import BudgetSpentError
from slumberd.language_models.budget import Budget
from slumberd.model.episode import instant
from slumberd.model.extraction import ModelUsage, Turn
from slumberd.model.health import Finding
from slumberd.model.rule import ConsolidationRule
from slumberd.model.store_status import FactStoreStatus
from slumberd.scheduling.rule_status import start_of
from slumberd.service.composition import inspections_of
from slumberd.service.erased_content import read_or_none
from slumberd.storage.closed_stores import EpisodeInspection

PATIENCE = timedelta(hours=1)
"""How long an episode may wait for an answer before a check reports it."""

WINDOW_ROWS = 256
"""Rows of the log after a rule's watermark that a check reads, in some 10 to 200 ms."""

_MICRO = 1_000_000


class Spending(NamedTuple):
    """What the calls of the language model cost in one day, UTC.

    Attributes:
        day: The day, as ``2026-03-09``.
        usage: What they cost.
        budget: What they may cost.
    """

    day: str
    usage: ModelUsage
    budget: BudgetSettings

    @property
    def tokens(self) -> int:
        """The tokens of requests and answers."""
        return self.usage.tokens_in + self.usage.tokens_out

    @property
    def cost(self) -> float:
        """The cost, in the currency of the configured prices."""
        return self.usage.cost_micros / _MICRO

    @property
    def exceeded(self) -> BudgetSpentError | None:
        """Which part of the budget is spent; None while another call is possible."""
        try:
            Budget(**self.budget.model_dump()).check(self.usage)
        except BudgetSpentError as error:
            return error
        return None

    def document(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "day": self.day,
            "calls": self.usage.calls,
            "tokens": self.tokens,
            "cost": self.cost,
            "budget": self.budget.model_dump(),
            "budget_spent": self.exceeded is not None,
        }


def read_spending(settings: Settings, now: datetime) -> Spending | None:
    """Return what the language model cost today; None when none is configured.

    Raises:
        StoreError: The store of episodes cannot be read.
    """
    if settings.language_model.base_url is None:
        return None
    day, episodes = now.date().isoformat(), inspections_of(settings).episodes
    usage = episodes.model_usage(day) if episodes.exists() else ModelUsage()
    return Spending(day, usage, settings.language_model.budget)


def check_waiting_answers(context: DoctorContext) -> Iterator[Finding]:
    """Find rules whose first pending episode waits for an answer for too long.

    Only the first pending rows of a rule are read; see `WINDOW_ROWS`.
    """
    paused = paused_or_none(context.settings)
    if context.rules is None or paused is None or started_recently(context):
        return
    seen = read_or_none(context.stores.facts.status)
    for rule in context.rules.rules:
        if rule.enabled and rule.id not in paused and rule.extract and rule.extract.asks_model:
            yield from _check_rule(rule, seen, context)


def _check_rule(
    rule: ConsolidationRule, seen: FactStoreStatus | None, context: DoctorContext
) -> Iterator[Finding]:
    watermark = seen.watermarks.get(rule.id) if seen else None
    first = _first_unanswered(context.stores.episodes, rule, start_of(rule, watermark))
    if first is None:
        return
    # A firing that reads nothing has no batch: the last batch is the last progress.
    progress = seen.fired.get(rule.id, 0) if seen else 0
    since = instant(max(first.at, progress))
    if context.now - since > PATIENCE:
        yield _waiting_finding(rule, since, context)


def _first_unanswered(
    episodes: EpisodeInspection, rule: ConsolidationRule, after: int | None
) -> Turn | None:
    if after is None:
        return None
    # None for a filter that fails, too: the firings of the rule report it.
    return read_or_none(partial(episodes.first_unanswered, rule, after=after, limit=WINDOW_ROWS))


def _waiting_finding(rule: ConsolidationRule, since: datetime, context: DoctorContext) -> Finding:
    spending = read_or_none(partial(read_spending, context.settings, context.now))
    spent = spending.exceeded if spending else None
    problem = f"episodes wait for the answer of the language model since {since:%Y-%m-%d %H:%M:%S}Z"
    if spent is not None:
        problem += f": the budget of {spent.limit:g} {spent.kind} a day is spent"
        remedy = f"wait until tomorrow UTC, or raise `language_model.budget.{spent.kind}`"
    elif context.daemon is not None:
        reason = "see `answers.waiting` or `answers.failed` in the daemon's log for the reason"
        remedy = f"{reason}; `slumberd extract {rule.id}` asks now"
    else:
        remedy = f"start the daemon, or `slumberd extract {rule.id}`"
    return Finding("answers.waiting", f"rule {rule.id}", problem, remedy)
