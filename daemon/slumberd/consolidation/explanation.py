"""Explain how a fact was promoted and removed, and what became of an episode under one rule."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from slumberd.consolidation.entry import Effect
from slumberd.model.episode import EpisodeVersion
from slumberd.model.fact import Fact
from slumberd.model.rule import ConsolidationRule

Became = Literal[
    "pending",
    "filtered",
    "forgotten",
    "skipped",
    "undone",
    "quarantined",
    "add",
    "update",
    "delete",
    "noop",
]
"""What became of an episode. Filtered: the rule passed it, and its filter does not select it.
Forgotten: the rule passed it, and its scope was erased. Skipped: the rule has passed it, or will,
without an evaluation, whatever its filter selects."""


class Near(NamedTuple):
    """A link to a fact with a similar text.

    Attributes:
        fact_id: Its id.
        cosine: The cosine of the two texts.
    """

    fact_id: str
    cosine: float


class Line(NamedTuple):
    """One row of the ledger, with the firing that wrote it.

    Attributes:
        seq: Its number.
        first: The number of the first row of an equal evaluation; its own number if it is new.
        what: The event: ``act`` (a claim), ``withdrawal``, ``quarantine``, ``known`` or ``gated``;
            or a consequence of another row: ``restored`` or ``undone``.
        kind: The delta.
        reason: Why it is a noop or a quarantine.
        fact_id: The id of its fact; empty when the owner is unknown.
        replaces: The ids of the facts that were removed.
        log_number: The log row of the evaluated version; 0 for manual edits.
        key_id: Number of its key; None without a key.
        said: The instant of its claim, microseconds since 1970 UTC; None without a claim.
        document: The evaluated claim, as the ledger stores it; empty when it was erased.
        firing_id: The firing.
        rule_id: The firing's rule.
        rule_hash: The rule's content hash then; empty for manual edits.
        trigger: Why the rule fired.
        at: The firing's instant.
        by: Who requested it; empty when the rule was due.
        undoes: The id of the firing that it undoes; empty when it does not.
    """

    seq: int
    first: int
    what: str
    kind: Effect
    reason: str
    fact_id: str
    replaces: tuple[str, ...]
    log_number: int
    key_id: int | None
    said: int | None
    document: dict[str, Any]
    firing_id: str
    rule_id: str
    rule_hash: str
    trigger: str
    at: datetime
    by: str
    undoes: str

    @property
    def asserts(self) -> bool:
        """Whether the row's claim asserts the fact."""
        return self.what == "claim" and bool(self.document.get("asserts"))

    @property
    def near(self) -> list[Near]:
        """The links of an assertion, nearest first."""
        return [Near(fact_id, cosine) for fact_id, cosine in self.document.get("near", ())]

    @property
    def because(self) -> str:
        """The reason that a manual edit gave; empty when it gave none."""
        reasons = (entry.get("reason", "") for entry in self.document.get("lineage", ()))
        return "; ".join(str(reason) for reason in reasons if reason)


class AssertingRow(NamedTuple):
    """A row that asserts a fact, or restores it.

    Attributes:
        line: The row.
        counts: Whether the claim still counts: it was not undone, and its rule evaluated no newer
            version of the episode.
    """

    line: Line
    counts: bool


class Source(NamedTuple):
    """An episode that a fact comes from.

    Attributes:
        id: The episode's id.
        session: Its session; empty when the ledger has none.
        at: Its instant; None when the ledger has none.
        source_node: The node that wrote it; empty when the ledger has none.
    """

    id: str
    session: str
    at: datetime | None
    source_node: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a fact was promoted and removed.

    Attributes:
        fact_id: Its id.
        fact: The fact; None when it is not current.
        assertions: The rows that assert or restore it, oldest first.
        replacing: The rows that removed it, oldest first.
        sources: The episodes that it comes from, by id.
    """

    fact_id: str
    fact: Fact | None
    assertions: list[AssertingRow]
    replacing: list[Line]
    sources: list[Source]

    @property
    def replaced(self) -> list[str]:
        """The ids of the facts that it replaced, oldest first."""
        gone = (fact_id for saying in self.assertions for fact_id in saying.line.replaces)
        return [fact_id for fact_id in dict.fromkeys(gone) if fact_id != self.fact_id]

    @property
    def near(self) -> list[Near]:
        """The links of its latest promotion, nearest first."""
        promoted = [saying.line for saying in self.assertions if saying.line.asserts]
        return promoted[-1].near if promoted else []

    @property
    def declared(self) -> bool:
        """Whether it is a declared fact: its program pinned it, and it competes with no other."""
        return any(
            saying.counts and saying.line.document.get("declared") for saying in self.assertions
        )

    @property
    def taken_out(self) -> Line | None:
        """The row that removed it; None if it is current, never was, or the row was erased."""
        return None if self.fact or not self.replacing else self.replacing[-1]


class NewerClaim(NamedTuple):
    """The newer claim that took precedence over an episode's claim.

    Attributes:
        id: The id of its fact or episode.
        at: Its instant, microseconds since 1970 UTC.
    """

    id: str
    at: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of an episode under one rule, in one channel.

    Attributes:
        rule_id: The rule.
        channel: The channel.
        fact_id: The id of the fact that the episode promotes there, or would promote.
        outcome: What became of the episode.
        line: The rule's last row about the episode; None without a row.
        is_current: Whether the fact is current, whichever rule promotes it.
        removed_by: The row that removed the fact; None when it is current or never was.
        holder: Of a stale assertion, the newer fact.
        rival: The newer claim that took precedence; None when there is none, or it is unknown.
    """

    rule_id: str
    channel: str
    fact_id: str
    outcome: Became
    line: Line | None = None
    is_current: bool = False
    removed_by: Line | None = None
    holder: str = ""
    rival: NewerClaim | None = None

    @property
    def reason(self) -> str:
        """Why it is a noop or in quarantine, in one word; empty otherwise."""
        has_reason = self.outcome in ("noop", "quarantined")
        return self.line.reason if self.line and has_reason else ""

    @property
    def detail(self) -> str:
        """Why it is in quarantine, for a person; empty otherwise."""
        quarantined = self.outcome == "quarantined"
        return str(self.line.document.get("detail", "")) if self.line and quarantined else ""


class Read(NamedTuple):
    """A loaded rule's progress, and its reading of an episode.

    Attributes:
        rule: The rule.
        watermark: The number of the last log row that it has passed; None when it never ran.
        version: The episode's newest version, with the number of its log row; None when memory.db
            has the episode no longer.
        forgotten: Whether the version belongs to an erased scope, so it does not count.
    """

    rule: ConsolidationRule
    watermark: int | None
    version: EpisodeVersion | None
    forgotten: bool = False

    @property
    def ahead(self) -> Became | None:
        """What a version will become that the rule has not passed; None when it has passed it."""
        if self.version is None or self.version.seq <= (self.watermark or 0):
            return None
        return "skipped" if self.watermark is None and self.rule.start == "now" else "pending"

    @property
    def passed(self) -> Became:
        """What a version became that the rule has passed without a row."""
        if self.forgotten:
            return "forgotten"
        return "filtered" if self.version and not self.version.matched else "skipped"


def outcome_of(line: Line | None, read: Read | None, remaining: Collection[int]) -> Became:
    """Return what became of an episode under one rule, in one channel.

    Args:
        line: The rule's last row about the episode; None without a row.
        read: The rule's reading of the episode now; None when the rule is no longer loaded.
        remaining: The numbers of the rows whose evaluations were not undone.
    """
    if read and read.ahead:
        return read.ahead
    if line is None:
        return read.passed if read else "skipped"
    if read and read.version and line.log_number < read.version.seq:
        return read.passed
    if line.what == "gated":
        return "noop"
    evaluated_at = line.first if line.what == "known" else line.seq
    if line.fact_id and evaluated_at not in remaining:
        return "undone"
    if line.what == "withdrawal" and line.kind == "noop":
        return read.passed if read and read.version else "filtered"
    return "quarantined" if line.kind == "quarantine" else line.kind
