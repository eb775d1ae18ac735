"""Where a rule resumes in the episode log, also after the log was restored from a backup."""

from __future__ import annotations

from datetime import datetime

from slumberd.consolidation.protocols import EpisodeLog, Watermarks
from slumberd.model.firing import START, Position
from slumberd.model.rule import ConsolidationRule


async def is_in_log(episodes: EpisodeLog, position: Position) -> bool:
    """Return whether the log still has the episode that it had at a position."""
    return position == START or await episodes.episode_at(position.seq) == position.eid


async def resume_rule(
    episodes: EpisodeLog, watermarks: Watermarks, rule: ConsolidationRule, at: datetime
) -> Position:
    """Return where a rule resumes; step back when the log lost rows below its watermark.

    The log's row at the watermark must still have the same episode. If not, the episodes were
    restored from a backup, and the rule resumes where the log and the ledger last agree.

    Args:
        episodes: The log.
        watermarks: How far the rules have read; a new rule gets a watermark.
        rule: The rule.
        at: The instant, for a new rule.
    """
    mark = await watermarks.position(rule.id)
    if mark is None:
        return await begin_rule(episodes, watermarks, rule, at)
    if await is_in_log(episodes, mark):
        return mark
    return await step_back(episodes, watermarks, rule.id, mark)


async def begin_rule(
    episodes: EpisodeLog, watermarks: Watermarks, rule: ConsolidationRule, at: datetime
) -> Position:
    """Give a new rule its watermark, and return it."""
    mark = START if rule.start == "beginning" else await episodes.newest()
    if mark != START:
        await episodes.fsync()  # after a crash the log must not assign this number again
    await watermarks.begin(rule.id, mark, served=at)
    return mark


async def step_back(
    episodes: EpisodeLog, watermarks: Watermarks, rule_id: str, mark: Position
) -> Position:
    """Move a watermark back to where the log and the ledger last agree, and return it."""
    earlier = await last_agreement(episodes, watermarks, rule_id, mark)
    await watermarks.rewind(rule_id, earlier)
    return earlier


async def last_agreement(
    episodes: EpisodeLog, watermarks: Watermarks, rule_id: str, mark: Position
) -> Position:
    """Return the last end of a batch below a position at which log and ledger agree."""
    for earlier in await watermarks.batch_ends(rule_id):
        if earlier.seq < mark.seq and await is_in_log(episodes, earlier):
            return earlier
    return START
