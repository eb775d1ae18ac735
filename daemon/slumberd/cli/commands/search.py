"""`slumberd search` finds what answers a question; `slumberd context` quotes it for a prompt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Any

import typer

from slumberd.cli.context import settings_of
from slumberd.cli.empty_results import no_hits
from slumberd.cli.instants import instant_of
from slumberd.cli.options import MOST, Config, Json, StateDir
from slumberd.cli.output import print_json, print_json_lines, print_table
from slumberd.clock import SystemClock
from slumberd.daemon.composition import searcher_of
from slumberd.daemon.stores import open_facts_if_present, open_memory
from slumberd.rules.settings import Settings
from slumberd.search.context import Context, notes_of
from slumberd.search.hits import Hit, Kind
from slumberd.search.searcher import KINDS, OfSuperseded, Searcher

COLUMNS = ("score", "kind", "id", "at", "agent", "text")

_KINDS: dict[str, Kind] = {"episodes": "episode", "facts": "fact"}


def _kinds_of(text: str) -> Collection[Kind]:
    kind = _KINDS.get(text, text)  # a program writes the singular
    if kind not in KINDS:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(_KINDS)}")
    return (kind,)


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
    settings = settings_of(config, state_dir, user=user)
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
    notes = f" ({'; '.join(notes_of(hit))})" if notes_of(hit) else ""
    return f"{hit.score:.2f}", hit.kind, hit.id, hit.at, hit.agent, f"{hit.text}{notes}"


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
    superseded: Annotated[
        OfSuperseded,
        typer.Option(help="Mark sentences that are not true any more, or omit them, too."),
    ] = "mark",
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Print what an agent takes with it to answer a question, quoted as data.

    The facts that answer it come first. Then come the episodes that it recalls and the latest
    turns, oldest first. With --json, the items come with their text and their count of tokens.
    """
    settings = settings_of(config, state_dir, user=user)
    found = asyncio.run(
        _context(
            settings, question, user, budget=budget, agent=agent, session=session, as_of=as_of,
            superseded=superseded,
        )
    )  # fmt: skip
    if json:
        print_json(found)
    elif found["text"]:
        typer.echo(found["text"])


async def _context(
    settings: Settings, question: str, user: str, **options: object
) -> dict[str, Any]:
    async with _open_searcher(settings) as searcher:
        return _document(await searcher.context(question, user=user, **options))  # type: ignore[arg-type] # checked by typer


def _document(context: Context) -> dict[str, Any]:
    return {
        "text": context.text,
        "items": [item.to_dict() for item in context.items],
        "tokens": context.tokens,
        "budget": context.budget,
    }


@asynccontextmanager
async def _open_searcher(settings: Settings) -> AsyncIterator[Searcher]:
    """Open the stores for reading, without a trace in the directory."""
    async with open_memory(settings) as memory, open_facts_if_present(settings) as facts:
        yield searcher_of(settings, memory, facts, SystemClock())
