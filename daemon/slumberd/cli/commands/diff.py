"""`slumberd diff`: which facts a candidate set of rules would change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from slumberd.cli.commands.run import tidily_ending
from slumberd.cli.context import loaded
from slumberd.cli.options import MOST, Config, Json, StateDir
from slumberd.cli.output import cell, print_json, print_table, steps
from slumberd.cli.wording import plural
from slumberd.clock import SystemClock
from slumberd.config.rule_loader import RuleSet
from slumberd.config.settings import Settings
from slumberd.model.fact_ids import channel_of
from slumberd.observability.line_format import printable
from slumberd.rule_testing.diff import Differences, RuleChange, candidate_of, differing
from slumberd.service.composition import rules_in
from slumberd.service.operations import of_episodes
from slumberd.storage.audit.compare import Difference, Side, Totals

DIFFERENT = 1
SHOWN = 50
"""Facts that a person is shown."""

RULE_COLUMNS = ("rule", "change", "in force", "candidate", "what")
COLUMNS = ("", "id", "user", "agent", "subject", "predicate", "object", "confidence")

_WORDS = {"+": "appears", "-": "disappears", "~": "changes", "=": "supported"}


def diff(
    directory: Annotated[
        Path, typer.Argument(metavar="RULES_DIR", help="The rules that may take their place.")
    ],
    only: Annotated[
        list[str] | None,
        typer.Option("--rule", help="Take but this rule from RULES_DIR; repeatable."),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Only facts of this user.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, max=MOST, help=f"Show at most so many facts. [default: {SHOWN}; with --json all]"
        ),
    ] = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show which facts would be others if RULES_DIR took the place of the rules in force.

    Both sides are tried on a copy of the data, in $TMPDIR, by the steps that an operator would
    take: the rules in force consume what is pending; then the candidate counts, a rule that is new
    fires, and one that promotes otherwise is backfilled. What a removed rule has promoted stays.
    Nothing else is written, and a daemon may run. Rules of kind graph are left out on both sides.

    With --json, each difference on a line of its own, those too where only the promoting rules are
    others, then a line with the summary. Exits with 0 when no fact would be another one, and with 1
    when some would.
    """
    settings, present = loaded(config, state_dir)
    taken = rules_in(directory, settings.timezone)
    named = [rule for side in (present, taken) for rule in side.rules if rule.id in (only or [])]
    of_episodes(named, "diff")
    present = present.of_episodes()
    candidate = candidate_of(present, taken.of_episodes(), only or [])
    totals = asyncio.run(_told(settings, present, candidate, user=user, limit=limit, json=json))
    if totals.differ:
        raise typer.Exit(DIFFERENT)


async def _told(
    settings: Settings,
    present: RuleSet,
    candidate: RuleSet,
    *,
    user: str | None,
    limit: int | None,
    json: bool,
) -> Totals:
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        stack.enter_context(tidily_ending())
        with steps() as tell:
            found = await stack.enter_async_context(
                differing(settings, present, candidate, clock=clock, tell=tell, user=user)
            )
        if json:
            await _print_lines(found, limit)
        else:
            await _print_found(found, SHOWN if limit is None else limit)
    return found.totals


async def _print_lines(found: Differences, limit: int | None) -> None:
    async for one in found.facts.differences(support=True, limit=limit):
        print_json(document(one))
    print_json({"summary": _summary(found)})


def document(one: Difference) -> dict[str, Any]:
    """Return a difference as JSON takes it."""
    return {
        "change": _WORDS[one.sign],
        "user": one.user,
        "agent": one.agent,
        "channel": channel_of(_newer(one).fact_id),
        "old": _side_document(one, one.old),
        "new": _side_document(one, one.new),
    }


def _side_document(one: Difference, side: Side | None) -> dict[str, Any] | None:
    if side is None:
        return None
    if one.sign == "=":
        return {"id": side.fact_id, "rules": side.rules}
    return {"id": side.fact_id, "payload": side.payload, "confidence": side.confidence}


def _summary(found: Differences) -> dict[str, Any]:
    return {
        "rules": [_rule_document(change) for change in found.rules],
        "multi_valued": {
            channel: {"in_force": sorted(old), "candidate": sorted(new)}
            for channel, (old, new) in found.multi_valued.items()
        },
        "held": found.held,
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
        "held": list(change.held),
        "resting": change.resting,
    }


async def _print_found(found: Differences, limit: int) -> None:
    print_table(RULE_COLUMNS, map(_rule_row, found.rules))
    for line in _remarks(found):
        print(line)
    print()
    differing = sum(found.totals[:3])
    if shown := [one async for one in found.facts.differences(limit=limit)]:
        print_table(COLUMNS, map(_row, shown))
    if differing > len(shown):
        print(f"and {differing - len(shown):,} more; --limit shows more, --json all")
    print(words(found.totals))


def _rule_row(change: RuleChange) -> tuple[object, ...]:
    return (
        change.rule_id,
        change.change,
        change.before.content_hash if change.before else None,
        change.after.content_hash if change.after else None,
        "; ".join(_what(change)),
    )


def _what(change: RuleChange) -> Iterator[str]:
    if change.fields:
        yield ", ".join(change.fields)
    if change.before and change.fired:
        yield "backfilled and fired" if change.backfilled else "fired"
    elif change.fired:
        yield "fired"
    elif change.after is None:
        rest = (
            "rests on it alone, and stays" if change.resting == 1 else "rest on it alone, and stay"
        )
        yield f"{plural(change.resting, 'fact')} {rest}"
    elif change.change != "unchanged":
        yield "changes no fact" if change.after.enabled else "disabled: changes no fact"
    if change.left:
        yield f"what it promoted into {', '.join(change.left)} stays"


def _remarks(found: Differences) -> Iterator[str]:
    for channel, (old, new) in found.multi_valued.items():
        yield f"channel {channel}: multi_valued {_listed(old)} -> {_listed(new)}"
    for rule_id, problem in found.held.items():
        yield f"{rule_id} is held as it is in force ({problem}); taken here as approved"
    for change in found.rules:
        if change.held:
            count = f", and {len(change.held) - 1} more" if len(change.held) > 1 else ""
            yield f"the brake would hold {change.rule_id}: {change.held[0]}{count}"


def _listed(predicates: Iterable[str]) -> str:
    return ", ".join(map(printable, sorted(predicates))) or "none"


def _row(one: Difference) -> tuple[object, ...]:
    said = _newer(one).payload
    return (
        one.sign,
        _both(one, _id),
        one.user,
        one.agent,
        said.get("subject"),
        said.get("predicate"),
        *(_both(one, part) for part in (_object, _confidence)),
    )


def _both(one: Difference, part: Callable[[Side], object]) -> object:
    """Return a part of a fact; of one that changes both values, where they differ."""
    told = [part(side) for side in (one.old, one.new) if side is not None]
    return told[0] if told[0] == told[-1] else f"{cell(told[0])} -> {cell(told[-1])}"


def _object(side: Side) -> object:
    return side.payload.get("object", side.payload.get("content"))


def _confidence(side: Side) -> object:
    return side.confidence


def _id(side: Side) -> object:
    return side.fact_id


def _newer(one: Difference) -> Side:
    side = one.new or one.old
    if side is None:
        raise ValueError("a difference has at least one side")
    return side


def words(totals: Totals) -> str:
    """Return how many facts differ, for a person."""
    appear, change, disappear = totals.appear, totals.change, totals.disappear
    support = f" ({totals.support:,} promoted by other rules)" if totals.support else ""
    return (
        f"{appear:,} {'fact appears' if appear == 1 else 'facts appear'}, "
        f"{change:,} {'changes' if change == 1 else 'change'}, "
        f"{disappear:,} {'disappears' if disappear == 1 else 'disappear'}, "
        f"{totals.stay:,} stay{support}"
    )
