"""Which predicates of which channels may hold several objects at once."""

from __future__ import annotations

import pytest

from slumberd.consolidation.precedence import MultiValued

pytestmark = pytest.mark.unit


def test_channel_without_multi_valued_predicates_is_as_if_it_were_absent() -> None:
    multi = MultiValued({"notes": [], "facts": ["likes"]})

    assert multi.channels == {"facts": frozenset({"likes"})}
