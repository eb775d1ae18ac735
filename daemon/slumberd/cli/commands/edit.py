"""Commands of a person on facts and users: `slumberd pin`, `unpin`, `forget` and `move`."""

from __future__ import annotations

import json as plain_json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import orjson
import typer

from slumberd.cli.client import perform_request, reason_field
from slumberd.cli.commands.fire import print_edit
from slumberd.cli.confirmation import require_confirmation
from slumberd.cli.context import settings_of
from slumberd.cli.exit_codes import say
from slumberd.cli.options import Config, DryRun, Json, ReasonOrNone, StateDir, unicode_of
from slumberd.cli.output import plural, print_json
from slumberd.logs.lines import printable
from slumberd.model.errors import BytesPendingError, UsageError
from slumberd.model.record import QUIET
from slumberd.rules.settings import Settings
from slumberd.storage.strict_json import read_object

MOST_LISTED = 20
"""How many episodes and facts a question names; --dry-run names all."""


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
    user: Annotated[
        str | None, typer.Option(help="Erase the episodes and facts of this user.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Erase only those with this agent.")] = None,
    session: Annotated[str | None, typer.Option(help="Erase only those of this session.")] = None,
    episode: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Erase only this episode, with all that came from it."),
    ] = None,
    fact: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Erase only this fact, and the episodes that say it."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Erase without asking.")] = False,
    dry_run: DryRun = False,
    reason: ReasonOrNone = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Erase a user, an episode or a fact, for good, and print a certificate.

    The command erases the user's episodes and facts, and all that is personal in the ledger and in
    quarantine, also from free pages and write-ahead logs. The ledger's chain still verifies. Later
    imports of episodes of the erased scope are refused, unless the episodes are newer than the
    erasure. With --session, the facts of other sessions are resolved again. This cannot be undone.

    --episode erases one episode: every version, its facts and their corrections, marks, and its
    rows of the ledger. --fact erases all episodes that say the fact, and the manual edits that say
    it. The command first names all facts that go, and asks. Older facts may be current again. Later
    puts of an erased episode change nothing. No --user is needed: both find whose they are.

    The command rewrites both databases, which needs twice their disk space, and other programs
    cannot write meanwhile. If another program prevents it, the exit code is 71: a running daemon
    rewrites them later. With `erasure.rewrite: idle`, the daemon waits for a quiet window.

    If nothing of the user is stored, and the user was never erased, the exit code is 66. The ledger
    keeps the --reason, and no erasure removes it, so do not name the user there.
    """
    if user is None and episode is None and fact is None:
        raise UsageError("forget: name a user, an episode or a fact")
    settings = settings_of(config, state_dir)
    named = {"user": user, "session": session, "agent": agent, "episode": episode, "fact": fact}
    given: dict[str, Any] = {name: part for name, part in named.items() if part is not None}
    plan: dict[str, Any] = {}
    if not (yes or dry_run):
        if episode is None and fact is None:
            _require_confirmation(given)
        else:
            plan = _confirmed_plan(settings, given)
    certificate = perform_request(
        settings, "forget", **given, **plan, dry_run=dry_run, **reason_field(reason)
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


def _require_confirmation(given: Mapping[str, str]) -> None:
    """Ask a person on the terminal whether to erase a scope.

    Raises:
        UsageError: Standard input is not a terminal.
        NotConfirmedError: The person did not confirm.
    """
    question = f"Erase everything of {_words_of(given)}, for good? [y/N]: "
    require_confirmation(question, "erased")


def _words_of(given: Mapping[str, str]) -> str:
    return printable(", ".join(f"{name} {part}" for name, part in given.items()))


def _confirmed_plan(settings: Settings, given: Mapping[str, Any]) -> dict[str, Any]:
    """Print what goes with an episode or a fact, and ask; return the plan that was confirmed.

    Raises:
        UsageError: Standard input is not a terminal.
        NotConfirmedError: The person did not confirm.
    """
    planned = perform_request(settings, "forget", **given, dry_run=True)
    episodes, facts = planned.get("episodes", []), planned.get("facts", [])
    say(f"{plural(len(episodes), 'episode')} will be erased" + _listed(episodes))
    statements = zip(facts, planned.get("statements", []), strict=True)
    say(
        f"{plural(len(facts), 'current fact')} will go"
        + _listed(f"{fact} ({said})" if said else fact for fact, said in statements)
    )
    if again := planned["current_again"]:
        say(f"{plural(len(again), 'older fact')} will be current again" + _listed(again))
    require_confirmation(f"Erase {_words_of(given)}, for good? [y/N]: ", "erased")
    return {"plan": planned["plan"]}


def _listed(names: Iterable[str]) -> str:
    found = [printable(name) for name in names]
    more = f", and {len(found) - MOST_LISTED} more" if len(found) > MOST_LISTED else ""
    return ": " + ", ".join(found[:MOST_LISTED]) + more if found else ""


def move(  # one for each option
    user: Annotated[str, typer.Option("--user", help="The user.", show_default=False)],
    to: Annotated[
        int, typer.Option("--to", metavar="SHARD", help="The shard that gets the user.", min=0)
    ],
    dry_run: DryRun = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Move a user to another shard, with all episodes, facts and rows of the ledger.

    The daemon that holds the shard of the user does it between two firings. Meanwhile the
    episodes of the user are refused; whoever puts them tries again. Firings from before the move
    are read-only in the new shard.
    """
    settings = settings_of(config, state_dir)
    answer = perform_request(settings, "move", user=user, to=to, dry_run=dry_run)
    if json:
        print_json(answer)
        return
    verb = "would move" if dry_run else "moved"
    print(f"{verb} {printable(user)} from shard {answer['source']} to shard {answer['target']}")
    episodes, facts = plural(answer["episodes"], "episode"), plural(answer["facts"], "fact")
    print(f"{episodes}, {facts}, {plural(answer['rows'], 'row')} of the ledger")
