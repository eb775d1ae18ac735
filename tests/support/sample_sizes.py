"""How many examples a test tries: few by default, more with ``--all``, most ``--nightly``."""

from __future__ import annotations

_FEWER = 3
"""How many times fewer examples the default run tries than ``--all``."""


class _Run:
    tier = "default"


def use_samples_of(tier: str) -> None:
    """Let `amount` return the numbers of a tier; called before test modules are imported."""
    _Run.tier = tier


def amount(sample: int, *, full: int) -> int:
    """Return how many examples a test tries.

    Args:
        sample: With ``--all``. The default run tries a third of them, and at least one.
        full: With ``--nightly``.
    """
    if _Run.tier == "nightly":
        return full
    return sample if _Run.tier == "all" else max(1, sample // _FEWER)
