"""The log says how often and from where people failed to sign in, and never has a token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.support.console_people import signed_in
from tests.support.http_daemon import HttpDaemon, http_daemon
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.acceptance

WRONG = "slumberd_wrong-token-of-a-stranger"


def send(daemon: HttpDaemon, **fields: str) -> httpx.Response:
    """Try to sign in from a page of the daemon."""
    return httpx.post(
        f"{daemon.url}/console/sign-in",
        data=fields,
        headers={"Origin": daemon.url},
        timeout=PATIENCE_SECONDS,
    )


def stop_and_read(daemon: HttpDaemon) -> list[dict[str, Any]]:
    """Stop the daemon, and return everything that it logged."""
    daemon.daemon.stop()
    return [*daemon.daemon.seen, *daemon.daemon.remaining()]


def test_log_counts_refused_sign_ins_by_place(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    # A path with the name of the test is too long for the unix socket.
    with http_daemon(tmp_path_factory.mktemp("refused")) as daemon:
        refused = [send(daemon, token=WRONG), send(daemon, token=WRONG), send(daemon, peer="1")]
        with daemon.by_socket(Origin="http://localhost") as client:
            refused.append(client.post("/console/sign-in", data={"token": WRONG}))
        logged = stop_and_read(daemon)

    assert {answer.status_code for answer in refused} == {401}
    counts = [event["counts"] for event in logged if event["event"] == "sign_in.refused"]
    assert counts == [{"127.0.0.1": 1}, {"127.0.0.1": 2, "the unix socket": 1}]
    assert WRONG not in orjson.dumps(logged).decode()


def test_log_counts_no_sign_in_that_succeeds(tmp_path: Path) -> None:
    with http_daemon(tmp_path / "home") as daemon:
        with signed_in(daemon, "ana") as ana:
            ana.read("/today")
        logged = stop_and_read(daemon)

    assert not [event for event in logged if event["event"] == "sign_in.refused"]
