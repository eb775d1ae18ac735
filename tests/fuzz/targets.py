"""The protocol of a fuzz target; `tests.fuzz` runs targets, and the suite replays corpora."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

CORPUS = Path(__file__).parent / "corpus"


class Finding(Exception):  # noqa: N818 # not an error of ours: a proof of one
    """An input that breaks a promise."""


class Target(Protocol):
    """Something that accepts any bytes."""

    def seeds(self) -> Iterable[bytes]:
        """Return inputs to begin with, beside those of the corpus."""
        ...

    def words(self) -> Iterable[str]:
        """Return words for mutations, in ASCII."""
        ...

    def run_once(self, given: bytes) -> None:
        """Use an input as the daemon would use it.

        Raises:
            Finding: A promise is broken. Any other exception is a finding too.
        """
        ...

    def close(self) -> None:
        """Release the resources of the target."""
        ...


def check_finds_nothing(target: Target, name: str) -> None:
    """Check that a target finds nothing in its seeds and in its corpus."""
    for given in [*target.seeds(), *(file.read_bytes() for file in corpus(name))]:
        target.run_once(given)


def corpus(name: str) -> list[Path]:
    """Return the inputs that were worth keeping for a target."""
    return sorted((CORPUS / name).iterdir())
