"""The names of the patterns of the extractor ``conversation``, as ``extracted.by`` has them."""

from __future__ import annotations

from slumberd.extraction.attributes_in_english import ATTRIBUTES
from slumberd.extraction.statements_in_english import clause_expressions, expressions
from slumberd.extraction.turn_notes import NAME

IN_CODE = (
    "answer", "cancelled", "died", "habit", "i_am", "implied", "inverted", "left_there",
    "moved_out", "named", "partner", "plan", "slip", "taken_back", "that_is_favourite",
)  # fmt: skip
"""The patterns that are in no table; `tests/extraction/test_removed_patterns.py` checks them."""


def pattern_names() -> frozenset[str]:
    """Return the names of all patterns."""
    of_clauses = [one.id for one in (*expressions(), *clause_expressions())]
    of_attributes = [id for id, *_ in ATTRIBUTES]
    return frozenset(f"{NAME}/{id}" for id in (*of_clauses, *of_attributes, *IN_CODE))
