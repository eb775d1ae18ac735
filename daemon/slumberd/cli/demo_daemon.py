"""Run the daemon of `slumberd demo --serve`, which serves the web console on this machine."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

import orjson

from slumberd.cli.setup import daemon_logs, interfaces_of
from slumberd.cli.stop_signals import stop_on_signals
from slumberd.clock import SystemClock
from slumberd.daemon.daemon import run_until
from slumberd.daemon.rules import rules_of
from slumberd.daemon.startup import make_daemon
from slumberd.daemon.systemd import Notifier
from slumberd.operations.caller import Right
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings, load_settings
from slumberd.web.http.access import hash_of, new_token

ADDRESS = "127.0.0.1:0"
"""Only programs of this machine can connect, at a port that is free."""

NAME = "demo"
"""What the audit calls the person who signs in."""

_TOKENS = "tokens.yaml"


def write_access(config: Path) -> str:
    """Let a configuration serve the console to an operator, and return the operator's token.

    Args:
        config: The configuration, which has no section ``serve`` yet.
    """
    token = new_token()
    rights = [right.value for right in Right]
    entry = {"name": NAME, "sha256": hash_of(token), "rights": rights}
    file = config.parent / _TOKENS
    file.touch(mode=0o600)
    file.write_bytes(orjson.dumps({"tokens": [entry]}))
    section = {
        "enabled": True,
        "socket": None,
        "address": ADDRESS,
        "tokens_file": str(file.resolve()),
    }
    with config.open("ab") as stream:
        stream.write(b"serve: " + orjson.dumps(section) + b"\n")
    return token


def check_serving(settings: Settings) -> None:
    """Check that the console can be served.

    Raises:
        ExtraMissingError: The extra ``serve`` is not installed.
    """
    interfaces_of(settings)


def serve_until_signal(config: Path, token: str) -> None:
    """Run the daemon until SIGINT or SIGTERM; print where to sign in, and how.

    Args:
        token: The token to print.
    """
    clock = SystemClock()

    def load() -> tuple[Settings, RuleSet]:
        settings = load_settings(config, overrides={}, environ={})
        return settings, rules_of(settings)

    def print_address(sockets: Sequence[socket.socket]) -> None:
        host, port = sockets[0].getsockname()
        print(f"open      http://{host}:{port}/console/")
        print(f"token     {token}")
        print("stop      Ctrl-C", flush=True)

    settings, rules = load()
    with daemon_logs(settings, clock) as logs:
        daemon = make_daemon(
            settings,
            rules,
            load,
            clock=clock,
            logs=logs.lines,
            notifier=Notifier(None, None),
            interfaces=interfaces_of(settings, print_address),
        )
        run_until(stop_on_signals, daemon)
