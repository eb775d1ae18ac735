"""Link the new facts of a batch with the current facts that are near to them.

The links are written into the claims, before they are resolved. They are found once for a version
of an episode: another rule that evaluates the same version gets the same links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import orjson

from slumberd.consolidation.claim import MANUAL, Claim, Precedence, has_subject
from slumberd.consolidation.incoming import Candidate, ClaimCandidate, HeldBack, order_of
from slumberd.consolidation.precedence import MultiValued, is_declared_slot, place_of
from slumberd.consolidation.state import KnownState, reaches_precedence_rule
from slumberd.model.errors import StoppedError
from slumberd.model.scope import canonical, escape
from slumberd.search.vectors import TextComparer
from slumberd.storage.engine import Session

TEXT_CHARACTERS = 4_000
"""At most this many characters from the start of a text are compared."""


class Statement(NamedTuple):
    """The part of a fact that is compared with other facts.

    Attributes:
        payload: Its body.
    """

    fact_id: str
    key: str
    precedence: Precedence
    payload: dict[str, Any]

    @property
    def text(self) -> str:
        """The fact's content; without content its subject, predicate and object."""
        content = self.payload.get("content")
        if isinstance(content, str) and content and not content.isspace():
            return content[:TEXT_CHARACTERS]
        triple = (self.payload.get(part) for part in ("subject", "predicate", "object"))
        texts = (_as_text(value) for value in triple if value is not None)
        return " ".join(texts)[:TEXT_CHARACTERS]


def statement_of(claim: Claim) -> Statement:
    """Return the statement of a claim's fact."""
    return Statement(claim.fact_id, claim.key, claim.precedence, claim.payload)


def family_of(claim: Claim) -> str:
    """Return the prefix of the keys that a claim's fact is compared with.

    They belong to the same user, agent and channel, and to the same subject. Facts whose key has
    no subject and predicate are compared with each other.
    """
    if has_subject(claim):
        return f"{claim.owner}{escape(claim.payload['subject'])}/"
    return f"{claim.owner}//"


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else canonical(value)


MOST_COMPARED = 1_000
"""A fact is compared with at most so many facts of its family: the latest."""

MOST_LINKED = 8
"""A fact is linked with at most so many facts: the nearest."""

_DIGITS = 4


class BatchSimilarity:
    """Compares new facts with current facts.

    Args:
        session: In the transaction of the batch.
        comparer: Finds texts that are near to each other.
        least: Two texts are near from this cosine on.
        cancelled: Returns whether the comparison must stop.
    """

    def __init__(
        self,
        session: Session,
        comparer: TextComparer,
        least: float,
        cancelled: Callable[[], bool] | None = None,
    ) -> None:
        self._cancelled = cancelled
        self._session = session
        self._comparer = comparer
        self._least = least

    def add_links(
        self, candidates: Sequence[Candidate], known_state: KnownState
    ) -> list[Candidate]:
        """Return the candidates of one channel; new assertions get their links.

        Args:
            candidates: Each version at most once.
            known_state: Holds the evaluations of every candidate's fact id.

        Raises:
            StoppedError: `cancelled` returned true.
        """
        new = [candidate for candidate in candidates if _is_new(candidate, known_state)]
        by_family = sorted(new, key=lambda candidate: (_family(candidate), order_of(candidate)))
        linked = {
            candidate.fact_id: candidate
            for family, found in groupby(by_family, _family)
            for candidate in self._link_family(family, [*found], known_state)
        }
        return [linked.get(candidate.fact_id, candidate) for candidate in candidates]

    def _link_family(
        self, family: str, candidates: Sequence[Candidate], known_state: KnownState
    ) -> Iterator[Candidate]:
        current = [*self._current_of(family)]
        claims = [candidate.claim for candidate in candidates]
        new = [statement_of(claim) for claim in claims if claim is not None]
        if not current and len(new) == 1:
            yield candidates[0]
            return
        every = [*current, *new]
        found = self._comparer.near(
            [statement.text for statement in every],
            first=len(current),
            least=self._least,
            most=MOST_COMPARED,
            cancelled=self._cancelled,
        )
        still_current = _CurrentStatements(current, known_state.multi_valued, known_state.law)
        for candidate, statement, near in zip(candidates, new, found, strict=True):
            if self._cancelled is not None and self._cancelled():
                raise StoppedError("the firing was cancelled while its facts were compared")
            others = [(every[number], round(cosine, _DIGITS)) for number, cosine in near]
            yield _link(candidate, [*filter(still_current.is_apart_from(statement), others)])
            still_current.add(statement)

    def _current_of(self, family: str) -> Iterator[Statement]:
        """Yield the latest current facts of a family, oldest first."""
        high = family[:-1] + chr(ord("/") + 1)
        parameters = {"low": family, "high": high, "most": MOST_COMPARED}
        found = self._session.rows("similarity.winners_between", parameters)
        for key, slot, fact_id, at, rank, precedence_id, part, payload in reversed(found):
            # A declared fact shares its key with other facts, but does not compete with them.
            own = f"{key}/{slot}" if is_declared_slot(slot) else key
            yield Statement(
                fact_id, own, Precedence(at, rank, precedence_id, part), orjson.loads(payload)
            )


class _CurrentStatements:
    """The current facts of a family while the new facts are added one by one.

    A new fact finds what it would find if each new fact were a batch of its own.
    """

    def __init__(self, current: Sequence[Statement], multi: MultiValued, law: int) -> None:
        self._multi, self._law = multi, law
        self._current = {statement.fact_id: statement for statement in current}
        self._holders: dict[tuple[str, str], list[Statement]] = {}
        for statement in current:
            self._holders.setdefault(_slot_of(statement, multi), []).append(statement)

    def add(self, new: Statement) -> None:
        """Add a fact; in a slot only the facts of the newer version stay current."""
        self._current[new.fact_id] = new
        slot = _slot_of(new, self._multi)
        before = self._holders.get(slot, [])
        holders = [holder for holder in before if holder.fact_id != new.fact_id] + [new]
        places = [place_of(holder.precedence, self._law) for holder in holders]
        self._holders[slot] = []
        for older, place in zip(holders, places, strict=True):
            if place == max(places):
                self._holders[slot].append(older)
            elif self._current.get(older.fact_id) is older:
                del self._current[older.fact_id]

    def is_apart_from(self, new: Statement) -> Callable[[tuple[Statement, float]], bool]:
        """Return a test: is another fact current, and does it not compete with this one?"""
        slot, subject = _slot_of(new, self._multi), _canonical(new, "subject")

        def is_apart(near: tuple[Statement, float]) -> bool:
            other, _ = near
            return (
                self._current.get(other.fact_id) is other
                and other.fact_id != new.fact_id
                and not _are_siblings(other, new)
                and _canonical(other, "subject") == subject
                and _slot_of(other, self._multi) != slot
            )

        return is_apart


def _is_new(candidate: Candidate, known_state: KnownState) -> bool:
    """Return whether a candidate asserts, names no id, and its version is new."""
    claim = candidate.claim
    if (
        claim is None
        or not claim.asserts
        or claim.names
        or not reaches_precedence_rule(candidate, known_state)
    ):
        return False
    known = known_state.evaluations.get(candidate.fact_id, ())
    return all(evaluation.version != candidate.version for evaluation in known)


def _link(candidate: Candidate, near: list[tuple[Statement, float]]) -> Candidate:
    """Return a candidate whose claim is linked with the nearest facts."""
    if not isinstance(candidate, ClaimCandidate | HeldBack) or candidate.claim is None or not near:
        return candidate
    nearest = sorted(near, key=lambda found: (-found[1], found[0].fact_id))[:MOST_LINKED]
    links = tuple((other.fact_id, cosine) for other, cosine in nearest)
    return candidate._replace(claim=candidate.claim._replace(near=links))


def _slot_of(statement: Statement, multi: MultiValued) -> tuple[str, str]:
    return statement.key, multi.slot(statement.key, _canonical(statement, "object"))


def _family(candidate: Candidate) -> str:
    return "" if candidate.claim is None else family_of(candidate.claim)


def _canonical(statement: Statement, part: str) -> str:
    return canonical(statement.payload.get(part))


def _are_siblings(statement: Statement, other: Statement) -> bool:
    """Return whether two facts come from one version of one episode."""
    precedence = statement.precedence
    return precedence.rank != MANUAL and (precedence.at, precedence.id) == (
        other.precedence.at, other.precedence.id,
    )  # fmt: skip
