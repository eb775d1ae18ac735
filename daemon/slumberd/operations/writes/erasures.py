"""Erase scopes, episodes and facts from both databases, and say what an erasure does."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, NamedTuple, get_args

import structlog

from slumberd.clock import Clock
from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.firing import UNBOUNDED, DryRunBounds
from slumberd.consolidation.incoming import Condition
from slumberd.logs.lines import timestamp
from slumberd.model.episode import LATEST, latest_at, microseconds
from slumberd.model.errors import (
    MemoryScopeError,
    NothingKeptError,
    StoreError,
    SupersededError,
    UsageError,
    VersionConflictError,
)
from slumberd.model.record import QUIET, ErasedList, RecordedErasures, Rewrite, StoreName
from slumberd.model.scope import FACTS, ScopeFilter, fact_id_of
from slumberd.operations import example_values as values
from slumberd.operations.caller import Caller, Right
from slumberd.operations.forms import ReasonedForm, Result
from slumberd.operations.handlers import Answer, Example, operation
from slumberd.operations.responses import certificate, plan_hash, statement_of
from slumberd.operations.stores import Stores
from slumberd.operations.writes.rule_runner import Turn
from slumberd.storage.engine import Scrubbed, Scrubbing
from slumberd.storage.episodes.erasure import Found
from slumberd.storage.ledger.erasure import FORGET, Unfinished
from slumberd.storage.ledger.erasure import Erasure as LedgerErasure
from slumberd.storage.ledger.rows import firing_id_of

_log = structlog.get_logger("slumberd")

_LONGEST_WAIT = timedelta(days=1)
"""How long the rewriting of the stores waits for a quiet window."""

_LONGEST_REWRITING_SECONDS = 3_600.0
"""After so long, a rewriting is no sign of life any more."""

_RETRY_WAIT_SECONDS = 0.5
"""How long the daemon waits for other programs when it tries again; nothing fires meanwhile."""

_ATTEMPTS_PER_TRIAL = 30
"""After so many attempts, one is made even if a transaction is open that spoiled the last one."""


class ForgetForm(ReasonedForm):
    """The request ``forget``: a scope, one episode, or one fact.

    Without session, agent, episode and fact, all of the user's is erased.

    Attributes:
        user: The user; by default the caller's own. With an episode or a fact, its owner.
        session: Only this session.
        agent: Only this agent; by default the caller's own, else all.
        episode: Only this episode, with all that came from it.
        fact: Only this fact: the episodes that say it, with all that came from them, and the manual
            edits that say it.
        plan: The hash in the answer of a dry run. If the scope has changed since, nothing is
            erased. A caller that may name one user only must give it.
    """

    user: str | None = None
    session: str | None = None
    agent: str | None = None
    episode: str | None = None
    fact: str | None = None
    plan: str | None = None


class Forgotten(Result):
    """The certificate of an erasure; for a dry run, the plan of one.

    Attributes:
        certificate: Always ``slumberd.forget``.
        version: The version of this form.
        scope: User, session and agent; None for all.
        at: When.
        erased_up_to: The end of the erased time; None when only an episode or a fact is erased.
        episodes: The ids of the episodes that are erased by their ids, whatever their instants;
            absent without any.
        facts: The current facts that go with an episode or a fact; absent for a scope.
        statements: What these facts say, in their order; only of a dry run.
        rows: How many rows were erased, by store and table.
        current_again: Facts that are current again.
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
        search_indexes: How many saved indexes of the search were removed; absent for a dry run.
        stage_notes: Of how many episodes notes were removed that stages keep, counted for each
            rule; absent for a dry run.
        pending: By file that may still have erased bytes: what its rewriting waits for. Absent for
            a dry run.
        bytes_gone_at: When the last byte was gone; None while something is pending.
    """

    certificate: str
    version: int
    scope: dict[str, str | None]
    at: str
    erased_up_to: str | None
    rows: dict[str, dict[str, int]]
    current_again: list[str]
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
    search_indexes: int | None = None
    stage_notes: int | None = None
    pending: dict[str, str] | None = None
    bytes_gone_at: str | None = None


class Erasure(Result):
    """A plan to erase, or the certificate of an erasure.

    Attributes:
        done: Whether the scope is erased.
        plan: The hash of what is erased.
        certificate: What is erased, and what is out of reach.
    """

    done: bool
    plan: str
    certificate: dict[str, Any]


async def _no_indexes(_: str) -> int:
    """Do nothing: there is no index."""
    return 0


class Target(NamedTuple):
    """What a request erases.

    Attributes:
        unfinished: The erasure, which is to be done.
        stored: What the episodes hold of it.
        edits: Facts of manual edits and of other programs that are erased.
    """

    unfinished: Unfinished
    stored: Found
    edits: frozenset[str] = frozenset()


def _scope_of(
    request: ForgetForm, caller: Caller, owners: Set[str], missing: NothingKeptError
) -> ScopeFilter:
    """Return the scope in which an episode or a fact is erased.

    Raises:
        NothingKeptError: The request names no user, and nobody has the episode or the fact.
        UsageError: The request names no user, and several users have it.
    """
    if request.user is None and caller.user is None:
        if not owners:
            raise missing
        if len(owners) > 1:
            raise UsageError("forget: several users have it; name the user")
        return caller.scope(next(iter(owners)), request.agent)
    return caller.scope(request.user, request.agent)


@contextmanager
def _files_tried_again() -> Iterator[None]:
    """Go on when a file cannot be removed: `_scrub_files` tries again, and says what is pending."""
    try:
        yield
    except SupersededError:
        raise
    except (StoreError, OSError):
        pass


class Erasures:
    """Erases scopes, episodes and facts: from the ledger first, then from the episodes and files.

    Attributes:
        erased: Called with the user of an erased scope, to drop what is in memory of its texts,
            and to remove what other files hold of them; returns how many indexes they held.

    Args:
        stores: The open stores.
        consolidator: Writes the log lines of an erasure.
        turn: The lock that each change of the facts holds.
        drop_questions: Called before each erasure; drops what waits for a language model.
        waits: Returns whether an erasure leaves the rewriting of the stores to the next quiet
            window; then somebody must call `remove_bytes`.
    """

    def __init__(
        self,
        stores: Stores,
        consolidator: Consolidator,
        clock: Clock,
        turn: Turn,
        *,
        drop_questions: Callable[[], None],
        waits: Callable[[], bool] = lambda: False,
    ) -> None:
        self._memory, self._facts = stores.memory, stores.facts
        self._consolidator = consolidator
        self._clock = clock
        self._turn = turn
        self._drop_questions = drop_questions
        self._waits = waits
        self._attempts: Counter[StoreName] = Counter()
        self._failures = 0
        self._waiting_since: datetime | None = None
        self._rewriting_since: float | None = None
        self._holders: dict[StoreName, frozenset[str]] = {}
        self._indexes = 0
        self._stage_notes = 0
        self.erased: Callable[[str], Awaitable[int]] = _no_indexes

    @operation(
        right=Right.ERASE,
        errors=(MemoryScopeError, NothingKeptError, VersionConflictError),
        example=Example(
            {"session": "s1", "dry_run": True},
            {
                "certificate": "slumberd.forget",
                "version": 1,
                "scope": {"user": "ana", "session": "s1", "agent": None},
                "at": values.AT,
                "erased_up_to": values.AT,
                "rows": {"facts": {"facts": 1, "ledger": 2}, "episodes": {"episodes": 1}},
                "current_again": [],
                "foreign_blank": [],
                "foreign_blank_total": 0,
                "head_before": values.HASH,
                "out_of_reach": ["backups and exports of the state directory, made before"],
                "dry_run": True,
                "plan": "9c1185a5c5e9fc54612808977ee8f548",
            },
        ),
    )
    async def forget(self, request: ForgetForm, caller: Caller) -> Annotated[Answer, Forgotten]:
        """Plan the erasure of a scope, an episode or a fact; with the plan's hash, erase it.

        Raises:
            NotAllowedError: The scope is not the caller's.
            NothingKeptError: Nothing of the scope is stored, and it was never erased.
            UsageError: The request needs the hash of a plan.
            VersionConflictError: The plan is of another state of the scope.
        """
        if request.dry_run:
            plan_it = partial(self._find_and_plan, request, caller)
            document, plan = await self._turn.run_dry(plan_it)
            return document | {"dry_run": True, "plan": plan}
        if caller.user is not None and request.plan is None:
            raise UsageError("name the plan; a request with dry_run answers with it")
        async with self._turn:
            target = await self._find(request, caller)
            if request.plan is not None:
                _, plan = await self._plan(target)
                if request.plan != plan:
                    raise VersionConflictError("what the plan erases", "ask for a new plan")
            erasure, tables = await self._erase(target, request.reason or "")
            own = erasure.outcome.firing_id
            done, out_of_reach = await self._scrub_files(own, rewrite=not self._waits())
        document = certificate(target.unfinished, erasure, tables, naming=target.stored.naming)
        document["out_of_reach"] += out_of_reach
        document["search_indexes"] = self._indexes
        document["stage_notes"] = self._stage_notes
        document |= {"firing_id": erasure.outcome.firing_id, "by": str(caller)}
        why = {} if request.reason is None else {"reason": request.reason}
        return {**document, **why, **done}

    async def _find_and_plan(
        self, request: ForgetForm, caller: Caller, bounds: DryRunBounds
    ) -> tuple[Answer, str]:
        return await self._plan(await self._find(request, caller), bounds)

    async def _plan(self, target: Target, bounds: DryRunBounds = UNBOUNDED) -> tuple[Answer, str]:
        """Return what an erasure would do, as its certificate; and the hash of its plan."""
        planned = await self._erase_facts(target, dry_run=True, cancelled=bounds.cancelled)
        unfinished, stored, _ = target
        tables = {"episodes": len(stored.eids)}
        document = certificate(unfinished, planned, tables, naming=stored.naming)
        if "facts" in document:
            document["statements"] = [statement_of(fact.payload) for fact in planned.going]
        return document, plan_hash(unfinished, stored.newest, planned)

    async def _find(self, request: ForgetForm, caller: Caller) -> Target:
        """Return what a request erases.

        Raises:
            NothingKeptError: Nothing of it is stored, and it was never erased.
            UsageError: The request names more than one of a session, an episode and a fact.
        """
        named = [request.session, request.episode, request.fact]
        if len(named) - named.count(None) > 1:
            raise UsageError("forget: name a session, an episode or a fact; only one of them")
        if request.episode is not None:
            return await self._find_episode(request, request.episode, caller)
        if request.fact is not None:
            return await self._find_fact(request, request.fact, caller)
        scope = caller.scope(request.user, request.agent, request.session)
        return await self._find_scope(scope, str(caller))

    async def _find_scope(self, scope: ScopeFilter, by: str) -> Target:
        latest = await self._latest()
        stored = await self._memory.episodes_in(scope, latest=latest)
        known = await self._facts.erasures.episodes_in(scope, latest=latest)
        if not (stored.eids or stored.naming or known.eids):
            await self._check_kept(scope)
        moment = max(microseconds(self._clock.now()), stored.newest or 0, known.newest)
        # A watermark may name an episode that a rule passed over and no ledger row names.
        eids = frozenset(stored.eids).union(known.eids)
        future = stored.future.union(known.future)
        return Target(Unfinished(scope, eids, moment, by, future), stored)

    async def _latest(self) -> int:
        """Return the last instant that is not still to come, in microseconds.

        When the last recorded instant lies far ahead of the clock, one of both is wrong. Then no
        instant counts as still to come.
        """
        latest = latest_at(self._clock.now(), self._consolidator.future_tolerance_seconds)
        recorded = await self._facts.watermarks.last_recorded_at()
        is_trusted = recorded is None or microseconds(recorded) <= latest
        return latest if is_trusted else LATEST

    async def _find_episode(self, request: ForgetForm, eid: str, caller: Caller) -> Target:
        """Return the erasure of one episode."""
        missing = NothingKeptError(request.user or caller.user, None, request.agent, episode=eid)
        # The ids of its facts in the channel facts; a host may have deleted the episode itself.
        promoted = [fact_id_of(FACTS, eid), f"{eid}#1"]
        owners = await self._memory.users_of([eid])
        owners |= await self._facts.erasures.owners_of(promoted)
        scope = _scope_of(request, caller, owners, missing)
        stored = await self._memory.episodes_named(scope, [eid])
        # An erasure may be repeated: the first may have ended before it rewrote the files.
        if not (
            stored.eids
            or await self._facts.erasures.knows_episode(scope, eid)
            or await self._facts.erasures.has_erased(scope.user, eid)
        ):
            raise missing
        eids = frozenset({eid})
        return Target(Unfinished(scope, eids, None, str(caller), eids), stored)

    async def _find_fact(self, request: ForgetForm, id: str, caller: Caller) -> Target:
        """Return the erasure of all that says one fact."""
        missing = NothingKeptError(request.user or caller.user, None, request.agent, fact=id)
        owners = await self._facts.erasures.owners_of([id])
        scope = _scope_of(request, caller, owners, missing)
        sources = await self._facts.erasures.sources_of(scope, id)
        if sources is None:
            raise missing
        eids = sources.eids
        stored = await self._memory.episodes_named(scope, eids)
        return Target(Unfinished(scope, eids, None, str(caller), eids), stored, sources.edits)

    async def _erase(self, target: Target, reason: str) -> tuple[LedgerErasure, dict[str, int]]:
        """Erase from both databases, and from what this process keeps in memory."""
        self._drop_questions()
        self._indexes = self._stage_notes = 0
        unfinished = target.unfinished
        try:
            erasure = await self._erase_facts(target, dry_run=False, reason=reason)
            tables = await self._erase_episodes([unfinished])
            with _files_tried_again():
                await self._end([unfinished])
                await self._consolidator.note_erasure(unfinished.reach.user, erasure.number)
            return erasure, tables
        finally:
            with _files_tried_again():
                await self.erased(unfinished.reach.user)

    async def _erase_facts(
        self,
        target: Target,
        *,
        dry_run: bool,
        reason: str = "",
        cancelled: Condition | None = None,
    ) -> LedgerErasure:
        scope, eids, moment, by, alone = target.unfinished
        kept, key = await self._memory.ids_outside(scope, eids), await self._erasure_key()
        now = self._clock.now()
        return await self._facts.erasures.forget(
            scope,
            eids,
            kept=kept,
            alone=alone,
            edits=target.edits,
            key=key,
            moment=moment,
            at=now,
            by=by,
            dry_run=dry_run,
            reason=reason,
            cancelled=cancelled,
        )

    async def _erasure_key(self) -> bytes:
        """Return the key with which both databases hash erased scopes."""
        keys = [each.key for each in await self._erased_scopes()]
        return next((key for key in keys if key is not None), secrets.token_bytes(32))

    async def _erased_scopes(self) -> list[ErasedList]:
        """Return the list of erased scopes of each store, the episodes first."""
        return [await self._memory.erased_scopes(), await self._facts.erasures.scopes()]

    async def share(self) -> None:
        """Record in each database the erased scopes that the other one or the ledger records.

        One database may lack an erasure: restored from a backup, or created later. Another program
        may have changed the list of erased scopes; the log says what the ledger restored.
        """
        async with self._turn:
            known = await self._erased_scopes()
            key = next((each.key for each in known if each.key is not None), None)
            if key is None:
                return
            recorded = await self._facts.erasures.recorded()
            moments = [each.moments for each in known if each.key == key]
            moments.append(recorded.moments)
            stores = [
                (self._memory.where, self._memory.learn_erased, recorded.finished()),
                (self._facts.where, self._facts.erasures.learn, recorded),
            ]
            restored_by_path: dict[str, int] = {}
            for (where, record_erased, expected), own in zip(stores, known, strict=True):
                if any(RecordedErasures(some).missing_from(own) for some in moments):
                    await record_erased(key, moments)
                if restored := expected.missing_from(own):
                    restored_by_path[where] = len(restored)
            for where, scopes in restored_by_path.items():  # both stores may be in one database
                _log.warning("erasure.list_restored", path=where, scopes=scopes)

    async def _erase_episodes(self, erasures: Sequence[Unfinished]) -> dict[str, int]:
        """Erase scopes from the episodes after the facts; return the number of rows, by table."""
        rows: Counter[str] = Counter()
        key = await self._erasure_key()
        for part in [part for erasure in erasures for part in erasure.parts()]:
            done = self._memory.forget(part.reach, part.eids, moment=part.moment, key=key)
            rows.update(await done)
        return dict(rows)

    async def _end(self, erasures: Sequence[Unfinished]) -> None:
        """Erase scopes from the files beside both databases, and record that nothing is left to do.

        Raises:
            StoreError: A file cannot be removed or written.
        """
        for erasure in erasures:
            user = erasure.reach.user
            self._stage_notes += await self._consolidator.erase_notes(user, erasure.eids)
        # Before the end is recorded: an erasure that is killed here is finished at the next start.
        for user in {erasure.reach.user for erasure in erasures}:
            self._indexes += await self.erased(user)
        await self._facts.erasures.end(erasures)

    async def finish_all(self) -> int:
        """Finish the erasures that an earlier process began; return how many there were."""
        async with self._turn:
            if finished := await self._finish():
                await self._scrub_files(rewrite=not self._waits())
        return finished

    async def _finish(self) -> int:
        """Erase the episodes of erasures that ended before they did so; return how many."""
        erasures = await self._facts.erasures.find_unfinished()
        if erasures:
            await self._erase_episodes(erasures)
            await self._end(erasures)
        return len(erasures)

    async def _check_kept(self, scope: ScopeFilter) -> None:
        """Check that the facts hold something of a scope without episodes.

        A scope may be erased twice: the first erasure may have ended before it rewrote the files
        or printed its certificate.

        Raises:
            NothingKeptError: The facts hold nothing, and the scope was never erased.
        """
        if await self._facts.erasures.covers(scope):
            return
        now = self._clock.now()
        found = await self._facts.erasures.forget(
            scope, moment=microseconds(now), at=now, by="", dry_run=True
        )
        if not any(found.counts.values()):
            raise NothingKeptError(scope.user, scope.session, scope.agent)

    def rewriting_seconds(self) -> int | None:
        """Return for how long the stores have been rewritten; None when they are not.

        After an hour the rewriting counts as stuck, and the result is None.
        """
        if self._rewriting_since is None:
            return None
        seconds = self._clock.monotonic() - self._rewriting_since
        return int(seconds) if seconds < _LONGEST_REWRITING_SECONDS else None

    async def remove_bytes(self, *, quiet: bool) -> None:
        """Remove the bytes that earlier erasures have left; log each erasure that is complete then.

        An erasure that ended before its episodes were erased is finished first. A store that is
        never quiet is rewritten after a day.

        Args:
            quiet: Whether no program has written lately.
        """
        if not await self._facts.erasures.rewrites():
            self._waiting_since = None
            return
        now = self._clock.now()
        self._waiting_since = self._waiting_since or now
        waits = self._waits() and not quiet and now - self._waiting_since < _LONGEST_WAIT
        async with self._turn:
            if waits:
                await self._finish()
                return
            await self._scrub_files(wait_seconds=_RETRY_WAIT_SECONDS)

    async def _scrub_files(
        self, own: str = "", *, rewrite: bool = True, wait_seconds: float | None = None
    ) -> tuple[Answer, list[str]]:
        """Remove the erased bytes from both stores, as far as other programs let.

        Args:
            own: The erasure whose certificate says what was done; no log line repeats it.
            rewrite: Whether to rewrite the stores now.
            wait_seconds: How long a step waits for other programs; None means the usual time.

        Returns:
            That part of the certificate, and where the engine may still keep the bytes.
        """
        left = await self._facts.erasures.rewrites()
        how = Scrubbing(rewrite=rewrite, wait_seconds=wait_seconds)
        self._rewriting_since = self._clock.monotonic()
        try:
            # Rows that are still there, and the record that names them, would outlast a rewriting.
            await self._finish()
            done = {
                "facts": await self._scrub("facts", self._facts.erasures.scrub, left, how),
                "episodes": await self._scrub("episodes", self._memory.scrub, left, how),
            }
        except SupersededError:
            raise
        except (StoreError, OSError) as error:
            # What is erased stays so, and the certificate must say it.
            stuck = Scrubbed(log_emptied=False, obstacle=str(error))
            done = dict.fromkeys(get_args(StoreName), stuck)
        finally:
            self._rewriting_since = None
        pending = {store: one.obstacle for store, one in done.items() if one.obstacle}
        self._log_pending(left, pending, own, is_tried=rewrite)
        at = timestamp(self._clock.now())
        self._log_complete(left, await self._facts.erasures.rewrites(), own, at)
        with suppress(OSError):  # the lines are written later, the certificate is not
            await self._consolidator.log_pending_records()
        part = {
            "head_after": (await self._facts.ledger.head()).head.hex(),
            "write_ahead_log_emptied": {file: one.log_emptied for file, one in done.items()},
            "rewritten": {file: one.rewritten for file, one in done.items() if one.rewritten},
            "pending": pending,
            "bytes_gone_at": None if pending else at,
        }
        return part, sorted({words for one in done.values() for words in one.out_of_reach})

    async def _scrub(
        self,
        store: StoreName,
        scrub: Callable[[Scrubbing], Awaitable[Scrubbed]],
        left: Sequence[Rewrite],
        how: Scrubbing,
    ) -> Scrubbed:
        """Scrub a store that has old bytes, and record what is left to do."""
        own = [one for one in left if one.store == store]
        if not own:
            return Scrubbed(log_emptied=True)
        is_needed = not all(one.is_rewritten for one in own)
        self._attempts[store] += 1
        tries = self._attempts[store] % _ATTEMPTS_PER_TRIAL == 0
        holders = frozenset() if tries else self._holders.get(store, frozenset())
        how = how._replace(rewrite=how.rewrite and is_needed, holders=holders)
        done = await scrub(how)
        self._holders[store] = done.holders
        if done.obstacle is not None:
            if done.rewritten is not None:
                await self._facts.erasures.note_rewritten(own)
        elif is_needed and not how.rewrite:
            return done._replace(obstacle=QUIET)
        else:
            await self._facts.erasures.end_rewrites(own)
        return done

    def _log_pending(
        self,
        left: Sequence[Rewrite],
        pending: Mapping[str, str],
        own: str,
        *,
        is_tried: bool,
    ) -> None:
        """Log what keeps old bytes: for each erasure, and then at every 30th attempt."""
        self._failures = self._failures + 1 if is_tried and pending else 0
        if self._failures and (own or self._failures % _ATTEMPTS_PER_TRIAL == 1):
            firing_id = own or firing_id_of(FORGET, max(one.row for one in left))
            problem = "; ".join(dict.fromkeys(pending.values()))
            _log.warning("erasure.pending", firing_id=firing_id, stores=[*pending], problem=problem)

    def _log_complete(
        self, before: Sequence[Rewrite], after: Sequence[Rewrite], own: str, at: str
    ) -> None:
        """Log the second certificate of each erasure whose bytes are gone now."""
        left = {one.row for one in after}
        for row in sorted({one.row for one in before} - left):
            if (firing_id := firing_id_of(FORGET, row)) != own:
                _log.info("erasure.completed", firing_id=firing_id, bytes_gone_at=at)
