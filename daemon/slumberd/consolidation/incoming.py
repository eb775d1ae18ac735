"""Evaluate a window: turn every version of an episode into one candidate a channel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from slumberd.consolidation.claim import Claim, Fault, claim_of
from slumberd.model.episode import EpisodeVersion, SalienceShortfall
from slumberd.model.fact_ids import fact_id_of, owner_of
from slumberd.model.rule import ConsolidationRule

UNREADABLE = "unreadable"
"""The reason of a fault that gives none."""


class Candidate(NamedTuple):
    """What a rule, or a manual edit, brings before the precedence rule.

    Attributes:
        fact_id: The fact id of its claim.
        owner: User, agent and channel that it comes from.
        rule_id: The rule, or `precedence.MANUAL_RULE_ID`.
        version: Number of the episode's version; 0 for manual edits.
        at: Its instant, microseconds since 1970 UTC.
        eid: The episode's id; of a manual edit the fact id.
        claim: Its claim; None when the filter does not select it, or it cannot be read.
        reason: Why it cannot be read, in one word; empty when it can.
        detail: Why it cannot be read, for a person.
        contested: Whether its owner is unknown, so nothing under its id is changed.
        session: The episode's session; empty for manual edits.
        undoes: The number of a firing whose evaluation it withdraws; 0 when it withdraws none.
        gated: Why the rule's salience gate holds it back; None when it does not.
        reread: Whether the rule has passed this version, and a read brought it back.
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
    gated: SalienceShortfall | None = None
    reread: bool = False


def evaluate(
    versions: Sequence[EpisodeVersion], rule: ConsolidationRule
) -> dict[str, list[Candidate]]:
    """Return a rule's candidates by channel; one for each version."""
    return {
        channel: [_evaluate(version, rule.id, channel) for version in versions]
        for channel in dict.fromkeys(rule.then_emits)
    }


def withdraw(
    versions: Sequence[EpisodeVersion], rule_id: str, channels: Iterable[str]
) -> dict[str, list[Candidate]]:
    """Return, by channel, candidates without a claim, as if the rule's filter selected no version.

    Versions of unknown owners are left out, so nothing under their ids is changed.
    """
    with_owner = [version for version in versions if not version.contested]
    return {
        channel: [_candidate_without_claim(version, rule_id, channel) for version in with_owner]
        for channel in sorted(channels)
    }


def _evaluate(version: EpisodeVersion, rule_id: str, channel: str) -> Candidate:
    if version.fault:
        reason, _, detail = version.fault.partition(": ")
        fault = Fault(reason or UNREADABLE, detail)
        return _candidate_without_claim(version, rule_id, channel, fault)
    if not version.matched:
        return _candidate_without_claim(version, rule_id, channel)
    claim = claim_of(version, channel)
    if isinstance(claim, Fault):
        return _candidate_without_claim(version, rule_id, channel, claim)
    return Candidate(
        fact_id=claim.fact_id,
        owner=claim.owner,
        rule_id=rule_id,
        version=version.seq,
        at=version.at,
        eid=version.id,
        claim=claim,
        session=version.session,
        gated=version.gated,
        reread=version.reread,
    )


def _candidate_without_claim(
    version: EpisodeVersion, rule_id: str, channel: str, fault: Fault | None = None
) -> Candidate:
    return Candidate(
        fact_id=fact_id_of(channel, version.id),
        owner=owner_of(version.user, version.agent, channel),
        rule_id=rule_id,
        version=version.seq,
        at=version.at,
        eid=version.id,
        claim=None,
        reason=fault.reason if fault else "",
        detail=fault.detail if fault else "",
        contested=version.contested,
        session=version.session,
        reread=version.reread,
    )
