"""A daemon on a PostgreSQL database, under a real systemd with the drop-in of the documentation."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest

from tests.support.builders import triple
from tests.support.installation import jsonl
from tests.support.postgres_server import OwnServer, programs, running_server, skip_without_server
from tests.support.waiting import wait_until
from tests.systemd.box import PEOPLE, SHIPPED, Box, installation_commands
from tests.systemd.box import bootable as bootable

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.nightly,
    pytest.mark.usefixtures("bootable"),
]

RULE = """\
rules:
  - {id: all, cadence: {every: 1}, when_filter: "", then_emits: [facts]}
"""
UNIT = "/etc/systemd/system/slumberd.service.d"


def drop_in() -> str:
    """Return the drop-in of the page about PostgreSQL, without its credential.

    In the box, the user of a service cannot read the credentials of the service.
    """
    page = (SHIPPED / "docs/how-to/use-postgresql.md").read_text()
    found = re.search(r"<!-- drop-in: postgres -->\n```ini\n(.*?)```", page, re.DOTALL)
    assert found is not None
    lines = found[1].splitlines(keepends=True)
    return "".join(line for line in lines if "pgpass" not in line)


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[OwnServer, str]]:
    """Yield a server that listens on the loopback, and the address of a database."""
    if programs() is None:
        skip_without_server()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"listen_addresses": "127.0.0.1", "port": str(port)}
    with running_server(**settings) as server, server.database() as name:
        server.login("the_daemon", "slumberd_daemon")
        yield server, f"postgresql://the_daemon@127.0.0.1:{port}/{name}"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory, server: tuple[OwnServer, str]) -> Iterator[Box]:
    """Return a machine with a daemon; the box shares the host's network."""
    with Box(tmp_path_factory.mktemp("box")) as box:
        box.do("systemctl start systemd-journald")
        box.do(installation_commands())
        box.do("systemd-sysusers -", PEOPLE)
        box.log_to_journal()
        box.do(f"sed -i 's#^store: null#store: {server[1]}#' /etc/slumberd/slumberd.yaml")
        box.do("rm -r /etc/slumberd/rules.d/*; cat > /etc/slumberd/rules.d/all.yaml", RULE)
        box.do(f"cat > {UNIT}/postgres.conf", drop_in())
        box.do("systemctl daemon-reload; systemctl restart slumberd")
        yield box
        box.do("systemctl stop slumberd")


def test_daemon_in_its_sandbox_consolidates_in_the_database(
    box: Box, server: tuple[OwnServer, str]
) -> None:
    said = triple("e1", "ann", "likes", "tea", user="ann")
    box.do("runuser -u agent -- slumberd import -", jsonl(said).decode())
    database = server[1].rpartition("/")[2]

    wait_until(
        lambda: server[0].rows("SELECT fact_id FROM slumberd_0.facts", database) == [("e1",)]
    )

    assert "tea" in box.do("runuser -u agent -- slumberd facts --user ann")
    assert "is active" not in box.do("systemctl show slumberd --property StatusText")
    assert "held by" in box.do("slumberd status")
