"""`slumberd check`: every mistake in configuration and rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from slumberd.cli.against import against, document, print_previews, suggestion_for
from slumberd.cli.context import loaded, settings_of
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json
from slumberd.cli.wording import plural
from slumberd.config.rule_loader import RuleSet, load_rule_files
from slumberd.config.settings import Settings
from slumberd.errors import ConfigurationError, UsageError
from slumberd.filters.sandbox import check_filter
from slumberd.rule_testing.loader import ENDINGS
from slumberd.rule_testing.preview import Previewed
from slumberd.scheduling import cron
from slumberd.service.composition import checking_cypher


def check(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH]...", help="Rule files, or directories.")
    ] = None,
    against_data: Annotated[
        bool,
        typer.Option("--against-data", help="Say what each rule selects, and a firing would do."),
    ] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """List every mistake, as file:line:column: path: problem, and exit with 78 when there is one.

    Without a PATH, of the configuration and of the rules that it names. With PATHs, of those rule
    files together, as if they lay in one directory; the configuration is not read.

    With --against-data, each rule is then tried on a copy of the data that the configuration names:
    how many episodes its filter matches now, how many versions are pending, and what a firing would
    do; and which predicates have objects that keep replacing each other, and probably belong under
    multi_valued. Nothing is written but the copy, in $TMPDIR; a daemon may run.
    """
    try:
        if paths:
            settings = settings_of(config, state_dir) if against_data else None
            rules = _rules_in(paths, settings)
        else:
            settings, rules = loaded(config, state_dir)
    except ConfigurationError as error:
        _print_mistakes(error, json=json)
        raise typer.Exit(error.exit_code) from error
    found = against(settings, rules, whole=not paths) if settings and against_data else None
    _print_found(rules, found, json=json)


def _rules_in(paths: Sequence[Path], settings: Settings | None) -> RuleSet:
    return load_rule_files(
        _without_tests(paths),
        check_filter=check_filter,
        check_cron=cron.check,
        timezone=settings.timezone if settings else "UTC",
        check_cypher=checking_cypher(graph=True),
    )


def _without_tests(paths: Sequence[Path]) -> list[Path]:
    """Return the paths without tests of rules, which a shell's `rules/*.yaml` names too."""
    named = [path for path in dict.fromkeys(paths) if not path.name.endswith(ENDINGS)]
    if not named:
        raise UsageError(f"{str(paths[0])!r} holds tests, not rules; `slumberd test` runs them")
    return named


def _print_mistakes(error: ConfigurationError, *, json: bool) -> None:
    if json:
        mistakes = [asdict(mistake) for mistake in error.mistakes]
        print_json({"ok": False, "mistakes": mistakes, "rules": []})
        return
    for mistake in error.mistakes:
        print(mistake)


def _print_found(rules: RuleSet, found: Previewed | None, *, json: bool) -> None:
    ids = [rule.id for rule in rules.rules]
    if json:
        data = {} if found is None else _data(found)
        print_json({"ok": True, "mistakes": [], "rules": ids, **data})
        return
    files = len(set(rules.sources.values()))
    counted = f"{plural(len(ids), 'rule')} in {plural(files, 'file')}"
    print(f"valid: {counted}: {', '.join(ids) or 'none'}")
    if found and found.previews:
        print()
        print_previews(found)


def _data(found: Previewed) -> dict[str, Any]:
    replaced = [{**one._asdict(), "remark": suggestion_for(one)} for one in found.replaced]
    return {"data": [document(one) for one in found.previews], "replaced": replaced}
