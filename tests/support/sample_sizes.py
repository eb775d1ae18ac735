"""The number of samples of a test: few in the default run, more with ``--all``."""

from __future__ import annotations


class _Run:
    everything = False


def use_full_samples() -> None:
    """Let `amount` return the full numbers; called before test modules are imported."""
    _Run.everything = True


def amount(sample: int, *, full: int) -> int:
    """Return how many examples a test tries: the full number with ``--all``."""
    return full if _Run.everything else sample
