"""Characters that stand for many others cost no more than others do."""

from __future__ import annotations

import unicodedata

from slumberd.search.terms import Analyser

PHRASE = "\ufdfa"  # its compatibility form has 18 characters


def test_text_that_grows_by_its_compatibility_form_is_cut() -> None:
    assert sum(map(len, Analyser().terms(PHRASE * 100_000))) <= 200_000


def test_short_text_keeps_its_whole_compatibility_form() -> None:
    whole = unicodedata.normalize("NFKC", PHRASE)

    assert Analyser().terms(PHRASE) == Analyser().terms(whole)
