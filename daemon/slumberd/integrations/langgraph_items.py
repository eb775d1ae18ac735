"""Items of LangGraph's store: how a fact keeps one, and which ones a search selects.

Reads no clock, file or network, and needs no extra.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from slumberd.model.scope import escape, unescape
from slumberd.operations.facts import KnownFact

Namespace = tuple[str, ...]

WILDCARD = "*"
"""Matches any label in a condition on namespaces."""

_NO_NUL = "%00"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredItem:
    """An item as a fact keeps it.

    Attributes:
        namespace: Its labels.
        key: Unique in its namespace.
        value: The value; an object of JSON.
        created_at: When the key was first put.
        updated_at: When the value was last put.
        is_searched: Whether a search by a query may find it.
        ttl_minutes: How long it lives after it was put or read; None for ever.
        expires_at: When it ends; None without a time to live.
    """

    namespace: Namespace
    key: str
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    is_searched: bool = True
    ttl_minutes: float | None = None
    expires_at: datetime | None = None

    @property
    def subject(self) -> str:
        """The subject of its fact."""
        return subject_of(self.namespace, self.key)

    def is_expired(self, at: datetime) -> bool:
        """Return whether the item has ended by an instant."""
        return self.expires_at is not None and self.expires_at <= at

    def extended(self, at: datetime) -> StoredItem:
        """Return the item with its whole time to live from an instant on."""
        if self.ttl_minutes is None:
            return self
        return replace(self, expires_at=at + timedelta(minutes=self.ttl_minutes))

    def document(self) -> dict[str, Any]:
        """Return the object of its fact."""
        document: dict[str, Any] = {
            "value": self.value,
            "created_at": self.created_at.isoformat(),
            "updated_at": self.updated_at.isoformat(),
        }
        if not self.is_searched:
            document["is_searched"] = False
        if self.ttl_minutes is not None and self.expires_at is not None:
            document["ttl_minutes"] = self.ttl_minutes
            document["expires_at"] = self.expires_at.isoformat()
        return document


def subject_of(namespace: Namespace, key: str) -> str:
    """Return the subject of an item's fact: ``/label/label/key``, each part escaped."""
    return prefix_of(namespace) + escape(key)


def prefix_of(namespace: Namespace) -> str:
    """Return how the subjects of a namespace and of those below it begin."""
    return "".join(f"/{escape(label)}" for label in namespace) + "/"


def item_of(fact: KnownFact) -> StoredItem | None:
    """Return the item that a fact keeps; None when a rule made the fact, and it keeps none."""
    *labels, key = map(_unescape, fact.payload["subject"].removeprefix("/").split("/"))
    document = fact.payload["object"]
    match document:
        case {"value": dict(value), "created_at": str(created_at), "updated_at": str(updated_at)}:
            pass
        case _:
            return None
    expires_at = document.get("expires_at")
    return StoredItem(
        namespace=tuple(labels),
        key=key,
        value=value,
        created_at=datetime.fromisoformat(created_at),
        updated_at=datetime.fromisoformat(updated_at),
        is_searched=document.get("is_searched", True),
        ttl_minutes=document.get("ttl_minutes"),
        expires_at=None if expires_at is None else datetime.fromisoformat(expires_at),
    )


def _unescape(part: str) -> str:
    return unescape(part.replace(_NO_NUL, "\0"))


def passes(value: Mapping[str, Any], conditions: Mapping[str, Any] | None) -> bool:
    """Return whether a value has what the filter of a search asks for.

    Args:
        value: The value of an item.
        conditions: By key: an equal value, an object of such conditions, or one of operators.

    Raises:
        ValueError: An operator is unknown, or compares with what is no number.
    """
    return all(_holds(value.get(key), wanted) for key, wanted in (conditions or {}).items())


def _holds(value: Any, wanted: Any) -> bool:  # noqa: ANN401 # any JSON
    match wanted:
        case dict() if any(key.startswith("$") for key in wanted):
            return all(_compare(value, name, operand) for name, operand in wanted.items())
        case dict():
            return isinstance(value, dict) and passes(value, wanted)
        case list() | tuple():
            return (
                isinstance(value, list)
                and len(value) == len(wanted)
                and all(map(_holds, value, wanted))
            )
        case _:
            return bool(value == wanted)


_EQUALITY: dict[str, Callable[[Any, Any], Any]] = {"$eq": operator.eq, "$ne": operator.ne}
_ORDER: dict[str, Callable[[float, float], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def _compare(value: Any, name: str, operand: Any) -> bool:  # noqa: ANN401 # any JSON
    if name in _EQUALITY:
        return bool(_EQUALITY[name](value, operand))
    if name not in _ORDER:
        raise ValueError(f"Unsupported operator: {name}")
    bound = float(operand)
    try:
        number = float(value)
    except (TypeError, ValueError):
        return False  # what is no number is neither above nor below one
    return _ORDER[name](number, bound)


def matches(namespace: Namespace, match_type: str, path: Sequence[str]) -> bool:
    """Return whether a namespace begins, or ends, as a path says.

    Args:
        match_type: ``prefix`` or ``suffix``.
        path: Labels; a star matches any label.

    Raises:
        ValueError: The type is neither.
    """
    if match_type not in ("prefix", "suffix"):
        raise ValueError(f"Unsupported match type: {match_type}")
    if len(namespace) < len(path):
        return False
    start = 0 if match_type == "prefix" else len(namespace) - len(path)
    labels = namespace[start : start + len(path)]
    return all(label in (own, WILDCARD) for own, label in zip(labels, path, strict=True))
