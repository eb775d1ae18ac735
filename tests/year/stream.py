"""The episodes of a simulated year, from a seed, and the facts that follow from them.

Nothing here knows what the daemon did: the same days can be generated again at the end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from slumberd.model.episode import Episode, microseconds
from tests.support.oracle import OracleClaim, claims_in, current_claims

START = datetime(2025, 1, 1, tzinfo=UTC)
AGENT, TRIAL = "agent", "trial"
MULTI = {("facts", "likes"), ("tastes", "likes")}

_CLAIMS, _DELETIONS, _NAMED, _REPEATED = 0.25, 0.05, 0.05, 0.03
_UNIMPORTANT, _PROTECTED = 0.1, 0.01
_EDITS = 0.02
_MOST_MEASURED = 60
"""Measured firings of a day, at most."""

KEYS, _TASTES, _TRIALS = 6, 4, 50
_WORDS = [f"word{number:x}" for number in range(3_000)]
_LONG_SESSIONS = 10
"""One user in so many has a session a month; the others have one a day."""


@dataclass(frozen=True)
class Size:
    """How large a simulated year is.

    Attributes:
        users: Users at a time. Each month one goes and another one comes.
        episodes: Episodes of the year, without edits and those of measurements.
        days: Days of the year. Ages of the rules follow, so that a short year shows the same.
        months: Equal parts of the year; `days` is a multiple.
        seed: The seed of all random choices.
    """

    users: int = 1_000
    episodes: int = 3_000_000
    days: int = 360
    months: int = 12
    seed: int = 1

    @property
    def days_of_month(self) -> int:
        return self.days // self.months

    @property
    def daily(self) -> int:
        """About how many episodes a day has."""
        return self.episodes // self.days

    @property
    def new(self) -> int:
        """The new episodes of each measured firing."""
        return min(100, max(5, self.daily // 10))

    def age(self, days: float) -> timedelta:
        """Return an age in a year of 360 days, in the proportion of this year."""
        return timedelta(days=days * self.days / 360)

    def chance(self, *names: object) -> random.Random:
        """Return random choices of their own for a part of the year."""
        return random.Random("/".join(map(str, (self.seed, *names))))

    def user(self, number: int, day: int) -> str:
        """Return the name of a user on a day; after an erasure another one has the number."""
        month = day // self.days_of_month
        gone = sum(self.erased_number(past) == number for past in range(month))
        return f"user-{number:04}.{gone}"

    def erased_number(self, month: int) -> int:
        """Return the number of the user who is erased at the end of a month."""
        return month * 7 % self.users


class Year:
    """The episodes of each day, and the claims that people make."""

    def __init__(self, size: Size) -> None:
        self.size = size

    def day(self, day: int) -> list[Episode]:
        """Return the new episodes of a day, all before 23:00, and then edits of earlier ones."""
        size = self.size
        count = size.episodes * (day + 1) // size.days - size.episodes * day // size.days
        made = self._episodes(f"{day:03}", day, count)
        return [*made, *self._edits(day, count)]

    def measured(self, day: int, number: int) -> list[Episode]:
        """Return the claims that one measured firing evaluates, at the end of a day.

        All are newer than those of the firings before: a claim that comes late has all claims of
        its key read.
        """
        made = self._episodes(
            f"measured-{day:03}-{number}", day, self.size.new, share_of_claims=1.0, hour=23
        )
        count = self.size.new * _MOST_MEASURED
        return [
            one.model_copy(
                update={
                    "timestamp": self._instant(day, number * self.size.new + place, count, hour=23)
                }
            )
            for place, one in enumerate(made)
        ]

    def trial(self, day: int) -> list[Episode]:
        """Return ten claims that only the rule `trial` reads; every second such day is undone."""
        chance = self.size.chance("trial", day)
        return [
            self._episode(
                f"trial-{day:03}-{number}", TRIAL, TRIAL, self._instant(day, number, 10, hour=22),
                f"Trial {number} of day {day}.", f"d{day}",
                _claim(f"thing {chance.randrange(_TRIALS)}", "is", f"{day}.{number}"),
            )
            for number in range(10)
        ]  # fmt: skip

    def trial_is_undone(self, day: int) -> bool:
        return self.size.chance("undone", day).random() < 0.5

    def is_trial_day(self, day: int) -> bool:
        return day % 7 == 5

    def _instant(self, day: int, number: int, count: int, *, hour: int = 0) -> datetime:
        room = timedelta(hours=1 if hour else 22)
        return START + timedelta(days=day, hours=hour) + room * number / count

    def _episodes(
        self, prefix: str, day: int, count: int, *, share_of_claims: float = _CLAIMS, hour: int = 0
    ) -> list[Episode]:
        chance, earlier, made = self.size.chance(prefix), dict[str, str](), []
        for number in range(count):
            place = chance.randrange(self.size.users)
            user, id = self.size.user(place, day), f"{prefix}-{number:05}"
            is_long = place % _LONG_SESSIONS == 0
            session = f"m{day // self.size.days_of_month}" if is_long else f"d{day}"
            if chance.random() < share_of_claims:
                content, metadata = _random_claim(chance, user, earlier.get(user), f"{id}.0")
                earlier[user] = id
            else:
                content, metadata = self._chatter(chance, user, day), _random_importance(chance)
            at = self._instant(day, number, count, hour=hour)
            made.append(self._episode(id, user, AGENT, at, content, session, metadata))
        return made

    def _chatter(self, chance: random.Random, user: str, day: int) -> str:
        if chance.random() < _REPEATED:
            said = self.size.chance(user, day // 7, chance.randrange(2))
            return " ".join(said.choices(_WORDS, k=12))
        return " ".join(chance.choices(_WORDS, k=chance.randrange(8, 16)))

    def _edits(self, day: int, count: int) -> Iterator[Episode]:
        """Yield new versions of claims of the day before, for users who are still there."""
        if day % self.size.days_of_month == 0:
            return
        earlier, chance = self._claims_before(day), self.size.chance("edits", day)
        for number in sorted(chance.sample(range(len(earlier)), min(len(earlier), _edits(count)))):
            old = earlier[number]
            metadata = {**old.metadata, "object": f"{old.metadata['object']}, edited"}
            yield old.model_copy(update={"metadata": metadata, "content": f"{old.content} Edited."})

    def _claims_before(self, day: int) -> list[Episode]:
        size = self.size
        count = size.episodes * day // size.days - size.episodes * (day - 1) // size.days
        made = self._episodes(f"{day - 1:03}", day - 1, count)
        return [one for one in made if one.metadata.get("object")]

    def _episode(
        self, id: str, user: str, agent: str, at: datetime, content: str, session: str,
        metadata: dict[str, Any],
    ) -> Episode:  # fmt: skip
        return Episode(
            id=id, content=content, timestamp=at, source_node="user", agent=agent, user=user,
            session=session, metadata=metadata,
        )  # fmt: skip


def _edits(count: int) -> int:
    return max(1, round(count * _EDITS))


def _claim(subject: str, predicate: str, object: str | None) -> dict[str, Any]:
    return {"subject": subject, "predicate": predicate, "object": object}


def _random_claim(
    chance: random.Random, user: str, earlier: str | None, value: str
) -> tuple[str, dict[str, Any]]:
    if chance.random() < 0.3:
        what = f"thing {chance.randrange(_TASTES)}"
        return f"{user} likes {what}.", _claim(user, "likes", what)
    predicate, kind = f"p{chance.randrange(KEYS)}", chance.random()
    metadata = _claim(user, predicate, value)
    if kind < _DELETIONS:
        metadata = {**_claim(user, predicate, None), "intent": "delete"}
    elif kind < _DELETIONS + _NAMED and earlier:
        metadata |= {"intent": "update", "replaces": [earlier]}
    return f"{user} says of {predicate}: {value}.", metadata


def _random_importance(chance: random.Random) -> dict[str, Any]:
    kind = chance.random()
    if kind < _UNIMPORTANT:
        return {"importance": 0.05}
    return {"importance": 0.9} if kind < _UNIMPORTANT + _PROTECTED else {}


@dataclass(frozen=True)
class Correction:
    """What a person corrected.

    Attributes:
        at: When, in microseconds.
    """

    fact_id: str
    user: str
    predicate: str
    object: str
    at: int

    @cached_property
    def claim(self) -> OracleClaim:
        return OracleClaim(
            self.fact_id, self.user, AGENT, "facts", (self.at, 2, ""), True,
            self.user, self.predicate, self.object, (), "",
        )  # fmt: skip


def expected_facts(
    year: Year, users: set[str], corrections: list[Correction], measurements: int
) -> dict[str, Any]:
    """Return the objects of the facts that are current at the end, by fact id.

    Args:
        year: The year.
        users: Only facts of these users.
        corrections: Those that people made.
        measurements: How many firings were measured at the end of each month.
    """
    newest = {one.id: one for one in _all_episodes(year, measurements) if one.user in users}
    claims = [correction.claim for correction in corrections if correction.user in users]
    for episode in newest.values():
        document = {
            "id": episode.id, "user": episode.user, "agent": episode.agent,
            "at": microseconds(episode.timestamp), "metadata": episode.metadata,
        }  # fmt: skip
        for channel in _channels(episode):
            claims += claims_in(document, channel)
    owned: dict[tuple[str, str], list[OracleClaim]] = {}
    for claim in claims:
        owned.setdefault((claim.user, claim.channel), []).append(claim)
    found: dict[str, Any] = {}
    for competing in owned.values():
        current = current_claims(competing, MULTI)
        found |= {fact_id: claim.object for fact_id, claim in current.items()}
    return found


def _all_episodes(year: Year, measurements: int) -> Iterator[Episode]:
    size = year.size
    for day in range(size.days):
        yield from year.day(day)
        if year.is_trial_day(day) and not year.trial_is_undone(day):
            yield from year.trial(day)
        is_last_of_month = (day + 1) % size.days_of_month == 0
        for number in range(measurements if is_last_of_month else 0):
            yield from year.measured(day, number)


def _channels(episode: Episode) -> list[str]:
    if episode.agent == TRIAL:
        return ["trial"]
    predicate = episode.metadata.get("predicate")
    if predicate is None:
        return []
    return ["facts", "tastes"] if predicate == "likes" else ["facts"]
