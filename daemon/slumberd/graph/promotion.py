"""Promote a graph's triples into facts: what is asked, what is stored, who is told."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import structlog

from slumberd.clock import Clock, SystemClock
from slumberd.consolidation.consolidator import Consolidator, Report
from slumberd.consolidation.graph_promotion import Promoted
from slumberd.errors import FiringTimeoutError, PromotionError, ProvenanceError
from slumberd.graph.cypher_linter import Linter
from slumberd.graph.protocols import GraphStore, Promoting
from slumberd.model.fact import Fact
from slumberd.model.firing import UNTIMED, Counts, Timing, Trigger
from slumberd.model.graph import Owner, facts_of, is_storable, triples_in
from slumberd.model.provenance import ProvenanceBundle
from slumberd.model.rule import ConsolidationRule
from slumberd.provenance.protocols import ProvenanceSink, SyncProvenanceSink
from slumberd.storage.facts.store import SQLiteFactStore
from slumberd.storage.protocols import FactStore

TEMPLATE = "stargraph.evidence"
"""What a sink is told that a promoted triple is."""

EVIDENCE_SLOTS = ("subject", "predicate", "object", "source")
"""All that the template holds beside provenance."""

ORIGIN = "graph_promotion"

SINK_SECONDS = 10.0
"""How long a sink may take for one fact; then it is told of no more this time."""

_LOOK_SECONDS = 0.02
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
    """Promote what a query finds in a graph, once, and one way.

    A triple's fact has an id of its own for ever, made of rule, user, agent and ``triple_id``, or
    of subject, predicate and object. A triple that vanishes takes nothing out.

    A store with ``promote``, as `SQLiteFactStore`, takes all facts in one transaction or none. It
    does not promote again what has not changed, and keeps what a person took out or corrected.
    Any other store takes one fact at a time by ``pin``, in order.

    Args:
        graph_store: It is asked once.
        fact_store: Any store of the protocol.
        fathom_adapter: Told of each current fact, after the commit, at least once; None for
            nobody. The slots are ``subject predicate object source``. An error there is logged,
            and loses no fact. An adapter that is not asynchronous is called in this thread.
        filter_cypher: Returns ``subject``, ``predicate`` and ``object``; ``confidence``, 0 to 1,
            is 1 where it gives none, and ``triple_id`` is made of the three.
        rule_id: Names who promotes; not empty.
        agent_id: Which agent's the facts are.
        user: Whose they are; facts of nobody are found by no query for a user.
        clock: Says when; the system's for None.

    Returns:
        The current facts of the triples, as they are stored, by id.

    Raises:
        UnportableCypherError: The query is not portable, or writes.
        GraphStoreError: The graph cannot answer.
        PromotionError: A row is not whole, rows contradict each other, or this is no fact store;
            nothing was promoted.
        ExtraMissingError: The extra ``graph`` is not installed.
    """
    if not rule_id or not all(map(is_storable, (rule_id, agent_id, user))):
        raise PromotionError(rule_id, "rule_id must be non-empty, and no id may hold NUL")
    _check_store(fact_store, rule_id)
    owner = Owner(rule_id, user, agent_id, source_of(graph_store))
    at = (clock or SystemClock()).now()
    _, facts = await _asked(graph_store, filter_cypher, owner, at)
    stored = await _stored(fact_store, facts, rule_id, at)
    if fathom_adapter is not None:
        await _assert_each(fathom_adapter, stored, rule_id)
    return stored


def _check_store(store: object, rule_id: str) -> None:
    if not isinstance(store, FactStore):
        kind = type(store).__name__
        raise PromotionError(rule_id, f"a {kind} is no fact store; give one of the protocol")


async def _stored(
    store: FactStore, facts: Sequence[Fact], rule_id: str, at: datetime
) -> list[Fact]:
    """Store what a graph says; return the current facts of it, by id."""
    if isinstance(store, Promoting):
        return list((await store.promote(facts, rule_id=rule_id, at=at)).facts)
    in_order = sorted(facts, key=lambda fact: fact.id)
    for fact in in_order:
        await store.pin(fact)
    return in_order


async def _asked(
    graph: GraphStore, cypher: str, owner: Owner, at: datetime
) -> tuple[int, list[Fact]]:
    """Return how many rows a query finds, and the facts that they become."""
    await asyncio.to_thread(Linter().check_reading, cypher)
    rows = (await graph.query(cypher)).rows
    triples = await asyncio.to_thread(triples_in, rows, owner.rule_id)
    return len(rows), facts_of(triples, owner, at)


def source_of(graph: object) -> str:
    """Return what a fact calls the graph that it comes from: the kind of graph, and its path.

    A graph may name itself, by an identifier as ``source``; then its path is left out.
    """
    given = getattr(graph, "source", None)
    if isinstance(given, str) and _IDENTIFIER.fullmatch(given):
        return given
    kind, path = _kind_of(graph), path_of(graph)
    return f"{kind}:{path}" if path and is_storable(path) else kind


def _kind_of(graph: object) -> str:
    """Return the kind of a graph as an identifier: ``ryugraph`` of a RyuGraphStore."""
    name = type(graph).__name__.removesuffix("Store").lower()
    plain = re.sub(r"[^a-z0-9_-]", "_", name)
    return plain if _IDENTIFIER.fullmatch(plain) else "graph"


def path_of(graph: object) -> str:
    """Return where a graph is; empty when it does not tell."""
    found = getattr(graph, "path", None) or getattr(graph, "_path", None)
    return "" if found is None or inspect.isroutine(found) else str(found)


async def _assert_each(
    sink: ProvenanceSink | SyncProvenanceSink, facts: Sequence[Fact], rule_id: str
) -> None:
    """Tell a sink of facts that are stored; what goes wrong is logged, and nothing is lost."""
    for number, fact in enumerate(facts):
        try:
            async with asyncio.timeout(SINK_SECONDS):
                taken = sink.assert_with_provenance(TEMPLATE, _slots(fact), _bundle(fact, rule_id))
                if inspect.isawaitable(taken):
                    await taken
        except ProvenanceError as error:
            _log_failure(rule_id, 1, error)
        except Exception as error:  # noqa: BLE001 - whatever a sink does, the facts are stored
            _log_failure(rule_id, len(facts) - number, error)
            return


def _log_failure(rule_id: str, facts: int, error: Exception) -> None:
    _log.warning(
        "graph.evidence_failed",
        rule_id=rule_id,
        facts=facts,
        error=type(error).__name__,
        message=str(error)[:500],
    )


def _slots(fact: Fact) -> dict[str, object]:
    return {name: fact.payload[name] for name in EVIDENCE_SLOTS}


def _bundle(fact: Fact, rule_id: str) -> ProvenanceBundle:
    # Of the instant at which the fact was promoted, so that it is the same each time.
    return {
        "origin": ORIGIN,
        # An adapter takes an identifier only, so the path of the graph is left out here.
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
        open: Returns the graph, to be read; it is opened for each firing, and closed after.
        facts: Where the facts go.
        consolidator: Writes the log lines of what was committed.
        clock: For durations.
    """

    open: Callable[[], GraphStore]
    facts: SQLiteFactStore
    consolidator: Consolidator
    clock: Clock

    async def fire(  # noqa: PLR0913 # each is asked for by another caller
        self,
        rule: ConsolidationRule,
        trigger: Trigger,
        at: datetime,
        *,
        by: str = "",
        stop: asyncio.Event | None = None,
        upto: int | None = None,  # a graph has no log of rows
        timing: Timing = UNTIMED,
        run: str = "",
    ) -> Report:
        """Promote what the graph says now.

        Args:
            rule: The rule.
            trigger: What made it due.
            at: The firing's instant.
            by: Who asked for it; nobody did when it was due.
            stop: When set, the query under way is given up, and nothing is promoted.
            upto: Means nothing here.
            timing: Is recorded with the instants that the rule has served.
            run: The id that all of its batches share.

        Raises:
            UnportableCypherError: The query is not portable, or writes.
            GraphStoreError: The graph cannot answer.
            PromotionError: What it says cannot be promoted.
            FiringTimeoutError: It took too long.
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        began = self.clock.monotonic()
        found = await self._found(rule, at, stop)
        if found is None:
            report = self._report(rule, 0, None, run)
            report.cut_short = True
            return report
        rows, facts = found
        done = await self.facts.promote(
            facts,
            rule_id=rule.id,
            rule_hash=rule.content_hash,
            trigger=trigger,
            at=at,
            by=by,
            run=run,
        )
        await self.consolidator.tell_again()
        report = self._report(rule, rows, done, run)
        self._tell(rule, rows, done, report, self.clock.monotonic() - began)
        return report

    async def rehearse(self, rule: ConsolidationRule, at: datetime) -> Report:
        """Say what a firing would do now; write nothing."""
        rows, facts = await self._found(rule, at, None) or (0, [])
        done = await self.facts.promote(
            facts, rule_id=rule.id, rule_hash=rule.content_hash, at=at, dry_run=True
        )
        report = self._report(rule, rows, done)
        report.rehearsed, report.firing_ids = True, []
        report.records = list(done.outcome.records) if done.outcome else []
        return report

    async def _found(
        self, rule: ConsolidationRule, at: datetime, stop: asyncio.Event | None
    ) -> tuple[int, list[Fact]] | None:
        """Return the rows and facts of a query; None when it was stopped."""
        graph = self.open()
        (channel,) = rule.then_emits
        owner = Owner(rule.id, rule.user, rule.agent, source_of(graph), channel)
        try:
            async with asyncio.timeout(rule.timeout) as limit:
                with _ended_by(stop, limit):
                    return await _asked(graph, rule.filter_cypher, owner, at)
        except TimeoutError as error:
            if stop is not None and stop.is_set():
                return None
            raise FiringTimeoutError(rule.id, rule.timeout or 0.0) from error
        finally:
            await graph.close()

    def _report(
        self, rule: ConsolidationRule, rows: int, done: Promoted | None, run: str = ""
    ) -> Report:
        outcome = None if done is None else done.outcome
        counts = Counts() if outcome is None else next(iter(outcome.channels.values()))
        changed = counts.added + counts.updated + counts.deleted
        counts = counts._replace(read=rows, noop=rows - changed)
        firing_ids = [] if outcome is None else [outcome.firing_id]
        return Report(rule.id, {rule.then_emits[0]: counts}, run, firing_ids)

    def _tell(
        self,
        rule: ConsolidationRule,
        rows: int,
        done: Promoted,
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
            unchanged=done.unchanged,
            withheld=_by_reason(done),
            seconds=round(seconds, 3),
        )


def _by_reason(done: Promoted) -> dict[str, int]:
    reasons: dict[str, int] = {}
    for reason in done.withheld.values():
        reasons[reason] = reasons.get(reason, 0) + 1
    return dict(sorted(reasons.items()))


@contextmanager
def _ended_by(stop: asyncio.Event | None, limit: asyncio.Timeout) -> Iterator[None]:
    """Let a timeout end at once when `stop` is set."""
    loop = asyncio.get_running_loop()
    looks: list[Any] = []

    def look() -> None:
        if stop is not None and stop.is_set():
            if not limit.expired():
                limit.reschedule(loop.time())
        else:
            looks[:] = [loop.call_later(_LOOK_SECONDS, look)]

    look()
    try:
        yield
    finally:
        for one in looks:
            one.cancel()
