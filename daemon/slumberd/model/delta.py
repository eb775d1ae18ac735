"""Deltas: the four typed changes of a fact store, each with its provenance."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slumberd.model.errors import ConsolidationRuleError


class _Provenance(BaseModel):
    """Where a delta comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    source_episode_ids: list[str]
    promotion_ts: datetime
    rule_id: str
    confidence: float


class AddDelta(_Provenance):
    """A new fact that replaces none."""

    kind: Literal["add"]
    fact_payload: dict[str, Any]


class UpdateDelta(_Provenance):
    """A new fact that replaces others."""

    kind: Literal["update"]
    replaces: list[str]
    fact_payload: dict[str, Any]


class DeleteDelta(_Provenance):
    """A removal of facts."""

    kind: Literal["delete"]
    replaces: list[str]


class NoopDelta(_Provenance):
    """An episode that changes nothing."""

    kind: Literal["noop"]


MemoryDelta = Annotated[
    AddDelta | UpdateDelta | DeleteDelta | NoopDelta, Field(discriminator="kind")
]
"""Any delta; validate untyped input with ``pydantic.TypeAdapter(MemoryDelta)``."""


AnyDelta = AddDelta | UpdateDelta | DeleteDelta | NoopDelta

_KINDS: dict[object, type[AnyDelta]] = {
    get_args(model.model_fields["kind"].annotation)[0]: model for model in get_args(AnyDelta)
}


class Delta(Protocol):
    """The attributes of every delta, of any class; other attributes depend on its kind."""

    @property
    def kind(self) -> str:
        """One of ``add``, ``update``, ``delete`` and ``noop``."""
        ...

    @property
    def source_episode_ids(self) -> list[str]:
        """The episodes that it comes from."""
        ...

    @property
    def promotion_ts(self) -> datetime:
        """When its rule was evaluated."""
        ...

    @property
    def rule_id(self) -> str:
        """Its rule."""
        ...

    @property
    def confidence(self) -> float:
        """Its confidence, 0 to 1."""
        ...


def validate_delta(delta: Delta) -> AnyDelta:
    """Return a delta of any class as one of this module's classes, with valid provenance.

    Raises:
        ConsolidationRuleError: It is not a delta, lacks a field of its kind, a provenance field is
            empty or out of bounds, or ``replaces`` of an update or delete is empty.
    """
    own = _as_own_class(delta)
    if violation := _find_violation(own):
        raise ConsolidationRuleError(own.rule_id, own.kind, violation)
    return own


def _as_own_class(delta: Delta) -> AnyDelta:
    kind = getattr(delta, "kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ConsolidationRuleError("", type(delta).__name__, _explain_kind(delta, kind))
    if isinstance(delta, _KINDS[kind]):
        return delta
    try:
        return _KINDS[kind].model_validate(delta, from_attributes=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        violation = f"{name}: {first['msg'].lower()}"
        raise ConsolidationRuleError(_rule_id(delta), kind, violation) from error


def _explain_kind(given: object, kind: object) -> str:
    if isinstance(given, dict):
        return "a mapping is no delta; give TypeAdapter(MemoryDelta).validate_python(mapping)"
    known = ", ".join(map(str, _KINDS))
    return f"it is no delta: its 'kind' is {kind!r}, not one of {known}"


def _rule_id(delta: object) -> str:
    given = getattr(delta, "rule_id", "")
    return given if isinstance(given, str) else ""


def _find_violation(delta: AnyDelta) -> str:
    if not delta.rule_id:
        return "rule_id must be non-empty"
    if not delta.source_episode_ids or not all(delta.source_episode_ids):
        return "source_episode_ids must be non-empty"
    if not math.isfinite(delta.confidence):
        return "confidence must be finite"
    if not 0 <= delta.confidence <= 1:
        return f"confidence must lie in 0..1, not {delta.confidence!r}"
    if isinstance(delta, UpdateDelta | DeleteDelta) and not (
        delta.replaces and all(delta.replaces)
    ):
        return "replaces must be non-empty"
    return ""
