"""Tell systemd how the service is doing: the sd_notify protocol, without its library."""

from __future__ import annotations

import socket

import structlog

_log = structlog.get_logger(__name__)
_LONGEST_WAIT_SECONDS = 1.0


class Notifier:
    """The sender's side of one NOTIFY_SOCKET; says nothing when there is none.

    Attributes:
        watchdog_seconds: How long the service manager waits for a `watchdog`; None for ever.
    """

    def __init__(self, address: str | None, watchdog_seconds: float | None = None) -> None:
        """Remember where to send.

        Args:
            address: The value of NOTIFY_SOCKET: a path, or an abstract name after ``@``.
            watchdog_seconds: How long the service manager waits for a `watchdog`, if it does.
        """
        self.watchdog_seconds = watchdog_seconds
        known = address is not None and address.startswith(("/", "@"))
        self._address = address.replace("@", "\0", 1) if address is not None and known else None

    def ready(self) -> None:
        """Say that the service is up, or that a reload is done."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """Show one line in ``systemctl status``."""
        self._send("STATUS=" + " ".join(text.split()))

    def stopping(self) -> None:
        """Say that the service is going down."""
        self._send("STOPPING=1")

    def reloading(self, monotonic: float) -> None:
        """Say that a reload begins, at a moment of the monotonic clock, in seconds."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={int(monotonic * 1_000_000)}")

    def watchdog(self) -> None:
        """Say that the service is alive."""
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(_LONGEST_WAIT_SECONDS)
                sender.sendto(message.encode(), self._address)
        except OSError as error:
            _log.warning("notify.failed", error=str(error))
