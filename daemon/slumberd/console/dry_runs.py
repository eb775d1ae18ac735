"""Read what a dry run of an operation says, in the words of the preview."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from slumberd.operations.handlers import Answer

CHANGED: Mapping[str, tuple[str, str]] = {
    "added": ("fact would be added", "facts would be added"),
    "restored": ("fact would be current again", "facts would be current again"),
    "updated": ("fact would be changed", "facts would be changed"),
    "deleted": ("fact would be removed", "facts would be removed"),
}
"""What a dry run says of facts that change, for one and for more."""

UNCHANGED: Mapping[str, tuple[str, str]] = {
    "dropped": ("entry would leave the quarantine", "entries would leave the quarantine"),
    "quarantined": ("episode would be quarantined", "episodes would be quarantined"),
    "noop": ("claim would change nothing", "claims would change nothing"),
    "filtered": (
        "version would not match the filter of the rule",
        "versions would not match the filter of the rule",
    ),
    "read": ("version of an episode would be read", "versions of episodes would be read"),
}
"""What a dry run says of everything else, for one and for more."""

_NAMES: Mapping[str, str] = {
    "add": "added",
    "update": "updated",
    "delete": "deleted",
    "quarantine": "quarantined",
}
"""The name in `CHANGED` or `UNCHANGED` of the kind of a delta."""


@dataclass(frozen=True, slots=True)
class Count:
    """A number, and what it counts, in words."""

    number: int
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a change would do.

    Attributes:
        changed: How many facts would change, by what would happen to them.
        unchanged: How much else it would do.
        deltas: The first changes of facts.
        total: How many changes there are.
        notes: What else a person must know, a sentence each.
        details: Further fields, such as those of the certificate of an erasure.
    """

    changed: Sequence[Count]
    unchanged: Sequence[Count]
    deltas: Sequence[Mapping[str, Any]]
    total: int
    notes: Sequence[str]
    details: Mapping[str, str]

    @property
    def cut(self) -> bool:
        """Whether there are more changes than are listed."""
        return self.total > len(self.deltas)


def read_dry_run(answer: Answer, *, most: int) -> DryRun:
    """Return what the answer of a dry run says.

    Args:
        answer: The answer.
        most: At most so many changes are listed.
    """
    counts = _counts_in(answer)
    parts = [answer, *_reports_in(answer)]
    deltas = [row for part in parts for row in part.get("deltas") or ()]
    return DryRun(
        changed=[*_describe(counts, CHANGED)],
        unchanged=[*_describe(counts, UNCHANGED)],
        deltas=deltas[:most],
        total=sum(part.get("deltas_total") or 0 for part in parts),
        notes=[*_notes_on(answer)],
        details=_details_in(answer),
    )


def describe_counts(counts: Mapping[str, int]) -> list[Count]:
    """Return counts of facts that would change, in words; counts of 0 are left out."""
    return [*_describe(counts, CHANGED)]


def _describe(counts: Mapping[str, int], words: Mapping[str, tuple[str, str]]) -> Iterator[Count]:
    for name, (one, more) in words.items():
        if number := counts.get(name, 0):
            yield Count(number, one if number == 1 else more)


def _reports_in(answer: Answer) -> Sequence[Mapping[str, Any]]:
    reports: Sequence[Mapping[str, Any]] = answer.get("reports") or ()
    return reports


def _counts_in(answer: Answer) -> Counter[str]:
    """Return what a dry run would do, by the names of `CHANGED` and `UNCHANGED`."""
    found: Counter[str] = Counter()
    for kind, number in answer.get("counts", {}).items():
        found[_NAMES.get(kind, kind)] += number
    for report in _reports_in(answer):
        for channel in report["channels"].values():
            found.update(channel)
    found["dropped"] += answer.get("dropped", 0)
    return found


def _notes_on(answer: Answer) -> Iterator[str]:
    for report in _reports_in(answer):
        rule = report["rule_id"]
        if unread := report.get("unread"):
            yield f"The rule {rule} would go on with {unread:,} further rows of the episode log."
        if report.get("unrecorded"):
            yield f"Some episodes of the rule {rule} wait for the language model."
        if rejected := report.get("rejected"):
            yield f"{rejected:,} versions of episodes were rejected for the rule {rule}."
        if held := report.get("held_batch"):
            name = (
                f"The batch {held['firing_id']} awaits" if held["firing_id"] else "It would await"
            )
            yield f"{name} approval: {held['problem']}."
    if still := answer.get("still_quarantined_total"):
        yield f"{still:,} {'entry' if still == 1 else 'entries'} would stay in quarantine."


def _details_in(answer: Answer) -> dict[str, str]:
    """Return the plan of an erasure; empty for other changes."""
    if "certificate" not in answer:
        return {}
    return {
        name: value if isinstance(value, str) else orjson.dumps(value).decode()
        for name, value in answer.items()
        if name not in ("certificate", "version", "dry_run", "plan")
    }
