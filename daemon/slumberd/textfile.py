"""The file that Prometheus' node_exporter reads: whole at every moment."""

from __future__ import annotations

from pathlib import Path

MODE = 0o644
"""Everybody may read it, node_exporter above all; there is nothing personal in it."""


def write_textfile(path: Path, text: bytes) -> None:
    """Put a text in the place of the one before.

    Raises:
        OSError: It cannot be written; the one before is still there.
    """
    # node_exporter reads *.prom only, and not what is beside it for a moment.
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_bytes(text)
        fresh.chmod(MODE)  # whatever the umask of the daemon
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
