"""`slumberd search` finds what answers a question; `slumberd context` quotes it for a prompt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated

import typer

from slumberd.cli.context import settings_of
from slumberd.cli.empty_results import no_hits
from slumberd.cli.options import MOST, Config, Json, StateDir, instant_of
from slumberd.cli.output import print_json, print_json_lines, print_table
from slumberd.config.settings import Settings
from slumberd.retrieval.context import Context
from slumberd.retrieval.hits import Hit, Kind
from slumberd.retrieval.searcher import KINDS, Searcher
from slumberd.service.composition import open_facts_if_present, open_memory, searcher_of

COLUMNS = ("score", "kind", "id", "at", "agent", "text")

_KINDS: dict[str, tuple[Kind, ...]] = {"episodes": ("episode",), "facts": ("fact",)}


def _kinds_of(text: str) -> Collection[Kind]:
    if text not in _KINDS:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(_KINDS)}")
    return _KINDS[text]


User = Annotated[str, typer.Option("--user", metavar="U", help="The id of the user.")]
Agent = Annotated[str | None, typer.Option(help="Only what this agent knows.")]
AsOf = Annotated[
    datetime | None, typer.Option(parser=instant_of, metavar="T", help="Only what was known at T.")
]


def search(
    query: Annotated[str, typer.Argument(help="The question, in any words.")],
    user: User,
    agent: Agent = None,
    session: Annotated[str | None, typer.Option(help="Only episodes of this session.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(parser=_kinds_of, metavar="episodes|facts", help="Search only these."),
    ] = None,
    as_of: AsOf = None,
    limit: Annotated[
        int, typer.Option(min=1, max=MOST, metavar="N", help="Show at most N hits.")
    ] = 10,
    min_score: Annotated[
        float, typer.Option(min=0, max=1, metavar="X", help="Only hits with a score of X or more.")
    ] = 0.0,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show the episodes and facts of a user that answer a question, best first.

    The score says how much of the question a hit answers, 0 to 1. With --json, each hit is printed
    on a line.
    """
    settings = settings_of(config, state_dir)
    kinds: Collection[Kind] = KINDS if kind is None else kind  # type: ignore[assignment] # parsed
    hits = asyncio.run(
        _search(
            settings, query, user, agent=agent, session=session, kinds=kinds, as_of=as_of,
            limit=limit, min_score=min_score,
        )
    )  # fmt: skip
    if json:
        print_json_lines(hit.to_dict() for hit in hits)
    else:
        print_table(COLUMNS, map(_row, hits), empty="" if hits else no_hits(settings, user))


async def _search(settings: Settings, query: str, user: str, **options: object) -> list[Hit]:
    async with _open_searcher(settings) as searcher:
        return await searcher.search(query, user=user, **options)  # type: ignore[arg-type] # checked by typer


def _row(hit: Hit) -> tuple[object, ...]:
    return f"{hit.score:.2f}", hit.kind, hit.id, hit.at, hit.agent, hit.text


def context(
    user: Annotated[str, typer.Argument(help="The id of the user.")],
    question: Annotated[str, typer.Argument(help="The question that the agent must answer.")],
    budget: Annotated[
        int, typer.Option(min=0, metavar="N", help="At most N tokens, of about four characters.")
    ] = 4096,
    agent: Agent = None,
    session: Annotated[
        str | None, typer.Option(help="Take the latest turns from this session only.")
    ] = None,
    as_of: AsOf = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Print what an agent takes with it to answer a question, quoted as data.

    These are the latest turns, the episodes that the question recalls, and the facts that answer
    it, in the order of time. With --json, the items come with their text and their count of tokens.
    """
    settings = settings_of(config, state_dir)
    found = asyncio.run(
        _context(settings, question, user, budget=budget, agent=agent, session=session, as_of=as_of)
    )
    if json:
        print_json(
            {
                "text": found.text,
                "items": [item.to_dict() for item in found.items],
                "tokens": found.tokens,
                "budget": found.budget,
            }
        )
    elif found.text:
        typer.echo(found.text)


async def _context(settings: Settings, question: str, user: str, **options: object) -> Context:
    async with _open_searcher(settings) as searcher:
        return await searcher.context(question, user=user, **options)  # type: ignore[arg-type] # checked by typer


@asynccontextmanager
async def _open_searcher(settings: Settings) -> AsyncIterator[Searcher]:
    """Open the stores for reading, without a trace in the directory."""
    async with open_memory(settings) as memory, open_facts_if_present(settings) as facts:
        yield searcher_of(settings, memory, facts)
