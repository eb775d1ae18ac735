"""What commands print equals its recording, as JSON and for people: every value, every word."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import pytest

from tests.support.answer_stories import TOLD, recorded, told
from tests.support.recorded_answers import Form, layout

pytestmark = pytest.mark.integration


@pytest.mark.slow
@pytest.mark.parametrize(("name", "form"), TOLD)
def test_answer_of_each_command_equals_its_recording(tmp_path: Path, name: str, form: Form) -> None:
    printed, expected = told(name, form, tmp_path), recorded(name, form)

    changes = list(unified_diff(expected, printed, "recorded", "printed", lineterm="", n=8))
    assert not changes, "\n".join(changes)


def test_long_document_is_laid_out_with_each_part_on_a_line() -> None:
    words = ["a" * 60, "b" * 60]

    assert layout({"none": [], "words": words}) == [
        "{",
        '  "none": [],',
        '  "words": [',
        f'    "{words[0]}",',
        f'    "{words[1]}"',
        "  ]",
        "}",
    ]
