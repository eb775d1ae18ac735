"""The pages of rules and their firings, of batches that await approval, and of the quarantine."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from slumberd.model.errors import FilterError, NoInputError, UsageError
from slumberd.operations.caller import Right
from slumberd.operations.handlers import Answer
from slumberd.web.console.changes import LISTED, read_dry_run
from slumberd.web.console.fact_words import add_words
from slumberd.web.console.rendering import link
from slumberd.web.console.time_range import read_period
from slumberd.web.console.visit import Shown, View, Visit

_INSTANTS = 10
_TRIALS = ("fire", "backfill")


async def show_rules(visit: Visit) -> Shown:
    """Show all rules in force."""
    visit.caller.require(Right.OPERATE)
    answer = await visit.ask("rules", instants=1)
    values = {
        "timezone": answer["timezone"],
        "rules": answer["rules"],
        "failing": await _failing(visit),
    }
    return View("rules.html", "Rules", values)


async def show_rule(visit: Visit) -> Shown:
    """Show one rule."""
    visit.caller.require(Right.OPERATE)
    return await _view(visit)


async def try_rule(visit: Visit) -> Shown:
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


_FIRINGS = 50
_CHANGES = 100
_FILTERS = ("rule", "run", "since")


async def show_firings(visit: Visit) -> Shown:
    """Show firings, newest first."""
    visit.caller.require(Right.OPERATE)
    filters = {name: visit.fields.get(name) for name in _FILTERS}
    page = await visit.ask("firings", **filters, before=visit.fields.get("before"), limit=_FIRINGS)
    following = page["next"]
    values = {
        "filters": {name: value or "" for name, value in filters.items()},
        "firings": page["firings"],
        "next": following and link("firings", **filters, before=following),
    }
    return View("firings.html", "Firings", values)


async def show_firing(visit: Visit) -> Shown:
    """Show one firing: who requested it and why, and the changes that it made."""
    visit.caller.require(Right.OPERATE)
    firing_id, after = visit.need("id"), visit.number("after", 0)
    firing = await find_firing(visit, firing_id)
    page = await visit.ask("deltas", firing=firing_id, after=after, limit=_CHANGES)
    values = {
        "firing": firing,
        "changes": await add_words(visit, page["changes"]),
        "after": after,
        "next": link("firing", id=firing_id, after=page["last"]) if page["more"] else None,
    }
    return View("firing.html", f"Firing {firing_id}", values)


async def find_firing(visit: Visit, firing_id: str) -> dict[str, Any]:
    """Return a firing.

    Raises:
        NoInputError: The ledger does not have it.
    """
    found: list[dict[str, Any]] = (await visit.ask("firings", firing=firing_id))["firings"]
    if not found:
        raise NoInputError(firing_id, "the ledger has no firing of that id")
    return found[0]


async def show_approvals(visit: Visit) -> Shown:
    """Show the batches, and what one of them would do.

    A dry run costs as much as a firing, so the page makes one only for the batch that the person
    asks about.
    """
    visit.caller.require(Right.OPERATE)
    held = (await visit.ask("held"))["held"]
    firing = visit.fields.get("firing")
    waiting = {batch["firing_id"] for batch in held if not batch["approved"]}
    values: dict[str, Any] = {
        "held": held,
        "firing": firing,
        "gone": firing is not None and firing not in waiting,
        "rejected": visit.fields.get("rejected"),
        "dry_run": None,
        "deltas": [],
    }
    if firing in waiting:
        answer = await visit.ask("decide", firing=firing, approve=True, dry_run=True, limit=LISTED)
        values["dry_run"] = read_dry_run(answer, most=LISTED)
        values["deltas"] = await add_words(visit, values["dry_run"].deltas)
    return View("approvals.html", "Approvals", values)


_LISTED = 100


async def show_quarantine(visit: Visit) -> Shown:
    """Show the entries of the quarantine: of all rules, of one, or of an episode and a rule."""
    visit.caller.require(Right.OPERATE)
    rule, episode, cursor = (visit.fields.get(name) for name in ("rule", "episode", "cursor"))
    page = await visit.ask(
        "quarantined",
        rule=rule,
        episodes=episode and [episode],
        cursor=cursor,
        limit=_LISTED,
    )
    following = page["next"]
    values = {
        "rule": rule,
        "episode": episode,
        "entries": page["entries"],
        "totals": page["totals"],
        "dropped": visit.number("dropped", 0),
        "next": following and link("quarantine", rule=rule, episode=episode, cursor=following),
    }
    return View("quarantine.html", "Quarantine", values)
