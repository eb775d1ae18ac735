"""The protocol of leases, epochs, the map of shards and moves, as a model with a stopped clock.

Each action that changes a shard or the map is one transaction of the product, with the conditions
that the transaction checks. Between two of them anything may happen: a daemon may stop for ever, or
go on long after its lease has ended. So a history that breaks an invariant here is one that
`slumberd.storage.postgres.moves` and `slumberd.storage.postgres.lease` must not allow.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

LEASE = 10
SHARDS = range(2)
DAEMONS = range(2)
USERS = range(2)
MOST_ROUNDS = 12
"""How often each shard gets a holder until everything must be over."""

Version = tuple[int, int]
"""A version of an episode: its user, and a number."""


@dataclass
class Presence:
    """What a shard knows of a user, as its table ``moved_users`` has it.

    Attributes:
        is_here: Whether the shard has the user.
        leaves_for: The target of a move that is not over; None without one.
        expected: The number of the move that may bring the user; None for none.
    """

    is_here: bool
    leaves_for: int | None = None
    expected: int | None = None


@dataclass
class Shard:
    """One shard."""

    holder: int | None = None
    held_until: int = 0
    epoch: int = 0
    log: set[Version] = field(default_factory=set)
    evaluated: set[Version] = field(default_factory=set)
    presence: dict[int, Presence] = field(default_factory=dict)


@dataclass
class Place:
    """Where the map says that a user lies."""

    shard: int
    moving_to: int | None = None


@dataclass
class Move:
    """A move that a daemon has begun, or goes on with.

    Attributes:
        user: The user.
        target: The shard that gets the user.
        step: The next step.
        number: Its number in the target; 0 before the target expects it.
        rows: The rows that were read in the source, and those of them that were evaluated.
    """

    user: int
    target: int
    step: str
    number: int = 0
    rows: tuple[frozenset[Version], frozenset[Version]] = (frozenset(), frozenset())


@dataclass
class Memory:
    """What a daemon believes of a shard that it holds.

    Attributes:
        epoch: Its epoch.
        is_resumed: Whether it has finished the moves of earlier holders.
        window: The versions that it has read, and has not applied.
        move: The move that it performs.
    """

    epoch: int
    is_resumed: bool = False
    window: frozenset[Version] | None = None
    move: Move | None = None


class World:
    """Daemons, hosts and moves on two shards."""

    def __init__(self) -> None:
        self.now = 0
        self.shards = [Shard() for _ in SHARDS]
        self.map = {user: Place(user % len(SHARDS)) for user in USERS}
        self.memories: dict[tuple[int, int], Memory] = {}
        self.routes: list[tuple[Version, int]] = []
        self.acknowledged: set[Version] = set()
        self.applied: dict[Version, list[tuple[int, int]]] = {}
        self.number = 0

    def actions(self) -> list[Callable[[], object]]:
        """Return what may happen next."""
        found: list[Callable[[], object]] = [partial(self.pass_time, LEASE + 1)]
        found += [partial(self.route_put, user) for user in USERS]
        found += [partial(self.put, place) for place in range(len(self.routes))]
        for number, shard in enumerate(self.shards):
            if shard.holder is None or shard.held_until < self.now:
                found += [partial(self.claim, daemon, number) for daemon in DAEMONS]
        for (daemon, number), memory in self.memories.items():
            found.append(partial(self.crash, daemon, number))
            if memory.move is not None:
                found += 3 * [partial(self.go_on, daemon, number)]
                found.append(partial(self.call_off, daemon, number))
            elif not memory.is_resumed:
                found.append(partial(self.resume, daemon, number))
            elif memory.window is not None:
                found += 2 * [partial(self.apply, daemon, number)]
            else:
                found.append(partial(self.read_window, daemon, number))
                found += [partial(self.begin_move, daemon, number, user) for user in USERS]
        return found

    # Leases and epochs

    def pass_time(self, seconds: int) -> None:
        """Let time pass; a holder that does not renew its lease loses it."""
        self.now += seconds

    def claim(self, daemon: int, number: int) -> None:
        """Take a lease, and begin an epoch."""
        shard = self.shards[number]
        shard.holder, shard.held_until = daemon, self.now + LEASE
        shard.epoch += 1
        self.memories[daemon, number] = Memory(shard.epoch)

    def crash(self, daemon: int, number: int) -> None:
        """Forget what a daemon knows of a shard."""
        del self.memories[daemon, number]

    def is_fenced(self, daemon: int, number: int) -> bool:
        """Return whether a shard refuses a daemon, which then gives up."""
        memory = self.memories[daemon, number]
        if memory.epoch == self.shards[number].epoch:
            return False
        del self.memories[daemon, number]
        return True

    # Puts

    def route_put(self, user: int) -> None:
        """Let a host read the map for a put."""
        place = self.map[user]
        if place.moving_to is None:
            self.number += 1
            self.routes.append(((user, self.number), place.shard))

    def put(self, place: int) -> None:
        """Put what was routed, maybe long ago; the shard refuses a user whom it does not have."""
        version, number = self.routes.pop(place)
        if self.is_here(number, version[0]):
            self.shards[number].log.add(version)
            self.acknowledged.add(version)

    def is_here(self, number: int, user: int) -> bool:
        """Return whether a shard has a user."""
        known = self.shards[number].presence.get(user)
        return user % len(SHARDS) == number if known is None else known.is_here

    # Firings

    def read_window(self, daemon: int, number: int) -> None:
        """Read what was not evaluated."""
        shard = self.shards[number]
        self.memories[daemon, number].window = frozenset(shard.log - shard.evaluated)

    def apply(self, daemon: int, number: int) -> None:
        """Write the facts of a window, under the epoch of the daemon."""
        memory = self.memories[daemon, number]
        window, memory.window = memory.window or frozenset(), None
        if self.is_fenced(daemon, number):
            return
        self.shards[number].evaluated |= window
        for version in window:
            self.applied.setdefault(version, []).append((number, memory.epoch))

    # Moves; a daemon moves in its turn, so it has no window then

    def resume(self, daemon: int, number: int) -> None:
        """Go on with a move of an earlier holder, or begin to fire when there is none."""
        memory = self.memories[daemon, number]
        for user, known in self.shards[number].presence.items():
            if known.leaves_for is not None:
                memory.move = Move(user, known.leaves_for, "begin")
                return
        for user, place in self.map.items():
            if place.shard == number and place.moving_to is not None:
                memory.move = Move(user, place.moving_to, "begin")
                return
        memory.is_resumed = True

    def begin_move(self, daemon: int, number: int, user: int) -> None:
        """Begin to move a user to the other shard."""
        self.memories[daemon, number].move = Move(user, 1 - number, "begin")

    def go_on(self, daemon: int, number: int) -> None:
        """Take the next step of a move."""
        memory = self.memories[daemon, number]
        move = memory.move
        assert move is not None
        if not getattr(self, f"{move.step}_step")(daemon, number, move):
            memory.move = None

    def begin_step(self, _: int, number: int, move: Move) -> bool:
        """Write into the map that the user is being moved."""
        place, known = self.map[move.user], self.shards[number].presence.get(move.user)
        if place.shard == number and place.moving_to in (None, move.target):
            place.moving_to = move.target
            move.step = "leave"
        elif known is not None and known.leaves_for == move.target:
            move.step = "blank"  # an earlier holder has ended the move in the map
        else:
            return False
        return True

    def leave_step(self, daemon: int, number: int, move: Move) -> bool:
        """Let the source have the user no more, under its epoch."""
        if self.is_fenced(daemon, number):
            return False
        known = self.shards[number].presence.get(move.user)
        if known is None or known.leaves_for is None:
            if not self.is_here(number, move.user):
                self._take_back_in_map(number, move)
                return False
            self.shards[number].presence[move.user] = Presence(False, leaves_for=move.target)
        move.step = "expect"
        return True

    def expect_step(self, _: int, __: int, move: Move) -> bool:
        """Let the target expect this move, unless it has the user."""
        known = self.shards[move.target].presence.get(move.user)
        if self.is_here(move.target, move.user):
            move.step = "end"
            return True
        if known is not None and known.leaves_for is not None:
            return True  # the target must finish the move away first
        self.number += 1
        move.number = self.number
        self.shards[move.target].presence[move.user] = Presence(False, expected=move.number)
        move.step = "read"
        return True

    def read_step(self, _: int, number: int, move: Move) -> bool:
        """Read the rows of the user, who leaves the source."""
        source = self.shards[number]
        known = source.presence.get(move.user)
        if known is None or known.leaves_for != move.target:
            return False
        rows = frozenset(version for version in source.log if version[0] == move.user)
        move.rows = rows, rows & source.evaluated
        move.step = "write"
        return True

    def write_step(self, _: int, __: int, move: Move) -> bool:
        """Write the rows into the target, if it still expects this move."""
        target = self.shards[move.target]
        known = target.presence[move.user]
        if known.is_here or known.expected != move.number:
            move.step = "end" if known.is_here else "expect"
            return True
        target.log |= move.rows[0]
        target.evaluated |= move.rows[1]
        target.presence[move.user] = Presence(True)
        move.step = "end"
        return True

    def end_step(self, _: int, number: int, move: Move) -> bool:
        """Write into the map that the target has the user."""
        place = self.map[move.user]
        if (place.shard, place.moving_to) == (number, move.target):
            place.shard, place.moving_to = move.target, None
        move.step = "blank"
        return True

    def blank_step(self, daemon: int, number: int, move: Move) -> bool:
        """Blank the rows of the source, under its epoch."""
        if self.is_fenced(daemon, number):
            return False
        source = self.shards[number]
        if source.presence[move.user].leaves_for == move.target:
            source.presence[move.user].leaves_for = None
            source.log -= {version for version in source.log if version[0] == move.user}
            source.evaluated -= {one for one in source.evaluated if one[0] == move.user}
        return False

    def call_off(self, daemon: int, number: int) -> None:
        """Take a move back that the target refuses, such as for an id that it has."""
        move = self.memories[daemon, number].move
        if move is None or move.step not in ("read", "write"):
            return
        known = self.shards[move.target].presence[move.user]
        if known.is_here:
            move.step = "end"
            return
        known.expected = None
        move.step = "stay"

    def stay_step(self, daemon: int, number: int, move: Move) -> bool:
        """Let the source have the user again, under its epoch."""
        if self.is_fenced(daemon, number):
            return False
        known = self.shards[number].presence[move.user]
        if known.leaves_for is not None:
            known.is_here, known.leaves_for = True, None
        move.step = "take_back"
        return True

    def take_back_step(self, _: int, number: int, move: Move) -> bool:
        """Write into the map that the user stays."""
        self._take_back_in_map(number, move)
        return False

    def _take_back_in_map(self, number: int, move: Move) -> None:
        place = self.map[move.user]
        if (place.shard, place.moving_to) == (number, move.target):
            place.moving_to = None

    # What must hold

    def check(self) -> None:
        """Check what must hold at each instant."""
        for version, evaluations in self.applied.items():
            assert len(evaluations) == 1, f"{version} is evaluated in {evaluations}"
        for user in USERS:
            here = [number for number in SHARDS if self.is_here(number, user)]
            assert len(here) <= 1, f"user {user} is in the shards {here}"
        for version in self.acknowledged:
            assert any(version in shard.log for shard in self.shards), f"{version} is lost"

    def finish(self) -> None:
        """Let holders finish everything: then each version is evaluated once, in one shard."""
        self.memories.clear()
        for _ in range(MOST_ROUNDS):
            for number in SHARDS:
                self.pass_time(LEASE + 1)
                self.claim(0, number)
                self._settle(number)
        for number in SHARDS:
            assert self.memories[0, number].is_resumed
            self.read_window(0, number)
            self.apply(0, number)
        for version in self.acknowledged:
            user = version[0]
            holding = [number for number in SHARDS if version in self.shards[number].log]
            assert self.map[user].moving_to is None
            assert holding == [self.map[user].shard], f"{version} is in {holding}"
            assert self.is_here(holding[0], user)
            assert len(self.applied[version]) == 1

    def _settle(self, number: int) -> None:
        memory = self.memories[0, number]
        for _ in range(MOST_ROUNDS):
            if memory.move is not None:
                self.go_on(0, number)
            elif not memory.is_resumed:
                self.resume(0, number)


@pytest.mark.path
@settings(max_examples=int(os.environ.get("SLUMBERD_TEST_HISTORIES", "500")), deadline=None)
@given(choices=st.binary(max_size=160))
def test_no_history_breaks_the_protocol_of_shards(choices: bytes) -> None:
    world = World()
    for choice in choices:
        actions = world.actions()
        actions[choice % len(actions)]()
        world.check()
    world.finish()
    world.check()
