"""Meet a window: every version becomes what one channel of one rule hears of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slumberd.core.act import Fault, act_of
from slumberd.core.ground import Incoming
from slumberd.model.episode import EpisodeVersion
from slumberd.model.fact_ids import fact_id_of, owner_of
from slumberd.model.rule import ConsolidationRule

UNREADABLE = "unreadable"
"""The reason of a fault that gives none."""


def meet(versions: Sequence[EpisodeVersion], rule: ConsolidationRule) -> dict[str, list[Incoming]]:
    """Return, by channel, what a rule meets in a window; one for each version."""
    return {
        channel: [_met(version, rule.id, channel) for version in versions]
        for channel in dict.fromkeys(rule.then_emits)
    }


def withdraw(
    versions: Sequence[EpisodeVersion], rule_id: str, channels: Iterable[str]
) -> dict[str, list[Incoming]]:
    """Return, by channel, that a rule says nothing of some versions; as if it selected none.

    What cannot be told whose it is, is left out: nothing of it is touched.
    """
    known = [version for version in versions if not version.contested]
    return {
        channel: [_silent(version, rule_id, channel, None) for version in known]
        for channel in sorted(channels)
    }


def _met(version: EpisodeVersion, rule_id: str, channel: str) -> Incoming:
    if version.fault:
        reason, _, detail = version.fault.partition(": ")
        return _silent(version, rule_id, channel, Fault(reason or UNREADABLE, detail))
    if not version.matched:
        return _silent(version, rule_id, channel, None)
    act = act_of(version, channel)
    if isinstance(act, Fault):
        return _silent(version, rule_id, channel, act)
    return Incoming(
        act.fact_id, act.owner, rule_id, version.seq, version.at, version.id, act,
        session=version.session, gated=version.gated, reread=version.reread,
    )  # fmt: skip


def _silent(version: EpisodeVersion, rule_id: str, channel: str, fault: Fault | None) -> Incoming:
    return Incoming(
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
