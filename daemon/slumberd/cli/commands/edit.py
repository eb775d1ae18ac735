"""Commands by which a person changes facts: `slumberd pin`, `slumberd unpin`, `slumberd forget`."""

from __future__ import annotations

import json as plain_json
from typing import Annotated, Any

import orjson
import typer

from slumberd.cli.client import perform_request, reason_field
from slumberd.cli.commands.fire import print_edit
from slumberd.cli.confirmation import require_confirmation
from slumberd.cli.context import settings_of
from slumberd.cli.options import Config, DryRun, Json, ReasonOrNone, StateDir, unicode_of
from slumberd.cli.output import print_json
from slumberd.errors import BytesPendingError
from slumberd.model.erasures import QUIET
from slumberd.observability.line_format import printable
from slumberd.storage.strict_json import read_object


def value_of(text: str) -> Any:  # noqa: ANN401 # any JSON
    """Return an argument as JSON when it is JSON, else as a text.

    Raises:
        BadParameter: Some readers take it as JSON, but it cannot be kept: a key twice, a whole
            number of more than 64 bits, NaN, 1e400.
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
    str,
    typer.Option(parser=unicode_of, metavar="TEXT", help="Why; the ledger keeps it with the edit."),
]


def pin(
    user: Annotated[str, typer.Option(parser=unicode_of, metavar="USER", help="Whose fact it is.")],
    agent: Annotated[
        str, typer.Option(parser=unicode_of, metavar="AGENT", help="Which agent knows it.")
    ],
    subject: Annotated[
        str, typer.Option(parser=unicode_of, metavar="TEXT", help="What the fact is about.")
    ],
    predicate: Annotated[
        str, typer.Option(parser=unicode_of, metavar="TEXT", help="What the fact says of it.")
    ],
    object: Annotated[  # noqa: A002 # its name on the command line
        str, typer.Option(parser=unicode_of, metavar="VALUE", help="The value: JSON, else a text.")
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
    """Assert a fact as a person. It is current at once, and only newer episodes change it.

    It replaces the fact with the same id, and the current fact of its subject and predicate. The
    value is read as JSON when it is JSON: 5, true and null mean what they mean in JSON, and '"5"'
    is the text 5. The fact's lineage keeps who pinned it and why. --json prints its id as fact_id.
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
    print_edit(answer, dry_run=dry_run, json=json)


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
    """Retract facts as a person. No firing, backfill, import or replay brings them back.

    Only a newer episode asserts them again. A fact that is not current is reported, and the ledger
    gets no row for it. If no fact ever had one of the ids, nothing is retracted, and the command
    ends with exit code 66.
    """
    answer = perform_request(
        settings_of(config, state_dir), "unpin", facts=facts, reason=reason, dry_run=dry_run
    )
    print_edit(answer, dry_run=dry_run, json=json)
    if not json:
        for fact_id in answer["not_current"]:
            print(f"{fact_id} is not current; the ledger gets no row for it")


def forget(
    user: Annotated[str, typer.Option(help="Erase the episodes and facts of this user.")],
    agent: Annotated[str | None, typer.Option(help="Erase only those with this agent.")] = None,
    session: Annotated[str | None, typer.Option(help="Erase only those of this session.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Erase without asking.")] = False,
    dry_run: DryRun = False,
    reason: ReasonOrNone = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Erase a user, for good, and print a certificate.

    The command erases the user's episodes and facts, and all that is personal in the ledger and in
    quarantine, also from free pages and write-ahead logs. The ledger's chain still verifies. Later
    imports of episodes of the erased scope are refused, unless the episodes are newer than the
    erasure. With --session, the facts of other sessions are resolved again. This cannot be undone.

    The command rewrites both databases, which needs twice their disk space, and other programs
    cannot write meanwhile. If another program prevents it, the exit code is 71: a running daemon
    rewrites them later. With `erasure.rewrite: idle`, the daemon waits for a quiet window.

    If nothing of the user is stored, and the user was never erased, the exit code is 66. The ledger
    keeps the --reason, and no erasure removes it, so do not name the user there.
    """
    settings = settings_of(config, state_dir)
    if not (yes or dry_run):
        _require_confirmation(user, session, agent)
    certificate = perform_request(
        settings,
        "forget",
        user=user,
        session=session,
        agent=agent,
        dry_run=dry_run,
        **reason_field(reason),
    )
    if json:
        print_json(certificate)
    else:
        print(orjson.dumps(certificate, option=orjson.OPT_INDENT_2).decode())
    waiting = {
        store: why for store, why in (certificate.get("pending") or {}).items() if why != QUIET
    }
    if waiting:
        raise BytesPendingError(certificate["firing_id"], waiting)


def _require_confirmation(user: str, session: str | None, agent: str | None) -> None:
    """Ask a person on the terminal whether to erase a scope.

    Raises:
        UsageError: Standard input is not a terminal.
        NotConfirmedError: The person did not confirm.
    """
    parts = [f"user {user}", session and f"session {session}", agent and f"agent {agent}"]
    scope = printable(", ".join(part for part in parts if part))
    require_confirmation(f"Erase everything of {scope}, for good? [y/N]: ", "erased")
