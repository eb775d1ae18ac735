"""The table of all commands; the module of a command is imported when the command is called."""

from __future__ import annotations

from functools import wraps
from importlib import import_module
from typing import Annotated, Any, NamedTuple, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from slumberd import __version__
from slumberd.cli.exit_codes import USAGE, print_to_people
from slumberd.cli.options import MOST, Config, StateDir, all_shards, chosen_shard
from slumberd.model.errors import UsageError

NAME = "slumberd"


class Entry(NamedTuple):
    """One command.

    Attributes:
        name: Its name on the command line.
        home: Its module in ``cli.commands``, and the name of its function there.
        summary: Its line in the list of commands.
        examples: Calls for its help; the commands of a group have their own.
        per_shard: The names of it, or of its commands, that ``--all-shards`` may repeat.
    """

    name: str
    home: str
    summary: str
    examples: tuple[str, ...] = ()
    per_shard: tuple[str, ...] = ()


ENTRIES = (
    Entry(
        "run",
        "run:run",
        "Run the daemon in the foreground, until SIGTERM.",
        ("slumberd run --config /etc/slumberd/slumberd.yaml",),
    ),
    Entry(
        "demo",
        "demo:demo",
        "Show the path from episodes to facts on a small story.",
        ("slumberd demo", "slumberd demo --keep /tmp/slumberd-demo", "slumberd demo --serve"),
    ),
    Entry(
        "init",
        "init:init",
        "Make a state directory with rules and their test.",
        ("slumberd init", "slumberd init ~/agents/memory"),
    ),
    Entry(
        "check",
        "check:check",
        "List every mistake in the configuration and the rules.",
        (
            "slumberd check",
            "slumberd check rules/ more-rules.yaml",
            "slumberd check --against-data",
        ),
    ),
    Entry(
        "diff",
        "diff:diff",
        "Show which facts other rules would change.",
        ("slumberd diff new-rules/", "slumberd diff new-rules/ --rule preferences --user alice"),
        per_shard=("diff",),
    ),
    Entry(
        "test",
        "test:test",
        "Run the tests of rules.",
        ("slumberd test", "slumberd test rules/", "slumberd test rules/profile.test.yaml --json"),
    ),
    Entry(
        "import",
        "importing:import_",
        "Put many episodes, also from other memories.",
        (
            "slumberd import episodes.jsonl.gz",
            "generate-episodes | slumberd import -",
            "slumberd import memory.jsonl --format mcp-memory --user alice",
            "slumberd import mem0.json --format mem0 --audit",
        ),
    ),
    Entry(
        "export",
        "export:export",
        "Export episodes, or facts with their lineage.",
        (
            "slumberd export episodes.jsonl.gz",
            "slumberd export --kind facts --user alice --agent concierge",
        ),
    ),
    Entry(
        "recent",
        "episodes:recent",
        "Show the latest episodes of a user.",
        ("slumberd recent alice --agent concierge --limit 5",),
    ),
    Entry(
        "search",
        "search:search",
        "Find the episodes and facts of a user that answer a question.",
        (
            'slumberd search "Which tea does she like?" --user alice',
            "slumberd search Lisbon --user alice --kind episodes --json",
        ),
    ),
    Entry(
        "context",
        "search:context",
        "Print what an agent takes with it to answer a question.",
        ('slumberd context alice "Where shall we meet?" --budget 2000',),
    ),
    Entry(
        "mcp",
        "mcp:mcp",
        "Serve a user's memory to an agent by MCP.",
        (
            "slumberd mcp --user alice --agent concierge",
            "slumberd mcp --user alice --agent concierge --admin",
        ),
    ),
    Entry(
        "fire",
        "fire:fire",
        "Fire rules now, through the daemon when it runs.",
        ("slumberd fire --all", "slumberd fire preferences --dry-run"),
        per_shard=("fire",),
    ),
    Entry(
        "facts",
        "facts:facts",
        "Show the current facts, or those of an earlier instant.",
        (
            "slumberd facts --user alice --predicate lives_in",
            "slumberd facts --user alice --valid-at 2026-03-01 --json",
            "slumberd facts --prefix subject=project/ --order pinned_at --descending --limit 10",
        ),
        per_shard=("facts",),
    ),
    Entry(
        "why",
        "why:why",
        "Show why a fact is current, or is no longer current.",
        ("slumberd why e42", "slumberd why e42 --content"),
        per_shard=("why",),
    ),
    Entry(
        "why-not",
        "why_not:why_not",
        "Show the outcome of an episode, and what would change it.",
        ("slumberd why-not e42",),
        per_shard=("why-not",),
    ),
    Entry(
        "undo",
        "fire:undo",
        "Undo a firing, a run, or the latest firings of a rule.",
        (
            "slumberd undo preferences@120 --dry-run",
            "slumberd undo --run k3j5q2x7mfa4",
            "slumberd undo preferences --since 2026-03-01T12:00:00Z",
        ),
        per_shard=("undo",),
    ),
    Entry(
        "pin",
        "edit:pin",
        "Assert a fact as a person.",
        (
            "slumberd pin --user alice --agent concierge --subject alice --predicate lives_in"
            " --object Lisbon --reason 'she moved to Lisbon'",
        ),
    ),
    Entry(
        "unpin",
        "edit:unpin",
        "Retract facts as a person.",
        ("slumberd unpin e42 --reason 'she never said that'",),
    ),
    Entry(
        "backfill",
        "review:backfill",
        "Evaluate the episodes that a rule has passed again.",
        ("slumberd backfill preferences --from 2026-03-01 --dry-run",),
        per_shard=("backfill",),
    ),
    Entry(
        "extract",
        "fire:extract",
        "Ask the language model of a rule what its episodes state.",
        ("slumberd extract preferences", "slumberd extract preferences --again"),
        per_shard=("extract",),
    ),
    Entry(
        "quarantine",
        "review:quarantine",
        "List, retry or drop episodes that a rule has not read.",
        per_shard=("ls", "retry", "drop", "future"),
    ),
    Entry(
        "clock",
        "review:clock",
        "Say that the clock is right, after a wrong clock.",
        per_shard=("accept",),
    ),
    Entry(
        "approve",
        "review:approve",
        "Apply a batch that awaits approval.",
        ("slumberd approve profile@7",),
    ),
    Entry(
        "reject",
        "review:reject",
        "Skip a batch that awaits approval.",
        ("slumberd reject profile@7",),
    ),
    Entry(
        "forget",
        "edit:forget",
        "Erase the episodes and facts of a user.",
        ("slumberd forget --user alice --dry-run", "slumberd forget --user alice --yes"),
    ),
    Entry(
        "rules",
        "rules:app",
        "Show the rules, and how far each has read; publish rules.",
        per_shard=("rules",),
    ),
    Entry(
        "status",
        "status:status",
        "Show the state of the daemon, the rules and the databases.",
        ("slumberd status", "slumberd status --check || echo 'a person must look'"),
        per_shard=("status",),
    ),
    Entry(
        "doctor",
        "status:doctor",
        "Report problems, each with its remedy.",
        ("slumberd doctor", "slumberd doctor --deep --json", "slumberd doctor --list"),
        per_shard=("doctor",),
    ),
    Entry(
        "reload",
        "rules:reload",
        "Make the running daemon use the rules that the files hold now.",
        ("slumberd check && slumberd reload",),
        per_shard=("reload",),
    ),
    Entry(
        "move",
        "edit:move",
        "Move a user to another shard.",
        ("slumberd move --user alice --to 3 --dry-run", "slumberd move --user alice --to 3"),
    ),
    Entry(
        "pause",
        "rules:pause",
        "Pause rules until they are resumed.",
        ("slumberd pause nightly",),
        per_shard=("pause",),
    ),
    Entry(
        "resume",
        "rules:resume",
        "Resume paused rules.",
        ("slumberd resume nightly",),
        per_shard=("resume",),
    ),
    Entry(
        "next",
        "next:upcoming",
        "Show when rules fire next.",
        (
            "slumberd next",
            "slumberd next nightly -n 10",
            "slumberd next --cron '30 2 * * *' --timezone Europe/Berlin",
        ),
        per_shard=("next",),
    ),
    Entry(
        "logs",
        "logs:logs",
        "Print the log for people.",
        (
            "slumberd logs -f --rule preferences",
            "slumberd logs --level warning --since 24h",
            "slumberd logs /var/log/slumberd.log.1.gz",
            "journalctl -u slumberd -o cat --since today | slumberd logs -",
        ),
    ),
    Entry(
        "backup",
        "backup:backup",
        "Copy the databases as of one moment.",
        ("slumberd backup /backup/slumberd-1", "slumberd backup /backup/slumberd-2 --with-key"),
    ),
    Entry(
        "restore",
        "backup:restore",
        "Replace the databases with a backup.",
        (
            "slumberd restore /backup/slumberd-1 --check",
            "systemctl stop slumberd && slumberd restore /backup/slumberd-1",
        ),
    ),
    Entry(
        "upgrade",
        "upgrade:upgrade",
        "Upgrade the files of an older release.",
        (
            "slumberd backup /backup/before && slumberd upgrade",
            "slumberd upgrade --state-dir /var/lib/slumberd-0.1.0 --to /var/lib/slumberd",
        ),
    ),
    Entry(
        "copy",
        "backup:copy",
        "Copy everything from files into a database, or back.",
        (
            "slumberd copy --from /var/lib/slumberd --to postgresql://db.example.com/memory",
            "slumberd copy --from postgresql://db.example.com/memory --to ./state",
            "slumberd copy --from /var/lib/slumberd --to postgresql:///memory --verify",
        ),
    ),
    Entry(
        "schema",
        "formats:schema",
        "Print a JSON Schema, for editors.",
        ("slumberd schema rules", "slumberd schema config > config.schema.json"),
    ),
    Entry(
        "events",
        "formats:events",
        "List the events of the log.",
        ("slumberd events", "slumberd events delta.applied --json"),
    ),
    Entry(
        "report",
        "report:report",
        "Report what was learned, changed and retracted.",
        (
            "slumberd report",
            "slumberd report --since 7d --json",
            "slumberd report --since 30d --html november.html",
        ),
        per_shard=("report",),
    ),
    Entry("hooks", "hooks:hooks", "Give coding agents a memory: install or remove hooks."),
    Entry(
        "hook",
        "hooks:hook",
        "Answer one event of a coding agent, from standard input.",
        (
            "slumberd hook claude-code --user ada --agent claude-code --state-dir /var/lib/slumberd"
            " --cursors ~/.local/state/slumberd/hooks < event.json",
        ),
    ),
    Entry(
        "audit",
        "audit:app",
        "List, verify, replay or export the ledger.",
        per_shard=("ls", "verify", "replay"),
    ),
    Entry(
        "postgres",
        "postgres:app",
        "Create, upgrade or check the schema in PostgreSQL.",
    ),
    Entry("token", "token:app", "Make tokens for the HTTP interface."),
    Entry("version", "version:version", "Show the version.", ("slumberd version",)),
)


class Deferred(TyperCommand):
    """A command of which only the summary is known until it is called."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry.name, help=entry.summary, rich_markup_mode=None)
        self._entry = entry

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: Any = None,  # noqa: ANN401 # the parser's own types have no public name
        **extra: Any,
    ) -> Any:  # noqa: ANN401
        """Return the context of the command itself."""
        return self._command().make_context(info_name, args, parent=parent, **extra)

    def _command(self) -> TyperCommand | TyperGroup:
        module, _, name = self._entry.home.partition(":")
        found = getattr(import_module(f"{__package__}.commands.{module}"), name)
        if isinstance(found, typer.Typer):
            group = cast("TyperGroup", get_command(found))
            group.name = self._entry.name
            self._repeat(group, is_group=True)
            for command in (group, *group.commands.values()):
                command.params.append(_version_option())
            for command in group.commands.values():
                self._repeat(command)
            return group
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(self._entry.name, epilog=examples(*self._entry.examples))(found)
        single = cast("TyperCommand", get_command(app))
        single.params.append(_version_option())
        self._repeat(single)
        return single

    def _repeat(self, command: Any, *, is_group: bool = False) -> None:  # noqa: ANN401
        """Let ``--all-shards`` repeat a command for each shard, or refuse the command."""
        may_repeat, callback = command.name in self._entry.per_shard, command.callback
        if callback is None or (is_group and not may_repeat):
            return

        @wraps(callback)
        def run(**given: Any) -> None:
            if not all_shards.get():
                callback(**given)
                return
            from slumberd.cli.context import run_for_each_shard

            if not may_repeat:
                raise UsageError(f"{command.name}: --all-shards does not repeat it; name a shard")
            run_for_each_shard(callback, given)

        command.callback = run


def _version_option() -> Any:  # noqa: ANN401 # the parser's own types have no public name
    """Return the option of every command that prints the version and ends the process."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(_with_version)
    (option,) = get_command(app).params
    option.expose_value = False  # the functions of the commands take no such argument
    return option


def _print_version(given: bool) -> None:  # the parser passes it by position
    if given:
        print(f"{NAME} {__version__}")
        raise typer.Exit


def _with_version(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and end."
        ),
    ] = False,
) -> None:
    """Declare the option for the parser."""


def examples(*calls: str) -> str:
    """Return the epilog of a help text: example calls, one a line."""
    # The parser joins the lines of a paragraph unless the paragraph begins with this character.
    return "\n".join(["\b", "Example:" if len(calls) == 1 else "Examples:", *calls])


def program() -> TyperGroup:
    """Return the whole command line."""
    app = typer.Typer(
        rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
    )
    app.callback(invoke_without_command=True)(_slumberd)
    group = cast("TyperGroup", get_command(app))
    group.params.append(_version_option())
    for entry in ENTRIES:
        group.add_command(Deferred(entry))
    return group


def _slumberd(
    context: typer.Context,
    config: Config = None,
    state_dir: StateDir = None,
    shard: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=MOST,
            help="Work on this shard of a database; written before the command.",
        ),
    ] = None,
    every_shard: Annotated[
        bool,
        typer.Option(
            "--all-shards", help="Run the command once for each shard; written before the command."
        ),
    ] = False,
) -> None:
    """Consolidate what agents lived through (episodes) into what they know (facts)."""
    if every_shard and shard is not None:
        raise UsageError("--shard and --all-shards: choose one of them")
    chosen_shard.set(shard)
    all_shards.set(every_shard)
    if context.invoked_subcommand is None:
        print_to_people(context.get_help())
        raise typer.Exit(USAGE)
