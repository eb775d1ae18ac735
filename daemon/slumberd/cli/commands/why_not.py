"""`slumberd why-not`: show the outcome of an episode under every rule."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from slumberd.cli.commands.why import check_unicode
from slumberd.cli.context import settings_of
from slumberd.cli.explain_output import (
    DECISION_COLUMNS,
    decision_row,
    print_episode,
    print_results,
)
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json_lines, print_table
from slumberd.daemon.one_read import read_operation, unbounded
from slumberd.operations.outcomes import ExplainForm, Outcomes
from slumberd.operations.reads.episode_results import ResultOfRule
from slumberd.operations.reads.explainer import EpisodeOutcome
from slumberd.operations.reads.explanations import decision_document


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
    request = unbounded(ExplainForm, id=check_unicode(episode), kind="episode")
    found = cast("EpisodeOutcome", read_operation(settings, Outcomes.explain, request).about)
    if json:
        words = {(one.rule_id, one.channel): one for one in found.results}
        print_json_lines(
            {**decision_document(*row), **_words_of(words.get((row[0].rule_id, row[0].channel)))}
            for row in found.decisions
        )
    else:
        print_episode(episode, found.version)
        print_results(found.results)
        print_table(DECISION_COLUMNS, (decision_row(*row) for row in found.decisions))


def _words_of(result: ResultOfRule | None) -> dict[str, str | None]:
    """Return what the JSON says of a rule and a channel; channels of stages have no words."""
    became, sentence = (result.became, result.sentence) if result else (None, None)
    return {"became": became, "sentence": sentence}
