"""The address of a PostgreSQL database, shown without its password."""

from __future__ import annotations

from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from slumberd.errors import UsageError

SCHEMES = ("postgresql://", "postgres://")
"""How an address of a database begins."""


def parts_of(address: str) -> dict[str, str]:
    """Return the parameters of an address by the names of libpq.

    Raises:
        UsageError: It is malformed. The message does not repeat it: it may hold a password.
    """
    if not str(address).startswith(SCHEMES):  # a host may pass anything
        raise UsageError("the address of a database begins with 'postgresql://'")
    try:
        found = conninfo_to_dict(address)
    except psycopg.Error as error:
        raise UsageError("the address of the database is malformed") from error
    return {name: str(value) for name, value in found.items() if value is not None}


def where(address: str) -> str:
    """Return an address in words, with hosts, ports, database and service, without the rest."""
    parts = parts_of(address)
    if "service" in parts and "host" not in parts:
        return f"postgresql://?service={parts['service']}"
    hosts = [
        quote(host, safe="") if host.startswith("/") else host
        for host in parts.get("host", "").split(",")
    ]
    ports = parts["port"].split(",") if "port" in parts else [""]
    if len(ports) == 1:  # of every host
        ports *= len(hosts)
    places = [f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=False)]
    return f"postgresql://{','.join(places)}/{parts.get('dbname', '')}"
