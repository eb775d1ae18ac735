"""`slumberd why-not`: show the outcome of an episode under every rule."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import typer

from slumberd.cli.commands.why import check_unicode, open_memory_if_present
from slumberd.cli.context import settings_of
from slumberd.cli.explain_output import (
    DECISION_COLUMNS,
    decision_row,
    print_episode,
    print_results,
)
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json_lines, print_table
from slumberd.clock import SystemClock
from slumberd.daemon.rules import paused_rules_of, rules_of
from slumberd.daemon.stores import open_facts_if_present
from slumberd.model.rule import ConsolidationRule
from slumberd.operations.reads.episode_results import ResultOfRule
from slumberd.operations.reads.explainer import (
    ExplainedEpisode,
    read_outcome,
    read_results,
)
from slumberd.operations.reads.explanations import (
    decision_document,
)
from slumberd.rules.settings import Settings


def why_not(
    episode: Annotated[str, typer.Argument(help="The id of an episode.")],
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show the outcome of an episode under every rule, and what would change it.

    pending: the rule has not read its newest version; it may wait for the answer of a language
    model. filtered: the rule's filter does not select
    it. erased: its scope was erased. skipped: the rule has no row about it, whatever its filter
    says. quarantined: the rule could not read it. undone: the firing that evaluated it was undone.
    Otherwise the command shows the delta that the episode made.

    First a sentence for each rule and channel says what became of the episode: what was learned, or
    which condition of the filter it does not meet.

    With --json, each rule and channel is printed on a line, with the sentence, and with the same in
    one word as `became`.
    """
    settings = settings_of(config, state_dir)
    rules = rules_of(settings).of_episodes().rules
    outcome, results = asyncio.run(_read_outcome(settings, rules, check_unicode(episode)))
    tolerance = timedelta(seconds=settings.memory.future_tolerance)
    remedies = outcome.remedies(rules, SystemClock().now() + tolerance)
    rows = list(zip(outcome.decisions, remedies, strict=True))
    if json:
        words = {(one.rule_id, one.channel): one for one in results}
        print_json_lines(
            {**decision_document(*row), **_words_of(words.get((row[0].rule_id, row[0].channel)))}
            for row in rows
        )
    else:
        print_episode(episode, outcome.version)
        print_results(results)
        print_table(DECISION_COLUMNS, (decision_row(*row) for row in rows))


def _words_of(result: ResultOfRule | None) -> dict[str, str | None]:
    """Return what the JSON says of a rule and a channel; channels of stages have no words."""
    became, sentence = (result.became, result.sentence) if result else (None, None)
    return {"became": became, "sentence": sentence}


async def _read_outcome(
    settings: Settings, rules: Sequence[ConsolidationRule], episode_id: str
) -> tuple[ExplainedEpisode, list[ResultOfRule]]:
    paused = paused_rules_of(settings).read()
    async with (
        open_memory_if_present(settings) as memory,
        open_facts_if_present(settings) as facts,
    ):
        found = await read_outcome(memory, facts, rules, episode_id)
        return found, await read_results(memory, facts, rules, found, paused)
