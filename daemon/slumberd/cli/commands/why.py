"""`slumberd why`: explain why a fact is current, or is no longer current."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import typer

from slumberd.cli.context import settings_of
from slumberd.cli.explain_output import (
    FactExplanation,
)
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json
from slumberd.daemon.stores import inspections_of, open_facts, open_memory
from slumberd.operations.reads.explainer import (
    explain_fact,
)
from slumberd.operations.reads.explanations import (
    ExplainedFact,
)
from slumberd.rules.settings import Settings
from slumberd.storage.episodes.store import EngineMemoryStore


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
    explained = asyncio.run(_explain(settings, check_unicode(fact), content=content))
    if json:
        print_json(explained.document())
    else:
        FactExplanation(explained).print()


def check_unicode(id: str) -> str:
    """Return an id; of bytes that are not valid Unicode, the error becomes one of wrong use."""
    id.encode()
    return id


async def _explain(settings: Settings, fact_id: str, *, content: bool) -> ExplainedFact:
    async with open_facts(settings) as facts, open_memory_if_present(settings) as memory:
        return await explain_fact(facts, memory, fact_id, content=content)


@asynccontextmanager
async def open_memory_if_present(settings: Settings) -> AsyncIterator[EngineMemoryStore | None]:
    """Open the episodes for reading; yield None when no episode was ever put."""
    if not inspections_of(settings).episodes.exists():
        yield None
        return
    async with open_memory(settings) as memory:
        yield memory
