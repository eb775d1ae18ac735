"""Explanations: how a fact came and went, and what became of an episode under one rule."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from slumberd.consolidation.resolution import Delta
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
"""What became of an episode. Filtered: the rule passed it, its filter does not select it.
Forgotten: the rule passed it, its scope was forgotten. Skipped: the rule has passed it, or will,
without meeting it, whatever its filter says."""


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
        first: The number of the row that met the same before; its own when it is the first.
        what: What was met: ``claim``, ``withdrawal``, ``quarantine`` or ``known``; or what came of
            something else: ``restored`` or ``undone``.
        kind: The delta.
        reason: Of a noop or a quarantine.
        fact_id: The fact it speaks of; empty when whose it is cannot be told.
        replaces: The ids of the facts that went.
        log_number: Of the log row that the version was met at; 0 for hands.
        key_id: Number of the key it speaks of; None when there is none.
        said: When it was said, microseconds since 1970 UTC; None when nothing was.
        document: What was met, as the ledger keeps it; empty when it was erased.
        firing_id: The firing.
        rule_id: Its rule.
        rule_hash: The rule's content hash then; empty for hands.
        trigger: What made it due.
        at: Its instant.
        by: Who asked for it; empty when nobody did.
        undoes: The id of the firing that it undoes; empty when it does not.
    """

    seq: int
    first: int
    what: str
    kind: Delta
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
        """Whether an episode or a hand asserts the fact here."""
        return self.what == "claim" and bool(self.document.get("asserts"))

    @property
    def near(self) -> list[Near]:
        """The links of an assertion, nearest first."""
        return [Near(fact_id, cosine) for fact_id, cosine in self.document.get("near", ())]

    @property
    def because(self) -> str:
        """The reason that a hand gave; empty when it gave none."""
        reasons = (entry.get("reason", "") for entry in self.document.get("lineage", ()))
        return "; ".join(str(reason) for reason in reasons if reason)


class Saying(NamedTuple):
    """A row that asserts a fact, or brings it back.

    Attributes:
        line: The row.
        counts: Whether its rule, or a hand, says so still: it was not undone, and no newer
            version of the episode was met.
    """

    line: Line
    counts: bool


class Source(NamedTuple):
    """An episode that a fact comes from.

    Attributes:
        id: The episode's id.
        session: Its session; empty when the ledger does not say.
        at: Its instant; None when the ledger does not say.
        source_node: The node that wrote it; empty when the ledger does not say.
    """

    id: str
    session: str
    at: datetime | None
    source_node: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a fact came, and how it went.

    Attributes:
        fact_id: Its id.
        fact: The fact; None when it does not stand.
        sayings: The rows that assert it or bring it back, oldest first.
        replacing: The rows that took it out, oldest first.
        sources: The episodes that it comes from, by id.
    """

    fact_id: str
    fact: Fact | None
    sayings: list[Saying]
    replacing: list[Line]
    sources: list[Source]

    @property
    def replaced(self) -> list[str]:
        """The ids of the facts that went when it came, oldest first."""
        gone = (fact_id for one in self.sayings for fact_id in one.line.replaces)
        return [fact_id for fact_id in dict.fromkeys(gone) if fact_id != self.fact_id]

    @property
    def near(self) -> list[Near]:
        """The links of its latest promotion, nearest first."""
        promoted = [one.line for one in self.sayings if one.line.asserts]
        return promoted[-1].near if promoted else []

    @property
    def declared(self) -> bool:
        """Whether it is a declared fact: its program pinned it, and it competes with no other."""
        return any(one.counts and one.line.document.get("declared") for one in self.sayings)

    @property
    def taken_out(self) -> Line | None:
        """The row that took it out; None when it stands, never stood, or the row was erased."""
        return None if self.fact or not self.replacing else self.replacing[-1]


class Rival(NamedTuple):
    """The newer claim that an episode lost against.

    Attributes:
        id: The id of the fact, or of the episode, that says it.
        at: When it was said, microseconds since 1970 UTC.
    """

    id: str
    at: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of an episode under one rule, in one channel.

    Attributes:
        rule_id: The rule.
        channel: The channel.
        fact_id: The id of the fact that the episode promotes there, or would.
        became: What became of it.
        line: The rule's last row about it; None when it left none.
        stands: Whether the fact stands now, whoever says so.
        taken_out: The row that took the fact out; None when it stands or never stood.
        holder: Of an assertion that came too late, the fact that is newer.
        rival: The newer claim that it lost against; None when there is none, or it is not known.
    """

    rule_id: str
    channel: str
    fact_id: str
    became: Became
    line: Line | None = None
    stands: bool = False
    taken_out: Line | None = None
    holder: str = ""
    rival: Rival | None = None

    @property
    def reason(self) -> str:
        """Why it is a noop or in quarantine, in one word; empty otherwise."""
        told = self.became in ("noop", "quarantined")
        return self.line.reason if self.line and told else ""

    @property
    def detail(self) -> str:
        """Why it is in quarantine, for a person; empty otherwise."""
        told = self.became == "quarantined"
        return str(self.line.document.get("detail", "")) if self.line and told else ""


class Read(NamedTuple):
    """How far a loaded rule has come, and what it reads of an episode.

    Attributes:
        rule: The rule.
        watermark: The number of the last log row that it has passed; None when it never ran.
        version: The episode's newest version, with the number of its log row; None when it is
            no longer in memory.
        forgotten: Whether what the version says does not count.
    """

    rule: ConsolidationRule
    watermark: int | None
    version: EpisodeVersion | None
    forgotten: bool = False

    @property
    def ahead(self) -> Became | None:
        """What the version will become that the rule has not passed; None when it has."""
        if self.version is None or self.version.seq <= (self.watermark or 0):
            return None
        return "skipped" if self.watermark is None and self.rule.start == "now" else "pending"

    @property
    def passed(self) -> Became:
        """What a version became that the rule has passed and left no row about."""
        if self.forgotten:
            return "forgotten"
        return "filtered" if self.version and not self.version.matched else "skipped"


def became(line: Line | None, read: Read | None, remaining: Collection[int]) -> Became:
    """Return what became of an episode under one rule, in one channel.

    Args:
        line: The rule's last row about it; None when it left none.
        read: What the rule reads of it now; None when it is not loaded any more.
        remaining: The numbers of the rows whose meetings were not undone.
    """
    if read and read.ahead:
        return read.ahead
    if line is None:
        return read.passed if read else "skipped"
    if read and read.version and line.log_number < read.version.seq:
        return read.passed
    if line.what == "gated":
        return "noop"
    met = line.first if line.what == "known" else line.seq
    if line.fact_id and met not in remaining:
        return "undone"
    if line.what == "withdrawal" and line.kind == "noop":
        return read.passed if read and read.version else "filtered"
    return "quarantined" if line.kind == "quarantine" else line.kind
