"""Count what the user of an import should know about records that are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal, get_args

from slumberd.interchange.instants import FILE, INSTANT_FROM, UPDATE
from slumberd.interchange.records import Record

Remark = Literal["instant_of_file", "instant_of_update", "ended", "ended_only", "at_limit"]

SENTENCES: dict[Remark, tuple[str, str]] = {
    "instant_of_file": (
        "episode has only the time of its file",
        "episodes have only the time of their file",
    ),
    "instant_of_update": (
        "episode has only the time of an update",
        "episodes have only the time of an update",
    ),
    "ended": (
        "record has an end, at which it is retracted",
        "records have an end, at which they are retracted",
    ),
    "ended_only": ("record states only an end", "records state only an end"),
    "at_limit": (
        "input has as many records as its program returns by default, so there may be more",
        "inputs have as many records as their program returns by default, so there may be more",
    ),
}
"""What each remark says behind its count, of one and of several."""


class Remarks:
    """Counts the remarks on records."""

    def __init__(self) -> None:
        self.counts: Counter[Remark] = Counter()

    def watch(self, records: Iterable[Record], limit: int | None = None) -> Iterator[Record]:
        """Yield records, and count the remarks on them.

        Args:
            records: The records.
            limit: How many of them a program returns by default; None when it returns all.
        """
        count = 0
        is_told = False
        for record in records:
            self.counts.update(_remarks_on(record))
            is_told = is_told or bool(record.incomplete)
            count += not record.incomplete
            yield record
        if count == limit and not is_told:
            self.counts["at_limit"] += 1

    def by_name(self) -> dict[Remark, int]:
        """Return the counts of all remarks."""
        return {remark: self.counts[remark] for remark in get_args(Remark)}


def _remarks_on(record: Record) -> Iterator[Remark]:
    for episode in record.episodes:
        source = episode.metadata.get(INSTANT_FROM)
        if source == FILE:
            yield "instant_of_file"
        elif source == UPDATE:
            yield "instant_of_update"
    if record.until is not None:
        yield "ended" if len(record.episodes) > 1 else "ended_only"
