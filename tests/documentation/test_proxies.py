"""The proxy of the documentation runs as the page shows it, and people and programs pass it."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.console_people import Person
from tests.support.documentation import DOCS, PAGES, blocks_of
from tests.support.http_daemon import HttpDaemon, http_daemon
from tests.support.waiting import wait_until

NAME = "memory.example.com"
ORIGIN = f"https://{NAME}"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
"""The program; None when it is not installed. Debian has it in a place of administrators."""

FRAME = """
daemon off;
error_log stderr;
pid {folder}/pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {server}
}}
"""
CERTIFICATE = [
    "req",
    "-x509",
    "-newkey",
    "rsa:2048",
    "-nodes",
    "-days",
    "2",
    "-subj",
    f"/CN={NAME}",
]


@pytest.mark.unit
def test_every_line_with_curl_is_run() -> None:
    found = [block for page in PAGES for block in blocks_of(page) if "curl" in block.text]

    assert len(found) >= 3
    assert [block.place for block in found if block.mark != "run"] == []


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    if NGINX is None:
        pytest.skip("nginx is not installed (Debian: apt-get install nginx-light)")
    with http_daemon(tmp_path_factory.mktemp("http"), hosts=[NAME]) as running:
        yield running


def documented(path: str) -> str:
    """Return the server of the page about the console, for another path than its own."""
    page = DOCS / "how-to" / "use-the-console.md"
    [block] = [block for block in blocks_of(page) if block.language == "nginx"]
    return block.text.replace("location /console/", f"location {path}")


@contextmanager
def proxy(folder: Path, daemon: HttpDaemon, path: str) -> Iterator[httpx.Client]:
    """Run the documented proxy; yield a client of it, which trusts it."""
    folder.mkdir()
    files = {"/etc/ssl/memory.pem": folder / "c.pem", "/etc/ssl/memory.key": folder / "k.pem"}
    certificate, key = files.values()
    made = ["openssl", *CERTIFICATE, "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(made, check=True, capture_output=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = documented(path)
    for name, file in files.items():
        assert name in server
        server = server.replace(name, str(file))
    server = server.replace("443", f"127.0.0.1:{port}").replace("127.0.0.1:8750", daemon.url[7:])
    config = folder / "nginx.conf"
    config.write_text(FRAME.format(folder=folder, server=server))
    assert NGINX is not None
    with subprocess.Popen([NGINX, "-c", str(config), "-p", str(folder), "-e", "stderr"]) as running:
        try:
            wait_until(lambda: running.poll() is not None or connects(port))
            assert running.poll() is None, "nginx did not start"
            trusted = ssl.create_default_context(cafile=certificate)
            trusted.check_hostname = False
            with httpx.Client(
                base_url=f"https://127.0.0.1:{port}", verify=trusted, headers={"Host": NAME}
            ) as client:
                yield client
        finally:
            running.terminate()


def connects(port: int) -> bool:
    """Return whether a server listens."""
    with socket.socket() as opened:
        return opened.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.acceptance
@pytest.mark.slow
def test_person_signs_in_through_the_documented_proxy(tmp_path: Path, daemon: HttpDaemon) -> None:
    with proxy(tmp_path / "nginx", daemon, "/console/") as client:
        person = Person(client, ORIGIN)
        shown = person.read("/today")
        foreign = person.post("/sign-in", {"token": "x"}, Origin="https://evil.test")
        done = person.send(shown.form(), token=daemon.tokens["operator"])
        client.cookies.set("slumberd_session", done.answer.cookies["slumberd_session"])
        page = person.read("/today")
        programs = client.get("/v1/status")

    assert foreign.status == 403
    assert "Secure" in done.answer.headers["set-cookie"]
    assert "Today" in page.text
    assert programs.headers["content-type"] == "text/html"  # of nginx, which lets people in only


@pytest.mark.acceptance
@pytest.mark.slow
def test_programs_pass_the_documented_proxy(tmp_path: Path, daemon: HttpDaemon) -> None:
    token = {"Authorization": f"Bearer {daemon.tokens['ana']}"}
    with proxy(tmp_path / "nginx", daemon, "/") as client:
        client.headers.update(token)
        put = client.post("/v1/episodes", json={"text": "I live in Oslo."})
        found = client.post("/v1/search", json={"query": "Oslo"})
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        accepted = {"Accept": "application/json, text/event-stream"}
        answer = client.post("/mcp", json=ping, headers=accepted)
        with client.stream("GET", "/v1/events") as events:
            first = next(line for line in events.iter_lines() if line.startswith("event:"))
        unknown = client.get("/v1/facts", headers={"Host": "evil.test"})
        health = client.get("/healthz", headers={"Host": "evil.test"})

    assert put.status_code == 201
    assert found.json()["hits"][0]["text"] == "I live in Oslo."
    assert answer.json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert first.startswith("event: ")
    assert unknown.status_code == 421
    assert health.status_code == 200
