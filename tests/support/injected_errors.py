"""Let a server refuse transactions with an error of choice."""

from __future__ import annotations

from typing import Literal

from tests.support.postgres_server import PostgresServer

Moment = Literal["in a statement", "at the commit"]
MOMENTS: tuple[Moment, ...] = ("in a statement", "at the commit")


def inject_errors(
    server: PostgresServer,
    database: str,
    table: str,
    code: str,
    *,
    times: int,
    moment: Moment = "in a statement",
) -> None:
    """Let the next transactions that write a table fail, each at its first row.

    Args:
        server: The server.
        database: The name of the database.
        table: The table, of shard 0.
        code: The error, as its SQLSTATE.
        times: How many transactions fail.
        moment: When they fail.
    """
    deferred = moment == "at the commit"
    server.run(
        f"DROP TRIGGER IF EXISTS fails ON slumberd_0.{table}",
        "DROP FUNCTION IF EXISTS public.fail",
        "DROP SEQUENCE IF EXISTS public.failures",
        "CREATE SEQUENCE public.failures",  # it also counts in transactions that are rolled back
        "GRANT USAGE ON SEQUENCE public.failures TO PUBLIC",
        f"""
        CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          IF nextval('public.failures') <= {times} THEN
            RAISE EXCEPTION 'injected' USING ERRCODE = '{code}';
          END IF;
          RETURN NULL;
        END $$
        """,
        f"CREATE {'CONSTRAINT' if deferred else ''} TRIGGER fails AFTER INSERT OR UPDATE"
        f" ON slumberd_0.{table} {'DEFERRABLE INITIALLY DEFERRED' if deferred else ''}"
        " FOR EACH ROW EXECUTE FUNCTION public.fail()",
        database=database,
    )
