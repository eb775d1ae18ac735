"""Preview rules on a copy of the data: what each selects, and what its firing would do now."""

from __future__ import annotations

import asyncio
import gc
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from slumberd.clock import Clock
from slumberd.consolidation.firing import DryRunBounds, FireRequest
from slumberd.consolidation.key_history import MultiValuedHint
from slumberd.daemon.composition import copies_of, open_stores, rule_runner_of
from slumberd.daemon.stores import inspections_of
from slumberd.model.episode import Misspelling
from slumberd.model.errors import NoInputError, StoreError
from slumberd.model.firing import Counts, Outcome, Record, Report
from slumberd.model.predicates import ChannelPlan, union_of
from slumberd.model.record import Checkpoint
from slumberd.model.rule import ConsolidationRule
from slumberd.operations.stores import Stores
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings
from slumberd.storage.closed_stores import StoreName
from slumberd.storage.episodes.windows import Matching

_EVERYTHING = 2**62
_PARTS = 10

WRITE_AHEAD = 300_000_000
"""The largest size of the write-ahead log of a long backfill, in bytes."""

ProgressCallback = Callable[[str], object]
"""Receives a few words about the next step, for a progress display."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Copies of the episode and fact databases.

    Attributes:
        settings: The settings of the originals, with the paths of the copies.
        stores: The stores on the copies; a caller may change them.
        folder: The directory of the copies; it is deleted when the copy is closed.
    """

    settings: Settings
    stores: Stores
    folder: Path


@asynccontextmanager
async def copy_data(
    settings: Settings, clock: Clock, show_step: ProgressCallback
) -> AsyncIterator[Copy]:
    """Copy the databases of a configuration, and open the copies. A daemon may run.

    The function takes no lock and writes nothing in the directory of the originals. It records
    changes of other programs to the facts in the copy, as the next firing would.

    Raises:
        NoInputError: There are no episodes yet.
        StoreError: The disk has no space for a copy, or the originals cannot be read.
        ConfigurationError: The key of the ledger cannot be read.
        LedgerKeyError: The key is not that of the ledger.
    """
    episodes = inspections_of(settings).episodes
    if not episodes.exists():
        remedy = "there are no episodes yet; `slumberd import` puts some"
        raise NoInputError(episodes.where, remedy)
    gc.freeze()
    with tempfile.TemporaryDirectory(prefix="slumberd-") as name:
        folder = Path(name)
        try:
            copied = await asyncio.to_thread(_copy_databases, settings, folder, show_step)
            async with open_stores(copied, clock, copied.facts_path) as stores:
                await stores.facts.ledger.notice_external()
                yield Copy(copied, stores, folder)
        except StoreError as error:
            if copies_of(settings).is_full(error):
                raise _space_error(folder.parent, "the copies need more") from error
            raise


def _copy_databases(settings: Settings, folder: Path, show_step: ProgressCallback) -> Settings:
    copied = _settings_of_copy(settings, folder)
    stores, copies = inspections_of(settings), copies_of(settings)
    # Facts first: their watermarks must not lie beyond the end of the log.
    targets: dict[StoreName, Path] = {"facts": copied.facts_path, "memory": copied.memory_path}
    needed = room_for(stores.episodes.sizes().total, stores.facts.sizes().total)
    refuse_without_room(needed, shutil.disk_usage(folder).free, folder.parent)
    for name, target in targets.items():
        store = stores.of(name)
        if store.exists():
            show_step(f"copying {target.name}")
            copies.copy(name, target)
    return copied


def _settings_of_copy(settings: Settings, folder: Path) -> Settings:
    """Return the settings with the paths of the copies."""
    return settings.model_copy(
        update={
            "state_dir": folder,
            "store": None,
            "memory": settings.memory.model_copy(update={"path": Path("memory.db")}),
            "facts": settings.facts.model_copy(update={"path": Path("facts.db")}),
        }
    )


def room_for(episodes: int, facts: int) -> int:
    """Return the space that copies may need, in bytes, from the sizes of the originals.

    Facts and their ledger take up to twice the size of their episodes. A comparison keeps them
    twice, and a write-ahead log grows beside them.
    """
    facts = max(facts, 2 * episodes)
    return episodes + 2 * facts + min(2 * facts, WRITE_AHEAD)


def refuse_without_room(needed: int, free: int, folder: Path) -> None:
    """Refuse a copy that could fill its file system.

    Args:
        needed: The bytes that the copy may need.
        free: The free bytes of the file system.
        folder: The directory of the copies, for the message.

    Raises:
        StoreError: `needed` is more than `free`.
    """
    if needed > free:
        problem = f"a copy may take {_megabytes(needed)}, {_megabytes(free)} are free"
        raise _space_error(folder, problem)


def _space_error(folder: Path, problem: str) -> StoreError:
    remedy = "name a directory with more room in $TMPDIR"
    return StoreError(f"{str(folder)!r} has too little room: {problem}; {remedy}")


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"


"""The rehearsal of a backfill reads this part of what a rehearsal may read."""


class Reasons(NamedTuple):
    """How many episodes made no change in a channel, by reason."""

    noop: Mapping[str, int]
    quarantined: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Preview:
    """What a rule selects now, and what its firing would do.

    Attributes:
        matching: The episodes that its filter selects, of all episodes.
        pending: The number of episode versions above its watermark.
        channels: The counts of its firing, by channel; empty for a disabled rule.
        reasons: The reasons of episodes without a change, by channel.
        held: The deletion limit that its firing exceeds; empty when it exceeds none.
        unrecorded: Whether episodes wait for the answer of the rule's language model.
        again: What a backfill would do, by channel, when the rule extracts without a model: the
            words of earlier episodes may state something else now.
        unread: How many rows of the log that leaves out.
    """

    rule: ConsolidationRule
    matching: Matching
    pending: int
    channels: Mapping[str, Counts] = field(default_factory=dict)
    reasons: Mapping[str, Reasons] = field(default_factory=dict)
    held: str = ""
    unrecorded: bool = False
    again: Mapping[str, Counts] = field(default_factory=dict)
    unread: int = 0


class PreviewResult(NamedTuple):
    """The previews of all rules.

    Attributes:
        previews: The preview of each rule.
        replaced: The predicates whose objects keep replacing each other after the firings.
        channels: What a change of multi-valued predicates would do to the facts; None without one.
    """

    previews: list[Preview]
    replaced: list[MultiValuedHint]
    channels: ChannelPlan | None = None


class ReasonCounter:
    """Counts the reasons of deltas without a change; implements `Logs` and `DeltaLog`."""

    def __init__(self) -> None:
        self._counters: dict[str, tuple[Counter[str], Counter[str]]] = {}

    def keyed(self, _: bytes) -> ReasonCounter:
        """Return itself."""
        return self

    def applied(self, records: Sequence[Record]) -> None:
        """Write no line."""

    def misspelled(self, found: Sequence[Misspelling]) -> None:
        """Write no line."""

    def finished(self, report: Report) -> None:
        """Write no line."""

    def checkpointed(self, head: Checkpoint) -> None:
        """Write no line."""

    def completed(self, outcome: Outcome) -> None:
        """Count one batch."""
        for channel, records in _by_channel(outcome):
            noops, quarantined = self._counters.setdefault(channel, (Counter(), Counter()))
            noops.update(record.reason for record in records if record.kind == "noop")
            quarantined.update(record.reason for record in records if record.kind == "quarantine")

    def clear(self) -> None:
        """Reset all counts."""
        self._counters.clear()

    def reasons(self) -> dict[str, Reasons]:
        """Return the counts, by channel."""
        return {
            channel: Reasons(dict(sorted(noops.items())), dict(sorted(quarantined.items())))
            for channel, (noops, quarantined) in self._counters.items()
        }


def _by_channel(outcome: Outcome) -> Iterator[tuple[str, Sequence[Record]]]:
    """Yield the rows of a batch by channel; they follow the batch's own row in that order."""
    end = 1
    for channel, counts in outcome.channels.items():
        begin, end = end, end + sum(counts) - counts.read - counts.filtered
        yield channel, outcome.records[begin:end]


async def preview_rules(
    settings: Settings, rules: RuleSet, *, whole: bool, clock: Clock, show_step: ProgressCallback
) -> PreviewResult:
    """Return what each rule of kind ``episodes`` selects and what its firing would do, in order.

    The rules fire on a copy. The function takes no lock and writes nothing; a daemon may run.

    Args:
        settings: The settings of the data.
        whole: Whether these are all rules. If not, the channel settings of other rule files still
            apply.
        clock: The clock of the firings.
        show_step: Receives the next step, for a progress display.

    Raises:
        NoInputError: There are no episodes.
        FilterError: A filter exceeded its budget.
        StoreError: The disk has no space for a copy, or the originals cannot be read.
    """
    async with copy_data(settings, clock, show_step) as copy:
        if not (await copy.stores.memory.health()).fragment_count:
            remedy = "there are no episodes yet; `slumberd import` puts some"
            raise NoInputError(f"any episode in {inspections_of(settings).episodes.where}", remedy)
        previewer = _Previewer(copy, rules, clock, show_step)
        channels = await previewer.apply_channels(whole=whole)
        previews = [await previewer.preview(rule) for rule in rules.of_episodes().rules]
        return PreviewResult(previews, await previewer.find_replaced_predicates(), channels)


class _Previewer:
    """Fires rules on one copy."""

    def __init__(
        self, copy: Copy, rules: RuleSet, clock: Clock, show_step: ProgressCallback
    ) -> None:
        self._memory = copy.stores.memory
        self._rules = rules
        self._clock = clock
        self._show_step = show_step
        self._tally = ReasonCounter()
        self._facts = copy.stores.facts
        self._runner = rule_runner_of(copy.settings, copy.stores, self._tally, clock)

    async def apply_channels(self, *, whole: bool) -> ChannelPlan | None:
        """Apply the channel settings, as a daemon does when it starts with these rules."""
        multi = dict(self._rules.multi_valued)
        if not whole:
            for channel, several in (await self._facts.reads.channels()).items():
                multi[channel] = union_of(several, multi.get(channel))
        now = self._clock.now()
        await self._facts.ledger.rewrite_facts(at=now)
        plan = await self._facts.ledger.plan_channels(multi)
        await self._facts.ledger.set_channels(multi, at=now)
        return plan

    async def preview(self, rule: ConsolidationRule) -> Preview:
        """Fire one rule, unless it is disabled."""
        self._show_step(f"counting what {rule.id} selects")
        matching = await self._memory.matching(rule)
        pending = await self._pending(rule)
        if not rule.enabled:
            return Preview(rule, matching, pending)
        self._show_step(f"firing {rule.id}")
        self._tally.clear()
        report = await self._runner.fire(FireRequest(rule, "manual", self._clock.now()))
        reasons = self._tally.reasons()
        preview = Preview(rule, matching, pending, report.channels, reasons)
        again = await self._extract_again(rule)
        return replace(
            preview,
            held=report.held.problem if report.held else "",
            unrecorded=report.unrecorded,
            again={} if again is None else again.channels,
            unread=0 if again is None else again.unread,
        )

    async def _extract_again(self, rule: ConsolidationRule) -> Report | None:
        """Rehearse a backfill of a rule that extracts; None for another one."""
        if rule.extract is None or rule.extract.asks_model:
            return None
        self._show_step(f"extracting again what {rule.id} has read")
        consolidator, now = self._runner.consolidator, self._clock.now()
        bounds = DryRunBounds(part=_PARTS)
        return await consolidator.backfill(rule, now, by="", dry_run=True, bounds=bounds)

    async def find_replaced_predicates(self) -> list[MultiValuedHint]:
        """Return the predicates whose objects keep replacing each other."""
        return await self._facts.reads.find_multi_valued_hints()

    async def _pending(self, rule: ConsolidationRule) -> int:
        """Return the number of versions above the watermark of the rule."""
        after = await self._runner.consolidator.resume(rule, self._clock.now())
        return await self._memory.pending(after.seq, at_most=_EVERYTHING)
