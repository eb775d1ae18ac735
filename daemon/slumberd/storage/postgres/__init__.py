"""Store episodes and facts in a PostgreSQL database, which many hosts share."""

from importlib.util import find_spec

from slumberd.model.errors import ExtraMissingError

if find_spec("psycopg") is None:
    raise ExtraMissingError("postgres", "no PostgreSQL database can be opened")
