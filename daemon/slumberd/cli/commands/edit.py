"""`slumberd pin` and `slumberd unpin`: what a person says, or takes out, directly.

`slumberd forget`: erase what is kept of a user.
"""

from __future__ import annotations

import json as plain_json
import sys
from typing import Annotated, Any

import orjson
import typer

from slumberd.cli.client import perform_request
from slumberd.cli.commands.fire import DryRun, tell
from slumberd.cli.context import settings_of
from slumberd.cli.exit_codes import say
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json
from slumberd.errors import NotConfirmedError, UsageError
from slumberd.observability.line_format import printable
from slumberd.storage.sqlite.strict_json import read_object


def unicode_of(text: str) -> str:
    """Return a text; bytes that are no text are wrong use."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise typer.BadParameter(f"{text!r} is no valid Unicode") from error
    return text


def value_of(text: str) -> Any:  # noqa: ANN401 # any JSON
    """Return the JSON that a text is, or else the text itself.

    Raises:
        BadParameter: It is JSON to some readers, and cannot be kept as it is: a key twice, a
            whole number of more than 64 bits, NaN, 1e400.
    """
    try:
        plain_json.loads(unicode_of(text), parse_int=len)
    except RecursionError as error:
        raise typer.BadParameter("it is nested too deep to be kept") from error
    except ValueError:
        return text
    try:
        return read_object(b'{"object":%b}' % text.encode())["object"]
    except ValueError as error:
        problem = str(error).split(": line ", maxsplit=1)[0]
        remedy = f"for the text itself write {orjson.dumps(text).decode()[:60]!r}"
        raise typer.BadParameter(f"{text[:60]!r} cannot be kept: {problem}; {remedy}") from error


Reason = Annotated[
    str, typer.Option(parser=unicode_of, metavar="TEXT", help="Why; it is kept with what it does.")
]


def pin(
    user: Annotated[str, typer.Option(parser=unicode_of, metavar="USER", help="Whose fact it is.")],
    agent: Annotated[
        str, typer.Option(parser=unicode_of, metavar="AGENT", help="Which agent is to know it.")
    ],
    subject: Annotated[
        str, typer.Option(parser=unicode_of, metavar="TEXT", help="What it is about.")
    ],
    predicate: Annotated[
        str, typer.Option(parser=unicode_of, metavar="TEXT", help="What is said of the subject.")
    ],
    object: Annotated[  # noqa: A002 # its name on the command line
        str, typer.Option(parser=unicode_of, metavar="VALUE", help="The value; JSON, or else text.")
    ],
    reason: Reason,
    id: Annotated[
        str | None,
        typer.Option(parser=unicode_of, metavar="ID", help="The fact's id. [default: a new one]"),
    ] = None,
    confidence: Annotated[float, typer.Option(min=0, max=1, help="How sure it is.")] = 1.0,
    channel: Annotated[
        str | None,
        typer.Option(parser=unicode_of, metavar="NAME", help="Its channel. [default: facts]"),
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Say a fact by hand. It holds at once, and only newer episodes change it.

    It takes the place of whatever had its id, and of what stood for its subject and predicate. The
    value is taken as JSON when it is JSON, so 5, true and null are what they are in JSON, and '"5"'
    is the text 5. Who asks and why is kept in the fact's lineage; --json tells the id as fact_id.
    """
    answer = perform_request(
        settings_of(config, state_dir),
        "pin",
        user=user,
        agent=agent,
        subject=subject,
        predicate=predicate,
        object=value_of(object),
        id=id,
        confidence=confidence,
        channel=channel,
        reason=reason,
        dry_run=dry_run,
    )
    tell(answer, dry_run=dry_run, json=json)


def unpin(
    facts: Annotated[
        list[str], typer.Argument(parser=unicode_of, metavar="FACT_ID", help="Ids of facts.")
    ],
    reason: Reason,
    dry_run: DryRun = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Take facts out by hand. No firing, backfill, import or replay brings back what they said.

    Only an episode that is newer says it again. What does not stand is told, and nothing is
    recorded for it. An id that no fact ever had ends it with exit code 66, before anything is done.
    """
    answer = perform_request(
        settings_of(config, state_dir), "unpin", facts=facts, reason=reason, dry_run=dry_run
    )
    tell(answer, dry_run=dry_run, json=json)
    if not json:
        for fact_id in answer["not_standing"]:
            print(f"{fact_id} does not stand; nothing is recorded for it")


def forget(
    user: Annotated[str, typer.Option(help="Whose episodes and facts.")],
    agent: Annotated[str | None, typer.Option(help="Only with this agent.")] = None,
    session: Annotated[str | None, typer.Option(help="Only of this session.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: DryRun = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Erase a user, for good, and print a certificate.

    Episodes, facts, and whatever is personal in the ledger and in quarantine go, also from free
    pages and from the write-ahead logs; the ledger's chain still verifies. What the same scope
    says up to now counts no more, whenever it arrives: an import of it is refused. With --session
    the facts of other sessions are settled again without it. This cannot be undone.

    Both databases are written anew, which takes a while and as much room as they have. A user of
    whom nothing is kept, and who was never erased, ends it with exit code 66.
    """
    settings = settings_of(config, state_dir)
    if not (yes or dry_run):
        _ask(user, session, agent)
    certificate = perform_request(
        settings, "forget", user=user, session=session, agent=agent, dry_run=dry_run
    )
    if json:
        print_json(certificate)
    else:
        print(orjson.dumps(certificate, option=orjson.OPT_INDENT_2).decode())


def _ask(user: str, session: str | None, agent: str | None) -> None:
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to ask; --yes says that it is meant")
    parts = [f"user {user}", session and f"session {session}", agent and f"agent {agent}"]
    scope = printable(", ".join(part for part in parts if part))
    if not _confirms(f"Erase everything of {scope}, for good? [y/N]: "):
        raise NotConfirmedError


def _confirms(question: str) -> bool:
    """Ask a person on the terminal; an end of input means no.

    Raises:
        KeyboardInterrupt: The person interrupted; this says that nothing was erased.
    """
    try:
        print(question, end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        say(str(NotConfirmedError()))
        raise
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    return answer.strip().lower() in ("y", "yes")
