"""`slumberd diff`: show which facts a candidate set of rules would change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from slumberd.cli.options import MOST, Config, Json, StateDir
from slumberd.cli.output import cell, plural, print_json_lines, print_table
from slumberd.cli.setup import clean_up_on_sigterm, load_settings_and_rules
from slumberd.cli.terminal import steps
from slumberd.clock import SystemClock
from slumberd.daemon.rules import rules_in
from slumberd.logs.lines import printable
from slumberd.model.predicates import describe, document_of
from slumberd.model.scope import channel_of
from slumberd.operations.forms import require_episode_rules
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings
from slumberd.storage.audit.results import Difference, Side, Totals
from slumberd.tools.rule_testing.diff import (
    Differences,
    RuleChange,
    find_differences,
    select_candidate,
)

DIFFERENT = 1
SHOWN = 50
"""Facts that the table shows without --limit."""

RULE_COLUMNS = ("rule", "change", "in force", "candidate", "effect")
COLUMNS = ("", "id", "user", "agent", "subject", "predicate", "object", "confidence")

_CHANGES = {"+": "appears", "-": "disappears", "~": "changes", "=": "supported"}


def diff(
    directory: Annotated[
        Path, typer.Argument(metavar="RULES_DIR", help="The directory of the candidate rules.")
    ],
    only: Annotated[
        list[str] | None,
        typer.Option("--rule", help="Take only this rule from RULES_DIR; repeatable."),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Compare only facts of this user.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MOST,
            metavar="N",
            help=f"Show at most N facts. [default: {SHOWN}; with --json all]",
        ),
    ] = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show which facts would differ if RULES_DIR replaced the rules in force.

    The command applies both sets of rules to a copy of the data in $TMPDIR, by the steps of an
    operator. First the rules in force read what is pending. Then the candidates replace them: a new
    rule fires, and a rule that promotes differently is backfilled. What a removed rule has promoted
    stays. Nothing else is written, and a daemon may run. Both sides leave out graph rules.

    With --json, each difference is printed on a line, also when only the promoting rules differ;
    the last line is the summary. The exit code is 1 when a fact would differ, else 0.
    """
    settings, in_force = load_settings_and_rules(config, state_dir, user=user)
    offered = rules_in(directory, settings.timezone)
    named = [rule for side in (in_force, offered) for rule in side.rules if rule.id in (only or [])]
    require_episode_rules(named, "diff")
    in_force = in_force.of_episodes()
    candidate = select_candidate(in_force, offered.of_episodes(), only or [])
    totals = asyncio.run(_compare(settings, in_force, candidate, user=user, limit=limit, json=json))
    if totals.differ:
        raise typer.Exit(DIFFERENT)


async def _compare(
    settings: Settings,
    in_force: RuleSet,
    candidate: RuleSet,
    *,
    user: str | None,
    limit: int | None,
    json: bool,
) -> Totals:
    """Compare two sets of rules on the data, print the differences, and return their totals."""
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        stack.enter_context(clean_up_on_sigterm())
        with steps() as show_step:
            found = await stack.enter_async_context(
                find_differences(
                    settings, in_force, candidate, clock=clock, show_step=show_step, user=user
                )
            )
        if json:
            await _print_lines(found, limit)
        else:
            await _print_found(found, SHOWN if limit is None else limit)
    return found.totals


async def _print_lines(found: Differences, limit: int | None) -> None:
    async for difference in found.facts.differences(support=True, limit=limit):
        print_json_lines([document(difference)])
    print_json_lines([{"summary": _summary(found)}])


def document(difference: Difference) -> dict[str, Any]:
    """Return the JSON form of a difference."""
    return {
        "change": _CHANGES[difference.sign],
        "user": difference.user,
        "agent": difference.agent,
        "channel": channel_of(_newer(difference).fact_id),
        "old": _side_document(difference, difference.old),
        "new": _side_document(difference, difference.new),
    }


def _side_document(difference: Difference, side: Side | None) -> dict[str, Any] | None:
    if side is None:
        return None
    if difference.sign == "=":
        return {"id": side.fact_id, "rules": side.rules}
    return {"id": side.fact_id, "payload": side.payload, "confidence": side.confidence}


def _summary(found: Differences) -> dict[str, Any]:
    return {
        "rules": [_rule_document(change) for change in found.rules],
        "multi_valued": {
            channel: document_of({"in_force": old, "candidate": new})
            for channel, (old, new) in found.multi_valued.items()
        },
        "exceeded_limits": found.held,
        **found.totals._asdict(),
    }


def _rule_document(change: RuleChange) -> dict[str, Any]:
    return {
        "rule_id": change.rule_id,
        "change": change.change,
        "in_force": change.before.content_hash if change.before else None,
        "candidate": change.after.content_hash if change.after else None,
        "fields": change.fields,
        "backfilled": change.backfilled,
        "fired": change.fired,
        "exceeded_limits": list(change.held),
        "resting": change.resting,
        "unrecorded": change.unrecorded,
    }


async def _print_found(found: Differences, limit: int) -> None:
    print_table(RULE_COLUMNS, map(_rule_row, found.rules))
    for line in _remarks(found):
        print(line)
    print()
    changed = sum(found.totals[:3])
    if shown := [difference async for difference in found.facts.differences(limit=limit)]:
        print_table(COLUMNS, map(_row, shown))
    if changed > len(shown):
        print(f"and {changed - len(shown):,} more; --limit shows more, --json all")
    print(words(found.totals))


def _rule_row(change: RuleChange) -> tuple[object, ...]:
    return (
        change.rule_id,
        change.change,
        change.before.content_hash if change.before else None,
        change.after.content_hash if change.after else None,
        "; ".join(_effects(change)),
    )


def _effects(change: RuleChange) -> Iterator[str]:
    """Yield what the change of a rule does, in words."""
    if change.fields:
        yield ", ".join(change.fields)
    if change.before and change.fired:
        yield "backfilled and fired" if change.backfilled else "fired"
    elif change.fired:
        yield "fired"
    elif change.after is None:
        verbs = (
            "comes from it alone, and stays"
            if change.resting == 1
            else "come from it alone, and stay"
        )
        yield f"{plural(change.resting, 'fact')} {verbs}"
    elif change.change != "unchanged":
        yield "changes no fact" if change.after.enabled else "disabled: changes no fact"
    if change.left:
        yield f"what it promoted into {', '.join(change.left)} stays"


def _remarks(found: Differences) -> Iterator[str]:
    for channel, (old, new) in found.multi_valued.items():
        yield f"channel {channel}: {printable(describe(old))} -> {printable(describe(new))}"
    for rule_id, problem in found.held.items():
        yield f"{rule_id} awaits approval in force: {problem}; here it counts as approved"
    for change in found.rules:
        if change.held:
            count = f", and {len(change.held) - 1} more" if len(change.held) > 1 else ""
            yield f"{change.rule_id} would await approval: {change.held[0]}{count}"
        if change.unrecorded:
            yield f"{change.rule_id} leaves out episodes without an answer of its language model"


def _row(difference: Difference) -> tuple[object, ...]:
    payload = _newer(difference).payload
    return (
        difference.sign,
        _both(difference, _id),
        difference.user,
        difference.agent,
        payload.get("subject"),
        payload.get("predicate"),
        *(_both(difference, part) for part in (_object, _confidence)),
    )


def _both(difference: Difference, part: Callable[[Side], object]) -> object:
    """Return a part of a fact; if it differs between the sides, both values."""
    values = [part(side) for side in (difference.old, difference.new) if side is not None]
    return values[0] if values[0] == values[-1] else f"{cell(values[0])} -> {cell(values[-1])}"


def _object(side: Side) -> object:
    return side.payload.get("object", side.payload.get("content"))


def _confidence(side: Side) -> object:
    return side.confidence


def _id(side: Side) -> object:
    return side.fact_id


def _newer(difference: Difference) -> Side:
    side = difference.new or difference.old
    if side is None:
        raise ValueError("a difference has at least one side")
    return side


def words(totals: Totals) -> str:
    """Return how many facts differ, in words."""
    appear, change, disappear = totals.appear, totals.change, totals.disappear
    support = f" ({totals.support:,} promoted by other rules)" if totals.support else ""
    return (
        f"{appear:,} {'fact appears' if appear == 1 else 'facts appear'}, "
        f"{change:,} {'changes' if change == 1 else 'change'}, "
        f"{disappear:,} {'disappears' if disappear == 1 else 'disappear'}, "
        f"{totals.stay:,} stay{support}"
    )
