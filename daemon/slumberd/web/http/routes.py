"""Where each operation is found over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from slumberd.operations.caller import Right
from slumberd.operations.forms import RequestForm
from slumberd.operations.handlers import Operation
from slumberd.operations.registry import OPERATIONS

Method = Literal["GET", "POST", "PATCH"]
Shape = Literal["whole", "first fact"]

OPERATIONS_PATH = "/v1/operations/"
"""Where each operation is called by its name, by POST, as on the control socket."""

_KEYED = "idempotency_key"

PROTOCOL_FIELDS = frozenset({"version", "operation"})
"""The fields of every request that HTTP says by other means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRoute:
    """One operation under one path.

    Attributes:
        path: The path; it may hold one id, in braces.
        status: The status of an answer.
        summary: What it does, where the operation's own summary says too much.
        fixed: Fields that the path decides.
        required: Fields that the form leaves open, and this path needs; what to do without each.
        in_path: The field that the id in the path is.
        right: What its caller needs, beside the operation's own right.
        conditional: The field that the header ``If-Match`` holds.
        keyed: The field that the header ``Idempotency-Key`` holds.
        shape: Which part of the answer is sent.
    """

    method: Method
    path: str
    operation: Operation[RequestForm]
    status: int = 200
    summary: str = ""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    required: Mapping[str, str] = field(default_factory=dict)
    in_path: str | None = None
    right: Right | None = None
    conditional: str | None = None
    keyed: str | None = None
    shape: Shape = "whole"

    @property
    def title(self) -> str:
        """What it does, in one sentence."""
        return self.summary or self.operation.summary

    @property
    def hidden(self) -> frozenset[str]:
        """The fields of the form that neither the query nor the body may have."""
        outside = {self.in_path, self.conditional, self.keyed} - {None}
        return PROTOCOL_FIELDS.union(self.fixed, (name for name in outside if name is not None))

    @property
    def public_path(self) -> str:
        """The path as the OpenAPI document has it."""
        return self.path.replace(":path}", "}")


_NAMED = (
    HttpRoute(
        method="POST",
        path="/v1/episodes",
        operation=OPERATIONS["remember"],
        status=201,
        keyed=_KEYED,
    ),
    HttpRoute(
        method="POST", path="/v1/episodes/many", operation=OPERATIONS["put_many"], status=201
    ),
    HttpRoute(method="GET", path="/v1/episodes", operation=OPERATIONS["episodes"]),
    HttpRoute(
        method="GET", path="/v1/outcomes/{id:path}", operation=OPERATIONS["outcome"], in_path="id"
    ),
    HttpRoute(method="GET", path="/v1/facts", operation=OPERATIONS["facts"], fixed={"where": None}),
    HttpRoute(
        method="POST",
        path="/v1/facts",
        operation=OPERATIONS["correct"],
        summary="Assert a fact by subject and predicate, or correct one.",
    ),
    HttpRoute(
        method="GET",
        path="/v1/facts/{id:path}",
        operation=OPERATIONS["facts"],
        summary="Return one current fact; the header ETag is its version.",
        fixed={"limit": 1, "cursor": None, "subject": None, "predicate": None, "where": None},
        in_path="id",
        shape="first fact",
    ),
    HttpRoute(
        method="PATCH",
        path="/v1/facts/{id:path}",
        operation=OPERATIONS["correct"],
        summary="Correct one fact; with If-Match, only the version that its author saw.",
        fixed={"subject": None, "predicate": None},
        in_path="fact",
        conditional="if_version",
    ),
    HttpRoute(method="POST", path="/v1/search", operation=OPERATIONS["recall"]),
    HttpRoute(method="POST", path="/v1/context", operation=OPERATIONS["context"]),
    HttpRoute(
        method="GET", path="/v1/explain/{id:path}", operation=OPERATIONS["explain"], in_path="id"
    ),
    HttpRoute(
        method="GET", path="/v1/history/{id:path}", operation=OPERATIONS["history"], in_path="id"
    ),
    HttpRoute(
        method="POST",
        path="/v1/forget/plan",
        operation=OPERATIONS["forget"],
        summary="Plan the erasure of a scope, an episode or a fact; nothing is erased.",
        fixed={"dry_run": True, "plan": None},
    ),
    HttpRoute(
        method="POST",
        path="/v1/forget",
        operation=OPERATIONS["forget"],
        summary="Erase a scope, an episode or a fact for good, as its plan says.",
        fixed={"dry_run": False},
        required={"plan": "POST /v1/forget/plan returns it"},
    ),
    HttpRoute(
        method="GET",
        path="/v1/firings",
        operation=OPERATIONS["changes"],
        summary="Return the firings in the ledger after a number.",
        fixed={"kinds": ["firing"], "user": None, "agent": None},
        right=Right.OPERATE,
    ),
    HttpRoute(method="POST", path="/v1/firings", operation=OPERATIONS["fire"]),
    HttpRoute(method="POST", path="/v1/firings/undo", operation=OPERATIONS["undo"]),
    HttpRoute(method="GET", path="/v1/changes", operation=OPERATIONS["changes"]),
    HttpRoute(method="GET", path="/v1/held", operation=OPERATIONS["held"]),
    HttpRoute(
        method="POST",
        path="/v1/held/{id}/approve",
        operation=OPERATIONS["decide"],
        summary="Approve a batch that awaits approval.",
        fixed={"approve": True},
        in_path="firing",
    ),
    HttpRoute(
        method="POST",
        path="/v1/held/{id}/reject",
        operation=OPERATIONS["decide"],
        summary="Reject a batch that awaits approval.",
        fixed={"approve": False},
        in_path="firing",
    ),
    HttpRoute(method="GET", path="/v1/rules/{id}", operation=OPERATIONS["rule"], in_path="id"),
    HttpRoute(method="GET", path="/v1/status", operation=OPERATIONS["status"]),
)


def _others() -> Iterator[HttpRoute]:
    """Yield the paths that every operation has, and those of reads without another path."""
    named = {route.operation.name for route in _NAMED}
    for name, operation in OPERATIONS.items():
        path = f"{OPERATIONS_PATH}{name}"
        if name not in named and operation.read_only:
            yield HttpRoute(method="GET", path=path, operation=operation)
        keyed = _KEYED if operation is OPERATIONS["remember"] else None
        yield HttpRoute(method="POST", path=path, operation=operation, keyed=keyed)


ROUTES = (*_NAMED, *_others())
"""Every operation, under at least one path."""
