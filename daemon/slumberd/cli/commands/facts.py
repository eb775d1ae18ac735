"""`slumberd facts`: show the current facts, or those of an earlier instant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, cast, get_args

import orjson
import typer

from slumberd.cli.context import settings_of
from slumberd.cli.empty_results import no_facts
from slumberd.cli.exit_codes import print_to_people
from slumberd.cli.instants import instant_of
from slumberd.cli.options import MOST, Config, Json, StateDir
from slumberd.cli.output import print_json_lines, print_table
from slumberd.daemon.one_read import read_operation, unbounded
from slumberd.model.errors import UsageError
from slumberd.model.fact import SLOTS, Fact, Order
from slumberd.model.pattern import Equals, Glob, Matches, OneOf, Prefix
from slumberd.operations.facts import Conditions, FactReads, FactsForm
from slumberd.operations.responses import fact_document

_FORMS = {"prefix": Prefix, "glob": Glob, "regex": Matches}
_SLOT = f"{', '.join(SLOTS[:-1])} or {SLOTS[-1]}"


def _order_of(text: str) -> str:
    if text not in get_args(Order):
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(get_args(Order))}")
    return text


Texts = list[str] | None
Users = Annotated[Texts, typer.Option("--user", metavar="TEXT", help="Only of this user.")]
Agents = Annotated[
    Texts, typer.Option("--agent", metavar="TEXT", help="Only what this agent knows.")
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
    typer.Option(
        "--glob", metavar="SLOT=GLOB", help="Only where SLOT matches GLOB: * ? [a-z] [!a]."
    ),
]
Regexes = Annotated[
    Texts,
    typer.Option("--regex", metavar="SLOT=RE2", help="Only where the whole SLOT matches RE2."),
]
Least = Annotated[
    float | None,
    typer.Option(min=0, max=1, metavar="X", help="Only with a confidence of X or more, 0 to 1."),
]
Most = Annotated[
    float | None,
    typer.Option(min=0, max=1, metavar="X", help="Only with a confidence of X or less."),
]
By = Annotated[
    str,
    typer.Option(
        "--order",
        parser=_order_of,
        metavar="id|said_at|pinned_at|confidence",
        help="Sort the facts by this key.",
    ),
]
Descending = Annotated[bool, typer.Option("--descending", help="Sort in descending order.")]
Limit = Annotated[
    int | None, typer.Option(min=1, max=MOST, metavar="N", help="Show at most N facts.")
]
After = Annotated[
    str | None,
    typer.Option(metavar="CURSOR", help="Show the next page; the page before printed CURSOR."),
]


def conditions_of(
    texts: Mapping[str, Sequence[str] | None],
    objects_json: Sequence[str] | None,
    forms: Mapping[str, Sequence[str] | None],
) -> Conditions:
    """Return what options say that slots must match.

    Args:
        texts: The accepted texts of each slot.
        objects_json: More accepted values of the object, as JSON.
        forms: The values ``SLOT=...`` of each of the options prefix, glob and regex.

    Raises:
        UsageError: A slot does not exist or has two forms, or a value is not JSON.
    """
    slots: dict[str, Any] = {slot: _any_of(given) for slot, given in texts.items() if given}
    if objects_json:
        values = [*(texts.get("object") or ()), *map(_parse_json, objects_json)]
        slots["object"] = OneOf(*values) if len(values) > 1 else Equals(values[0])
    for name, given in forms.items():
        for text in given or ():
            _add_form(slots, name, text)
    return unbounded(Conditions, **slots)


def _any_of(texts: Sequence[str]) -> str | OneOf:
    return OneOf(*texts) if len(texts) > 1 else texts[0]


def _parse_json(text: str) -> object:
    try:
        return cast("object", orjson.loads(text))
    except orjson.JSONDecodeError as error:
        problem = f"is not JSON: {error}; write a text in double quotes, or use --object"
        raise UsageError(f"--object-json {text!r} {problem}") from error


def _add_form(slots: dict[str, Any], name: str, given: str) -> None:
    slot, equals, text = given.partition("=")
    if not equals or slot not in SLOTS:
        raise UsageError(f"--{name} {given!r}: write SLOT=..., where SLOT is {_SLOT}")
    if slot in slots:
        raise UsageError(f"--{name} {given!r}: another option gives {slot} already")
    slots[slot] = _FORMS[name](text)


COLUMNS = ("id", "user", "agent", "subject", "predicate", "object", "confidence", "said at")

ValidAt = Annotated[
    datetime | None, typer.Option(parser=instant_of, metavar="T", help="Show what was true at T.")
]
BelievedAt = Annotated[
    datetime | None,
    typer.Option(parser=instant_of, metavar="T", help="Show what the store believed at T."),
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
        str | None,
        typer.Option(metavar="NAME", help="Only of this channel. [else: all but marks, weights]"),
    ] = None,
    extracted_by: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="Only what this pattern or function found in a text."),
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
    """Show the current facts, or those of an earlier instant.

    An option that is repeated accepts any of its values; different options must all match. A SLOT
    is subject, predicate, object, user, agent or id. Upper and lower case differ.

    T is ISO 8601 with an offset, as 2026-03-01T12:00:00Z; a date, which means its first moment in
    UTC; or now. A fact is said when its episode happened, and pinned when its rule fired.

    --valid-at T shows what follows from the episodes up to T, however late the store learnt them.
    --believed-at T shows what the store had learnt by T. Both work together. An episode that lies
    in the future becomes a fact when its instant comes.

    With --json, each fact is printed on a line. With --limit, standard error shows how to get the
    next page, if there is one; with --json as {"after": CURSOR}.
    """
    where = conditions_of(
        {
            "user": user, "agent": agent, "subject": subject, "predicate": predicate,
            "object": object, "id": id,
        },
        object_json,
        {"prefix": prefix, "glob": glob, "regex": regex},
    )  # fmt: skip
    request = unbounded(
        FactsForm, where=where, channel=channel, extracted_by=extracted_by,
        min_confidence=min_confidence, max_confidence=max_confidence, said_since=since,
        said_until=until, valid_at=valid_at, believed_at=believed_at, order=order,
        descending=descending, cursor=after,
        # One fact more than the page holds shows whether there is a next page.
        limit=None if limit is None else limit + 1,
    )  # fmt: skip
    settings = settings_of(config, state_dir, user=user)
    page = read_operation(settings, FactReads.facts, request)
    found = page.facts[:limit]
    if json:
        print_json_lines(fact_document(fact) for fact in found)
    else:
        empty = "" if found else no_facts(settings, user or [], believed_at)
        print_table(COLUMNS, (row(fact) for fact in found), empty=empty)
    if len(page.facts) > len(found):
        _print_cursor(page.cursor_after(found[-1]), json=json)


def _print_cursor(cursor: str | None, *, json: bool) -> None:
    message = f"there are more: the same with --after {cursor}"
    print_to_people(f'{{"after":"{cursor}"}}' if json else message)


def row(fact: Fact) -> tuple[object, ...]:
    """Return the row of a fact; a fact without a triple shows its text as the object."""
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
