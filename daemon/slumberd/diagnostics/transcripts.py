"""Find transcripts of coding agents that the hooks do not understand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from slumberd.model.health import Finding
from slumberd.operations.transcript_counts import TranscriptCounts, read_transcript_counts

LATELY = timedelta(days=7)
"""Older counts are about a transcript that nobody continues."""

MOST_UNKNOWN = 0.1
"""More than this share of lines that a hook does not know is a finding."""

_NAMED_KINDS = 3
_REMEDY = "upgrade slumberd, and report the version: its hooks do not know this form of transcript"


def check_transcripts(directory: Path, now: datetime) -> Iterator[Finding]:
    """Find transcripts without turns of a person, and agents whose lines are not known.

    Args:
        directory: The state directory.
        now: The time.
    """
    since = (now - LATELY).timestamp()
    found = [one for one in read_transcript_counts(directory) if one.at >= since]
    silent: dict[str, list[TranscriptCounts]] = {}
    for one in found:
        if one.assistant and not one.person:
            silent.setdefault(_agent_of(one), []).append(one)
    for agent, some in silent.items():
        turns = sum(one.assistant for one in some)
        problem = (
            f"{_count_text(some)} with {turns} {'turn' if turns == 1 else 'turns'} of the agent and"
            f" none of a person; the latest is {some[-1].transcript}"
        )
        yield Finding("transcripts.no_person", agent, problem, _REMEDY)
    yield from _find_unknown(found)


def _find_unknown(found: Sequence[TranscriptCounts]) -> Iterator[Finding]:
    by_agent: dict[str, list[TranscriptCounts]] = {}
    for one in found:
        by_agent.setdefault(_agent_of(one), []).append(one)
    for agent, some in by_agent.items():
        kinds = Counter[str]()
        for one in some:
            kinds.update(one.unknown)
        lines, unknown = sum(one.lines for one in some), kinds.total()
        if unknown > lines * MOST_UNKNOWN:
            named = ", ".join(kind for kind, _ in kinds.most_common(_NAMED_KINDS))
            problem = (
                f"hooks do not know {unknown} of {lines} lines ({unknown / max(lines, 1):.0%}) in"
                f" {_count_text(some)}, such as: {named}"
            )
            yield Finding("transcripts.unknown", agent, problem, _REMEDY)


def _agent_of(one: TranscriptCounts) -> str:
    return f"{one.coding_agent} {one.agent_version}".strip()


def _count_text(some: Sequence[TranscriptCounts]) -> str:
    return "1 transcript" if len(some) == 1 else f"{len(some)} transcripts"
