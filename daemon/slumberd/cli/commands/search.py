"""`slumberd search` finds what answers a question; `slumberd context` quotes it for a prompt."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from slumberd.cli.context import settings_of
from slumberd.cli.empty_results import no_hits
from slumberd.cli.instants import instant_of
from slumberd.cli.options import MOST, Config, Json, StateDir
from slumberd.cli.output import print_json, print_json_lines, print_table
from slumberd.daemon.one_read import read_operation, unbounded
from slumberd.operations.search import ContextForm, RecallForm, Search
from slumberd.search.context import OfSuperseded, notes_of
from slumberd.search.hits import KINDS, Hit, Kind

COLUMNS = ("score", "kind", "id", "at", "agent", "text")

_KINDS: dict[str, Kind] = {"episodes": "episode", "facts": "fact"}


def _kinds_of(text: str) -> list[Kind]:
    kind = _KINDS.get(text, text)  # a program writes the singular
    if kind not in KINDS:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(_KINDS)}")
    return [kind]


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
    wanted = unbounded(
        RecallForm,
        query=query,
        user=user,
        agent=agent,
        session=session,
        as_of=as_of,
        limit=limit,
        min_score=min_score,
        kinds=kind or [*KINDS],
    )
    hits = read_operation(settings, Search.recall, wanted).hits
    if json:
        print_json_lines(hit.to_dict() for hit in hits)
    else:
        print_table(COLUMNS, map(_row, hits), empty="" if hits else no_hits(settings, user))


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
    wanted = unbounded(
        ContextForm,
        question=question,
        user=user,
        budget=budget,
        agent=agent,
        session=session,
        as_of=as_of,
        superseded=superseded,
    )
    found = read_operation(settings, Search.context, wanted)
    if json:
        print_json({**dict(found), "items": [item.to_dict() for item in found.items]})
    elif found.text:
        typer.echo(found.text)
