"""A proxy before a PostgreSQL server that loses the connection at a commit, or in a copy."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from tests.support.postgres_server import OwnServer

Loss = Literal["request", "answer", "copy"]
"""What is lost: the commit before the server gets it, the server's answer to it, or rows of a copy
that the server gets in part."""

_SOCKET = ".s.PGSQL.5432"
_COMMIT = b"COMMIT\0"
_COPIED_ROWS = b"d"
"""How a message with rows of a copy begins."""


class LossyProxy:
    """Passes bytes between clients and a server on unix sockets.

    Attributes:
        lost: How many connections were cut.

    Args:
        server: The socket of the server.
        own: Where clients connect.
    """

    def __init__(self, server: Path, own: Path) -> None:
        self.lost = 0
        self._server = server
        self._loss: Loss = "answer"
        self._wanted = 0
        self._within = b""
        self._lock = threading.Lock()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(own))
        self._listening.listen()

    def lose(self, loss: Loss, transactions: int, *, within: str = "") -> None:
        """Lose the next transactions.

        Args:
            loss: What is lost of each.
            transactions: How many are lost.
            within: A text of a statement that only these transactions have.
        """
        with self._lock:
            self._loss, self._wanted, self._within = loss, transactions, within.encode()

    @property
    def is_done(self) -> bool:
        """Whether all wanted transactions were lost."""
        with self._lock:
            return self._wanted == 0

    def run(self) -> None:
        """Accept connections until `close`."""
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._server))
                _Passage(self, client, server).begin()

    def close(self) -> None:
        """Accept no more connections."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def is_meant(self, sent: bytes) -> bool:
        """Return whether the bytes that a client has sent are of a transaction to lose."""
        with self._lock:
            return self._wanted > 0 and self._within in sent

    def take_loss(self, sent: bytes) -> Loss | None:
        """Return what is lost of the bytes that a client has sent; None for nothing."""
        with self._lock:
            is_place = (
                sent.startswith(_COPIED_ROWS) if self._loss == "copy" else sent.endswith(_COMMIT)
            )
            if not self._wanted or not is_place:
                return None
            self._wanted -= 1
            self.lost += 1
            return self._loss


class _Passage:
    def __init__(self, proxy: LossyProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._is_answer_lost = False
        self._is_meant = False

    def begin(self) -> None:
        for work in (self._pass_requests, self._pass_answers):
            threading.Thread(target=work, daemon=True).start()

    def _pass_requests(self) -> None:
        with suppress(OSError):
            while sent := self._client.recv(65536):
                loss = self._take_loss(sent)
                if loss == "copy":
                    self._server.sendall(sent[: len(sent) // 2])
                if loss in ("copy", "request"):
                    break
                self._is_answer_lost = loss == "answer"
                self._server.sendall(sent)
        if not self._is_answer_lost:
            self._end()

    def _take_loss(self, sent: bytes) -> Loss | None:
        self._is_meant = self._is_meant or self._proxy.is_meant(sent)
        loss = self._proxy.take_loss(sent) if self._is_meant else None
        if sent.endswith(_COMMIT):
            self._is_meant = False
        return loss

    def _pass_answers(self) -> None:
        with suppress(OSError):
            while (got := self._server.recv(65536)) and not self._is_answer_lost:
                self._client.sendall(got)
        self._end()

    def _end(self) -> None:
        for one in (self._client, self._server):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@contextmanager
def lossy_proxy(server: OwnServer, database: str) -> Iterator[tuple[LossyProxy, str]]:
    """Yield a proxy, and the address of a database behind it."""
    with tempfile.TemporaryDirectory(prefix="lp") as folder:
        proxy = LossyProxy(server.folder / _SOCKET, Path(folder, _SOCKET))
        thread = threading.Thread(target=proxy.run, daemon=True)
        thread.start()
        try:
            yield proxy, f"postgresql://postgres@{quote(folder, safe='')}/{database}"
        finally:
            proxy.close()
            thread.join()
