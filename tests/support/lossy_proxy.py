"""A proxy before a PostgreSQL server that loses the connection at a commit."""

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

Loss = Literal["request", "answer"]
"""What is lost: the commit before the server gets it, or the server's answer to it."""

_SOCKET = ".s.PGSQL.5432"
_COMMIT = b"COMMIT\0"


class LossyProxy:
    """Passes bytes between clients and a server on unix sockets.

    Attributes:
        lost: How many commits were cut.

    Args:
        server: The socket of the server.
        own: Where clients connect.
    """

    def __init__(self, server: Path, own: Path) -> None:
        self.lost = 0
        self._server = server
        self._loss: Loss = "answer"
        self._wanted = 0
        self._lock = threading.Lock()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(own))
        self._listening.listen()

    def lose(self, loss: Loss, commits: int) -> None:
        """Lose the next commits."""
        with self._lock:
            self._loss, self._wanted = loss, commits

    @property
    def is_done(self) -> bool:
        """Whether all wanted commits were lost."""
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

    def take_loss(self, sent: bytes) -> Loss | None:
        """Return what is lost of the bytes that a client has sent; None for nothing."""
        with self._lock:
            if not self._wanted or not sent.endswith(_COMMIT):
                return None
            self._wanted -= 1
            self.lost += 1
            return self._loss


class _Passage:
    def __init__(self, proxy: LossyProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._is_answer_lost = False

    def begin(self) -> None:
        for work in (self._pass_requests, self._pass_answers):
            threading.Thread(target=work, daemon=True).start()

    def _pass_requests(self) -> None:
        with suppress(OSError):
            while sent := self._client.recv(65536):
                loss = self._proxy.take_loss(sent)
                if loss == "request":
                    break
                self._is_answer_lost = loss == "answer"
                self._server.sendall(sent)
        if not self._is_answer_lost:
            self._end()

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
