"""The pages of rules: the list, and one rule with its coverage and trials on the live data."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from slumberd.console.changes import LISTED
from slumberd.console.dry_runs import read_dry_run
from slumberd.console.fact_words import add_words
from slumberd.console.instants import read_period
from slumberd.console.visit import Shown, View, Visit
from slumberd.errors import FilterError, UsageError
from slumberd.operations.caller import Right
from slumberd.operations.handlers import Answer

_INSTANTS = 10
_TRIALS = ("fire", "backfill")


async def show_list(visit: Visit) -> Shown:
    """Show all rules in force."""
    visit.caller.require(Right.OPERATE)
    answer = await visit.ask("rules", instants=1)
    values = {
        "timezone": answer["timezone"],
        "rules": answer["rules"],
        "failing": await _failing(visit),
    }
    return View("rules.html", "Rules", values)


async def show_one(visit: Visit) -> Shown:
    """Show one rule."""
    visit.caller.require(Right.OPERATE)
    return await _view(visit)


async def submit(visit: Visit) -> Shown:
    """Show one rule with what a button of its page asks for; this changes nothing.

    Raises:
        UsageError: The form asks for something else.
    """
    visit.caller.require(Right.OPERATE)
    asked = visit.need("show")
    if asked == "coverage":
        return await _view(visit, coverage=True)
    if asked not in _TRIALS:
        raise UsageError(f"show: {asked[:40]!r} is not one of coverage, {', '.join(_TRIALS)}")
    try:
        return await _view(visit, trial=asked, dry_run=await _try(visit, asked))
    except FilterError as error:
        return await _view(visit, trial=asked, problems={asked: str(error)})
    except UsageError as error:
        field, _, text = str(error).partition(": ")
        known = field in ("from", "to")
        problems = {field: text} if known else {asked: str(error)}
        return await _view(visit, trial=asked, problems=problems)


async def _try(visit: Visit, asked: str) -> Answer:
    """Run an operation on the live data without writing anything.

    Raises:
        FilterError: The rule's filter must not run, or ran over its time limit.
        UsageError: The rule is unknown, or the period is invalid.
    """
    rule = visit.need("rule")
    if asked == "fire":
        return await visit.ask("fire", rules=[rule], dry_run=True, limit=LISTED)
    period = read_period(visit.fields)
    return await visit.ask("backfill", rule=rule, between=period, dry_run=True, limit=LISTED)


async def _view(
    visit: Visit,
    *,
    coverage: bool = False,
    trial: str = "",
    dry_run: Answer | None = None,
    problems: Mapping[str, str] | None = None,
) -> View:
    """Return the page of a rule.

    Args:
        visit: The visit, which names the rule.
        coverage: Whether to count what the filter selects.
        trial: Which trial was asked for; empty for none.
        dry_run: What the trial would do; None without one.
        problems: What is wrong with the fields of the form, and with the trial, by name.

    Raises:
        UsageError: The rule is unknown.
    """
    id = visit.need("rule")
    (rule,) = (await visit.ask("rules", rules=[id], instants=_INSTANTS, coverage=coverage))["rules"]
    found = None if dry_run is None else read_dry_run(dry_run, most=LISTED)
    values: dict[str, Any] = {
        "rule": rule,
        "failure": (await _failing(visit)).get(id),
        "trial": trial,
        "dry_run": found,
        "deltas": [] if found is None else await add_words(visit, found.deltas),
        "fields": {"from": "", "to": "", "reason": "", **visit.fields},
        "problems": problems or {},
    }
    status = HTTPStatus.BAD_REQUEST if problems else HTTPStatus.OK
    return View("rule.html", f"Rule {id}", values, status)


async def _failing(visit: Visit) -> dict[str, Any]:
    """Return the rules that fail now, by id."""
    return {each["rule_id"]: each for each in (await visit.ask("status"))["failing"]}
