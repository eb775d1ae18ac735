"""Explain how a fact was promoted and removed, and the outcome of an episode under one rule."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from slumberd.model.episode import EpisodeVersion
from slumberd.model.fact import Fact
from slumberd.model.firing import Record

if TYPE_CHECKING:  # a command that reads facts imports no rules
    from slumberd.model.rule import ConsolidationRule

EpisodeOutcome = Literal[
    "pending",
    "filtered",
    "erased",
    "skipped",
    "undone",
    "quarantined",
    "add",
    "update",
    "delete",
    "noop",
]
"""The outcome of an episode. Filtered: the rule passed it, and its filter does not select it.
Erased: the rule passed it, and its scope was erased. Skipped: the rule passes it without an
evaluation, even if its filter selects it."""


class Near(NamedTuple):
    """A link to a fact with a similar text.

    Attributes:
        cosine: The cosine of the two texts.
    """

    fact_id: str
    cosine: float


class DetailedRecord(NamedTuple):
    """A record of the ledger, what its rule evaluated, and why the rule fired.

    Attributes:
        first: The number of the first row of an equal evaluation; its own number if it is new.
        event: What the row records, such as ``claim``, ``withdrawal`` or ``restored``.
        log_number: The log row of the evaluated version; 0 for manual edits.
        key_id: Number of its key; None without a key.
        claimed_at: The instant of its claim, microseconds since 1970 UTC; None without a claim.
        document: The evaluated claim, as the ledger stores it; empty when it was erased.
        rule_hash: The rule's content hash then; empty for manual edits.
        by: Who requested the firing; empty when the rule was due.
        undoes: The id of the firing that it undoes; empty when it does not.
        firing_reason: Why that person requested the firing; empty without a reason.
    """

    record: Record
    first: int
    event: str
    log_number: int
    key_id: int | None
    claimed_at: int | None
    document: dict[str, Any]
    rule_hash: str
    trigger: str
    by: str
    undoes: str
    firing_reason: str = ""

    @property
    def asserts(self) -> bool:
        """Whether the row's claim asserts the fact."""
        return self.event == "claim" and bool(self.document.get("asserts"))

    @property
    def near(self) -> list[Near]:
        """The links of an assertion, nearest first."""
        return [Near(fact_id, cosine) for fact_id, cosine in self.document.get("near", ())]

    @property
    def stated_reason(self) -> str:
        """The reason that a manual edit gave; empty when it gave none."""
        reasons = (entry.get("reason", "") for entry in self.document.get("lineage", ()))
        return "; ".join(str(reason) for reason in reasons if reason)


class AssertingRow(NamedTuple):
    """A row that asserts a fact, or restores it.

    Attributes:
        counts: Whether the claim still counts: it was not undone, and its rule evaluated no newer
            version of the episode.
    """

    row: DetailedRecord
    counts: bool


class KeyChange(NamedTuple):
    """A row that changed a key, or that claimed something of it in vain.

    Attributes:
        said_at: The instant of the claim that the row is about, microseconds since 1970 UTC; None
            when the ledger has none.
        payload: What that claim says; empty when it was erased.
    """

    row: DetailedRecord
    said_at: int | None
    payload: dict[str, Any]


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
        history: The last changes of its key, of all facts of the key, oldest first.
        changes: How many changes of its key there were.
    """

    fact_id: str
    fact: Fact | None
    assertions: list[AssertingRow]
    replacing: list[DetailedRecord]
    sources: list[Source]
    history: list[KeyChange]
    changes: int

    @property
    def replaced(self) -> list[str]:
        """The ids of the facts that it replaced, oldest first."""
        removed = (
            fact_id for asserting in self.assertions for fact_id in asserting.row.record.replaces
        )
        return [fact_id for fact_id in dict.fromkeys(removed) if fact_id != self.fact_id]

    @property
    def near(self) -> list[Near]:
        """The links of its latest promotion, nearest first."""
        promoted = [asserting.row for asserting in self.assertions if asserting.row.asserts]
        return promoted[-1].near if promoted else []

    @property
    def declared(self) -> bool:
        """Whether it is a declared fact: its program pinned it, and it competes with no other."""
        return any(
            asserting.counts and asserting.row.document.get("declared")
            for asserting in self.assertions
        )

    @property
    def taken_out(self) -> DetailedRecord | None:
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
    """The outcome of an episode under one rule, in one channel.

    Attributes:
        rule_id: The rule.
        channel: The channel.
        fact_id: The id of the fact that the episode promotes there, or would promote.
        outcome: The outcome of the episode.
        row: The rule's last row about the episode; None without a row.
        is_current: Whether the fact is current, whichever rule promotes it.
        removed_by: The row that removed the fact; None when it is current or never was.
        holder: Of a stale assertion, the newer fact.
        rival: The newer claim that took precedence; None when there is none, or it is unknown.
        unrecorded: Whether it is pending, and the answer of the rule's language model about it is
            not recorded yet.
        said: What the fact holds, or else what the last claim about it said; empty when it was
            erased, and without a claim.
    """

    rule_id: str
    channel: str
    fact_id: str
    outcome: EpisodeOutcome
    row: DetailedRecord | None = None
    is_current: bool = False
    removed_by: DetailedRecord | None = None
    holder: str = ""
    rival: NewerClaim | None = None
    unrecorded: bool = False
    said: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """Why it is a noop or in quarantine, in one word; empty otherwise."""
        has_reason = self.outcome in ("noop", "quarantined")
        return self.row.record.reason if self.row and has_reason else ""

    @property
    def detail(self) -> str:
        """Why it is in quarantine, for a person; empty otherwise."""
        quarantined = self.outcome == "quarantined"
        return str(self.row.document.get("detail", "")) if self.row and quarantined else ""


class Read(NamedTuple):
    """A loaded rule's progress, and its reading of an episode.

    Attributes:
        watermark: The number of the last log row that it has passed; None when it never ran.
        version: The episode's newest version, with the number of its log row; None when the
            episode is no longer stored.
        erased: Whether the version belongs to an erased scope, so it does not count.
    """

    rule: ConsolidationRule
    watermark: int | None
    version: EpisodeVersion | None
    erased: bool = False

    @property
    def ahead(self) -> EpisodeOutcome | None:
        """The outcome of a version that the rule has not passed; None when it has passed it."""
        if self.version is None or self.version.seq <= (self.watermark or 0):
            return None
        return "skipped" if self.watermark is None and self.rule.start == "now" else "pending"

    @property
    def unrecorded(self) -> bool:
        """Whether a pending version waits for the answer of the rule's language model."""
        return self.ahead == "pending" and self.version is not None and self.version.unrecorded

    @property
    def passed(self) -> EpisodeOutcome:
        """The outcome of a version that the rule has passed without a row."""
        if self.erased:
            return "erased"
        return "filtered" if self.version and not self.version.matched else "skipped"


_OUTCOMES: Mapping[str, EpisodeOutcome] = {
    "add": "add",
    "update": "update",
    "delete": "delete",
    "noop": "noop",
    "quarantine": "quarantined",
}
"""The outcome of an episode, by the kind of its row."""


def outcome_of(
    row: DetailedRecord | None, read: Read | None, remaining: Collection[int]
) -> EpisodeOutcome:
    """Return the outcome of an episode under one rule, in one channel.

    Args:
        row: The rule's last row about the episode; None without a row.
        read: The rule's reading of the episode now; None when the rule is no longer loaded.
        remaining: The numbers of the rows whose evaluations were not undone.
    """
    if read and read.ahead:
        return read.ahead
    if row is None:
        return read.passed if read else "skipped"
    if read and read.version and row.log_number < read.version.seq:
        return read.passed
    if row.event == "gated":
        return "noop"
    record = row.record
    evaluated_at = row.first if row.event == "known" else record.seq
    if record.fact_id and evaluated_at not in remaining:
        return "undone"
    if row.event == "withdrawal" and record.kind == "noop":
        return read.passed if read and read.version else "filtered"
    return _OUTCOMES[record.kind]
