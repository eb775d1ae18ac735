"""What the stores need of an engine: transactions that run the engine's statements by name.

The modules in ``ledger``, ``episodes``, ``facts`` and ``audit`` use only these protocols. An
engine, such as the package ``sqlite``, brings the tables and the errors. Statements are named
``{file}.{statement}``, as ``ledger.last_row``. Their text lies in ``storage/sql``, or in the engine
when it is the engine's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import Event
from typing import Any, NamedTuple, Protocol, TypeVar

from slumberd.model.store_status import MigrationPlan, StoreHealth
from slumberd.rules.filters.sandbox import Filter, FilterResult

T = TypeVar("T")

Row = tuple[Any, ...]
"""A row of a table, or of the result of a statement."""

Values = Sequence[Any] | Mapping[str, Any]
"""The parameters of a statement, by place or by name. By name, a list is one parameter."""


class Scrubbing(NamedTuple):
    """How to scrub a store.

    Attributes:
        rewrite: Whether to rewrite the store; else only its logs are emptied.
        holders: The transactions that made an earlier attempt useless. While one of them is open,
            nothing is tried.
        wait_seconds: How long each step waits for other programs; None means the engine's usual
            time.
    """

    rewrite: bool = True
    holders: frozenset[str] = frozenset()
    wait_seconds: float | None = None


class Scrubbed(NamedTuple):
    """What the scrub of a store did.

    Attributes:
        log_emptied: Whether the logs of the store could be emptied; a reader may prevent it.
        rewritten: Why the whole store was rewritten; None when it was not.
        out_of_reach: Where the engine may still keep the bytes, in words.
        obstacle: What still keeps old bytes in the store, in words; None when no old byte is left.
        holders: Names of the transactions that keep them. While one of them is open, another
            attempt has no use.
    """

    log_emptied: bool
    rewritten: str | None = None
    out_of_reach: tuple[str, ...] = ()
    obstacle: str | None = None
    holders: frozenset[str] = frozenset()


class Mangled(str):
    """Text of a row that was not valid UTF-8; the invalid bytes are shown as escapes."""

    __slots__ = ()


class Session(Protocol):
    """One transaction of an engine, used in one thread."""

    @property
    def key(self) -> bytes | None:
        """The key of the ledger's hash chain; None without one."""
        ...

    @property
    def where(self) -> str:
        """The store in words, for errors: a path, or an address without its password."""
        ...

    @property
    def processes(self) -> int:
        """How many processes share the work that `share` gets; 1 when only this one does it."""
        ...

    def share(self, works: Sequence[SharedWork[T]]) -> list[T | None]:
        """Run pieces of work that only read, in several processes; return the results in order.

        Each process reads the snapshot of this session. The result of a piece is None when no
        process has finished it: because one process does all work, or because it failed. The
        caller runs such a piece itself, and gets its error.

        Args:
            works: Independent of each other, the longest first; their results are never None.
        """
        ...

    def rows(self, name: str, values: Values = ()) -> list[Row]:
        """Return all rows of a statement."""
        ...

    def stream(self, name: str, values: Values = ()) -> Iterator[Row]:
        """Yield the rows of a statement as they are read, however many there are.

        The iterator may be dropped before its end, but not used after the transaction.
        """
        ...

    def one(self, name: str, values: Values = ()) -> Row | None:
        """Return the first row of a statement; None without rows."""
        ...

    def value(self, name: str, values: Values = ()) -> Any:  # noqa: ANN401 # as the column is
        """Return the first value of the first row of a statement that always has a row."""
        ...

    def do(self, name: str, values: Values = ()) -> int:
        """Run a statement that changes rows; return how many."""
        ...

    def do_each(self, name: str, rows: Iterable[Values]) -> None:
        """Run a statement once for each element of `rows`."""
        ...

    def insert(self, name: str, rows: Sequence[Row]) -> None:
        """Insert many rows by a statement that inserts one."""
        ...

    def own_writes(self, *, rows: int) -> AbstractContextManager[None]:
        """Mark what the block writes into ``facts`` as slumberd's own, not another program's.

        All streams end before the block.

        Args:
            rows: About how many rows the block writes.
        """
        ...

    def exclude_other_writers(self) -> None:
        """Keep other transactions from writing episodes until this one ends.

        Where one transaction at a time writes anyway, this does nothing.
        """
        ...

    def facts_with_wrong_slots(self) -> Iterator[str]:
        """Yield the facts that a search finds by a subject, predicate or object that they lack.

        An engine that keeps these slots beside the payload must find each that contradicts it.
        """
        ...

    def find_schema_change(self) -> str:
        """Return what another program changed in the tables of facts; empty when nothing."""
        ...

    def apply_filter(self, rule_filter: Filter, numbers: Sequence[int]) -> FilterResult:
        """Return which of some rows of ``episodes`` a rule's filter selects.

        Raises:
            FilterError: The filter does not compile, or runs over its time limit.
            StoppedError: Its stop event was set.
        """
        ...


Work = Callable[[Session], T]
"""Work within one transaction; it must not keep the session."""

SharedWork = Callable[[Session], T]
"""Work that another process may do: a function of a module, or a `partial` of one, and values that
can be pickled."""


def run_missing(
    session: Session, works: Sequence[SharedWork[T]], found: Sequence[T | None]
) -> Iterator[T]:
    """Yield the results of works in order; run those that `Session.share` did not finish.

    Args:
        works: Some of the works that were shared, in the same order.
        found: The results of these works, and perhaps further ones.
    """
    for work, result in zip(works, found, strict=False):
        yield work(session) if result is None else result


class Transact(Protocol):
    """Runs work in one transaction, in the thread of the caller."""

    def __call__(self, work: Work[T]) -> T:
        """Commit all that the work writes, and return its result; else write nothing."""
        ...


class Engine(Protocol):
    """Opens the transactions of one store."""

    @property
    def where(self) -> str:
        """The store in words, for errors and logs."""
        ...

    async def bootstrap(self) -> None:
        """Create the missing tables; a second call changes nothing.

        Raises:
            SchemaError: The store is damaged, or another version of slumberd wrote it.
            LedgerKeyError: The key is not the one that the ledger was begun with.
        """
        ...

    async def health(self) -> StoreHealth:
        """Report the health; never raises for the state of the store, and creates nothing."""
        ...

    async def migrate(self, plan: MigrationPlan, *, at: str) -> None:
        """Add nullable columns to the specified table.

        Args:
            plan: The columns.
            at: The instant of the migration, as ``isoformat`` writes it.

        Raises:
            MigrationNotSupportedError: The plan asks for anything else; nothing is done.
        """
        ...

    async def read(self, work: Work[T], *, cancelled: Callable[[], bool] | None = None) -> T:
        """Run `work` on one snapshot, and return its result.

        Args:
            work: Reads only.
            cancelled: Called often, in any thread; True cancels the running statement.

        Raises:
            StoppedError: `cancelled` returned True.
        """
        ...

    async def write(
        self,
        work: Work[T],
        *,
        keep: bool = True,
        cancelled: Callable[[], bool] | None = None,
        bulk: bool = False,
        wait_seconds: float | None = None,
    ) -> T:
        """Run `work` in one transaction, and return its result; on an error nothing is written.

        Args:
            work: Reads and writes.
            keep: Whether to commit; else nothing is written.
            cancelled: Called often, in any thread; True cancels the transaction.
            bulk: Whether the write is part of a backlog, until `finish_backlog` is called.
            wait_seconds: How long to wait for other writers; None means the engine's usual time.

        Raises:
            StoppedError: `cancelled` returned True.
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        ...

    async def scrub(self, how: Scrubbing = Scrubbing()) -> Scrubbed:  # noqa: B008 # immutable
        """Remove the bytes of erased rows from the store and its logs; return what was done.

        Args:
            how: What to try.
        """
        ...

    async def pulse(self) -> int:
        """Check that the store answers; return how many rows it has written."""
        ...

    async def close(self, *, at_once: bool = False) -> None:
        """Close the store; the next use opens it again.

        Args:
            at_once: Whether to leave unfinished upkeep to the next start.
        """
        ...

    @property
    def halted(self) -> Event:
        """Set by `halt`."""
        ...

    def halt(self) -> None:
        """Set `halted`, which the callers of long reads pass as `cancelled`; from any thread."""
        ...


class FactEngine(Engine, Protocol):
    """Opens the transactions of a store of facts, fenced against writers that were superseded."""

    async def take(self) -> int:
        """Become the only writer: earlier writers can commit no more; return the new epoch."""
        ...

    async def check_writer(self) -> None:
        """Check that this store may still write.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        ...

    async def finish_backlog(self) -> None:
        """Do the upkeep that writes with ``bulk`` have put off; nothing without such writes."""
        ...


class EpisodeEngine(Engine, Protocol):
    """Opens the transactions of a store of episodes, which other programs write, too."""

    async def put(self, work: Work[T]) -> T:
        """Run `work`, which only puts episodes, in one transaction; return its result."""
        ...

    async def post(self, flush: Callable[[Transact], None]) -> None:
        """Queue `flush` for the thread that writes, and do not wait for it.

        Args:
            flush: Begins transactions by its argument; must not raise, since no caller waits.

        Raises:
            StoreError: The store does not open; nothing is queued.
        """
        ...

    def notify(self) -> None:
        """Wake those who wait for new episodes; from any thread."""
        ...

    async def fsync(self) -> None:
        """Sync all that was read so far to the disk, whichever program wrote it."""
        ...

    async def version(self) -> int:
        """Return a number that changes when any connection commits."""
        ...
