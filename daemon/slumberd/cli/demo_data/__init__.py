"""The data of `slumberd demo`: two days of three people who talk to two agents."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from slumberd.cli.json_schemas import SHIPPED, schema_text

DAYS = ("monday", "tuesday")

_SCHEMAS = b"$schema=../../../../config/"
"""The path of the schemas in the repository, as the samples name it."""


def write_files(directory: Path) -> Path:
    """Write the configuration, the rules and their schemas into a directory.

    Returns:
        The path of the configuration.
    """
    rules, schemas = directory / "rules.d", directory / "config"
    rules.mkdir(parents=True)
    schemas.mkdir()
    for name, (_, file) in SHIPPED.items():
        (schemas / file).write_text(schema_text(name))
    sample = _content("rules.yaml").replace(_SCHEMAS, b"$schema=../config/")
    (rules / "profile.yaml").write_bytes(sample)
    config = directory / "slumberd.yaml"
    config.write_bytes(_content("slumberd.yaml").replace(_SCHEMAS, b"$schema=config/"))
    return config


def day(name: str) -> bytes:
    """Return the episodes of one of the `DAYS`, as JSON lines."""
    return _content(f"{name}.jsonl")


def _content(name: str) -> bytes:
    return files(__name__).joinpath(name).read_bytes()
