"""Two ways to choose, in a PostgreSQL database, the facts that may answer a question best.

slumberd has neither: they are measured against its index in memory. Both keep an index beside the
facts, in a schema of their own, and both leave the score to slumberd's `TermIndex`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import psycopg
from psycopg import sql

from slumberd.search.term_index import CHOSEN, SHORT

Connection = psycopg.Connection[tuple[Any, ...]]

_CREATE_USERS = b"""
CREATE SCHEMA bench;
CREATE TABLE bench.users ("user" text COLLATE "C" PRIMARY KEY, facts bigint NOT NULL)
"""
_COUNT_FACTS = """
INSERT INTO bench.users ("user", facts) VALUES (%s, %s)
ON CONFLICT ("user") DO UPDATE SET facts = users.facts + excluded.facts
"""
_FACTS_OF_USER = 'SELECT facts FROM bench.users WHERE "user" = %s'


class FactTerms(NamedTuple):
    """A fact, and the terms of its words in order."""

    id: str
    terms: Sequence[str]


class Candidates(Protocol):
    """An index of facts in a database."""

    @property
    def name(self) -> str:
        """Its name in the table."""
        ...

    def create(self, connection: Connection) -> None:
        """Create its tables."""
        ...

    def add(self, connection: Connection, user: str, facts: Sequence[FactTerms]) -> None:
        """Add facts of a user, in the order of their ids."""
        ...

    def count(self, connection: Connection, user: str, terms: Sequence[str]) -> dict[str, int]:
        """Return how many facts of a user have each term."""
        ...

    def choose(self, connection: Connection, user: str, weights: Mapping[str, float]) -> list[str]:
        """Return the ids of the `CHOSEN` facts of a user whose terms weigh most."""
        ...

    def size(self, connection: Connection) -> int:
        """Return the bytes of its tables and their indexes."""
        ...


def create_users(connection: Connection) -> None:
    """Create the table that says how many facts a user has."""
    connection.execute(_CREATE_USERS)


def count_facts(connection: Connection, user: str, more: int) -> None:
    """Note that a user has more facts."""
    connection.execute(_COUNT_FACTS, (user, more))


def facts_of_user(connection: Connection, user: str) -> int:
    """Return how many facts a user has."""
    row = connection.execute(_FACTS_OF_USER, (user,)).fetchone()
    return int(row[0]) if row else 0


class TextSearch:
    """PostgreSQL's text search: a column of type ``tsvector`` with a GIN index.

    The user is a lexeme of each fact, so the index finds the facts of one user with a term. The
    index knows no frequency of a term in a fact, and no count of facts with a term.
    """

    name = "text search"

    def create(self, connection: Connection) -> None:
        connection.execute(
            'CREATE TABLE bench.documents (fact_id text COLLATE "C" PRIMARY KEY, words tsvector);'
            "CREATE INDEX documents_words ON bench.documents USING gin (words)"
        )

    def add(self, connection: Connection, user: str, facts: Sequence[FactTerms]) -> None:
        connection.execute(
            "INSERT INTO bench.documents (fact_id, words)"
            " SELECT fact_id, to_tsvector('simple', words) || array_to_tsvector(%s::text[])"
            " FROM unnest(%s::text[], %s::text[]) AS given (fact_id, words)",
            ([_user_lexeme(user)], [fact.id for fact in facts], [" ".join(f.terms) for f in facts]),
        )

    def count(self, connection: Connection, user: str, terms: Sequence[str]) -> dict[str, int]:
        one = sql.SQL(
            "SELECT {term}, count(*) FROM bench.documents WHERE words @@ {query}::tsquery"
        )
        each = [
            one.format(term=sql.Literal(term), query=sql.Literal(_query(user, [term])))
            for term in terms
        ]
        return dict(connection.execute(sql.SQL(" UNION ALL ").join(each)).fetchall())

    def choose(self, connection: Connection, user: str, weights: Mapping[str, float]) -> list[str]:
        one = sql.SQL("(words @@ {query}::tsquery)::int * {weight}::float8")
        parts = [
            one.format(query=sql.Literal(_quoted(term)), weight=sql.Literal(weight))
            for term, weight in weights.items()
        ]
        found = connection.execute(
            sql.SQL(
                "SELECT fact_id FROM bench.documents WHERE words @@ {query}::tsquery"
                " ORDER BY {total} DESC, fact_id DESC LIMIT {most}"
            ).format(
                query=sql.Literal(_query(user, [*weights])),
                total=sql.SQL(" + ").join(parts),
                most=sql.Literal(CHOSEN),
            )
        )
        return [id for (id,) in found]

    def size(self, connection: Connection) -> int:
        return _size_of(connection, "documents")


def _user_lexeme(user: str) -> str:
    return f"user/{user}"  # no term has a slash


def _quoted(lexeme: str) -> str:
    return "'" + lexeme.replace("'", "''") + "'"


def _query(user: str, terms: Sequence[str]) -> str:
    return f"{_quoted(_user_lexeme(user))} & ({' | '.join(map(_quoted, terms))})"


class Postings:
    """A table with a row for each term of each fact, with one index."""

    name = "table of postings"

    def create(self, connection: Connection) -> None:
        connection.execute(
            "CREATE TABLE bench.entries ("
            "  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
            '  fact_id text COLLATE "C" NOT NULL'
            ");"
            "CREATE TABLE bench.postings ("
            '  "user" text COLLATE "C", term text COLLATE "C", number bigint, frequency real,'
            '  PRIMARY KEY ("user", term, number) INCLUDE (frequency)'
            ")"
        )

    def add(self, connection: Connection, user: str, facts: Sequence[FactTerms]) -> None:
        numbered = connection.execute(
            "INSERT INTO bench.entries (fact_id) SELECT unnest(%s::text[]) RETURNING number",
            ([fact.id for fact in facts],),
        ).fetchall()
        rows = [
            (term, number, count * SHORT / max(len(fact.terms), SHORT))
            for (number,), fact in zip(numbered, facts, strict=True)
            for term, count in Counter(fact.terms).items()
        ]
        terms, numbers, frequencies = map(list, zip(*rows, strict=True))
        connection.execute(
            'INSERT INTO bench.postings ("user", term, number, frequency)'
            " SELECT %s, given.* FROM unnest(%s::text[], %s::bigint[], %s::real[]) AS given",
            (user, terms, numbers, frequencies),
        )

    def count(self, connection: Connection, user: str, terms: Sequence[str]) -> dict[str, int]:
        found = connection.execute(
            "SELECT term, count(*) FROM bench.postings"
            ' WHERE "user" = %s AND term = ANY (%s) GROUP BY term',
            (user, [*terms]),
        )
        return dict(found.fetchall())

    def choose(self, connection: Connection, user: str, weights: Mapping[str, float]) -> list[str]:
        found = connection.execute(
            "WITH best AS ("
            "  SELECT number, sum(weight * frequency / (1.2 + frequency)) AS total"
            "  FROM bench.postings"
            "  INNER JOIN unnest(%s::text[], %s::float8[]) AS wanted (term, weight) USING (term)"
            '  WHERE "user" = %s AND term = ANY (%s)'
            "  GROUP BY number ORDER BY total DESC, number DESC LIMIT %s"
            ") SELECT fact_id FROM best INNER JOIN bench.entries USING (number)",
            ([*weights], [*weights.values()], user, [*weights], CHOSEN),
        )
        return [id for (id,) in found]

    def size(self, connection: Connection) -> int:
        return _size_of(connection, "entries") + _size_of(connection, "postings")


def _size_of(connection: Connection, table: str) -> int:
    row = connection.execute(
        "SELECT pg_total_relation_size(%s::regclass)", (f"bench.{table}",)
    ).fetchone()
    return int(row[0]) if row else 0
