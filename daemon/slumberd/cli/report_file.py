"""Write what the rules changed in a time as one HTML file; this needs the extra ``serve``."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from slumberd.cli.each_shard import settings_of_shards
from slumberd.cli.output_file import STANDARD_OUTPUT, open_output
from slumberd.cli.report_reading import held_document, read_report
from slumberd.clock import SystemClock
from slumberd.config.settings import Settings
from slumberd.console.report_file import ReportFile, render_report
from slumberd.diagnostics.status import StatusReport, read_status
from slumberd.errors import OutputExistsError
from slumberd.model.health import RuleStatus
from slumberd.model.health_sums import sum_rule_status
from slumberd.operations.handlers import Answer
from slumberd.operations.reads.overviews import report_of
from slumberd.operations.shards.answers import merge_answers
from slumberd.operations.shards.firings import name_firings
from slumberd.service.composition import paused_rules_of, rules_of


class _Part(NamedTuple):
    """What is reported of one shard."""

    report: Answer
    held: Answer
    status: StatusReport


def write_report(settings: Settings, since: datetime, limit: int, name: str) -> None:
    """Write the report of a time as one HTML file.

    Args:
        settings: The configuration.
        since: The first instant.
        limit: At most this many users and batches.
        name: The new file; ``-`` is standard output.

    Raises:
        OutputExistsError: The file exists already.
    """
    # Said at once, before much is read; the file may still appear meanwhile.
    if name != STANDARD_OUTPUT and Path(name).exists():
        raise OutputExistsError(name)
    now = SystemClock().now()
    shards = settings_of_shards(settings, None, None)
    parts = [_read_part(shard, since, now, limit, len(shards) > 1) for shard in shards]
    html = render_report(_sum_up(now, parts, limit))
    with open_output(name, replace=False) as write:
        write([html.encode()])


def _read_part(
    settings: Settings, since: datetime, now: datetime, limit: int, is_one_of_several: bool
) -> _Part:
    """Read one shard, or the whole of files."""
    found, awaiting = asyncio.run(read_report(settings, since, limit))
    report = report_of(found, since, now, limit).document()
    held: Answer = {"held": [*map(held_document, awaiting.values())]}
    if is_one_of_several:
        report = name_firings("report", report, settings.shard)
        held = name_firings("held", held, settings.shard)
    paused = paused_rules_of(settings).read()
    return _Part(report, held, read_status(settings, rules_of(settings), now, paused))


def _sum_up(now: datetime, parts: Sequence[_Part], limit: int) -> ReportFile:
    statuses = [part.status for part in parts]
    quarantined: Counter[tuple[str, str]] = Counter()
    for status in statuses:
        quarantined.update(status.seen.quarantined if status.seen else {})
    episodes = [status.episodes for status in statuses if status.episodes is not None]
    return ReportFile(
        until=now,
        report=merge_answers("report", [part.report for part in parts], {"limit": limit}),
        held=[batch for part in parts for batch in part.held["held"]],
        quarantined=quarantined,
        late=_find_late(statuses),
        episodes=sum(episodes) if episodes else None,
        facts=sum(status.facts or 0 for status in statuses),
    )


def _find_late(statuses: Sequence[StatusReport]) -> list[RuleStatus]:
    """Return the rules that are late in any shard, the latest first."""
    by_rule: dict[str, list[RuleStatus]] = defaultdict(list)
    for status in statuses:
        for state in status.rules:
            by_rule[state.status.rule_id].append(state.status)
    late = [rule for rule in map(sum_rule_status, by_rule.values()) if rule.late_seconds > 0]
    return sorted(late, key=lambda rule: (-rule.late_seconds, rule.rule_id))
