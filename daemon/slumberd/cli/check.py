"""`slumberd check`: every mistake in configuration and rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from slumberd import cron
from slumberd.assembly import rules_of
from slumberd.cli.configuration import settings_of
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json
from slumberd.errors import ConfigurationError
from slumberd.rulebook import RuleSet, load_rule_files
from slumberd.stores.filters import check_filter


def check(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH]...", help="Rule files, or directories.")
    ] = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """List every mistake, as file:line:column: path: problem, and exit with 78 when there is one.

    Without a PATH, of the configuration and of the rules that it names. With PATHs, of those rule
    files together, as if they lay in one directory; the configuration is not read.
    """
    try:
        rules = _files(paths) if paths else rules_of(settings_of(config, state_dir))
    except ConfigurationError as error:
        _print_mistakes(error, json=json)
        raise typer.Exit(error.exit_code) from error
    _print_found(rules, json=json)


def _files(paths: Sequence[Path]) -> RuleSet:
    named = list(dict.fromkeys(paths))
    return load_rule_files(named, check_filter=check_filter, check_cron=cron.check, timezone="UTC")


def _print_mistakes(error: ConfigurationError, *, json: bool) -> None:
    if json:
        mistakes = [asdict(mistake) for mistake in error.mistakes]
        print_json({"ok": False, "mistakes": mistakes, "rules": []})
        return
    for mistake in error.mistakes:
        print(mistake)


def _print_found(rules: RuleSet, *, json: bool) -> None:
    ids = [rule.id for rule in rules.rules]
    if json:
        print_json({"ok": True, "mistakes": [], "rules": ids})
        return
    files = len(set(rules.sources.values()))
    print(f"valid: {len(ids)} rules in {files} files: {', '.join(ids) or 'none'}")
