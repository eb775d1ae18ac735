"""`slumberd rules publish` and `published`: rules in a database, for all hosts that use it."""

from __future__ import annotations

import getpass
import socket
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from slumberd.cli.context import settings_of
from slumberd.cli.exit_codes import say
from slumberd.cli.options import MOST, Config, Json, StateDir
from slumberd.cli.output import plural, print_json, print_json_lines, print_table
from slumberd.errors import ConfigurationError, InputError, NoInputError, OutputExistsError
from slumberd.model.rule_sets import PublishedRules
from slumberd.service.publishing import rules_to_publish
from slumberd.service.rules import rule_sets_of

PUBLISH_EXAMPLES = (
    "slumberd rules publish",
    "slumberd rules publish rules/ --expect 3 --reason 'tea, not coffee'",
)
PUBLISHED_EXAMPLES = (
    "slumberd rules published",
    "slumberd rules published 2 --to rules-2/ && slumberd rules publish rules-2/",
)
COLUMNS = ("version", "rules", "published", "by", "files", "reason")

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
    print_table(COLUMNS, rows, empty="no rules were published; `slumberd rules publish` does it")


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
