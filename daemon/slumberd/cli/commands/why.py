"""`slumberd why`: explain why a fact is current, or is no longer current."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from slumberd.cli.context import settings_of
from slumberd.cli.explain_output import (
    FactExplanation,
)
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json
from slumberd.daemon.one_read import read_operation, unbounded
from slumberd.operations.outcomes import ExplainForm, Outcomes
from slumberd.operations.reads.explanations import ExplainedFact


def why(
    fact: Annotated[str, typer.Argument(help="The id of a fact, as `slumberd facts` shows it.")],
    content: Annotated[
        bool, typer.Option("--content", help="Show what the episodes say, in their own words.")
    ] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show why a fact is current, or why it is no longer current.

    The command shows its lineage, the episodes that it comes from, and the firings that promoted
    it. Of each firing it shows the rule, the rule's content hash at that time, the instant, what
    triggered it, and who requested it. It also shows what the fact replaced, and what replaced or
    deleted the fact.
    """
    settings = settings_of(config, state_dir)
    request = unbounded(ExplainForm, id=check_unicode(fact), kind="fact", content=content)
    explained = cast("ExplainedFact", read_operation(settings, Outcomes.explain, request).about)
    if json:
        print_json(explained.document())
    else:
        FactExplanation(explained).print()


def check_unicode(id: str) -> str:
    """Return an id; of bytes that are not valid Unicode, the error becomes one of wrong use."""
    id.encode()
    return id
