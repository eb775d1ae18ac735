"""Send a request to those shards of a database that it concerns, and merge their answers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any

from slumberd.config.validation import problems
from slumberd.errors import (
    DatabaseHeldError,
    NoInputError,
    NothingKeptError,
    NotRunningError,
    ShardsFailedError,
    SlumberdError,
    VersionConflictError,
)
from slumberd.operations.caller import Caller
from slumberd.operations.forms import RequestForm
from slumberd.operations.forwarded_caller import forward
from slumberd.operations.handlers import Answer, Handler, typed_handler
from slumberd.operations.memory_forms import MOST, EpisodesForm
from slumberd.operations.operation import Operation
from slumberd.operations.shards.answers import combine_plans, merge_answers
from slumberd.operations.shards.firings import name_firings
from slumberd.operations.table import OPERATIONS
from slumberd.operations.writes.changes import new_run_id
from slumberd.service.control_socket import RefusedError, own_error
from slumberd.service.database.requests import ask_database
from slumberd.service.shards.routes import NOBODY, Parts, Request, ShardRoutes
from slumberd.storage.postgres.installation import count_shards
from slumberd.storage.postgres.shard_lookup import ShardLookup

Perform = Callable[[int, str, Request], Answer]
"""Performs an operation on a shard: the shard, the operation's name, and its fields."""

ONE_RUN = {"backfill", "fire", "retry", "undo"}
"""Operations whose firings in several shards belong to one run."""

MOST_CALLS = 64
"""Calls of the handlers of one host at the same time; further ones wait."""

MOST_CONNECTIONS = 32
"""Shards that one process asks at the same time; each takes a connection, and further ones wait."""

_ASK_AGAIN_SECONDS = 0.1
"""The pause between two looks for a daemon that holds a shard."""

_ABSENCES: Mapping[str, type[SlumberdError]] = {
    "correct": NoInputError,
    "explain": NoInputError,
    "forget": NothingKeptError,
    "history": NoInputError,
}
"""The error of a shard that has nothing of what is asked, while another shard may have it."""

_Outcomes = dict[int, Answer | SlumberdError]


class ShardRequests:
    """Sends requests to the shards of one database.

    Args:
        shards: How many shards the database has, at least 2.
        lookup: Finds in which shard something lies.
        ask: Asks the daemon that holds a shard.
    """

    def __init__(self, shards: int, lookup: ShardLookup, ask: Perform) -> None:
        self._routes = ShardRoutes(shards, lookup)
        self._ask_daemon = ask
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)

    def call(
        self,
        operation: str,
        request: Request,
        *,
        caller: Caller | None = None,
        here: Perform | None = None,
    ) -> Answer:
        """Perform an operation on the shards that it concerns, and return one answer.

        What some shards have done stays done when others fail.

        Args:
            operation: The operation's name.
            request: Its fields.
            caller: For whom; None for this process itself.
            here: Performs the operation in this process on a shard that no daemon holds; None
                reports such a shard.

        Raises:
            NotRunningError: No daemon holds any of the shards.
            ShardsFailedError: Some shards failed.
            SlumberdError: All shards failed, and for the same reason.
        """
        call = _Call(operation, self._ask, here, caller)
        if not _is_well_formed(operation, request):
            return call.perform_all({NOBODY: request}, request)  # the daemon lists the mistakes
        parts = self._routes.parts(operation, request, caller or Caller.here())
        if operation == "forget" and len(parts) > 1:
            return call.forget(parts, request)
        if operation == "episodes" and len(parts) > 1:
            return call.read_episodes(parts, request)
        return call.perform_all(parts, request)

    def _ask(self, shard: int, operation: str, request: Request) -> Answer:
        with self._room:
            return self._ask_daemon(shard, operation, request)


def _is_well_formed(operation: str, request: Request) -> bool:
    known = OPERATIONS.get(operation)
    return known is not None and not problems(known.form, request, strict=True)


class _Call:
    """One call, which may ask several shards.

    Args:
        operation: The operation's name.
        ask: Asks the daemon that holds a shard.
        here: Performs the operation in this process; None reports a shard without a daemon.
        caller: For whom; None for this process itself.
    """

    def __init__(
        self, operation: str, ask: Perform, here: Perform | None, caller: Caller | None
    ) -> None:
        self._operation = operation
        self._ask = ask
        self._here = here
        self._caller = caller

    def perform_all(self, parts: Parts, request: Request) -> Answer:
        """Ask all shards at once, and return one answer."""
        run = new_run_id() if self._operation in ONE_RUN and len(parts) > 1 else None
        return self._merge(self._settle(self._ask_all(parts, run)), request)

    def read_episodes(self, parts: Parts, request: Request) -> Answer:
        """Return the latest episodes of all shards: each is asked for so many as all may need."""
        form = EpisodesForm.model_validate(request, strict=True)
        wanted = form.skip + form.limit
        found: dict[int, list[Any]] = {shard: [] for shard in parts}
        asked = {**parts}
        while asked:
            skip = len(found[next(iter(asked))])
            page = {"skip": skip, "limit": min(MOST, wanted - skip)}
            answers = self._settle(self._ask_all({k: {**asked[k], **page} for k in asked}))
            for shard, answer in answers.items():
                found[shard] = found[shard] + answer["episodes"]
                if len(answer["episodes"]) < page["limit"] or len(found[shard]) >= wanted:
                    del asked[shard]
        return self._merge({shard: {"episodes": each} for shard, each in found.items()}, request)

    def forget(self, parts: Parts, request: Request) -> Answer:
        """Plan an erasure in all shards, or erase one shard after the other.

        The erased scopes are of the whole database, so erasures do not run at the same time.

        Raises:
            VersionConflictError: The plan is of another state of the scope.
        """
        if request.get("dry_run"):
            answers = self._settle(self._ask_all(parts))
            plans = {shard: answer["plan"] for shard, answer in answers.items()}
            return {**self._merge(answers, request), "plan": combine_plans(plans)}
        if request.get("plan") is not None:
            parts = self._planned(parts, request["plan"])
        outcomes: _Outcomes = {}
        for shard, part in parts.items():
            outcomes |= self._ask_all({shard: part})
        return self._merge(self._settle(outcomes), request)

    def _planned(self, parts: Parts, plan: str) -> Parts:
        """Return what each shard that keeps something is asked: its own part of a plan."""
        planning = {shard: {**part, "plan": None, "dry_run": True} for shard, part in parts.items()}
        answers = self._settle(self._ask_all(planning))
        plans: dict[int, str] = {shard: answer["plan"] for shard, answer in answers.items()}
        if combine_plans(plans) != plan:
            raise VersionConflictError("what the plan erases", "ask for a new plan")
        return {shard: {**parts[shard], "plan": its_plan} for shard, its_plan in plans.items()}

    def _merge(self, answers: Mapping[int, Answer], request: Request) -> Answer:
        named = [name_firings(self._operation, answers[k], k) for k in sorted(answers)]
        return merge_answers(self._operation, named, request)

    def _ask_all(self, parts: Parts, run: str | None = None) -> _Outcomes:
        """Ask the daemons of all shards at once; then perform here what no daemon does."""
        requests = {shard: forward(part, self._caller, run) for shard, part in parts.items()}
        outcomes = self._ask_at_once(requests)
        if self._here is not None:
            for shard, outcome in outcomes.items():
                if isinstance(outcome, NotRunningError):
                    outcomes[shard] = _outcome_of(
                        partial(self._perform_here, self._here, shard, requests[shard])
                    )
        return outcomes

    def _ask_at_once(self, requests: Parts) -> _Outcomes:
        asks = {
            shard: partial(self._ask, shard, self._operation, request)
            for shard, request in requests.items()
        }
        if len(asks) == 1:
            return {shard: _outcome_of(ask) for shard, ask in asks.items()}
        return _run_at_once(asks)

    def _perform_here(self, here: Perform, shard: int, request: Request) -> Answer:
        try:
            return here(shard, self._operation, request)
        except DatabaseHeldError as held:
            # A daemon may have taken the shard in between.
            try:
                return self._ask(shard, self._operation, request)
            except NotRunningError:
                raise held from None

    def _settle(self, outcomes: _Outcomes) -> dict[int, Answer]:
        """Return the answers, unless a shard failed.

        Raises:
            SlumberdError: Why.
        """
        answers = {k: one for k, one in outcomes.items() if not isinstance(one, SlumberdError)}
        failures = {k: one for k, one in outcomes.items() if isinstance(one, SlumberdError)}
        absence = _ABSENCES.get(self._operation)
        grave = {
            shard: error
            for shard, error in failures.items()
            if absence is None or not isinstance(error, absence)
        }
        if answers and not grave:
            return answers
        errors = grave or failures
        first = next(iter(errors.values()))
        if not answers and all(str(error) == str(first) for error in errors.values()):
            raise first
        problems_by_shard = {shard: str(error) for shard, error in errors.items()}
        raise ShardsFailedError(sorted(answers), problems_by_shard, first.exit_code) from first


def _outcome_of(perform: Callable[[], Answer]) -> Answer | SlumberdError:
    try:
        return perform()
    except RefusedError as refused:
        return own_error(refused)
    except SlumberdError as error:
        return error


def _run_at_once(asks: Mapping[int, Callable[[], Answer]]) -> _Outcomes:
    """Call functions in threads; an interrupt of this thread leaves them behind."""
    outcomes: _Outcomes = {}
    bugs: list[BaseException] = []

    def run(shard: int, ask: Callable[[], Answer]) -> None:
        try:
            outcomes[shard] = _outcome_of(ask)
        except BaseException as error:  # noqa: BLE001 # raised in the thread that waits
            bugs.append(error)

    threads = [
        threading.Thread(target=run, args=(shard, ask), daemon=True) for shard, ask in asks.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if bugs:
        raise bugs[0]
    return {shard: outcomes[shard] for shard in asks}


@cache
def requests_of(address: str) -> ShardRequests | None:
    """Return what sends requests to the shards of a database; None when it has one shard only.

    Raises:
        StoreError: The database cannot be used.
    """
    shards = count_shards(address)
    if shards == 1:
        return None
    return ShardRequests(shards, ShardLookup(address), partial(ask_database, address))


def ask_patiently(
    address: str, shard: int, operation: str, request: Request, *, patience_seconds: float
) -> Answer:
    """Ask the daemon that holds a shard; wait while the shard passes from one host to another.

    Args:
        address: The address of the database.
        shard: The shard.
        operation: The operation's name.
        request: Its fields.
        patience_seconds: How long to wait for a daemon.

    Raises:
        NotRunningError: No daemon holds the shard.
        SlumberdError: As `ask_database`.
    """
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            return ask_database(address, shard, operation, request)
        except NotRunningError:  # so nothing was done
            if time.monotonic() >= deadline:
                raise
        time.sleep(_ASK_AGAIN_SECONDS)


def shard_handlers(address: str, *, ask: Perform | None = None) -> dict[str, Handler]:
    """Return handlers that forward each operation to the shards that it concerns.

    Each checks the right and the scope of its caller, and passes the caller on: the daemons of the
    shards check both again.

    Args:
        address: The address of a database with several shards.
        ask: Asks the daemon that holds a shard; None asks through the database.

    Raises:
        StoreError: The database cannot be used.
    """
    requests = ShardRequests(
        count_shards(address), ShardLookup(address), ask or partial(ask_database, address)
    )
    room = asyncio.Semaphore(MOST_CALLS)
    return {name: _forwarding(operation, requests, room) for name, operation in OPERATIONS.items()}


def _forwarding(
    operation: Operation[RequestForm], requests: ShardRequests, room: asyncio.Semaphore
) -> Handler:
    name, check = typed_handler(operation, _answer_nothing)

    async def handle(request: Request, caller: Caller) -> Answer:
        await check(request, caller)
        fields = {key: one for key, one in request.items() if key not in RequestForm.model_fields}
        await room.acquire()
        return await _run_in_thread(
            partial(requests.call, name, fields, caller=caller), ended=room.release
        )

    return handle


def _run_in_thread(call: Callable[[], Answer], ended: Callable[[], None]) -> asyncio.Future[Answer]:
    """Call a function in a thread that the end of the process does not wait for.

    A cancelled call leaves the thread behind, since the request is under way.

    Args:
        call: The function.
        ended: Called in the event loop when the thread has ended.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Answer] = loop.create_future()

    def settle(set_outcome: Callable[[], None]) -> None:
        ended()
        if not answer.done():
            set_outcome()

    def run() -> None:
        try:
            found = call()
        except Exception as error:  # noqa: BLE001 # raised where the answer is awaited
            outcome = partial(answer.set_exception, error)
        else:
            outcome = partial(answer.set_result, found)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=run, daemon=True, name="slumberd-shards").start()
    return answer


async def _answer_nothing(_: RequestForm, __: Caller) -> Answer:
    return {}
