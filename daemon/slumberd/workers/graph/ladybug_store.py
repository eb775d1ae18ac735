"""Store triples in a Ladybug database and query them; Ladybug comes with the extra ``graph``."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from slumberd.model.errors import ExtraMissingError, GraphStoreError
from slumberd.model.graph import (
    MOST_ROWS,
    GraphPath,
    GraphTriple,
    NodeRef,
    ResultSet,
    confidence_in,
    triple_id,
)
from slumberd.model.store_status import StoreHealth
from slumberd.model.texts import is_storable
from slumberd.storage.file_paths import path_of
from slumberd.workers.graph.cypher_linter import Linter

T = TypeVar("T")

Driver = Any
"""An object of the Ladybug package, which has no types."""

NODE = "Entity"
"""The label of every node; the property ``name`` is unique."""

EDGE = "Fact"
"""The kind of every edge; its properties are ``id``, ``predicate`` and ``confidence``."""

TIMEOUT_SECONDS = 60.0
"""The default time limit of a query."""

_BUFFER_BYTES = 256 << 20
_MAX_DATABASE_BYTES = 1 << 38
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_MAX_PROBLEM_CHARACTERS = 200
_POLL_SECONDS = 0.05

_SCHEMA = (
    f"CREATE NODE TABLE IF NOT EXISTS {NODE}(name STRING, PRIMARY KEY(name))",
    f"CREATE REL TABLE IF NOT EXISTS {EDGE}"
    f"(FROM {NODE} TO {NODE}, id STRING, predicate STRING, confidence DOUBLE)",
)
_REMOVE = f"MATCH (:{NODE})-[f:{EDGE} {{id: $id}}]->(:{NODE}) DELETE f"
_ADD = (
    f"MERGE (s:{NODE} {{name: $subject}}) MERGE (o:{NODE} {{name: $object}})"
    f" CREATE (s)-[:{EDGE} {{id: $id, predicate: $predicate, confidence: $confidence}}]->(o)"
)


@dataclass(slots=True)
class _Request:
    """The work of one caller.

    Attributes:
        cancelled: Whether the caller no longer waits for it.
    """

    cancelled: bool = False


class LadybugGraphStore:
    """A graph in a Ladybug database; implements `GraphStore`.

    A triple is ``(:Entity {name})-[:Fact {id, predicate, confidence}]->(:Entity {name})``. A graph
    with another schema can be queried too. The linter accepts only queries that read, even when
    the file is open for writing. In one ``MATCH``, Ladybug may use an edge twice; openCypher does
    not. The store loads no Ladybug extension and uses no network.

    Attributes:
        path: The file. Ladybug creates further files beside it and appends to its name.
        source: The kind of graph, as provenance names it.

    Args:
        path: The file; ``:memory:`` keeps the graph in memory until it is closed.
        read_only: Whether the file is opened for reading only; then it must exist.
        timeout_seconds: The time limit of a query.
    """

    source = "ladybug"

    def __init__(
        self,
        path: Path | str,
        *,
        read_only: bool = False,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self.path = path_of(path)
        self._read_only = read_only
        self._timeout_seconds = timeout_seconds
        self._linter = Linter()
        self._lock = Lock()
        self._running: _Request | None = None
        self._database: Driver = None
        self._connection: Driver = None

    async def bootstrap(self) -> None:
        """Create the file and the schema if they are missing; a read-only file is only opened.

        Raises:
            GraphStoreError: The file cannot be opened, or is not a Ladybug database.
            ExtraMissingError: The extra ``graph`` is not installed.
        """
        await self._submit(self._create_schema)

    def _create_schema(self, connection: Driver) -> None:
        if not self._read_only:
            for statement in _SCHEMA:
                connection.execute(statement).close()

    async def health(self) -> StoreHealth:
        """Return whether the graph can be queried, and its number of nodes.

        An unusable file is a warning in the result, not an exception.
        """
        count = "MATCH (n) RETURN count(n)"
        try:
            _, rows = await self._submit(lambda connection: _fetch(connection.execute(count), 1))
        except (GraphStoreError, ExtraMissingError) as error:
            return self._describe_health(ok=False, nodes=None, warnings=[str(error)])
        return self._describe_health(ok=True, nodes=rows[0][0], warnings=[])

    def _describe_health(self, *, ok: bool, nodes: int | None, warnings: list[str]) -> StoreHealth:
        return StoreHealth(
            ok=ok,
            version=1,
            node_count=nodes,
            fs_type="unknown",
            lock_state="held" if self._lock.locked() else "free",
            warnings=warnings,
        )

    async def query(self, cypher: str, params: Mapping[str, Any] | None = None) -> ResultSet:
        """Return the result of a query.

        At most `model.graph.MOST_ROWS` rows and one are fetched, so that a caller notices a result
        that is too large.

        Args:
            cypher: One statement that only reads.
            params: The values of ``$name``, by name.

        Raises:
            UnportableCypherError: The query is not portable, or writes.
            GraphStoreError: Ladybug cannot answer the query, or not within the time limit.
            ExtraMissingError: The extra ``graph`` is not installed.
        """
        await asyncio.to_thread(self._linter.check_reading, cypher)
        values = dict(params or {})
        columns, rows = await self._submit(
            lambda connection: _fetch(connection.execute(cypher, values), MOST_ROWS + 1)
        )
        named = [dict(zip(columns, map(_convert, row), strict=True)) for row in rows]
        return ResultSet(rows=named, columns=columns)

    async def add_triple(
        self,
        subject: str,
        predicate: str,
        object: str,  # noqa: A002 # the specification's word
        *,
        confidence: float = 1.0,
        id: str | None = None,
    ) -> None:
        """Insert a triple, or replace the triple that has its id.

        Args:
            subject: The name of a node, which is created if it is missing.
            predicate: The relation between the two nodes.
            object: The name of another node, which is created if it is missing.
            confidence: 0 to 1.
            id: The id of the triple; None derives it from subject, predicate and object.

        Raises:
            ValueError: A part is empty or not valid text, or the confidence lies outside 0..1.
            GraphStoreError: The triple cannot be written.
        """
        values = _validate_triple(subject, predicate, object, confidence, id)._asdict()

        def add(connection: Driver) -> None:
            connection.execute(_REMOVE, {"id": values["id"]}).close()
            connection.execute(_ADD, values).close()

        await self._submit(lambda connection: _run_in_transaction(connection, add))

    async def remove_triple(self, id: str) -> None:
        """Remove a triple; an unknown id changes nothing.

        Raises:
            GraphStoreError: The file cannot be written.
        """
        await self._submit(lambda connection: connection.execute(_REMOVE, {"id": id}).close())

    async def close(self) -> None:
        """Close the file; the next call opens it again."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._lock:
            for resource in (self._connection, self._database):
                if resource is not None:
                    resource.close()
            self._connection = self._database = None

    async def _submit(self, work: Callable[[Driver], T]) -> T:
        """Run work on the connection, in a thread.

        When the caller is cancelled, the work is interrupted, and the caller waits for its end.
        """
        request = _Request()
        future = asyncio.get_running_loop().run_in_executor(None, self._wait_and_run, request, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            request.cancelled = True
            while not future.done():
                # Ladybug ignores an interrupt before the query has begun, so repeat it.
                self._interrupt(request)
                await asyncio.wait([future], timeout=_POLL_SECONDS)
            with suppress(GraphStoreError, ExtraMissingError):
                future.result()
            raise

    def _interrupt(self, request: _Request) -> None:
        """Interrupt the running query if it belongs to this request."""
        connection = self._connection
        if connection is not None and self._running is request:
            connection.interrupt()

    def _wait_and_run(self, request: _Request, work: Callable[[Driver], T]) -> T:
        """Run work once no other request runs, unless this one is cancelled before."""
        while not self._lock.acquire(timeout=_POLL_SECONDS):
            if request.cancelled:
                raise GraphStoreError(str(self.path), "the request was cancelled while it waited")
        self._running = request
        try:
            return self._run(work)
        finally:
            self._running = None
            self._lock.release()

    def _run(self, work: Callable[[Driver], T]) -> T:
        with self._translate_errors():
            if self._connection is None:
                self._open()
            return work(self._connection)

    def _open(self) -> None:
        driver = _load_driver()
        if self._read_only and not self.path.is_file():
            raise GraphStoreError(str(self.path), "the file does not exist; check 'graph.path'")
        self._database = driver.Database(
            str(self.path),
            read_only=self._read_only,
            buffer_pool_size=_BUFFER_BYTES,
            max_num_threads=max(1, min(2, os.cpu_count() or 1)),
            max_db_size=_MAX_DATABASE_BYTES,
        )
        self._connection = driver.Connection(self._database)
        self._connection.set_query_timeout(round(self._timeout_seconds * 1000))

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, OSError, ValueError, TypeError) as error:
            raise GraphStoreError(str(self.path), _problem(error, self._timeout_seconds)) from error


def _validate_triple(
    subject: str,
    predicate: str,
    object: str,  # noqa: A002 # the specification's word
    confidence: float,
    id: str | None,
) -> GraphTriple:
    """Return a triple that can be stored.

    Raises:
        ValueError: A part is empty or not valid text, or the confidence lies outside 0..1.
    """
    own_id = triple_id(subject, predicate, object) if id is None else id
    parts = {"subject": subject, "predicate": predicate, "object": object, "id": own_id}
    for name, part in parts.items():
        if not part.strip() or not is_storable(part):
            raise ValueError(f"{name} is {part!r}; give a text that is not empty and holds no NUL")
    try:
        return GraphTriple(own_id, subject, predicate, object, confidence_in(confidence))
    except ValueError as error:
        raise ValueError(f"confidence {error}") from None


def _problem(error: Exception, seconds: float) -> str:
    """Return the first line of an error's message without the quoted values of the graph."""
    message = _QUOTED.sub("'...'", str(error)).split("\n", maxsplit=1)[0].strip().rstrip(".")
    if message == "Interrupted":
        return f"the query was stopped, at the latest after {seconds:g} s; narrow it"
    return message[:_MAX_PROBLEM_CHARACTERS] or type(error).__name__


def _run_in_transaction(connection: Driver, work: Callable[[Driver], None]) -> None:
    connection.execute("BEGIN TRANSACTION").close()
    try:
        work(connection)
    except BaseException:
        connection.execute("ROLLBACK").close()
        raise
    connection.execute("COMMIT").close()


def _fetch(result: Driver, limit: int) -> tuple[list[str], list[list[Any]]]:
    """Return the columns and at most `limit` rows of a result, and close it."""
    rows: list[list[Any]] = []
    try:
        while len(rows) < limit and result.has_next():
            rows.append(result.get_next())
        return list(result.get_column_names()), rows
    finally:
        result.close()


def _convert(value: object) -> Driver:
    """Convert a node or path of Ladybug to a reference; return any other value as it is."""
    match value:
        case {"_NODES": nodes, "_RELS": edges}:
            return GraphPath(nodes=[*map(_convert, nodes)], edges=[*map(_convert, edges)])
        case {"_ID": id, "_LABEL": label, "_SRC": _, **rest}:
            own = {name: value for name, value in rest.items() if not str(name).startswith("_")}
            return {"id": _id_text(id), "kind": label, **own}
        case {"_ID": id, "_LABEL": label}:
            return NodeRef(id=_id_text(id), kind=label)
        case _:
            return value


def _id_text(id: Mapping[str, int]) -> str:
    return f"{id['table']}:{id['offset']}"


@cache
def _load_driver() -> Driver:
    try:
        import ladybug  # part of an extra, and slow to import
    except ImportError as error:
        raise ExtraMissingError("graph", "no graph can be opened") from error
    return ladybug
