"""What a graph answers: rows, and references to the nodes and paths in them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class NodeRef(BaseModel):
    """A node of a graph.

    Attributes:
        id: Unique within its graph.
        kind: Its label.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    kind: str


class GraphPath(BaseModel):
    """A way through a graph.

    Attributes:
        nodes: In order.
        edges: Those between them, in order; each with what its graph tells of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: list[NodeRef]
    edges: list[dict[str, Any]] = Field(default_factory=list)


class ResultSet(BaseModel):
    """What a query found.

    Attributes:
        rows: One value for each column, by name; in the order of the query.
        columns: Their names, in order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: list[dict[str, Any]] = Field(default_factory=list)
    columns: list[str] = Field(default_factory=list)
