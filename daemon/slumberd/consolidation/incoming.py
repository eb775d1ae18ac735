"""Meet a window: every version becomes what one channel of one rule hears of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from slumberd.consolidation.claim import Claim, Fault, claim_of
from slumberd.model.episode import EpisodeVersion, Gated
from slumberd.model.fact_ids import fact_id_of, owner_of
from slumberd.model.rule import ConsolidationRule

UNREADABLE = "unreadable"
"""The reason of a fault that gives none."""


def meet(versions: Sequence[EpisodeVersion], rule: ConsolidationRule) -> dict[str, list[Candidate]]:
    """Return, by channel, what a rule meets in a window; one for each version."""
    return {
        channel: [_met(version, rule.id, channel) for version in versions]
        for channel in dict.fromkeys(rule.then_emits)
    }


def withdraw(
    versions: Sequence[EpisodeVersion], rule_id: str, channels: Iterable[str]
) -> dict[str, list[Candidate]]:
    """Return, by channel, that a rule says nothing of some versions; as if it selected none.

    What cannot be told whose it is, is left out: nothing of it is touched.
    """
    known = [version for version in versions if not version.contested]
    return {
        channel: [_silent(version, rule_id, channel, None) for version in known]
        for channel in sorted(channels)
    }


def _met(version: EpisodeVersion, rule_id: str, channel: str) -> Candidate:
    if version.fault:
        reason, _, detail = version.fault.partition(": ")
        return _silent(version, rule_id, channel, Fault(reason or UNREADABLE, detail))
    if not version.matched:
        return _silent(version, rule_id, channel, None)
    claim = claim_of(version, channel)
    if isinstance(claim, Fault):
        return _silent(version, rule_id, channel, claim)
    return Candidate(
        claim.fact_id, claim.owner, rule_id, version.seq, version.at, version.id, claim,
        session=version.session, gated=version.gated, reread=version.reread,
    )  # fmt: skip


def _silent(version: EpisodeVersion, rule_id: str, channel: str, fault: Fault | None) -> Candidate:
    return Candidate(
        fact_id_of(channel, version.id),
        owner_of(version.user, version.agent, channel),
        rule_id,
        version.seq,
        version.at,
        version.id,
        None,
        fault.reason if fault else "",
        fault.detail if fault else "",
        version.contested,
        version.session,
        reread=version.reread,
    )


class Candidate(NamedTuple):
    """What a rule, or a hand, meets now.

    Attributes:
        fact_id: The fact id it speaks under.
        owner: User, agent and channel that it comes from.
        rule_id: The rule, or `law.HANDS`.
        version: Number of the episode's version; 0 for hands.
        at: Its instant, microseconds since 1970 UTC.
        eid: The episode's id; of hands the fact id.
        claim: What it says; None when the filter does not select it, or it cannot be read.
        reason: Why it cannot be read, a word; empty when it can.
        detail: The same for a person.
        contested: Whose it is cannot be told, so nothing of that id is touched.
        session: Of the episode; empty for hands.
        undoes: The number of a firing; then nothing new is met, but what it had met is withdrawn.
        gated: Why the rule's gate holds it back; None when it does not.
        reread: Whether the rule has passed this version before, and it is here because it was read.
    """

    fact_id: str
    owner: str
    rule_id: str
    version: int
    at: int
    eid: str
    claim: Claim | None
    reason: str = ""
    detail: str = ""
    contested: bool = False
    session: str = ""
    undoes: int = 0
    gated: Gated | None = None
    reread: bool = False
