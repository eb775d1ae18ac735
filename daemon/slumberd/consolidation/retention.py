"""Delete episodes that a rule has archived long ago, and that no fact cites."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import NamedTuple

import structlog

from slumberd.consolidation.marking import current_facts
from slumberd.consolidation.marks import is_of_rule, mark_in
from slumberd.consolidation.protocols import EpisodeLog, FactTarget
from slumberd.hygiene.decay import ArchivedEntry, find_expired
from slumberd.model.episode import EpisodeVersion, microseconds
from slumberd.model.fact import Fact
from slumberd.model.firing import START, Position
from slumberd.model.rule import ConsolidationRule
from slumberd.model.stages import MARKS

_log = structlog.get_logger("slumberd")

_MOST_NAMED = 20
"""Episodes that a log line names; it counts all of them."""

_AT_ONCE = 1_000
"""Episodes that one transaction deletes at most."""

_PURGED = ("archived", "duplicate_of")
"""Marks after which an episode may be deleted; a summary keeps the episodes that it cites."""


class Retention(NamedTuple):
    """How long archived episodes are kept.

    Attributes:
        purge_after: In seconds, from their mark on; 0 or more.
        rule_ids: Returns the ids of all rules that must have read an episode before.
    """

    purge_after: float
    rule_ids: Callable[[], Iterable[str]]


async def purge(
    episodes: EpisodeLog,
    facts: FactTarget,
    retention: Retention,
    rule: ConsolidationRule,
    mark: Position,
    at: datetime,
) -> list[str]:
    """Delete the episodes that a rule archived long ago; return their ids, sorted.

    An episode stays as long as a current fact cites it, other than marks, as long as another rule
    has not read it, and when it changed after a position. Its mark and its ledger rows stay.

    Args:
        episodes: The episode log.
        facts: The store of facts, with the marks.
        retention: How long archived episodes are kept.
        rule: The rule, whose stages have just run.
        mark: The rule's watermark.
        at: Now.
    """
    archived = await _archived_by(facts, rule.id)
    entries = [ArchivedEntry(id, microseconds(one.pinned_at)) for id, one in archived.items()]
    expired = find_expired(entries, at, purge_after_seconds=retention.purge_after)
    upto = min(mark.seq, await _read_by_all(facts, retention.rule_ids()))
    versions = [
        version
        for version in await episodes.reread(rule, expired, upto=upto)
        if _is_of_owner(version, archived[version.id])
    ]
    if not versions:
        return []
    cited = await facts.cited_episodes([version.id for version in versions])
    own = {version.id: version.seq for version in versions if version.id not in cited}
    purged: list[str] = []
    # In parts: a writer waits for one transaction at most.
    ids = [*own]
    for first in range(0, len(own), _AT_ONCE):
        some = ids[first : first + _AT_ONCE]
        purged += await episodes.purge({id: own[id] for id in some})
    purged.sort()
    if purged:
        named = purged[:_MOST_NAMED]
        _log.info("episodes.purged", rule_id=rule.id, count=len(purged), episode_ids=named)
    return purged


async def _archived_by(facts: FactTarget, rule_id: str) -> dict[str, Fact]:
    """Return the marks by which a rule archived episodes, by episode."""
    own = [fact async for fact in current_facts(facts, MARKS) if is_of_rule(fact, rule_id)]
    marked = ((mark_in(fact), fact) for fact in own)
    return {mark.id: fact for mark, fact in marked if mark.kind in _PURGED}


async def _read_by_all(facts: FactTarget, rule_ids: Iterable[str]) -> int:
    """Return the number of the last log row that each of some rules has read."""
    positions = await facts.watermarks.positions()
    read = [positions[rule_id][0] if rule_id in positions else START for rule_id in rule_ids]
    return min(position.seq for position in read) if read else 0


def _is_of_owner(version: EpisodeVersion, mark: Fact) -> bool:
    return not version.fault and (version.user, version.agent) == (mark.user, mark.agent)
