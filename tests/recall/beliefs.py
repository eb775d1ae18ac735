"""Read precisionMemBench, and judge the beliefs that a memory returns for its cases.

A case expects exact sets: a memory that returns everything finds what is relevant, and passes no
case. Only the tier of relevant beliefs is judged here. Pinned beliefs and open questions have tiers
of their own, which an application fills without a search.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

_OWN_TIERS = ("open_question",)
_RELATION = "relation"
_BUDGET = 20
"""So many beliefs fit into the two tiers of a case that says nothing else."""


class Belief(NamedTuple):
    """Something that a memory believes of a user.

    Attributes:
        id: Its id.
        user: Whose belief.
        names: Its canonical name in words, and its aliases.
        content: The belief in a sentence.
        scopes: Where it holds, such as ``domain:code``.
        pinned: Whether it is always shown, in a tier of its own.
        current: Whether nothing has superseded or resolved it.
        relevant: Whether it is of a kind that the relevant tier shows.
        participants: The beliefs that a relation ties.
    """

    id: str
    user: str
    names: tuple[str, ...]
    content: str
    scopes: frozenset[str]
    pinned: bool
    current: bool
    relevant: bool
    participants: tuple[str, ...]

    @property
    def is_searched(self) -> bool:
        """Whether the relevant tier may show it."""
        return self.current and self.relevant and not self.pinned


class Case(NamedTuple):
    """A query, and what the relevant tier must be.

    Attributes:
        id: Its id.
        user: Who asks.
        scopes: Where.
        query: The query.
        budget: The most beliefs in the pinned and the relevant tier together.
        only: The relevant tier must be this set; None when anything not excluded is right.
        excluded: What no tier may contain.
    """

    id: str
    user: str
    scopes: tuple[str, ...]
    query: str
    budget: int
    only: frozenset[str] | None
    excluded: frozenset[str]

    def passes(self, relevant: Sequence[str]) -> bool:
        """Return whether the relevant tier is right."""
        found = set(relevant)
        return not found & self.excluded and (self.only is None or found == self.only)

    def precision(self, relevant: Sequence[str]) -> float | None:
        """Return the share of the tier that is right; None when it is right to be empty."""
        wanted = self.only or frozenset()
        if not relevant:
            return 0.0 if wanted else None
        return len(wanted.intersection(relevant)) / len(relevant)


class Benchmark(NamedTuple):
    """All beliefs by id, and the cases that judge the relevant tier."""

    beliefs: dict[str, Belief]
    cases: list[Case]

    def tier(self, case: Case, found: Sequence[str]) -> list[str]:
        """Return the relevant tier: what was found, the participants of relations, the budget."""
        shown = [id for id in dict.fromkeys(found) if self.beliefs[id].is_searched]
        tied = [
            id for relation in shown for id in self.beliefs[relation].participants
            if self._may_show(id, case) and self.beliefs[id].is_searched
        ]  # fmt: skip
        pinned = sum(
            belief.pinned and belief.current and belief.relevant and self._may_show(id, case)
            for id, belief in self.beliefs.items()
        )
        room = max(0, case.budget - min(pinned, case.budget))
        return [*dict.fromkeys([*shown, *tied])][:room]

    def _may_show(self, id: str, case: Case) -> bool:
        belief = self.beliefs[id]
        return belief.user == case.user and not belief.scopes.isdisjoint(case.scopes)


def read_benchmark(folder: Path) -> Benchmark:
    """Read the beliefs and the cases of a directory."""
    seed = _document(folder / "beliefs.seed.json.gz")
    cases = _document(folder / "retrieval.cases.json.gz")
    return benchmark_of(seed, cases)


def benchmark_of(seed: list[dict[str, Any]], cases: list[dict[str, Any]]) -> Benchmark:
    """Return the beliefs, and those cases that expect something of the relevant tier."""
    beliefs = [_belief(row) for row in seed]
    first = beliefs[0].user if beliefs else ""
    return Benchmark(
        {belief.id: belief for belief in beliefs},
        [_case(row, first) for row in cases if "relevantBeliefs" in row["expect"]],
    )


def _belief(row: dict[str, Any]) -> Belief:
    kind = row["type"]
    return Belief(
        row["_id"],
        row["user_id"],
        (row["canonical_name"].replace("_", " "), *row["aliases"]),
        row["content"],
        frozenset(row["scope"]),
        bool(row["pinned"]),
        not row.get("superseded_by") and not row.get("resolved_at"),
        kind not in _OWN_TIERS and row.get("subtype") != "expertise",
        tuple(row.get("participants") or ()) if kind == _RELATION else (),
    )


def _case(row: dict[str, Any], user: str) -> Case:
    expected = row["expect"]["relevantBeliefs"]
    only = expected.get("shouldOnlyInclude")
    return Case(
        row["caseId"],
        row.get("userId", user),
        tuple(row["scope"]),
        row["query"],
        row.get("budget", {}).get("maxBeliefs", _BUDGET),
        None if only is None else frozenset(only),
        frozenset(expected.get("mustExclude", ())),
    )


def _document(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        rows: list[dict[str, Any]] = orjson.loads(file.read())
    return rows
