"""`slumberd forget`: erase what is kept of a user."""

from __future__ import annotations

import sys
from typing import Annotated

import orjson
import typer

from slumberd.cli.changing import DryRun
from slumberd.cli.client import performed
from slumberd.cli.context import settings_of
from slumberd.cli.exit_codes import say
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json
from slumberd.errors import NotConfirmedError, UsageError
from slumberd.observability.line_format import printable


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
    certificate = performed(
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
