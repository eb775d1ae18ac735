"""The file that Prometheus' node_exporter reads: whole at every moment."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

MODE = 0o644
"""Everybody may read it, node_exporter above all; there is nothing personal in it."""

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_textfile(path: Path, text: bytes) -> None:
    """Put a text in the place of the one before.

    Others may write in the directory of the collector. So the new file has a name that nobody can
    guess, is never one that is there already, and gets its mode by its descriptor: a link that
    somebody planted leads nowhere.

    Raises:
        OSError: It cannot be written; the one before is still there.
    """
    # node_exporter reads *.prom only, and not what is beside it for a moment.
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    descriptor = os.open(fresh, _FLAGS, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            os.fchmod(descriptor, MODE)  # whatever the umask of the daemon
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
