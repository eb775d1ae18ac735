"""Promote the triples of a graph into facts, by a library call or by a rule."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol, runtime_checkable

import structlog

from slumberd.clock import Clock, SystemClock
from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.firing import UNBOUNDED, DryRunBounds, FireRequest
from slumberd.consolidation.graph_promotion import Promoted
from slumberd.model.errors import FiringTimeoutError, PromotionError, ProvenanceError, StoppedError
from slumberd.model.fact import Fact
from slumberd.model.firing import Counts, Report, Trigger
from slumberd.model.graph import Owner, ResultSet, facts_of, triples_in
from slumberd.model.provenance import ProvenanceBundle
from slumberd.model.rule import ConsolidationRule
from slumberd.model.store_status import StoreHealth
from slumberd.model.texts import is_storable
from slumberd.storage.protocols import FactStore
from slumberd.workers.graph.cypher_linter import Linter
from slumberd.workers.provenance.publisher import ProvenanceSink, SyncProvenanceSink


@runtime_checkable
class GraphStore(Protocol):
    """A graph that answers portable Cypher."""

    async def bootstrap(self) -> None:
        """Create what is missing; a second call changes nothing."""
        ...

    async def health(self) -> StoreHealth:
        """Return whether the graph can be queried; an unusable file raises nothing."""
        ...

    async def query(self, cypher: str, params: Mapping[str, Any] | None = None) -> ResultSet:
        """Return the result of a query that only reads.

        Raises:
            UnportableCypherError: The query is not portable, or writes; it was not run.
            GraphStoreError: The graph cannot answer the query.
        """
        ...

    async def close(self) -> None:
        """Release all resources."""
        ...


@runtime_checkable
class PromotionTarget(Protocol):
    """A fact store that promotes all facts of a graph, or none."""

    async def promote(
        self, facts: Sequence[Fact], *, rule_id: str, at: datetime | None = None
    ) -> Promoted:
        """Promote the new and changed facts of a graph in one transaction.

        A fact that was promoted before and has not changed is not promoted again, even if it is no
        longer current. A fact that a person retracted or corrected is not promoted either.
        """
        ...


class GraphRuleTarget(Protocol):
    """A fact store that promotes the facts of a graph rule as a firing of that rule."""

    async def promote(  # noqa: PLR0913 # the fields of its ledger rows
        self,
        facts: Sequence[Fact],
        *,
        rule_id: str,
        rule_hash: str = "",
        trigger: Trigger = "manual",
        at: datetime | None = None,
        by: str = "",
        dry_run: bool = False,
        run: str = "",
        reason: str = "",
    ) -> Promoted:
        """Promote the new and changed facts of a graph in one transaction and one firing.

        Args:
            facts: The facts of the triples that the graph returned.
            rule_id: The rule that promotes.
            rule_hash: The hash of the rule's content; empty for a rule without a file.
            trigger: What started the firing.
            at: The instant of the firing; None means now.
            by: The person who started it; empty for the rule itself.
            dry_run: Return the outcome, and write nothing.
            run: The id that all firings of one command or due cadence share.
            reason: Why that person started it; empty without a reason.
        """
        ...


EVIDENCE = "stargraph.evidence"
"""The template under which a sink receives a promoted triple."""

EVIDENCE_SLOTS = ("subject", "predicate", "object", "source")
"""The slots of the template, without those of provenance."""

ORIGIN = "graph_promotion"
"""The origin of a promoted triple, in its provenance."""

SINK_SECONDS = 10.0
"""The time limit of a sink for one fact; a sink that exceeds it gets no more facts of the call."""

_POLL_SECONDS = 0.02
_MAX_MESSAGE_CHARACTERS = 500
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

_log = structlog.get_logger("slumberd")


async def PromoteTriplesToFacts(  # noqa: N802, PLR0913 # the specification's name and arguments
    graph_store: GraphStore,
    fact_store: FactStore,
    fathom_adapter: ProvenanceSink | SyncProvenanceSink | None,
    *,
    filter_cypher: str,
    rule_id: str,
    agent_id: str,
    user: str = "",
    clock: Clock | None = None,
) -> list[Fact]:
    """Promote the triples that a query returns, once, from the graph to the fact store.

    The id of a triple's fact never changes. It is derived from rule, user, agent and
    ``triple_id``; without a ``triple_id``, from subject, predicate and object. A triple that
    disappears from the graph removes no fact.

    A store with ``promote``, such as `SQLiteFactStore`, commits all facts in one transaction or
    none. It does not promote an unchanged triple again, and it respects what a person retracted or
    corrected. Any other store gets one fact at a time by ``pin``, in the order of the ids.

    Args:
        graph_store: The graph; it is queried once.
        fathom_adapter: The sink that gets each current fact, after the commit and at least once;
            None for no sink. The slots are ``subject predicate object source``. An error of the
            sink is logged and loses no fact. A synchronous adapter is called in this thread.
        filter_cypher: The query. It returns ``subject``, ``predicate`` and ``object``, and may
            return ``confidence`` (0 to 1; the default is 1) and ``triple_id``.
        rule_id: The rule that promotes; not empty.
        user: The user of the facts; when it is empty, no query for a user finds them.
        clock: The time; None for the system's clock.

    Returns:
        The current facts of the triples, as they are stored, in the order of their ids.

    Raises:
        UnportableCypherError: The query is not portable, or writes.
        GraphStoreError: The graph cannot answer the query.
        PromotionError: A row is incomplete, rows contradict each other, or `fact_store` is not a
            fact store; no fact was promoted.
        ExtraMissingError: The extra ``graph`` is not installed.
    """
    if not rule_id or not all(map(is_storable, (rule_id, agent_id, user))):
        raise PromotionError(rule_id, "rule_id must be non-empty, and no id may hold NUL")
    _check_store(fact_store, rule_id)
    owner = Owner(rule_id, user, agent_id, source_of(graph_store))
    at = (clock or SystemClock()).now()
    _, facts = await _query_facts(graph_store, filter_cypher, owner, at)
    stored = await _store_facts(fact_store, facts, rule_id, at)
    if fathom_adapter is not None:
        await _publish(fathom_adapter, stored, rule_id)
    return stored


def _check_store(store: object, rule_id: str) -> None:
    if not isinstance(store, FactStore):
        kind = type(store).__name__
        raise PromotionError(
            rule_id, f"a {kind} is not a fact store; pass one that implements FactStore"
        )


async def _store_facts(
    store: FactStore, facts: Sequence[Fact], rule_id: str, at: datetime
) -> list[Fact]:
    """Store the facts of a graph; return those that are current, in the order of their ids."""
    if isinstance(store, PromotionTarget):
        return list((await store.promote(facts, rule_id=rule_id, at=at)).facts)
    in_order = sorted(facts, key=lambda fact: fact.id)
    for fact in in_order:
        await store.pin(fact)
    return in_order


async def _query_facts(
    graph: GraphStore, cypher: str, owner: Owner, at: datetime
) -> tuple[int, list[Fact]]:
    """Return the number of rows that a query returns, and the facts of their triples."""
    await asyncio.to_thread(Linter().check_reading, cypher)
    rows = (await graph.query(cypher)).rows
    triples = await asyncio.to_thread(triples_in, rows, owner.rule_id)
    return len(rows), facts_of(triples, owner, at)


def source_of(graph: object) -> str:
    """Return the name of a graph in its facts: its kind, and its path if it has one.

    A graph whose attribute ``source`` is an identifier is named by it, without its path.
    """
    own_name = getattr(graph, "source", None)
    if isinstance(own_name, str) and _IDENTIFIER.fullmatch(own_name):
        return own_name
    kind, path = _kind_of(graph), path_of(graph)
    return f"{kind}:{path}" if path and is_storable(path) else kind


def _kind_of(graph: object) -> str:
    """Return the kind of a graph as an identifier: ``ryugraph`` for a RyuGraphStore."""
    name = type(graph).__name__.removesuffix("Store").lower()
    plain = re.sub(r"[^a-z0-9_-]", "_", name)
    return plain if _IDENTIFIER.fullmatch(plain) else "graph"


def path_of(graph: object) -> str:
    """Return the path of a graph; empty when it has none."""
    found = getattr(graph, "path", None) or getattr(graph, "_path", None)
    return "" if found is None or inspect.isroutine(found) else str(found)


async def _publish(
    sink: ProvenanceSink | SyncProvenanceSink, facts: Sequence[Fact], rule_id: str
) -> None:
    """Publish stored facts to a sink; a failure is logged and loses no fact."""
    for number, fact in enumerate(facts):
        try:
            async with asyncio.timeout(SINK_SECONDS):
                answer = sink.assert_with_provenance(EVIDENCE, _slots(fact), _bundle(fact, rule_id))
                if inspect.isawaitable(answer):
                    await answer
        except ProvenanceError as error:
            _log_failure(rule_id, 1, error)
        except Exception as error:  # noqa: BLE001 - a sink may raise anything; the facts are stored
            _log_failure(rule_id, len(facts) - number, error)
            return


def _log_failure(rule_id: str, facts: int, error: Exception) -> None:
    _log.warning(
        "graph.evidence_failed",
        rule_id=rule_id,
        facts=facts,
        error=type(error).__name__,
        message=str(error)[:_MAX_MESSAGE_CHARACTERS],
    )


def _slots(fact: Fact) -> dict[str, object]:
    return {name: fact.payload[name] for name in EVIDENCE_SLOTS}


def _bundle(fact: Fact, rule_id: str) -> ProvenanceBundle:
    # The instant is that of the promotion, so a repeated assertion is equal to the first.
    return {
        "origin": ORIGIN,
        # An adapter accepts only an identifier, so the path of the graph is left out.
        "source": str(fact.payload["source"]).partition(":")[0],
        "run_id": rule_id,
        "step": 0,
        "confidence": Decimal(str(fact.confidence)),
        "timestamp": fact.pinned_at,
    }


@dataclass(frozen=True, slots=True)
class Promoter:
    """Fires rules of kind ``graph`` into the fact store.

    Attributes:
        open: Returns the graph; each firing opens it and closes it again.
        facts: The fact store.
        consolidator: Writes the log lines of committed rows.
        clock: Measures durations.
    """

    open: Callable[[], GraphStore]
    facts: GraphRuleTarget
    consolidator: Consolidator
    clock: Clock

    async def fire(self, request: FireRequest) -> Report:
        """Promote the present triples of the graph.

        Args:
            request: Which rule fires. When its ``stop`` is set, the query is cancelled, and
                nothing is promoted; its ``timing`` is ignored.

        Raises:
            UnportableCypherError: The query is not portable, or writes.
            GraphStoreError: The graph cannot answer the query.
            PromotionError: A row is incomplete, or rows contradict each other.
            FiringTimeoutError: The query exceeded the rule's timeout.
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        started, rule, run = self.clock.monotonic(), request.rule, request.run
        answer = await self._query(rule, request.at, request.stop)
        if answer is None:
            report = self._report(rule, 0, None, run)
            report.cut_short = True
            return report
        rows, facts = answer
        promoted = await self.facts.promote(
            facts,
            rule_id=rule.id,
            rule_hash=rule.content_hash,
            trigger=request.trigger,
            at=request.at,
            by=request.by,
            run=run,
            reason=request.reason,
        )
        await self.consolidator.log_pending_records()
        report = self._report(rule, rows, promoted, run)
        self._log_promotion(rule, rows, promoted, report, self.clock.monotonic() - started)
        return report

    async def preview(
        self, rule: ConsolidationRule, at: datetime, bounds: DryRunBounds = UNBOUNDED
    ) -> Report:
        """Report what a firing would do now; write nothing.

        Args:
            at: The firing's instant.
            bounds: When its stop is set, the query is cancelled. All rows are read.

        Raises:
            StoppedError: The stop of the bounds was set during the query.
        """
        answer = await self._query(rule, at, bounds.stop)
        if answer is None:
            raise StoppedError(f"the query of rule {rule.id!r} was stopped")
        rows, facts = answer
        promoted = await self.facts.promote(
            facts, rule_id=rule.id, rule_hash=rule.content_hash, at=at, dry_run=True
        )
        report = self._report(rule, rows, promoted)
        report.dry_run, report.firing_ids = True, []
        report.records = list(promoted.outcome.records) if promoted.outcome else []
        return report

    async def _query(
        self, rule: ConsolidationRule, at: datetime, stop: asyncio.Event | None
    ) -> tuple[int, list[Fact]] | None:
        """Return the number of rows and the facts of a rule's query; None when it was stopped."""
        graph = self.open()
        (channel,) = rule.then_emits
        owner = Owner(rule.id, rule.user, rule.agent, source_of(graph), channel)
        try:
            async with asyncio.timeout(rule.timeout) as limit:
                with _expire_on(stop, limit):
                    return await _query_facts(graph, rule.filter_cypher, owner, at)
        except TimeoutError as error:
            if stop is not None and stop.is_set():
                return None
            raise FiringTimeoutError(rule.id, rule.timeout or 0.0) from error
        finally:
            await graph.close()

    def _report(
        self, rule: ConsolidationRule, rows: int, promoted: Promoted | None, run: str = ""
    ) -> Report:
        outcome = None if promoted is None else promoted.outcome
        counts = Counts() if outcome is None else next(iter(outcome.channels.values()))
        changed = counts.added + counts.updated + counts.deleted
        counts = counts._replace(read=rows, noop=rows - changed)
        firing_ids = [] if outcome is None else [outcome.firing_id]
        return Report(rule.id, {rule.then_emits[0]: counts}, run, firing_ids)

    def _log_promotion(
        self,
        rule: ConsolidationRule,
        rows: int,
        promoted: Promoted,
        report: Report,
        seconds: float,
    ) -> None:
        (counts,) = report.channels.values()
        _log.info(
            "graph.promoted",
            rule_id=rule.id,
            firing_id=next(iter(report.firing_ids), None),
            rows=rows,
            added=counts.added,
            updated=counts.updated,
            unchanged=promoted.unchanged,
            withheld=_count_withheld(promoted),
            seconds=round(seconds, 3),
        )


def _count_withheld(promoted: Promoted) -> dict[str, int]:
    """Return the number of withheld facts by reason."""
    reasons: dict[str, int] = {}
    for reason in promoted.withheld.values():
        reasons[reason] = reasons.get(reason, 0) + 1
    return dict(sorted(reasons.items()))


@contextmanager
def _expire_on(stop: asyncio.Event | None, limit: asyncio.Timeout) -> Iterator[None]:
    """Let a timeout expire as soon as `stop` is set."""
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []

    def poll() -> None:
        if stop is not None and stop.is_set():
            if not limit.expired():
                limit.reschedule(loop.time())
        else:
            timers[:] = [loop.call_later(_POLL_SECONDS, poll)]

    poll()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
