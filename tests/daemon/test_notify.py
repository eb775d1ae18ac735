"""The notifier sends the messages of the sd_notify protocol."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from slumberd.daemon.systemd import Notifier, StartReports
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.unit


def listening(address: str) -> socket.socket:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(address)
    receiver.settimeout(PATIENCE_SECONDS)
    return receiver


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    address = str(tmp_path / "notify")
    with listening(address) as receiver:
        yield address, receiver


@pytest.mark.parametrize(
    ("send", "message"),
    [
        pytest.param(Notifier.ready, "READY=1", id="ready"),
        pytest.param(Notifier.stopping, "STOPPING=1", id="stopping"),
        pytest.param(Notifier.watchdog, "WATCHDOG=1", id="watchdog"),
        pytest.param(
            lambda notifier: notifier.status("2 rules,\nREADY=1"),
            "STATUS=2 rules, READY=1",
            id="status, in one line",
        ),
        pytest.param(
            lambda notifier: notifier.reloading(12.5),
            "RELOADING=1\nMONOTONIC_USEC=12500000",
            id="reloading, in one datagram",
        ),
    ],
)
def test_notifier_sends_the_message(
    systemd: tuple[str, socket.socket], send: Callable[[Notifier], None], message: str
) -> None:
    address, receiver = systemd

    send(Notifier(address))

    assert receiver.recv(4096).decode() == message


def test_notifier_sends_to_an_abstract_socket() -> None:
    name = f"slumberd-test-{os.getpid()}"
    with listening(f"\0{name}") as receiver:
        Notifier(f"@{name}").ready()

        assert receiver.recv(4096) == b"READY=1"


@pytest.mark.parametrize("address", [None, "", "vsock:2:1234"])
def test_notifier_sends_nothing_without_a_usable_address(address: str | None) -> None:
    with structlog.testing.capture_logs() as logs:
        Notifier(address).ready()

    assert logs == []


def test_notifier_logs_a_warning_when_systemd_is_gone(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        Notifier(str(tmp_path / "gone")).watchdog()

    assert [line["event"] for line in logs] == ["notify.failed"]


async def test_daemon_reports_that_it_is_alive_until_its_start_is_done() -> None:
    reported = asyncio.Event()
    reports = StartReports(reported.set)

    reports.begin()
    await reported.wait()
    reports.end()

    reported.clear()
    await asyncio.sleep(0)
    assert not reported.is_set()
