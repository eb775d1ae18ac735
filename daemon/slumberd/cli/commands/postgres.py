"""`slumberd postgres`: create the schema of slumberd in a database, upgrade it, and check it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slumberd.cli.exit_codes import say
from slumberd.cli.options import Json
from slumberd.cli.output import plural, print_json
from slumberd.cli.registry import examples
from slumberd.rules.file_access import read_key

if TYPE_CHECKING:
    from slumberd.storage.postgres.shard_additions import PlannedUsers

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Create, upgrade and check the schema of slumberd in a PostgreSQL database.",
)

Address = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS",
        help="The database, as postgresql://user@host/database; its password may come from "
        "$PGPASSWORD or ~/.pgpass.",
        show_default=False,
    ),
]
Print = Annotated[bool, typer.Option("--print", help="Print the statements, and run none of them.")]


@app.command(
    "init",
    epilog=examples(
        "slumberd postgres init postgresql://admin@db.example.com/memory",
        "slumberd postgres init postgresql:///memory --print > init.sql",
    ),
)
def init(
    address: Address,
    shards: Annotated[
        int, typer.Option(min=1, max=64, help="How many shards the database has at first.")
    ] = 1,
    only_print: Print = False,
) -> None:
    """Create the schema, the roles and the shards of slumberd in a database.

    The role of the address must be able to create schemas and roles. Grant slumberd_daemon to the
    login of the daemon, and slumberd_host to the logins of programs that put episodes.
    """
    from slumberd.storage.postgres import installation

    if only_print:
        print(installation.installation_script(shards))
        return
    installation.install(address, shards=shards)
    say(f"created the schema slumberd with {plural(shards, 'shard')}")


@app.command(
    "upgrade",
    epilog=examples(
        "slumberd postgres upgrade postgresql://admin@db.example.com/memory",
        "slumberd postgres upgrade postgresql:///memory --print > upgrade.sql",
    ),
)
@app.command("migrate", hidden=True)
def upgrade(
    address: Address,
    key_file: Annotated[
        Path | None,
        typer.Option(
            help="The key of the ledgers, as facts.key_file names it. A database of 0.2 with "
            "several shards needs it.",
            show_default=False,
        ),
    ] = None,
    only_print: Print = False,
) -> None:
    """Bring the schemas of a database to the newest step.

    Each schema is upgraded in one transaction. If the command is interrupted, run it again: it goes
    on where it was. Make a copy with pg_dump first. A database of 0.2 also needs free space, and
    its daemons must be stopped: `slumberd postgres check` says how much space and time.

    With --print, print the statements, for a person who runs them.
    """
    from slumberd.storage.postgres import upgrade

    if only_print:
        print(upgrade.upgrade_script(address))
        return
    key = None if key_file is None else read_key(key_file, credentials=None)
    is_newest = True
    for title in upgrade.upgrade(address, key=key):
        say(f"upgraded {title}")
        is_newest = False
    if is_newest:
        say("the schema is the newest")


@app.command(
    "add-shard",
    epilog=examples(
        "slumberd postgres add-shard postgresql://admin@db.example.com/memory",
        "slumberd postgres add-shard postgresql:///memory --address postgresql://db2/memory",
    ),
)
def add_shard(
    address: Address,
    place: Annotated[
        str | None,
        typer.Option(
            "--address",
            help="The database of the shard, without a password; by default that of the map.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Add a shard, and plan which users move there: as few as give it an equal share.

    The role of the address must be able to create schemas and roles. The daemons move the users one
    after the other. After an error, repeat the command: it goes on where it ended.
    """
    from slumberd.storage.postgres import shard_additions

    added = shard_additions.add_shard(address, place)
    positions = plural(added.positions, "position")
    say(f"shard {added.number} lies in {added.where} and has {positions} of 1024")
    _print_plan(added.planned)


@app.command("balance", epilog=examples("slumberd postgres balance postgresql:///memory"))
def balance(address: Address, json: Json = False) -> None:
    """Show how many users are planned to move to another shard."""
    from slumberd.storage.postgres import shard_additions

    left = shard_additions.left_to_move(address)
    if json:
        print_json([one._asdict() for one in left])
        return
    _print_plan(left)


def _print_plan(planned: Sequence[PlannedUsers]) -> None:
    for one in planned:
        users = plural(one.users, "user")
        print(f"{users} will move from shard {one.source} to shard {one.target}")
    if not planned:
        print("no user is planned to move")


@app.command(
    "check", epilog=examples("slumberd postgres check postgresql://daemon@db.example.com/memory")
)
def check(address: Address, json: Json = False) -> None:
    """Check the server, the schema and the rights of the role; write nothing."""
    from slumberd.storage.postgres import installation

    report = installation.examine(address)
    if json:
        print_json(report._asdict())
        return
    print(f"server    {report.server}")
    print(f"schema    step {report.step}, {plural(report.shards, 'shard')}")
    print(f"role      {report.role}: {', '.join(report.rights) or 'may do nothing here'}")
