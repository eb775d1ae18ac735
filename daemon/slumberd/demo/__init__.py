"""The sample that `slumberd demo` runs on: two days of three people who talk to two agents."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

DAYS = ("monday", "tuesday")


def lay_out(directory: Path) -> Path:
    """Write configuration and rules into a directory; return the configuration's path."""
    rules = directory / "rules.d"
    rules.mkdir(parents=True)
    (rules / "profile.yaml").write_bytes(_content("rules.yaml"))
    config = directory / "slumberd.yaml"
    config.write_bytes(_content("slumberd.yaml"))
    return config


def day(name: str) -> bytes:
    """Return the episodes of one of the `DAYS`, as JSON lines."""
    return _content(f"{name}.jsonl")


def _content(name: str) -> bytes:
    return files(__name__).joinpath(name).read_bytes()
