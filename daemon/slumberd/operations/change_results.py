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
