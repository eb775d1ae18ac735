"""Write numbers and lists as parts of sentences."""

from __future__ import annotations

from collections.abc import Iterable

from slumberd.observability.line_format import printable

NAMED = 10
"""Names that a sentence lists at most."""

MOST_CHARACTERS = 80
"""Characters of one name that a sentence shows at most."""


def number(count: int) -> str:
    """Return a count with its thousands separated, as ``10,000``."""
    return f"{count:,}"


def plural(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun, as ``1 row`` and ``10,000 rows``.

    Args:
        count: The count.
        one: The noun in the singular.
        many: The noun in the plural; empty when the plural is the singular and an s.
    """
    return f"{number(count)} {one if count == 1 else many or f'{one}s'}"


def listed(names: Iterable[str], *, total: int | None = None) -> str:
    """Return names joined by commas: the first `NAMED`, and how many more there are.

    Args:
        names: The names, or the first of them.
        total: How many there are; None when `names` holds all.
    """
    given = list(names)
    shown = [_short(printable(name)) for name in given[:NAMED]]
    left = (len(given) if total is None else total) - len(shown)
    return ", ".join(shown) + (f" and {number(left)} more" if left > 0 else "")


def _short(name: str) -> str:
    cut = f"{name[:MOST_CHARACTERS]}\N{HORIZONTAL ELLIPSIS}"
    return name if len(name) <= MOST_CHARACTERS else cut
