"""`slumberd doctor`: what is not as it should be, each with its remedy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from slumberd.cli.client import asked
from slumberd.cli.context import settings_of, settings_variables
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import cell, print_json, print_table
from slumberd.cli.wording import plural
from slumberd.clock import SystemClock
from slumberd.config.rule_loader import RuleSet
from slumberd.config.settings import Settings, config_file
from slumberd.diagnostics.doctor import Checkup, looked_over
from slumberd.diagnostics.finding import KINDS, Finding
from slumberd.diagnostics.host_checks import THIS_MACHINE
from slumberd.diagnostics.store_checks import QUICK_SECONDS, Patient
from slumberd.errors import ConfigurationError, Mistake
from slumberd.service.composition import rules_of


def doctor(
    deep: Annotated[
        bool, typer.Option("--deep", help="Take as long as it takes to check every page.")
    ] = False,
    kinds: Annotated[bool, typer.Option("--list", help="List what is looked at, by id.")] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Look everything over, and say what is not as it should be, and what to do about it.

    It changes nothing, and works while the daemon runs and while it does not. The exit code is 1
    when anything was found. Passes over whole databases end after 10 s each unless --deep is given;
    what was not looked at to its end is named, and is no finding.
    """
    if kinds:
        _list(json=json)
        return
    checkup = examined(config, state_dir, seconds=None if deep else QUICK_SECONDS)
    if json:
        print_json(_document(checkup))
    else:
        _tell(checkup)
    if checkup.findings:
        raise typer.Exit(1)


def examined(config: Path | None, state_dir: Path | None, *, seconds: float | None) -> Checkup:
    """Look over what the options name, whatever state it is in."""
    try:
        settings = settings_of(config, state_dir)
    except ConfigurationError as error:
        return Checkup(invalid(error.mistakes), [])
    patient, findings = patient_of(settings, config, seconds=seconds)
    if patient.daemon is not None:
        # A daemon that cannot read what there is now is told of as what is invalid.
        outdated, _ = asked(settings.state_dir, "outdated")
        patient = replace(patient, outdated=outdated or {})
    found = looked_over(patient)
    return replace(found, findings=[*findings, *found.findings])


def patient_of(
    settings: Settings, config: Path | None, *, seconds: float | None
) -> tuple[Patient, list[Finding]]:
    """Return what is looked over, and what was found on the way to it."""
    rules, mistakes = _rules(settings)
    daemon, silent = asked(settings.state_dir)
    patient = Patient(
        settings,
        rules,
        config_file(config, settings_variables()),
        daemon,
        SystemClock().now(),
        THIS_MACHINE,
        seconds=seconds,
    )
    return patient, [*invalid(mistakes), *silent]


def _rules(settings: Settings) -> tuple[RuleSet | None, Sequence[Mistake]]:
    try:
        return rules_of(settings), ()
    except ConfigurationError as error:
        return None, error.mistakes


def invalid(mistakes: Sequence[Mistake]) -> list[Finding]:
    """Return mistakes of configuration and rules as findings."""
    return [
        Finding(
            "config.invalid", mistake.file, _problem(mistake), "mend it; `slumberd check` tells"
        )
        for mistake in mistakes
    ]


def _problem(mistake: Mistake) -> str:
    return str(mistake).removeprefix(mistake.file).lstrip(":")


def _list(*, json: bool) -> None:
    if json:
        print_json([{"id": id, "severity": how, "well": well} for id, (how, well) in KINDS.items()])
    else:
        print_table(("id", "severity", "well when"), ((id, *kind) for id, kind in KINDS.items()))


def _document(checkup: Checkup) -> dict[str, object]:
    return {
        "ok": not checkup.findings,
        "findings": [finding.document() for finding in checkup.findings],
        "unfinished": list(checkup.unfinished),
    }


def _tell(checkup: Checkup) -> None:
    for finding in checkup.findings:
        print(f"{finding.severity:8} {finding.id}  {cell(finding.subject)}")
        print(f"         {cell(finding.problem)}")
        print(f"         remedy: {cell(finding.remedy)}")
    for what in checkup.unfinished:
        print(f"slumberd: took too long: {cell(what)}; `slumberd doctor --deep`", file=sys.stderr)
    count = len(checkup.findings)
    print(plural(count, "finding") if count else "nothing found")
