"""`slumberd check --against-data`: what rules make of the data that is there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from typing import Any

from slumberd.cli.ending import tidily_ending
from slumberd.cli.output import cell, print_table, steps
from slumberd.cli.wording import plural
from slumberd.clock import SystemClock
from slumberd.config.rule_loader import RuleSet
from slumberd.config.settings import Settings
from slumberd.consolidation.multi_valued_hints import Replaced
from slumberd.model.firing import Counts
from slumberd.model.rule import ConsolidationRule
from slumberd.observability.line_format import printable
from slumberd.rule_testing.preview import Preview, Previewed, Reasons, previewed

COLUMNS = (
    "rule", "matches", "of", "pending", "channel",
    "filtered", "added", "updated", "deleted", "noop", "quarantined", "restored",
)  # fmt: skip

_NO_REASONS = Reasons({}, {})

_SLIPS = (
    (
        re.compile(r"(?:[=<>!]=?|<>)\s*null\b", re.IGNORECASE),
        "nothing is equal to NULL; write IS NULL, or IS NOT NULL",
    ),
    (
        re.compile(r"\bconfidence\s*>=?\s*(?:[2-9]|\d{2,}|1\.\d*[1-9])", re.IGNORECASE),
        "confidence is 0 to 1",
    ),
    (
        re.compile(r"\bintent\s*(?:==?|in\s*\()\s*'add'", re.IGNORECASE),
        "an episode that gives no intent has NULL there; write ifnull(intent, 'add')",
    ),
    (
        re.compile(r"\bmetadata\s*==?\s*'", re.IGNORECASE),
        "metadata is JSON text; write json_extract(metadata, '$.KEY')",
    ),
    (re.compile(r"'[^']*[A-Z]"), "texts are compared with their case; lower(...) takes it away"),
)
"""What filters that select nothing often say, and what was meant."""


def against(settings: Settings, rules: RuleSet, *, whole: bool) -> Previewed:
    """Return what each rule makes of the data; arguments and errors as of `previewed`."""
    return asyncio.run(_previewed(settings, rules, whole=whole))


async def _previewed(settings: Settings, rules: RuleSet, *, whole: bool) -> Previewed:
    with tidily_ending(), steps() as tell:
        return await previewed(settings, rules, whole=whole, clock=SystemClock(), tell=tell)


def print_previews(found: Previewed) -> None:
    """Print a row for each rule and channel, then what a person should look at."""
    print_table(COLUMNS, (row for preview in found.previews for row in _rows(preview)))
    for preview in found.previews:
        for line in remarks(preview):
            print(line)
    for one in found.replaced:
        print(suggestion_for(one))


def suggestion_for(replaced: Replaced) -> str:
    """Return what to do about a predicate whose objects keep replacing each other."""
    predicate, channel = printable(replaced.predicate), printable(replaced.channel)
    return (
        f"{predicate} in channel {channel}: of {replaced.replaced} of {replaced.keys} keys the"
        f" objects keep replacing each other (up to {replaced.most} different ones);\n"
        f"  if they hold at once: channels: {{{channel}: {{multi_valued: [{predicate}]}}}}"
    )


def _rows(preview: Preview) -> Iterator[tuple[object, ...]]:
    rule, matching = preview.rule, preview.matching
    selected = rule.id, matching.matched, matching.episodes, preview.pending
    if not rule.enabled:
        yield *selected, "(disabled)", *[None] * (len(COLUMNS) - len(selected) - 1)
    for channel, counts in preview.channels.items():
        reasons = preview.reasons.get(channel, _NO_REASONS)
        yield *selected, channel, *_counted(counts, reasons)


def _counted(counts: Counts, reasons: Reasons) -> tuple[object, ...]:
    return (
        counts.filtered,
        counts.added,
        counts.updated,
        counts.deleted,
        _with_reasons(counts.noop, reasons.noop),
        _with_reasons(counts.quarantined, reasons.quarantined),
        counts.restored,
    )


def _with_reasons(count: int, reasons: Mapping[str, int]) -> str:
    told = ", ".join(f"{cell(reason)} {number}" for reason, number in reasons.items())
    return f"{count} ({told})" if told else str(count)


def remarks(preview: Preview) -> Iterator[str]:
    """Yield what a person should look at: a rule that is held, selects nothing, or fails."""
    name, matching = preview.rule.id, preview.matching
    if preview.held:
        yield f"{name} is held: {preview.held}; what it would do after that is not counted"
    if matching.episodes and not matching.matched:
        shown = printable(preview.rule.when_filter)
        yield f"{name} matches nothing of {plural(matching.episodes, 'episode')}: {shown}"
        if slip := slip_in(preview.rule):
            yield f"  perhaps: {slip}"
    if matching.failed:
        problem = printable(matching.problem)
        episodes = plural(matching.failed, "episode")
        yield f"{name} fails on {episodes}, which a firing quarantines: {problem}"


def slip_in(rule: ConsolidationRule) -> str:
    """Return what the author of a filter that selects nothing may have meant; empty if unknown."""
    found = (meant for pattern, meant in _SLIPS if pattern.search(rule.when_filter))
    return next(found, "")


def document(preview: Preview) -> dict[str, Any]:
    """Return what a rule makes of the data as JSON takes it."""
    matching = preview.matching
    return {
        "rule_id": preview.rule.id,
        "enabled": preview.rule.enabled,
        "episodes": matching.episodes,
        "matches": matching.matched,
        "failed": matching.failed,
        "problem": matching.problem or None,
        "pending": preview.pending,
        "channels": {
            channel: {
                **counts._asdict(),
                "reasons": preview.reasons.get(channel, _NO_REASONS)._asdict(),
            }
            for channel, counts in preview.channels.items()
        },
        "held": preview.held or None,
        "remarks": list(remarks(preview)),
    }
