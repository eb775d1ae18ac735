"""Which shards of a database a request concerns, and what each of them is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from slumberd.errors import UsageError, VersionConflictError
from slumberd.model.scope import ScopeFilter
from slumberd.model.shard_firing import MARK, split_firing
from slumberd.operations.caller import Caller, Right
from slumberd.operations.firing_forms import FiringCursor
from slumberd.operations.memory_forms import MOST
from slumberd.operations.new_episodes import DEFAULT
from slumberd.storage.postgres.shard_lookup import ShardLookup
from slumberd.storage.postgres.shards import shard_of

Request = dict[str, Any]
Parts = dict[int, Request]
"""What each shard is asked."""

NOBODY = 0
"""The shard that is asked for what no shard holds; its daemon refuses, as with one shard."""


class ShardRoutes:
    """Finds the shards of requests whose fields have the form of their operation.

    Args:
        shards: How many shards the database has.
        lookup: Looks into the database.
    """

    def __init__(self, shards: int, lookup: ShardLookup) -> None:
        self._shards = shards
        self._lookup = lookup

    def parts(self, operation: str, request: Request, caller: Caller) -> Parts:
        """Return what each shard is asked.

        Args:
            operation: The operation's name.
            request: Its fields.
            caller: Who calls.

        Raises:
            NotAllowedError: The request names another scope than the caller's.
            UsageError: It names no user, or it makes no sense for several shards.
        """
        route = ROUTES[operation]
        return self._to_all(request) if route is None else route(self, request, caller)

    def _to_all(self, request: Request) -> Parts:
        return dict.fromkeys(range(self._shards), request)

    def _owner(self, user: str, agent: str) -> int:
        return shard_of(user, agent, self._shards)

    def remember(self, request: Request, caller: Caller) -> Parts:
        """Ask the shard of the user and the agent."""
        scope = _scope_of(request, caller)
        return {self._owner(scope.user, scope.agent or DEFAULT): request}

    def scoped(self, request: Request, caller: Caller) -> Parts:
        """Ask the shard of the agent; without one, all shards."""
        scope = _scope_of(request, caller)
        if scope.agent is None:
            return self._to_all(request)
        return {self._owner(scope.user, scope.agent): request}

    def episodes(self, request: Request, caller: Caller) -> Parts:
        """Ask the shard of the agent, or of the episode; else all shards."""
        parts = self.scoped(request, caller)
        if len(parts) == 1 or request.get("id") is None:
            return parts
        return {self._episode(request["id"]): request}

    def outcome(self, request: Request, caller: Caller) -> Parts:
        """Ask the shard of the episode."""
        parts = self.scoped(request, caller)
        return parts if len(parts) == 1 else {self._episode(request["id"]): request}

    def explain(self, request: Request, caller: Caller) -> Parts:
        """Ask the shards that know a fact, or an episode, of that id."""
        parts, id = self.scoped(request, caller), request["id"]
        if len(parts) == 1:
            return parts
        found = self._lookup.fact_ids([id]).get(id, set())
        episode = self._lookup.episode(id)
        known = found if episode is None else {*found, episode}
        return dict.fromkeys(sorted(known) or [NOBODY], request)

    def forget(self, request: Request, caller: Caller) -> Parts:
        """Ask the shard of the agent; else all shards, or that of an episode or a fact."""
        id = request.get("episode") or request.get("fact")
        if id is None or request.get("user") is not None or caller.user is not None:
            return self.scoped(request, caller)
        found = self._lookup.fact_ids([id]).get(id, set())
        if request.get("episode") is not None:
            episode = self._lookup.episode(id)
            found = found if episode is None else {episode}
        if len(found) > 1:
            raise UsageError("forget: several users have it; name the user")
        return dict.fromkeys(found or [NOBODY], request)

    def history(self, request: Request, caller: Caller) -> Parts:
        """Ask the shards that know a fact of that id."""
        parts, id = self.scoped(request, caller), request["id"]
        if len(parts) == 1:
            return parts
        known = self._lookup.fact_ids([id]).get(id, set())
        return dict.fromkeys(sorted(known) or [NOBODY], request)

    def changes(self, request: Request, caller: Caller) -> Parts:
        """Ask the shard of the user and the agent: a number of a row is of one ledger."""
        names_user = caller.user is not None or request.get("user") is not None
        if names_user or Right.OPERATE not in caller.rights:
            scope = _scope_of(request, caller)
            if scope.agent is not None:
                return {self._owner(scope.user, scope.agent): request}
        raise UsageError(
            "changes: each shard of the database has a ledger of its own; name a user and an agent"
        )

    def firings(self, request: Request, _: Caller) -> Parts:
        """Ask the shard of a firing; without one, all shards for the firings before a place."""
        if request.get("firing") is not None:
            return self._firing(request)
        if request.get("before") is None:
            return self._to_all(request)
        cursor = FiringCursor.read(request["before"])
        return {
            shard: {**request, "before": str(cursor.in_shard(shard))}
            for shard in range(self._shards)
        }

    def deltas(self, request: Request, _: Caller) -> Parts:
        """Ask the shard of the firing."""
        return self._firing(request)

    def report(self, request: Request, caller: Caller) -> Parts:
        """Ask the shard of the agent; without one, all shards.

        The users with the most changes are known once all shards have named theirs.
        """
        is_open = caller.user is request.get("user") is request.get("agent") is None
        if is_open and Right.OPERATE in caller.rights:
            return self._to_all({**request, "limit": MOST})
        parts = self.scoped(request, caller)
        return parts if len(parts) == 1 else self._to_all({**request, "limit": MOST})

    def correct(self, request: Request, caller: Caller) -> Parts:
        """Ask the shards that hold the facts; a new fact belongs to the default agent."""
        scope = _scope_of(request, caller)
        if scope.agent is not None:
            return {self._owner(scope.user, scope.agent): request}
        fact, subject, predicate = (request.get(name) for name in ("fact", "subject", "predicate"))
        if fact is not None:
            found = self._lookup.fact(scope.user, fact)
            if len(found) > 1:
                raise UsageError(f"correct: several agents have a fact {fact!r}; name the agent")
        elif not request.get("retract"):
            return {self._owner(scope.user, DEFAULT): request}
        else:
            found = self._lookup.triple(scope.user, subject or "", predicate or "")
        if len(found) > 1 and request.get("if_version") is not None:
            raise VersionConflictError("the fact")
        return dict.fromkeys(found or [NOBODY], request)

    def pin(self, request: Request, _: Caller) -> Parts:
        """Ask the shard of the user and the agent."""
        return {self._owner(request["user"], request["agent"]): request}

    def unpin(self, request: Request, _: Caller) -> Parts:
        """Ask each shard to retract the facts that it knows."""
        return self._by_id("facts", request, self._lookup.fact_ids(request["facts"]))

    def drop(self, request: Request, _: Caller) -> Parts:
        """Ask each shard to drop the episodes that are in its quarantine."""
        episodes = request.get("episodes")
        if not episodes:
            return self._to_all(request)
        found = self._lookup.quarantined(episodes, request.get("rules"))
        return self._by_id("episodes", request, found)

    def decide(self, request: Request, _: Caller) -> Parts:
        """Ask the shard of the batch."""
        return self._firing(request)

    def undo(self, request: Request, _: Caller) -> Parts:
        """Ask the shard of the firing, or the shards in which the run or the rule has fired."""
        match [request.get(name) for name in ("firing", "run", "rule")]:
            case [str(), None, None]:
                return self._firing(request)
            case [None, str() as run, None]:
                found = self._lookup.run(run)
            case [None, None, str() as rule] if request.get("since") is not None:
                found = self._lookup.rule(rule)
            case _:
                found = []
        return dict.fromkeys(found or [NOBODY], request)

    def _episode(self, id: str) -> int:
        found = self._lookup.episode(id)
        return NOBODY if found is None else found

    def _firing(self, request: Request) -> Parts:
        shard, firing = split_firing(request["firing"])
        if shard is None or shard >= self._shards:
            raise UsageError(
                f"firing {request['firing']!r}: the database has {self._shards} shards; write the"
                f" shard before the firing, as 0{MARK}{firing}"
            )
        return {shard: {**request, "firing": firing}}

    def _by_id(self, field: str, request: Request, found: Mapping[str, set[int]]) -> Parts:
        """Ask each shard for the ids that it knows; an id that none knows is refused alone."""
        if unknown := [id for id in request[field] if id not in found]:
            return {NOBODY: {**request, field: unknown}}
        ids: dict[int, list[str]] = {}
        for id in dict.fromkeys(request[field]):
            for shard in found[id]:
                ids.setdefault(shard, []).append(id)
        return {shard: {**request, field: ids[shard]} for shard in sorted(ids)}


def _scope_of(request: Request, caller: Caller) -> ScopeFilter:
    return caller.scope(
        request.get("user"),
        request.get("agent"),
        request.get("session"),
        all_agents=request.get("all_agents", False),
    )


Route = Callable[[ShardRoutes, Request, Caller], Parts]

ROUTES: dict[str, Route | None] = {
    "remember": ShardRoutes.remember,
    "transcript": ShardRoutes.remember,
    "put_many": ShardRoutes.remember,
    "recall": ShardRoutes.scoped,
    "context": ShardRoutes.scoped,
    "episodes": ShardRoutes.episodes,
    "facts": ShardRoutes.scoped,
    "correct": ShardRoutes.correct,
    "explain": ShardRoutes.explain,
    "history": ShardRoutes.history,
    "outcome": ShardRoutes.outcome,
    "changes": ShardRoutes.changes,
    "firings": ShardRoutes.firings,
    "deltas": ShardRoutes.deltas,
    "profile": ShardRoutes.scoped,
    "report": ShardRoutes.report,
    "forget": ShardRoutes.forget,
    "held": None,
    "quarantined": None,
    "users": None,
    "rules": None,
    "decide": ShardRoutes.decide,
    "fire": None,
    "undo": ShardRoutes.undo,
    "pin": ShardRoutes.pin,
    "unpin": ShardRoutes.unpin,
    "backfill": None,
    "retry": None,
    "drop": ShardRoutes.drop,
    "withdraw_future": None,
    "accept_clock": None,
    "extract": None,
    "pause": None,
    "resume": None,
    "status": None,
    "next": None,
    "reload": None,
    "outdated": None,
}
"""How the shards of a request are found, by the operation's name; None asks all shards."""
