"""The page for programs names every word that says what became of an episode."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from slumberd.operations.memory_forms import Became
from tests.support.repository import ROOT

pytestmark = pytest.mark.unit

PAGE = ROOT / "docs/how-to/use-the-memory-from-a-program.md"


def test_page_explains_each_word_once() -> None:
    _, _, table = PAGE.read_text().partition("| `became` |")

    words = re.findall(r"^\| `(\w+)` \|", table.partition("\n\n")[0], re.MULTILINE)

    assert sorted(words) == sorted(get_args(Became))
