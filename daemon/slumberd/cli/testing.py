"""`slumberd test`: run the tests that stand beside the rules."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from slumberd.cli.context import settings_of
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json_lines
from slumberd.cli.verdicts import document, print_findings, title
from slumberd.cli.wording import plural
from slumberd.rule_testing.loader import Trial, case_files, prepared
from slumberd.rule_testing.runner import Verdict, tried

FAILED = 1


def test(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PATH]...", help="Files of tests, or directories of rules."),
    ] = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Run the tests of rules, and exit with 1 when one fails.

    X.test.yaml beside X.yaml says what its episodes become under the rules of X.yaml. Without a
    PATH, those in the directory of rules that the configuration names. Each test has stores of
    its own; the daemon's are neither read nor written.

    A line that begins with - was expected, one with + is what came about instead.

    With --json, each test on a line of its own.
    """
    verdicts = asyncio.run(_tried(_trials(paths, config, state_dir)))
    if json:
        print_json_lines(map(document, verdicts))
    else:
        _print(verdicts)
    if not all(verdict.ok for verdict in verdicts):
        raise typer.Exit(FAILED)


def _trials(
    paths: Sequence[Path] | None, config: Path | None, state_dir: Path | None
) -> list[Trial]:
    if paths:
        return prepared(case_files(paths), timezone="UTC")
    settings = settings_of(config, state_dir)
    return prepared(case_files([settings.rules_dir]), timezone=settings.timezone)


async def _tried(trials: Sequence[Trial]) -> list[Verdict]:
    return [await tried(trial) for trial in trials]


def _print(verdicts: Sequence[Verdict]) -> None:
    failed = [verdict for verdict in verdicts if not verdict.ok]
    for verdict in verdicts:
        print(f"{'ok' if verdict.ok else 'FAILED':<8}{title(verdict)}")
    for verdict in failed:
        print_findings(verdict)
    passed = len(verdicts) - len(failed)
    print(f"\n{plural(len(verdicts), 'test')}: {passed} passed, {len(failed)} failed")
