"""`slumberd facts`: what stands, and what stood.

How a command line says which facts are meant, and in what order.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, cast, get_args

import orjson
import typer

from slumberd.cli.client import reading_facts
from slumberd.cli.context import settings_of
from slumberd.cli.empty_results import no_facts
from slumberd.cli.options import MOST, Config, Json, StateDir, instant_of
from slumberd.cli.output import print_json_lines, print_table
from slumberd.config.settings import Settings
from slumberd.errors import UsageError
from slumberd.model.fact import SLOTS, Fact, FactPattern, Order
from slumberd.model.pattern import Equals, Glob, Matches, OneOf, Prefix
from slumberd.observability.line_format import timestamp

_FORMS = {"prefix": Prefix, "glob": Glob, "regex": Matches}
_SLOT = f"{', '.join(SLOTS[:-1])} or {SLOTS[-1]}"


def _order_of(text: str) -> str:
    if text not in get_args(Order):
        raise typer.BadParameter(f"{text!r} is none of {', '.join(get_args(Order))}")
    return text


Texts = list[str] | None
Users = Annotated[Texts, typer.Option("--user", metavar="TEXT", help="Only of this user.")]
Agents = Annotated[
    Texts, typer.Option("--agent", metavar="TEXT", help="Only what this agent learnt.")
]
Subjects = Annotated[
    Texts, typer.Option("--subject", metavar="TEXT", help="Only with this subject.")
]
Predicates = Annotated[
    Texts, typer.Option("--predicate", metavar="TEXT", help="Only with this predicate.")
]
Objects = Annotated[
    Texts, typer.Option("--object", metavar="TEXT", help="Only with this object, a text.")
]
ObjectsJson = Annotated[
    Texts,
    typer.Option("--object-json", metavar="JSON", help="Only with this object, any JSON value."),
]
Ids = Annotated[Texts, typer.Option("--id", metavar="TEXT", help="Only with this id.")]
Prefixes = Annotated[
    Texts, typer.Option("--prefix", metavar="SLOT=TEXT", help="Only where SLOT begins with TEXT.")
]
Globs = Annotated[
    Texts,
    typer.Option("--glob", metavar="SLOT=GLOB", help="Only where it is like GLOB: * ? [a-z] [!a]."),
]
Regexes = Annotated[
    Texts,
    typer.Option("--regex", metavar="SLOT=RE2", help="Only where all of SLOT matches RE2."),
]
Least = Annotated[
    float | None, typer.Option(min=0, max=1, metavar="X", help="Only with X or more, 0 to 1.")
]
Most = Annotated[float | None, typer.Option(min=0, max=1, metavar="X", help="Only with X or less.")]
By = Annotated[
    str,
    typer.Option(
        "--order", parser=_order_of, metavar="id|said_at|pinned_at|confidence", help="By what."
    ),
]
Descending = Annotated[bool, typer.Option("--descending", help="The last one first.")]
Limit = Annotated[int | None, typer.Option(min=1, max=MOST, metavar="N", help="At most N.")]
After = Annotated[
    str | None,
    typer.Option(metavar="CURSOR", help="Only what follows; the page before told CURSOR."),
]


def pattern_of(
    texts: Mapping[str, Sequence[str] | None],
    objects_json: Sequence[str] | None,
    forms: Mapping[str, Sequence[str] | None],
    **bounds: Any,
) -> FactPattern:
    """Return the pattern that options mean.

    Args:
        texts: By slot, what was given for it; any of them will do.
        objects_json: Values for the object, likewise.
        forms: ``SLOT=...`` by the name of the option.
        bounds: The other fields of the pattern.

    Raises:
        UsageError: A slot is none, or has two forms, or a value is no JSON.
    """
    slots: dict[str, Any] = {slot: _any_of(given) for slot, given in texts.items() if given}
    if objects_json:
        values = [*(texts.get("object") or ()), *map(_json, objects_json)]
        slots["object"] = OneOf(*values) if len(values) > 1 else Equals(values[0])
    for name, given in forms.items():
        for one in given or ():
            _add(slots, name, one)
    return FactPattern(**slots, **bounds)


def _any_of(texts: Sequence[str]) -> str | OneOf:
    return OneOf(*texts) if len(texts) > 1 else texts[0]


def _json(text: str) -> object:
    try:
        return cast("object", orjson.loads(text))
    except orjson.JSONDecodeError as error:
        problem = f"is no JSON: {error}; a text takes double quotes, or --object"
        raise UsageError(f"--object-json {text!r} {problem}") from error


def _add(slots: dict[str, Any], name: str, given: str) -> None:
    slot, equals, text = given.partition("=")
    if not equals or slot not in SLOTS:
        raise UsageError(f"--{name} {given!r}: write SLOT=..., where SLOT is {_SLOT}")
    if slot in slots:
        raise UsageError(f"--{name} {given!r}: {slot} is given in another way already")
    slots[slot] = _FORMS[name](text)


COLUMNS = ("id", "user", "agent", "subject", "predicate", "object", "confidence", "said at")

ValidAt = Annotated[
    datetime | None, typer.Option(parser=instant_of, metavar="T", help="What was true then.")
]
BelievedAt = Annotated[
    datetime | None,
    typer.Option(parser=instant_of, metavar="T", help="What was held to be true then."),
]


def facts(
    user: Users = None,
    agent: Agents = None,
    subject: Subjects = None,
    predicate: Predicates = None,
    object: Objects = None,  # noqa: A002 # its name on the command line
    object_json: ObjectsJson = None,
    id: Ids = None,
    prefix: Prefixes = None,
    glob: Globs = None,
    regex: Regexes = None,
    channel: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only of this channel.")
    ] = None,
    min_confidence: Least = None,
    max_confidence: Most = None,
    since: Annotated[
        datetime | None,
        typer.Option(parser=instant_of, metavar="T", help="Only said at T or later."),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(parser=instant_of, metavar="T", help="Only said before T."),
    ] = None,
    valid_at: ValidAt = None,
    believed_at: BelievedAt = None,
    order: By = "id",
    descending: Descending = False,
    limit: Limit = None,
    after: After = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show facts: what stands now, or what stood.

    The same option again means any of both, another option both at once. A SLOT is subject,
    predicate, object, user, agent or id. Case counts.

    T is ISO 8601 with an offset, as 2026-03-01T12:00:00Z; a date alone, which is its first moment
    in UTC; or now. A fact is said when its episode happened, and pinned when its rule fired. Valid
    at T: by what had happened until then, however late it was learnt.
    Believed at T: by what had been learnt until then. Both together work. A fact whose episode
    lies in the future stands, and is not valid now.

    With --json, each fact on a line of its own. With --limit, the error stream tells how the next
    page is asked for, when there is one; with --json as {"after": CURSOR}.
    """
    pattern = pattern_of(
        {
            "user": user, "agent": agent, "subject": subject, "predicate": predicate,
            "object": object, "id": id,
        },
        object_json,
        {"prefix": prefix, "glob": glob, "regex": regex},
        channel=channel, min_confidence=min_confidence, max_confidence=max_confidence,
        said_since=since, said_until=until, order=order, descending=descending, limit=limit,
        after=after,
    )  # fmt: skip
    settings = settings_of(config, state_dir)
    found, following = _page(settings, pattern, valid_at, believed_at)
    if json:
        print_json_lines(document(fact) for fact in found)
    else:
        empty = "" if found else no_facts(settings, user or [])
        print_table(COLUMNS, (row(fact) for fact in found), empty=empty)
    if following is not None:
        _tell_following(following, json=json)


def _page(
    settings: Settings,
    pattern: FactPattern,
    valid_at: datetime | None,
    believed_at: datetime | None,
) -> tuple[list[Fact], str | None]:
    """Return a page of the facts, and the cursor of the next page if there is one."""
    limit = pattern.limit
    # One more than is wanted tells whether there are more.
    asked = pattern if limit is None else pattern.model_copy(update={"limit": limit + 1})
    found = asyncio.run(_query(settings, asked, valid_at, believed_at))
    if limit is None or len(found) <= limit:
        return found, None
    page = found[:limit]
    return page, pattern.following(page[-1]).after


def _tell_following(after: str, *, json: bool) -> None:
    told = f'{{"after":"{after}"}}' if json else f"there are more: the same with --after {after}"
    print(told, file=sys.stderr)


async def _query(
    settings: Settings,
    pattern: FactPattern,
    valid_at: datetime | None,
    believed_at: datetime | None,
) -> list[Fact]:
    async with reading_facts(settings) as facts:
        return await facts.query(pattern, valid_at=valid_at, believed_at=believed_at)


def row(fact: Fact) -> tuple[object, ...]:
    """Return a fact as the table shows it; one without a triple, with its text as object."""
    payload = fact.payload
    return (
        fact.id,
        fact.user,
        fact.agent,
        payload.get("subject"),
        payload.get("predicate"),
        payload.get("object", payload.get("content")),
        fact.confidence,
        fact.said_at,
    )


def document(fact: Fact) -> dict[str, Any]:
    """Return a fact as JSON takes it."""
    return {
        "id": fact.id,
        "user": fact.user,
        "agent": fact.agent,
        "payload": fact.payload,
        "lineage": fact.lineage,
        "confidence": fact.confidence,
        "said_at": timestamp(fact.said_at),
        "pinned_at": timestamp(fact.pinned_at),
        "metadata": fact.metadata,
    }
