"""A port of this machine that leads to a unix socket, as `ssh -L PORT:SOCKET HOST` makes one."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

_POLL_SECONDS = 0.05


@contextmanager
def forwarded_port(path: Path) -> Iterator[int]:
    """Forward a port of 127.0.0.1 to a unix socket while the block runs; yield the port."""
    stop = threading.Event()

    class Forwarder(BaseRequestHandler):
        def handle(self) -> None:
            here: socket.socket = self.request
            with suppress(OSError), socket.socket(socket.AF_UNIX) as there:
                there.connect(str(path))
                other = {here: there, there: here}
                while not stop.is_set():
                    for ready in select.select([*other], [], [], _POLL_SECONDS)[0]:
                        part = ready.recv(65_536)
                        if not part:
                            return
                        other[ready].sendall(part)

    with ThreadingTCPServer(("127.0.0.1", 0), Forwarder) as server:
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            stop.set()
            server.shutdown()
            thread.join()
