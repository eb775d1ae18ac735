"""The values that the operations on facts, rules and the daemon return.

A field without a value is absent from an answer where its default is None and its text says so.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from slumberd.operations.forms import Result


class Delta(Result):
    """One change of a fact.

    Attributes:
        kind: Such as ``add``, ``update`` or ``delete``.
        rule_id: The rule that made it.
        fact_id: The fact.
        replaces: The facts that it removed.
        source_episode_ids: The episodes that it comes from.
        reason: Why it changed nothing, if so.
        user: Whose the fact is; empty when it is not known.
        agent: Who knows it; empty as `user`.
    """

    kind: str
    rule_id: str
    fact_id: str
    replaces: list[str]
    source_episode_ids: list[str]
    reason: str
    user: str
    agent: str


class Deltas(Result):
    """The first deltas of an answer.

    Attributes:
        deltas: The first ones.
        deltas_total: How many there are.
        deltas_cut: Whether the list is cut.
    """

    deltas: list[Delta]
    deltas_total: int
    deltas_cut: bool


class WaitingBatch(Result):
    """A batch that awaits approval: its firing, and why it waits."""

    firing_id: str
    problem: str


class FiringReport(Result):
    """What the firings of one rule did.

    Attributes:
        rule_id: The rule.
        firing_ids: One for each batch.
        channels: By channel: how many episode versions it read, and what became of them.
        purged: How many archived episodes were deleted; absent for none.
        unrecorded: Whether episodes wait for a language model; absent when none does.
        held_batch: What awaits approval; absent without one. A dry run has no firing for it.
        rejected: How many versions were left out, because a person rejected them for the rule.
        deltas: The first deltas; only of a dry run.
        deltas_total: How many there are; only of a dry run.
        deltas_cut: Whether the list is cut; only of a dry run.
        unread: How many log rows were not read; only of a dry run.
    """

    rule_id: str
    firing_ids: list[str]
    channels: dict[str, dict[str, int]]
    purged: int | None = None
    unrecorded: bool | None = None
    held_batch: WaitingBatch | None = None
    rejected: int | None = None
    deltas: list[Delta] | None = None
    deltas_total: int | None = None
    deltas_cut: bool | None = None
    unread: int | None = None


class Fired(Result):
    """What a run did.

    Attributes:
        run: The run, which ``undo`` takes back; None when nothing fired.
        reports: By rule.
    """

    run: str | None
    reports: list[FiringReport]


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


class AcceptedClock(Result):
    """That the clock is right.

    Attributes:
        at: What the clock says.
        recorded: The last recorded instant before; null without one.
        firing_id: The firing that records it; null when no recorded instant was later, and for a
            dry run.
    """

    at: datetime
    recorded: datetime | None
    firing_id: str | None


class WithdrawnFuture(Result):
    """What was withdrawn, because its instant is still to come.

    Attributes:
        withdrawn: How many claims went into the quarantine, or got another instant.
        firing_ids: The firings that withdrew them; none of a dry run.
    """

    withdrawn: int
    firing_ids: list[str]


class Extracted(Result):
    """What was asked of a language model.

    Attributes:
        rule_id: The rule.
        calls: How many questions were asked.
        ok: How many got an answer.
        refused: How many the model refused.
        invalid: How many got an answer that could not be read.
        triples: How many triples the answers hold.
        dropped: How many triples were dropped.
        tokens_in: The tokens of the questions.
        tokens_out: The tokens of the answers.
    """

    rule_id: str
    calls: int
    ok: int
    refused: int
    invalid: int
    triples: int
    dropped: int
    tokens_in: int
    tokens_out: int


class Undone(Deltas):
    """What was undone.

    Attributes:
        run: The run that undid it; None when nothing was.
        undone: The firings that are undone.
        firing_ids: The firings that undid them.
        firing_id: The same, when the request names one firing; else absent.
        counts: How many deltas of each kind.
    """

    run: str | None
    undone: list[str]
    firing_ids: list[str]
    firing_id: str | None = None
    counts: dict[str, int]


class Edited(Deltas):
    """What a manual edit changed.

    Attributes:
        firing_id: The firing that the ledger records; None when nothing changed, or for a dry run.
        counts: How many deltas of each kind.
    """

    firing_id: str | None
    counts: dict[str, int]


class Pinned(Edited):
    """What a pin changed: the id of the fact, too."""

    fact_id: str


class Unpinned(Edited):
    """What a retraction changed.

    Attributes:
        not_current: Those of the named facts that were not current.
    """

    not_current: list[str]


class Forgotten(Result):
    """The certificate of an erasure; for a dry run, the plan of one.

    Attributes:
        certificate: Always ``slumberd.forget``.
        version: The version of this form.
        scope: User, session and agent; None for all.
        at: When.
        forgotten_up_to: The end of the erased time; None when only an episode or a fact is erased.
        episodes: The ids of the episodes that are erased by their ids, whatever their instants;
            absent without any.
        facts: The current facts that go with an episode or a fact; absent for a scope.
        statements: What these facts say, in their order; only of a dry run.
        rows: How many rows were erased, by store and table.
        stand_again: Facts that are current again.
        foreign_blank: The first ledger rows, by number, that are blank though no erasure names
            them: another program blanked them.
        foreign_blank_total: How many such rows there are.
        head_before: The head of the ledger's chain before.
        out_of_reach: What slumberd cannot erase.
        dry_run: True for a plan; else absent.
        plan: The hash of the plan; only of a dry run.
        firing_id: The firing that the ledger records; absent for a dry run.
        by: Who requested it; absent for a dry run.
        reason: Why; absent for a dry run, and without a reason.
        head_after: The head after; absent for a dry run.
        write_ahead_log_emptied: By file; absent for a dry run.
        rewritten: By file: why it was rewritten; absent for a dry run.
        pending: By file that may still have erased bytes: what its rewriting waits for. Absent for
            a dry run.
        bytes_gone_at: When the last byte was gone; None while something is pending.
    """

    certificate: str
    version: int
    scope: dict[str, str | None]
    at: str
    forgotten_up_to: str | None
    rows: dict[str, dict[str, int]]
    stand_again: list[str]
    foreign_blank: list[int]
    foreign_blank_total: int
    head_before: str
    out_of_reach: list[str]
    episodes: list[str] | None = None
    facts: list[str] | None = None
    statements: list[str] | None = None
    dry_run: bool | None = None
    plan: str | None = None
    firing_id: str | None = None
    by: str | None = None
    reason: str | None = None
    head_after: str | None = None
    write_ahead_log_emptied: dict[str, bool] | None = None
    rewritten: dict[str, Any] | None = None
    pending: dict[str, str] | None = None
    bytes_gone_at: str | None = None


class MovedUser(Result):
    """A user who was moved to another shard, or who would be.

    Attributes:
        user: The user.
        source: The shard that had the user.
        target: The shard that has the user now.
        episodes: How many episodes were moved.
        facts: How many facts were moved.
        rows: How many rows of the ledger were moved.
        dry_run: Whether nothing was written.
    """

    user: str
    source: int
    target: int
    episodes: int
    facts: int
    rows: int
    dry_run: bool


class PausedRules(Result):
    """Which rules are paused.

    Attributes:
        changed: The rules that this request paused or resumed.
        paused: All paused rules.
    """

    changed: list[str]
    paused: list[str]


class FailingRule(Result):
    """A rule whose last firings failed.

    Attributes:
        rule_id: The rule.
        since: When the first of them failed.
        failures: How many failed in a row.
        error: The last error.
        degraded: Whether the rule counts as failing for good.
    """

    rule_id: str
    since: str
    failures: int
    error: str
    degraded: bool


class ModelState(Result):
    """What the language model cost today, and whether it answers.

    Attributes:
        day: The day, UTC.
        calls: The requests, failed ones included.
        tokens: The tokens of requests and answers.
        cost: The cost, in the currency of the configured prices.
        budget: What calls, tokens and cost may be in a day; None means no limit.
        problem: Why the last attempt failed; empty when it did not.
    """

    day: str
    calls: int
    tokens: int
    cost: float
    budget: dict[str, float | None]
    problem: str


class DaemonStatus(Result):
    """How the daemon is.

    Attributes:
        pid: Its process.
        uptime_seconds: Since when it runs.
        generation: How often it loaded rules.
        rules_hash: The hash of the rules in force.
        failing: The rules that fail now.
        language_model: The state of the language model; None when none is configured.
    """

    pid: int
    uptime_seconds: float
    generation: int
    rules_hash: str
    failing: list[FailingRule]
    language_model: ModelState | None


class Reloaded(Result):
    """What a reload changed.

    Attributes:
        generation: How often the daemon loaded rules.
        rules_hash: The hash of the rules in force.
        rules: How many rules there are.
        added: The rules that are new.
        removed: The rules that are gone.
        changed: The rules that changed.
        restart_needed: The changed keys of the configuration that only a restart applies.
        facts_appear: How many facts a change under ``channels`` makes current.
        facts_go: How many facts are not current any more after that change.
        held_firing_id: The id by which that change awaits approval.
        rejected_firing_id: The id by which a person rejected that change. It is in force when both
            ids are null.
    """

    generation: int
    rules_hash: str
    rules: int
    added: list[str]
    removed: list[str]
    changed: list[str]
    restart_needed: list[str]
    facts_appear: int = 0
    facts_go: int = 0
    held_firing_id: str | None = None
    rejected_firing_id: str | None = None


class Outdated(Result):
    """The keys of the configuration that changed since the daemon read it.

    Attributes:
        reload: Those that a reload applies.
        restart: Those that only a restart applies.
    """

    reload: list[str]
    restart: list[str]
