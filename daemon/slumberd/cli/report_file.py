"""Write what the rules changed in a time as one HTML file; this needs the extra ``serve``."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path

from slumberd.cli.output_file import STANDARD_OUTPUT, open_output
from slumberd.cli.report_reading import held_document, read_report
from slumberd.clock import SystemClock
from slumberd.daemon.rules import paused_rules_of, rules_of
from slumberd.model.errors import OutputExistsError
from slumberd.operations.report import report_of
from slumberd.rules.settings import Settings
from slumberd.tools.diagnostics.status import read_status
from slumberd.web.console.report_file import ReportFile, render_report


def write_report(settings: Settings, since: datetime, limit: int, name: str) -> None:
    """Write the report of a time as one HTML file.

    Args:
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
    html = render_report(_read(settings, since, now, limit))
    with open_output(name, replace=False) as write:
        write([html.encode()])


def _read(settings: Settings, since: datetime, now: datetime, limit: int) -> ReportFile:
    found, awaiting = asyncio.run(read_report(settings, since, limit))
    paused = paused_rules_of(settings).read()
    status = read_status(settings, rules_of(settings), now, paused)
    late = [state.status for state in status.rules if state.status.late_seconds > 0]
    return ReportFile(
        until=now,
        report=report_of(found, since, now, limit).document(),
        held=[*map(held_document, awaiting.values())],
        quarantined=status.seen.quarantined if status.seen else {},
        late=sorted(late, key=lambda rule: (-rule.late_seconds, rule.rule_id)),
        episodes=status.episodes,
        facts=status.facts or 0,
    )
