"""The JSON that commands print equals its recording: every key, every value, and the exit code."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import pytest

from tests.support.answer_stories import STORIES, recorded, told
from tests.support.recorded_answers import layout

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("name", STORIES)
def test_json_of_each_command_equals_its_recording(tmp_path: Path, name: str) -> None:
    printed = told(name, tmp_path)

    changes = list(unified_diff(recorded(name), printed, "recorded", "printed", lineterm="", n=8))
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
