"""A real PgBouncer in front of a server, which pools transactions unless it is told otherwise."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from tests.support.postgres_server import (
    REQUIRED_VARIABLE,
    OwnServer,
    end_with_parent,
    open_directory,
    server_user,
)
from tests.support.waiting import wait_until

PORT = 6432
MISSING = "no PgBouncer is here"
_USUAL_PLACE = "/usr/sbin/pgbouncer"


def program() -> str | None:
    """Return the path of PgBouncer; None when it is not installed."""
    return shutil.which("pgbouncer") or shutil.which(_USUAL_PLACE)


@contextmanager
def running_pooler(server: OwnServer, database: str, **settings: str) -> Iterator[str]:
    """Yield the address of a database behind a pooler.

    Args:
        server: The server.
        database: The name of the database.
        settings: Further settings of the pooler.
    """
    found = program()
    if found is None:
        if os.environ.get(REQUIRED_VARIABLE):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    with tempfile.TemporaryDirectory(prefix="pb", dir=open_directory()) as name:
        folder, as_user = Path(name), server_user()
        lines = {
            "listen_port": str(PORT),
            "unix_socket_dir": str(folder),
            "auth_type": "any",
            "pool_mode": "transaction",
            "default_pool_size": "2",
            **settings,
        }
        config = folder / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n{database} = host={server.folder} dbname={database} user=postgres\n"
            "[pgbouncer]\n" + "".join(f"{key} = {value}\n" for key, value in lines.items())
        )
        if as_user:
            os.chown(folder, as_user["user"], as_user["group"])
        process = subprocess.Popen(
            [found, "-q", str(config)],
            stderr=subprocess.DEVNULL,
            cwd=folder,
            preexec_fn=end_with_parent,
            **as_user,
        )
        address = f"postgresql://postgres@{quote(name, safe='')}:{PORT}/{database}"

        def answers() -> bool:
            assert process.poll() is None, "PgBouncer did not start"
            try:
                psycopg.connect(address).close()
            except psycopg.OperationalError:
                return False
            return True

        try:
            wait_until(answers)
            yield address
        finally:
            process.kill()
            process.wait()
