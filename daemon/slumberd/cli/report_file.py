"""Write what the rules changed in a time as one HTML file; this needs the extra ``serve``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from slumberd.cli.output_file import STANDARD_OUTPUT, open_output
from slumberd.daemon.rules import paused_rules_of, rules_of
from slumberd.model.errors import OutputExistsError
from slumberd.operations.ledger import Held
from slumberd.operations.report import Report
from slumberd.rules.settings import Settings
from slumberd.tools.diagnostics.status import read_status
from slumberd.web.console.report_file import ReportFile, render_report

Read = Callable[[], tuple[Report, Sequence[Held]]]
"""Reads what changed in a time, and the batches that await approval."""


def write_report(settings: Settings, read: Read, name: str) -> None:
    """Write the report of a time as one HTML file.

    Args:
        read: Reads what the report says.
        name: The new file; ``-`` is standard output.

    Raises:
        OutputExistsError: The file exists already.
    """
    # Said at once, before much is read; the file may still appear meanwhile.
    if name != STANDARD_OUTPUT and Path(name).exists():
        raise OutputExistsError(name)
    html = render_report(_file_of(settings, *read()))
    with open_output(name, replace=False) as write:
        write([html.encode()])


def _file_of(settings: Settings, found: Report, awaiting: Sequence[Held]) -> ReportFile:
    paused = paused_rules_of(settings).read()
    status = read_status(settings, rules_of(settings), found.until, paused)
    late = [state.status for state in status.rules if state.status.late_seconds > 0]
    return ReportFile(
        until=found.until,
        report=found.document(),
        held=[batch.model_dump(exclude={"approved"}) for batch in awaiting],
        quarantined=status.seen.quarantined if status.seen else {},
        late=sorted(late, key=lambda rule: (-rule.late_seconds, rule.rule_id)),
        episodes=status.episodes,
        facts=status.facts or 0,
    )
