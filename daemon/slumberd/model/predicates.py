"""How many values the predicates of a channel have: one, or several at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any

import orjson

from slumberd.model.firing import DeletionImpact, Limits


@dataclass(frozen=True, slots=True)
class ManyBut:
    """All predicates of a channel but some hold several values at once.

    Attributes:
        single_valued: The predicates that hold one value; see `names_predicate`.
    """

    single_valued: frozenset[str] = frozenset()


Several = frozenset[str] | ManyBut
"""The predicates of a channel that hold several values at once; all others hold one."""


@dataclass(frozen=True, slots=True)
class ChannelPlan:
    """What a change of the setting of channels would do to the facts.

    Attributes:
        document: The new setting, as JSON.
        keys: How many keys are resolved again.
        appear: How many facts become current.
        go: How many facts are current no more.
        current: How many facts are current before.
    """

    document: dict[str, Any]
    keys: int
    appear: int
    go: int
    current: int

    @property
    def content_hash(self) -> str:
        """Sixteen hex digits that change with the setting."""
        content = orjson.dumps(self.document, option=orjson.OPT_SORT_KEYS)
        return sha256(content).hexdigest()[:16]

    @property
    def impact(self) -> DeletionImpact:
        """What the change deletes."""
        return DeletionImpact(self.go, self.go - self.appear)

    def describe_excess(self, limits: Limits) -> str:
        """Return which deletion limit the change exceeds, in words; empty when it exceeds none."""
        return limits.describe_excess(self.impact, self.current, "this change")


def holds_several(predicate: str, several: Several) -> bool:
    """Return whether a predicate holds several values at once."""
    if isinstance(several, ManyBut):
        return not names_predicate(several.single_valued, predicate)
    return names_predicate(several, predicate)


def names_predicate(listed: frozenset[str], predicate: str) -> bool:
    """Return whether a list names a predicate: in full, or by a beginning before ``*``."""
    return predicate in listed or predicate.startswith(_beginnings(listed))


@lru_cache(maxsize=64)
def _beginnings(listed: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(name[:-1] for name in listed if len(name) > 1 and name.endswith("*")))


def document_of(channels: Mapping[str, Several]) -> dict[str, Any]:
    """Return the settings of channels as JSON."""
    return {
        name: {"single_valued": sorted(several.single_valued)}
        if isinstance(several, ManyBut)
        else sorted(several)
        for name, several in channels.items()
    }


def describe(several: Several) -> str:
    """Return a setting in words, as a rule file gives it."""
    if isinstance(several, ManyBut):
        return f"values: many, single_valued: [{', '.join(sorted(several.single_valued))}]"
    return f"multi_valued: [{', '.join(sorted(several))}]"


def union_of(several: Several, other: Several | None) -> Several:
    """Return the predicates that hold several values by one of two settings."""
    if not isinstance(several, ManyBut):
        if isinstance(other, ManyBut):
            return ManyBut(other.single_valued - several)
        return several | (other or frozenset())
    if isinstance(other, ManyBut):
        return ManyBut(several.single_valued & other.single_valued)
    return ManyBut(several.single_valued - (other or frozenset()))
