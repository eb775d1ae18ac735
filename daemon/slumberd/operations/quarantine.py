"""List the episodes that rules could not read, evaluate them again, or drop them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from slumberd.consolidation.firing import DryRunBounds
from slumberd.model.construct import construct
from slumberd.model.errors import NotQuarantinedError, UsageError
from slumberd.model.firing import Report
from slumberd.operations.caller import Caller, Right
from slumberd.operations.firing import FIRED, Fired
from slumberd.operations.forms import (
    MOST,
    Cursor,
    Limit,
    Name,
    OperatorForm,
    ReasonedForm,
    Result,
    Texts,
    choose_rules,
    read_cursor,
    require_episode_rules,
    write_cursor,
)
from slumberd.operations.handlers import Answer, Example, operation
from slumberd.operations.responses import (
    report_firings,
)
from slumberd.operations.writes.rule_runner import ChangeRunner, limit_of, new_run_id, reason_of
from slumberd.storage.facts.store import EngineFactStore


class QuarantineForm(ReasonedForm):
    """The request ``retry``: the ids of rules and of episodes; null means all."""

    rules: Texts = None
    episodes: Texts = None


class DropForm(QuarantineForm):
    """The request ``drop``: the ids of episodes, or all of them."""

    all: bool = False


class Retried(Fired):
    """What a run did, and what is still in quarantine.

    Attributes:
        still_quarantined: The first entries that still cannot be read.
        still_quarantined_total: How many there are.
    """

    still_quarantined: list[dict[str, Any]]
    still_quarantined_total: int


class Dropped(Result):
    """How many entries left the quarantine."""

    dropped: int


class QuarantinedForm(OperatorForm):
    """The request ``quarantined``: a page of the quarantine.

    Attributes:
        rule: Only entries of this rule.
        episodes: Only entries of these episodes. It needs `rule`.
        limit: At most this many.
        cursor: The place where the page before ended.
    """

    rule: Name | None = None
    episodes: Annotated[list[Name], Field(max_length=MOST)] | None = None
    limit: Limit = 100
    cursor: Cursor | None = None


class QuarantineEntry(Result):
    """An episode that a rule could not read.

    Attributes:
        rule_id: The rule.
        channel: The channel.
        episode_id: The episode.
        reason: Why, in one word.
        detail: Why, for a person.
        seq: The row of the ledger that records it.
        user: Whose the episode is; empty when its scope cannot be read.
        agent: Who knows it; empty as `user`.
    """

    rule_id: str
    channel: str
    episode_id: str
    reason: str
    detail: str
    seq: int
    user: str
    agent: str


class QuarantinePage(Result):
    """A page of the quarantine.

    Attributes:
        entries: The entries, by rule, channel and episode.
        next: The cursor of the next page; None at the end.
        totals: How many episodes are in quarantine, by rule; of all rules.
    """

    entries: list[QuarantineEntry]
    next: str | None
    totals: dict[str, int]


class QuarantineReads:
    """Runs requests that read the quarantine."""

    def __init__(self, facts: EngineFactStore) -> None:
        self._facts = facts

    @operation(
        right=Right.OPERATE,
        read_only=True,
        example=Example(
            {"rule": "home", "limit": 10},
            {
                "entries": [
                    {
                        "rule_id": "home",
                        "channel": "facts",
                        "episode_id": "e7",
                        "reason": "intent_unknown",
                        "detail": "intent is 'shout'; write one of add, update, delete, noop",
                        "seq": 12,
                        "user": "ana",
                        "agent": "desk",
                    }
                ],
                "next": None,
                "totals": {"home": 1},
            },
        ),
    )
    async def quarantined(self, request: QuarantinedForm, _: Caller) -> QuarantinePage:
        """Return a page of the episodes that rules could not read, and why.

        Raises:
            UsageError: The request names episodes, but no rule.
        """
        if request.episodes is not None and request.rule is None:
            raise UsageError("quarantined: episodes: name a rule, too")
        after = None
        if request.cursor is not None:
            rule, channel, episode = read_cursor("quarantined", request.cursor, 3)
            after = rule, channel, episode
        reads = self._facts.reads
        entries = await reads.quarantine_page(
            request.rule, after=after, limit=request.limit, episodes=request.episodes
        )
        found = [construct(QuarantineEntry, entry) for entry in entries]
        following = cursor_after(found[-1]) if len(found) == request.limit else None
        totals = await reads.count_quarantined()
        return construct(QuarantinePage, {"entries": found, "next": following, "totals": totals})


def cursor_after(entry: QuarantineEntry) -> str:
    """Return the cursor of the page after an entry of the quarantine."""
    return write_cursor(entry.rule_id, entry.channel, entry.episode_id)


class QuarantineChanges(ChangeRunner):
    """Runs requests that change the quarantine."""

    @operation(
        right=Right.OPERATE,
        idempotent=True,
        example=Example(
            {"rules": ["home"]},
            {**FIRED, "still_quarantined": [], "still_quarantined_total": 0},
        ),
    )
    async def retry(self, request: QuarantineForm, caller: Caller) -> Annotated[Answer, Retried]:
        """Evaluate quarantined episodes again.

        The answer lists the episodes that still cannot be read under ``still_quarantined``.
        """
        rules = choose_rules(self._rules(), request.rules)
        if request.rules is None:
            rules = [rule for rule in rules if rule.reads_episodes]
        rules = require_episode_rules(rules, "quarantine retry")
        run = new_run_id()

        async def retry(bounds: DryRunBounds) -> Answer:
            reports = [
                await self._consolidator.retry(
                    rule,
                    self._clock.now(),
                    by=str(caller),
                    eids=request.episodes,
                    dry_run=request.dry_run,
                    run=run,
                    reason=reason_of(request),
                    bounds=bounds,
                )
                for rule in rules
            ]
            still = await self._still_quarantined(reports, request)
            return report_firings(reports, limit=limit_of(request), run=run) | still

        return await self.run_change(retry, request)

    async def _still_quarantined(
        self, reports: Sequence[Report], request: QuarantineForm
    ) -> Answer:
        """Return which of the retried episodes are still in quarantine."""
        # A dry run leaves readable episodes in quarantine.
        readable = {
            (report.rule_id, eid)
            for report in reports
            for record in report.records
            if record.kind not in ("firing", "quarantine")
            for eid in record.source_episode_ids
        }
        rules = list({report.rule_id for report in reports})
        found = [
            entry
            for entry in await self._quarantine(rules, request.episodes)
            if (entry["rule_id"], entry["episode_id"]) not in readable
        ]
        listed = found[: limit_of(request)]
        return {"still_quarantined": listed, "still_quarantined_total": len(found)}

    async def _quarantine(
        self, rules: Sequence[str] | None, episodes: Sequence[str] | None
    ) -> list[dict[str, Any]]:
        """Return entries of the quarantine; None means all rules, or all episodes."""
        return [
            entry
            for entry in await self._facts.reads.quarantine()
            if rules is None or entry["rule_id"] in rules
            if episodes is None or entry["episode_id"] in episodes
        ]

    @operation(
        right=Right.OPERATE,
        errors=(NotQuarantinedError,),
        example=Example({"episodes": ["e7"]}, {"dropped": 1}),
    )
    async def drop(self, request: DropForm, caller: Caller) -> Annotated[Answer, Dropped]:
        """Remove episodes from the quarantine.

        Raises:
            UsageError: Neither or both of ``episodes`` and ``all`` are given.
            NotQuarantinedError: An episode is not in quarantine; nothing was changed.
        """
        dry_run = request.dry_run
        async with self.turn:
            await self._check_named(request)
            dropped = await self._facts.ledger.drop_quarantined(
                request.rules,
                request.episodes,
                at=self._clock.now(),
                by=str(caller),
                dry_run=dry_run,
                reason=reason_of(request),
            )
            if not dry_run:
                await self._consolidator.log_pending_records()
        return {"dropped": dropped}

    async def _check_named(self, request: DropForm) -> None:
        """Check that the request names episodes that are in quarantine."""
        episodes, rules = request.episodes, request.rules
        if bool(episodes) == request.all:
            raise UsageError("name the episodes to drop, or give --all; not both")
        quarantined = {entry["episode_id"] for entry in await self._quarantine(rules, episodes)}
        if missing := [eid for eid in episodes or () if eid not in quarantined]:
            raise NotQuarantinedError(missing)
