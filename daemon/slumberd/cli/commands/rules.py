"""Commands on the set of rules: `slumberd rules` and its parts, `pause`, `resume` and `reload`."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from slumberd.cli.asking import ask_holder
from slumberd.cli.client import perform_request
from slumberd.cli.context import settings_of
from slumberd.cli.empty_results import no_rules
from slumberd.cli.exit_codes import say
from slumberd.cli.options import MOST, Config, Json, StateDir
from slumberd.cli.output import (
    describe_channels,
    number,
    plural,
    print_json,
    print_json_lines,
    print_table,
)
from slumberd.cli.registry import examples
from slumberd.clock import SystemClock
from slumberd.daemon.rules import paused_rules_of, rule_sets_of, rules_of, rules_to_publish
from slumberd.logs.lines import printable
from slumberd.model.errors import ConfigurationError, InputError, NoInputError, OutputExistsError
from slumberd.model.rule import PublishedRules
from slumberd.operations.handlers import Answer
from slumberd.operations.reads.rule_states import RuleState
from slumberd.tools.diagnostics.status import RemovedRule, read_status

PUBLISH_EXAMPLES = (
    "slumberd rules publish",
    "slumberd rules publish rules/ --expect 3 --reason 'tea, not coffee'",
)
PUBLISHED_EXAMPLES = (
    "slumberd rules published",
    "slumberd rules published 2 --to rules-2/ && slumberd rules publish rules-2/",
)
PUBLISHED_COLUMNS = ("version", "rules", "published", "by", "files", "reason")

SHOWN = 50
"""How many versions the command lists without ``--limit``."""


def publish(
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="The directory of rule files. [default: rules_dir]"),
    ] = None,
    expect: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MOST,
            metavar="VERSION",
            show_default=False,
            help="Publish only if this version is the newest; 0 if there is none.",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Who publishes. [default: the user and the host]"),
    ] = None,
    reason: Annotated[
        str | None, typer.Option(help="Why, for those who list the versions.")
    ] = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Check the rules of a directory, and put them in force on all hosts of the database.

    Each daemon with ``postgres.rules: published`` loads them within some seconds. The command finds
    the mistakes that `slumberd check` finds, prints them, and publishes nothing then.

    It publishes the texts of the rule files, and of the pattern files that they name. The code of
    Python functions is not published: install it on each host before. A daemon on which a rule
    has a mistake logs it, and keeps its rules.

    Equal files are published once. To take back a version, publish the files of an older one.
    With --expect, the exit code is 75 when somebody else has published in between.
    """
    settings = settings_of(config, state_dir)
    sets = rule_sets_of(settings)
    source = directory or settings.rules_dir
    try:
        rules = rules_to_publish(settings, source, by=by or _person(), reason=reason or "")
    except ConfigurationError as error:
        _print_mistakes(error, json=json)
        raise typer.Exit(error.exit_code) from error
    version, is_new = sets.publish(rules, expected=expect)
    if json:
        print_json({"ok": True, "published": is_new, "mistakes": [], **version.document()})
    elif is_new:
        files = plural(len(version.texts), "file")
        print(f"published version {version.version}: {files}, rules {version.content_hash}")
    else:
        print(f"version {version.version} has the same files already: nothing was published")


def _print_mistakes(error: ConfigurationError, *, json: bool) -> None:
    if json:
        mistakes = [asdict(mistake) for mistake in error.mistakes]
        print_json({"ok": False, "published": False, "mistakes": mistakes})
        return
    for mistake in error.mistakes:
        print(mistake)


def _person() -> str:
    """Return the user and the host of this process, for people."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # a user without a name
        return f"unknown@{socket.gethostname()}"


def published(
    number: Annotated[
        int | None,
        typer.Argument(
            min=1, max=MOST, metavar="[VERSION]", help="One version.", show_default=False
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write the files of the version, or of the newest, into it."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=MOST, metavar="N", help="List at most N versions.")
    ] = SHOWN,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """List the published versions of the rules, newest first, or write the files of one.

    The newest version is in force on the hosts with ``postgres.rules: published``. With --json,
    each version is printed on a line.
    """
    sets = rule_sets_of(settings_of(config, state_dir))
    if number is None and to is None:
        _print_versions(sets.newest(limit), json=json)
        return
    found = sets.read(number)
    if found is None:
        named = "no rules were published" if number is None else f"there is no version {number}"
        raise NoInputError(sets.where, f"{named}; `slumberd rules published` lists the versions")
    if to is not None:
        _write_files(found, to)
        say(f"wrote {plural(len(found.texts), 'file')} of version {found.version} into {to}")
    else:
        _print_versions([found], json=json)


def _print_versions(found: list[PublishedRules], *, json: bool) -> None:
    if json:
        print_json_lines(one.document() for one in found)
        return
    rows = (
        (one.version, one.content_hash, one.published_at, one.by, len(one.texts), one.reason)
        for one in found
    )
    print_table(
        PUBLISHED_COLUMNS, rows, empty="no rules were published; `slumberd rules publish` does it"
    )


def _write_files(found: PublishedRules, directory: Path) -> None:
    """Write the files of a version into a directory, which must be new or empty."""
    names = {name: PurePosixPath(name) for name in found.texts}
    for name, path in names.items():
        if path.is_absolute() or ".." in path.parts:
            raise InputError(f"version {found.version} names a file outside of it: {name!r}")
    if directory.exists() and any(directory.iterdir()):
        raise OutputExistsError(str(directory), "name a new directory")
    for name, path in names.items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(found.texts[name].encode())


app = typer.Typer(add_completion=False, rich_markup_mode=None)
app.command("publish", epilog=examples(*PUBLISH_EXAMPLES))(publish)
app.command("published", epilog=examples(*PUBLISHED_EXAMPLES))(published)

COLUMNS = (
    "rule", "cadence", "channels", "enabled", "watermark", "pending", "last firing",
    "quarantined", "held", "file", "filter",
)  # fmt: skip
REMOVED_COLUMNS = ("rule", "watermark", "last firing", "quarantined", "held")

Ids = Annotated[list[str], typer.Argument(metavar="RULE...", help="Ids of rules.")]


@app.callback(
    invoke_without_command=True, epilog=examples("slumberd rules", "slumberd rules --removed")
)
def rules(
    context: typer.Context,
    removed: Annotated[
        bool, typer.Option("--removed", help="Show the rules that were removed.")
    ] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show the rules, and how far each has read.

    The watermark is the number of the last version of an episode that the rule has read. Pending is
    how many versions lie above it. With --json, each rule is printed on a line.

    A removed rule keeps its watermark, and the facts that it promoted stay current. If you put it
    back, it continues from its watermark. `slumberd undo` undoes its firings.

    The commands publish rules in a PostgreSQL database, for all hosts that use it.
    """
    if context.invoked_subcommand is not None:
        return
    settings = settings_of(config, state_dir)
    paused = () if removed else paused_rules_of(settings).read()
    report = read_status(settings, rules_of(settings), SystemClock().now(), paused)
    if removed:
        _print_removed(report.removed, json=json)
    else:
        _print_rules(report.rules, json=json, empty=no_rules(settings))


def _print_removed(rules: Sequence[RemovedRule], *, json: bool) -> None:
    if json:
        print_json_lines(rule.document() for rule in rules)
    else:
        rows = (_removed_row(rule) for rule in rules)
        print_table(REMOVED_COLUMNS, rows, empty="no rule was removed")


def _removed_row(rule: RemovedRule) -> tuple[object, ...]:
    return (
        rule.id, rule.watermark, rule.fired_at, number(rule.quarantined),
        rule.held_firing_id or None,
    )  # fmt: skip


def _print_rules(states: Sequence[RuleState], *, json: bool, empty: str) -> None:
    if json:
        print_json_lines(state.document() for state in states)
    else:
        print_table(COLUMNS, map(_row, states), empty=empty)


def _row(state: RuleState) -> tuple[object, ...]:
    rule, status = state.rule, state.status
    return (
        rule.id,
        state.cadence,
        ", ".join(rule.then_emits),
        "paused" if status.paused else rule.enabled,
        status.watermark,
        None if status.pending is None else number(status.pending),
        state.fired_at,
        number(status.quarantined),
        status.held_firing_id or None,
        state.file,
        (rule.when_filter or "(all)") if rule.reads_episodes else rule.filter_cypher,
    )


def pause(
    rules: Ids, json: Json = False, config: Config = None, state_dir: StateDir = None
) -> None:
    """Pause rules: they are not due until `slumberd resume`, also after a restart or a reload.

    A firing that has begun runs to its end. `slumberd fire` fires paused rules, too.
    """
    answer = perform_request(settings_of(config, state_dir), "pause", rules=rules)
    _print_paused(answer, "paused", json=json)


def resume(
    rules: Ids, json: Json = False, config: Config = None, state_dir: StateDir = None
) -> None:
    """Resume paused rules: they are due again, at once for what is pending."""
    answer = perform_request(settings_of(config, state_dir), "resume", rules=rules)
    _print_paused(answer, "resumed", json=json)


def _print_paused(answer: Answer, verb: str, *, json: bool) -> None:
    if json:
        print_json(answer)
        return
    print(f"{verb}: {printable(', '.join(answer['changed'])) or 'no other rule'}")
    print(f"paused now: {printable(', '.join(answer['paused'])) or 'no rule'}")


def reload(json: Json = False, config: Config = None, state_dir: StateDir = None) -> None:
    """Make the running daemon use the rules that the files hold now: all of them, or none.

    With ``postgres.rules: published``, it uses the newest published rules instead.

    The daemon reads its own configuration and rules again, and uses them from the next batch on. If
    they have mistakes, the command prints every mistake, the daemon keeps its rules, and the exit
    code is 1.

    Of the configuration, a reload takes rules_dir, postgres.rules, timezone and limits. The command
    lists the other keys that have changed: they take effect when the daemon starts again.

    A changed rule applies from now on; `slumberd backfill` applies it to the episodes that it has
    passed. If no daemon runs, the exit code is 69.
    """
    answer = ask_holder(settings_of(config, state_dir), "reload", {})
    if json:
        print_json(answer)
    else:
        _print_reload(answer)


def _print_reload(answer: Answer) -> None:
    for change in ("added", "removed", "changed"):
        for rule_id in answer[change]:
            print(f"{change:<8} {printable(rule_id)}")
    for key in answer["restart_needed"]:
        print(f"{printable(key)} has changed; restart the daemon for it to take effect")
    if answer["facts_appear"] or answer["facts_go"]:
        print(describe_channels(answer["facts_appear"], answer["facts_go"]))
    if held := answer["held_firing_id"]:
        print(f"the old channels stay in force until `slumberd approve {held}`")
    if rejected := answer["rejected_firing_id"]:
        print(f"the old channels stay in force: a person rejected the change ({rejected})")
    rules = f"{plural(answer['rules'], 'rule')}, generation {answer['generation']}"
    print(f"reloaded: {rules}, hash {answer['rules_hash']}")
