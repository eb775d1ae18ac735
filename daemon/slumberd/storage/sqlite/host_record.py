"""Record which deltas the daemon has applied to a host's own fact store, in a file of its own.

The record and the host's store share no transaction. So the record says of each delta first that
it is about to be applied, and afterwards that it is. What lies in between is in doubt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from slumberd.model.firing import START, Position
from slumberd.sql_statements import statements
from slumberd.storage.sqlite.connection import Access, connect
from slumberd.storage.sqlite.session import Pragmas, transaction, translate_errors

_SQL = statements("host_record")
_PRAGMAS = Pragmas()


class Known(NamedTuple):
    """What the record knows of the deltas of one rule.

    Attributes:
        done: The digests of the deltas that were applied.
        in_doubt: Those of the deltas that perhaps were.
        last_by_fact: The delta that was applied last to each fact id; None when that is in doubt.
    """

    done: frozenset[bytes]
    in_doubt: frozenset[bytes]
    last_by_fact: Mapping[str, bytes | None]


class RuleRecord(NamedTuple):
    """The state of one rule, for people.

    Attributes:
        firing: The number of its last firing.
        at: When that began.
        applied: How many deltas it applied; None when it has not ended.
        known: How many deltas the record holds.
        in_doubt: How many of them were perhaps applied.
    """

    rule_id: str
    firing: int
    at: datetime
    applied: int | None
    known: int
    in_doubt: int


class HostRecord:
    """The record of one state directory, open.

    Args:
        path: The file; it is created for writing.
        access: Whether the record is written.

    Raises:
        StoreError: The file cannot be opened.
    """

    def __init__(self, path: Path, *, access: Access = "write") -> None:
        self._path = path
        self._connection = connect(path, _PRAGMAS, access=access)
        if access == "write":
            with self._writing():
                for name in ("create_rules", "create_firings", "create_deltas", "create_facts"):
                    self._connection.execute(_SQL[name])

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def positions(self) -> dict[str, tuple[Position, datetime]]:
        """Return the last cron instant that each rule has served, with a position that is no use.

        A host's store has no log, so each rule is always at the start.
        """
        rows = self._rows("served")
        return {rule_id: (START, datetime.fromisoformat(served)) for rule_id, served in rows}

    def begin_rule(self, rule_id: str, served: datetime) -> None:
        """Record a new rule."""
        with self._writing():
            self._run("begin_rule", rule_id=rule_id, served=served.isoformat())

    def serve(self, rule_id: str, served: datetime) -> None:
        """Record the last cron instant that a rule has served."""
        with self._writing():
            self._run("serve", rule_id=rule_id, served=served.isoformat())

    def begin_firing(self, rule_id: str, at: datetime) -> int:
        """Record that a rule fires; return the number of the firing."""
        with self._writing():
            return int(self._run("begin_firing", rule_id=rule_id, at=at.isoformat())[0][0])

    def end_firing(
        self,
        rule_id: str,
        *,
        applied: int,
        known: Known,
        digests: Collection[bytes],
        fact_ids: Collection[str],
    ) -> None:
        """Record that a rule has fired, and drop what its store returns no more.

        Args:
            applied: How many deltas it applied.
            known: What the record knew before.
            digests: The deltas that the store returned.
            fact_ids: The facts that these name.
        """
        with self._writing():
            for digest in (known.done | known.in_doubt).difference(digests):
                self._run("drop_delta", rule_id=rule_id, digest=digest)
            for fact_id in known.last_by_fact.keys() - fact_ids:
                self._run("drop_fact", rule_id=rule_id, fact_id=fact_id)
            self._run("end_firing", rule_id=rule_id, applied=applied)

    def is_interrupted(self, rule_id: str) -> bool:
        """Return whether the last firing of a rule has not ended."""
        return bool(self._rows("unended", rule_id=rule_id)[0][0])

    def known(self, rule_id: str) -> Known:
        """Return what the record knows of a rule's deltas."""
        rows = self._rows("deltas", rule_id=rule_id)
        return Known(
            frozenset(digest for digest, done in rows if done),
            frozenset(digest for digest, done in rows if not done),
            dict(self._rows("facts", rule_id=rule_id)),
        )

    def begin_delta(self, rule_id: str, digest: bytes, fact_ids: Collection[str]) -> int:
        """Record that a delta is about to be applied; return its number.

        A delta in doubt keeps its number, so a reader of the log knows a repeated line by it.
        """
        with self._writing():
            names = {"rule_id": rule_id, "digest": digest}
            found = self._rows("number_in_doubt", **names) or self._run("begin_delta", **names)
            self._set_facts(rule_id, fact_ids, None)
        return int(found[0][0])

    def end_delta(
        self, number: int, rule_id: str, digest: bytes, fact_ids: Collection[str]
    ) -> None:
        """Record that a delta is applied."""
        with self._writing():
            self._run("end_delta", number=number)
            self._set_facts(rule_id, fact_ids, digest)

    def rules(self) -> list[RuleRecord]:
        """Return the state of each rule that has fired, by id."""
        counts = {rule_id: row for rule_id, *row in self._rows("count_deltas")}
        return [
            RuleRecord(
                rule_id,
                number,
                datetime.fromisoformat(at),
                applied,
                *counts.get(rule_id, (0, 0)),
            )
            for rule_id, number, at, applied in self._rows("firings")
        ]

    def _set_facts(self, rule_id: str, fact_ids: Collection[str], digest: bytes | None) -> None:
        for fact_id in fact_ids:
            self._run("set_fact", rule_id=rule_id, fact_id=fact_id, digest=digest)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with translate_errors(self._path, _PRAGMAS), transaction(self._connection):
            yield

    def _rows(self, name: str, **values: Any) -> list[Any]:
        with translate_errors(self._path, _PRAGMAS):
            return self._run(name, **values)

    def _run(self, name: str, **values: Any) -> list[Any]:
        return self._connection.execute(_SQL[name], values).fetchall()
