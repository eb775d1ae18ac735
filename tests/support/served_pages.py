"""Pages on a real socket, for the tests of the tools that look at pages."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

STRICT_POLICY = "default-src 'none'; img-src 'self'; style-src 'self'; form-action 'self'"
"""A content security policy that lets no script run."""

FRAME = (
    "<!doctype html><html lang=en><title>A page</title><link rel=icon href=/icon>"
    "<main><h1>A page</h1>{}</main></html>"
)
"""A page that has no problem; its content is to be filled in."""

_POLL_SECONDS = 0.01


@contextmanager
def serve_pages(pages: Mapping[str, str], policy: str = STRICT_POLICY) -> Iterator[str]:
    """Serve pages while the block runs; yield their scheme, host and port.

    A form that is posted with a field ``token`` is answered with a page that shows the token.

    Args:
        pages: HTML by path; a script by a path that ends in ``.js``.
        policy: The content security policy of each page; an empty text for none.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/icon":
                self._answer("", 200)
                return
            self._answer(pages.get(self.path, "none"), 200 if self.path in pages else 404)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            (token,) = parse_qs(body)["token"]
            self._answer(FRAME.format(f"<p>Signed in by {token}.</p>"), 200)

        def _answer(self, text: str, status: int) -> None:
            kind = "text/javascript" if self.path.endswith(".js") else "text/html"
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            if policy:
                self.send_header("Content-Security-Policy", policy)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
