"""How much a test tries: a sample in the default run, and more with ``--all``."""

from __future__ import annotations


class _Run:
    everything = False


def try_everything() -> None:
    """Let `amount` return the full numbers; called before test modules are imported."""
    _Run.everything = True


def amount(sample: int, *, full: int) -> int:
    """Return how many examples a test tries: the full number with ``--all``."""
    return full if _Run.everything else sample
