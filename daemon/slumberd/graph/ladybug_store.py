"""A graph in a file, by the embedded database that comes with the extra ``graph``."""

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

from slumberd.errors import ExtraMissingError, GraphStoreError
from slumberd.graph.cypher_linter import Linter
from slumberd.graph.triples import EDGE, NODE, checked_triple
from slumberd.model.graph import MOST_ROWS, GraphPath, NodeRef, ResultSet
from slumberd.model.health import StoreHealth

T = TypeVar("T")

Driver = Any
"""Whatever the extra brings; it has no types of its own."""

TIMEOUT_SECONDS = 60.0
"""How long a query may take."""

_BUFFER_BYTES = 256 << 20
_LARGEST_BYTES = 1 << 38
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_LONGEST_PROBLEM = 200
_PAUSE_SECONDS = 0.05

_SCHEMA = (
    f"CREATE NODE TABLE IF NOT EXISTS {NODE}(name STRING, PRIMARY KEY(name))",
    f"CREATE REL TABLE IF NOT EXISTS {EDGE}"
    f"(FROM {NODE} TO {NODE}, id STRING, predicate STRING, confidence DOUBLE)",
)
_DROP = f"MATCH (:{NODE})-[f:{EDGE} {{id: $id}}]->(:{NODE}) DELETE f"
_ADD = (
    f"MERGE (s:{NODE} {{name: $subject}}) MERGE (o:{NODE} {{name: $object}})"
    f" CREATE (s)-[:{EDGE} {{id: $id, predicate: $predicate, confidence: $confidence}}]->(o)"
)


@dataclass(slots=True)
class _Turn:
    """One caller's work.

    Attributes:
        given_up: Whether the caller waits for it no longer.
    """

    given_up: bool = False


class LadybugGraphStore:
    """A graph in a Ladybug database; implements ``ports.GraphStore``.

    Triples are kept as `InMemoryGraphStore` has them; a graph of any other schema can be asked as
    well. A query only reads, whatever it is opened for: the linter lets nothing else pass. Unlike
    openCypher, this database may take an edge twice in a ``MATCH``. Nothing is loaded from
    anywhere, and no network is used.

    Attributes:
        path: The file; ``-`` and more is appended to it for those beside it.
        source: What provenance calls it.

    Args:
        path: The file.
        read_only: Whether it is only read; then the file must be there.
        timeout_seconds: How long a query may take; then it is stopped.
    """

    source = "ladybug"

    def __init__(
        self,
        path: Path | str,
        *,
        read_only: bool = False,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self.path = Path(path)
        self._read_only = read_only
        self._timeout_seconds = timeout_seconds
        self._linter = Linter()
        self._lock = Lock()
        self._turn: _Turn | None = None
        self._database: Driver = None
        self._connection: Driver = None

    async def bootstrap(self) -> None:
        """Create file and schema where they are missing; one that is only read is only opened.

        Raises:
            GraphStoreError: The file cannot be opened, or is none of this database.
            ExtraMissingError: The extra ``graph`` is not installed.
        """
        await self._in_thread(self._bootstrap)

    def _bootstrap(self, connection: Driver) -> None:
        if not self._read_only:
            for statement in _SCHEMA:
                connection.execute(statement).close()

    async def health(self) -> StoreHealth:
        """Say whether it can be asked, and how many nodes there are; never raises for its file."""
        count = "MATCH (n) RETURN count(n)"
        try:
            _, rows = await self._in_thread(lambda one: _fetched(one.execute(count), 1))
        except (GraphStoreError, ExtraMissingError) as error:
            return self._told(ok=False, nodes=None, warnings=[str(error)])
        return self._told(ok=True, nodes=rows[0][0], warnings=[])

    def _told(self, *, ok: bool, nodes: int | None, warnings: list[str]) -> StoreHealth:
        return StoreHealth(
            ok=ok,
            version=1,
            node_count=nodes,
            fs_type="unknown",
            lock_state="held" if self._lock.locked() else "free",
            warnings=warnings,
        )

    async def query(self, cypher: str, params: Mapping[str, Any] | None = None) -> ResultSet:
        """Return what a query finds.

        Args:
            cypher: One statement that only reads.
            params: What ``$name`` stands for.

        Raises:
            UnportableCypherError: The query is not portable, or writes.
            GraphStoreError: It cannot be answered, took too long, or found more than
                `core.triple.MOST_ROWS` rows and one.
            ExtraMissingError: The extra ``graph`` is not installed.
        """
        await asyncio.to_thread(self._linter.check_reading, cypher)
        given = dict(params or {})
        columns, rows = await self._in_thread(
            lambda connection: _fetched(connection.execute(cypher, given), MOST_ROWS + 1)
        )
        told = [dict(zip(columns, map(_plain, row), strict=True)) for row in rows]
        return ResultSet(rows=told, columns=columns)

    async def add_triple(
        self,
        subject: str,
        predicate: str,
        object: str,  # noqa: A002 # the specification's word
        *,
        confidence: float = 1.0,
        id: str | None = None,
    ) -> None:
        """Say a triple; in the place of what has its id.

        Args:
            subject: The name of a node; it is made when there is none.
            predicate: What is said.
            object: The name of another.
            confidence: 0 to 1.
            id: Of the triple; made of its parts for None.

        Raises:
            ValueError: A part is empty or no valid text, or the confidence lies outside 0..1.
            GraphStoreError: It cannot be written.
        """
        values = checked_triple(subject, predicate, object, confidence, id)._asdict()

        def add(connection: Driver) -> None:
            connection.execute(_DROP, {"id": values["id"]}).close()
            connection.execute(_ADD, values).close()

        await self._in_thread(lambda connection: _whole(connection, add))

    async def remove_triple(self, id: str) -> None:
        """Take a triple out; nothing happens when there is none of that id.

        Raises:
            GraphStoreError: It cannot be written.
        """
        await self._in_thread(lambda connection: connection.execute(_DROP, {"id": id}).close())

    async def close(self) -> None:
        """Close the file; the next use opens it again."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._lock:
            for one in (self._connection, self._database):
                if one is not None:
                    one.close()
            self._connection = self._database = None

    async def _in_thread(self, work: Callable[[Driver], T]) -> T:
        """Do something with the connection; who is cancelled stops it, and waits for that."""
        turn = _Turn()
        future = asyncio.get_running_loop().run_in_executor(None, self._in_turn, turn, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            turn.given_up = True
            while not future.done():
                # What has not begun yet does not hear it, so it is said again.
                self._interrupt(turn)
                await asyncio.wait([future], timeout=_PAUSE_SECONDS)
            with suppress(GraphStoreError, ExtraMissingError):
                future.result()
            raise

    def _interrupt(self, turn: _Turn) -> None:
        """Stop what has the turn, and nobody else's work."""
        connection = self._connection
        if connection is not None and self._turn is turn:
            connection.interrupt()

    def _in_turn(self, turn: _Turn, work: Callable[[Driver], T]) -> T:
        while not self._lock.acquire(timeout=_PAUSE_SECONDS):
            if turn.given_up:
                raise GraphStoreError(self.path, "nobody waits for the answer any more")
        self._turn = turn
        try:
            return self._done(work)
        finally:
            self._turn = None
            self._lock.release()

    def _done(self, work: Callable[[Driver], T]) -> T:
        with self._translated():
            if self._connection is None:
                self._open()
            return work(self._connection)

    def _open(self) -> None:
        driver = _driver()
        if self._read_only and not self.path.is_file():
            raise GraphStoreError(self.path, "there is no such file; see 'graph.path'")
        self._database = driver.Database(
            str(self.path),
            read_only=self._read_only,
            buffer_pool_size=_BUFFER_BYTES,
            max_num_threads=max(1, min(2, os.cpu_count() or 1)),
            max_db_size=_LARGEST_BYTES,
        )
        self._connection = driver.Connection(self._database)
        self._connection.set_query_timeout(round(self._timeout_seconds * 1000))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, OSError, ValueError, TypeError) as error:
            raise GraphStoreError(self.path, _problem(error, self._timeout_seconds)) from error


def _problem(error: Exception, seconds: float) -> str:
    """Return what is wrong, without what the graph says: messages quote it."""
    told = _QUOTED.sub("'...'", str(error)).split("\n", maxsplit=1)[0].strip().rstrip(".")
    if told == "Interrupted":
        return f"the query was stopped, at the latest after {seconds:g} s; narrow it"
    return told[:_LONGEST_PROBLEM] or type(error).__name__


def _whole(connection: Driver, work: Callable[[Driver], None]) -> None:
    """Write in one transaction."""
    connection.execute("BEGIN TRANSACTION").close()
    try:
        work(connection)
    except BaseException:
        connection.execute("ROLLBACK").close()
        raise
    connection.execute("COMMIT").close()


def _fetched(result: Driver, most: int) -> tuple[list[str], list[list[Any]]]:
    """Return the columns and at most so many rows of a result."""
    rows: list[list[Any]] = []
    try:
        while len(rows) < most and result.has_next():
            rows.append(result.get_next())
        return list(result.get_column_names()), rows
    finally:
        result.close()


def _plain(value: object) -> Driver:
    """Return a value as every store has it: nodes and paths as references."""
    match value:
        case {"_NODES": nodes, "_RELS": edges}:
            return GraphPath(nodes=[_plain(node) for node in nodes], edges=[*map(_plain, edges)])
        case {"_ID": id, "_LABEL": label, "_SRC": _, **rest}:
            own = {key: one for key, one in rest.items() if not str(key).startswith("_")}
            return {"id": _name_of(id), "kind": label, **own}
        case {"_ID": id, "_LABEL": label}:
            return NodeRef(id=_name_of(id), kind=label)
        case _:
            return value


def _name_of(id: Mapping[str, int]) -> str:
    return f"{id['table']}:{id['offset']}"


@cache
def _driver() -> Driver:
    try:
        import ladybug  # of an extra, and slow
    except ImportError as error:
        raise ExtraMissingError("graph", "no graph can be opened") from error
    return ladybug
