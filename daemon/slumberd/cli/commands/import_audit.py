"""Report what is wrong with the records of an import, and keep the instants of stored episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_args

import typer

from slumberd.cli.output import plural, print_json, print_table
from slumberd.clock import SystemClock
from slumberd.daemon.rules import rules_of
from slumberd.integrations.interchange.audit import (
    Auditor,
    EpisodeRefusal,
    FindingKind,
    RecordFinding,
    document_of,
)
from slumberd.integrations.interchange.formats import FORMATS, FileFormat
from slumberd.integrations.interchange.instants import FILE, INSTANT_FROM, UPDATE
from slumberd.integrations.interchange.records import (
    SENTENCES,
    ImportedRecord,
    Remarks,
    aware,
    place_of,
    without,
)
from slumberd.model.episode import Episode, EpisodeVersion, NaiveTimestamps, instant, latest_at
from slumberd.model.errors import InputError, MemoryScopeError, UnreadableEpisodeError
from slumberd.model.scope import Scope
from slumberd.operations.episodes import newest_versions
from slumberd.rules.settings import Settings
from slumberd.storage.episodes.store import EngineMemoryStore
from slumberd.storage.episodes.writes import encode_readable

COLUMNS = ("finding", "place", "earlier", "user", "agent", "detail")

FOUND = 1
"""The exit code when the audit finds something."""

MOST_LISTED = 1_000
"""Findings of one kind that are listed; all are counted."""

_WORDS: dict[FindingKind, tuple[str, str]] = {
    "unreadable": ("unreadable record", ""),
    "incomplete": ("part that is not there", "parts that are not there"),
    "quarantined": ("episode for the quarantine", "episodes for the quarantine"),
    "doubt": ("doubt", ""),
    "duplicate_text": ("duplicate text", ""),
    "duplicate_triple": ("duplicate triple", ""),
    "contradiction": ("contradiction", ""),
    "id_in_two_scopes": ("id in several scopes", "ids in several scopes"),
    "text_of_two_users": ("text of several users", "texts of several users"),
    "future": ("episode of the future", "episodes of the future"),
}


@dataclass
class _Report:
    """What an audit found.

    Attributes:
        records: How many records there are.
        episodes: How many episodes an import would put.
        counts: How many findings there are, by kind.
        findings: The first findings of each kind.
        remarks: What else should be known about the records.
    """

    records: int = 0
    episodes: int = 0
    counts: Counter[FindingKind] = field(default_factory=Counter)
    findings: list[RecordFinding] = field(default_factory=list)
    remarks: Remarks = field(default_factory=Remarks)

    def add(self, record: ImportedRecord, findings: Iterable[RecordFinding]) -> None:
        """Count a record and its findings."""
        self.records += not record.incomplete
        self.episodes += len(record.episodes)
        for finding in findings:
            self.counts[finding.kind] += 1
            if self.counts[finding.kind] <= MOST_LISTED:
                self.findings.append(finding)


def audit_records(
    settings: Settings,
    format: str,  # noqa: A002 # its name on the command line
    records: Iterator[ImportedRecord],
    *,
    json: bool,
) -> None:
    """Print what is wrong with records.

    Args:
        settings: The configuration; its rules say which predicates may have several objects.
        format: The name of the format of the records.
        json: Whether to print JSON.

    Raises:
        typer.Exit: Something is wrong.
    """
    auditor = _auditor(settings, format)
    report = _Report()
    limit = getattr(FORMATS[format], "limit", None)
    for record in report.remarks.watch(records, limit):
        report.add(record, auditor.check(record))
    if json:
        print_json(_document(format, report))
    else:
        _print(report)
    if report.findings:
        raise typer.Exit(FOUND)


def _auditor(settings: Settings, format: str) -> Auditor:  # noqa: A002 # its name elsewhere
    found = FORMATS[format]
    declared = _declared(settings)
    refusal = partial(_refusal, naive=settings.memory.naive_timestamps)
    latest = instant(latest_at(SystemClock().now(), settings.memory.future_tolerance))
    if isinstance(found, FileFormat):
        many = declared | found.multi_valued
        return Auditor(lasting=found.lasting, multi_valued=many, latest=latest, refusal=refusal)
    return Auditor(multi_valued=declared, latest=latest, refusal=refusal)


def _refusal(episode: Episode, naive: NaiveTimestamps) -> EpisodeRefusal | None:
    """Return why an import would refuse an episode, or every rule would quarantine it."""
    scope = Scope(episode.user, episode.session, episode.agent)
    try:
        encode_readable(episode, scope, operation="import", naive=naive)
    except UnreadableEpisodeError as error:
        return EpisodeRefusal("quarantined", str(error))
    except (InputError, MemoryScopeError) as error:
        return EpisodeRefusal("unreadable", str(error))
    return None


def _declared(settings: Settings) -> frozenset[str]:
    """Return the multi-valued predicates of all channels; none where there are no rules yet."""
    if not settings.are_rules_published and not settings.rules_dir.is_dir():
        return frozenset()
    channels = rules_of(settings).multi_valued.values()
    # Of a channel of many values the audit knows no list; it takes the facts' own as the rule.
    return frozenset().union(*(one for one in channels if isinstance(one, frozenset)))


def _document(format: str, report: _Report) -> dict[str, Any]:  # noqa: A002 # its name elsewhere
    return {
        "format": format,
        "records": report.records,
        "episodes": report.episodes,
        "counts": {kind: report.counts[kind] for kind in get_args(FindingKind)},
        "remarks": report.remarks.by_name(),
        "findings": [*map(document_of, report.findings)],
    }


def _print(report: _Report) -> None:
    if report.findings:
        print_table(COLUMNS, map(_row, report.findings))
    left = sum(report.counts.values()) - len(report.findings)
    if left:
        print(f"and {plural(left, 'more finding', 'more findings')}")
    found = [plural(report.counts[kind], *_WORDS[kind]) for kind in _WORDS if report.counts[kind]]
    found += sentences(report.remarks)
    summary = f"{plural(report.records, 'record')}, {plural(report.episodes, 'episode')}"
    print(f"{summary}: {', '.join(found) or 'nothing is wrong'}")


def sentences(remarks: Remarks) -> list[str]:
    """Return the remarks that apply, each with its count."""
    counts = remarks.by_name()
    return [plural(counts[name], *SENTENCES[name]) for name in SENTENCES if counts[name]]


def _row(finding: RecordFinding) -> tuple[object, ...]:
    earlier = place_of(*finding.earlier) if finding.earlier else None
    kind = finding.kind.replace("_", " ")
    return kind, place_of(*finding.place), earlier, finding.user, finding.agent, finding.detail


async def keep_instants(memory: EngineMemoryStore, episodes: Sequence[Episode]) -> list[Episode]:
    """Return episodes, each as it is stored if only the time of its file or update is later.

    A copied or rewritten file has a later time, and states nothing new.

    Args:
        episodes: The episodes of an import.
    """
    dated = [each.id for each in episodes if each.metadata.get(INSTANT_FROM) in (FILE, UPDATE)]
    stored = await newest_versions(memory, dated) if dated else {}
    return [_kept(each, stored.get(each.id)) for each in episodes]


def _kept(episode: Episode, stored: EpisodeVersion | None) -> Episode:
    if stored is None or stored.fault or episode.metadata.get(INSTANT_FROM) not in (FILE, UPDATE):
        return episode
    at = instant(stored.at)
    if at > aware(episode.timestamp) or _said(episode) != _said(stored):
        return episode
    return episode.model_copy(update={"timestamp": at, "metadata": stored.metadata})


def _said(one: Episode | EpisodeVersion) -> tuple[Any, ...]:
    """Return what an episode says, and who says it where; its instant is no part of it."""
    own = without(one.metadata, [INSTANT_FROM])
    return one.user, one.session, one.agent, one.source_node, one.content, own
