"""`status` says in which languages a search reads the newest episodes."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from slumberd.model.episode import Episode
from slumberd.rules.settings import load_settings
from slumberd.tools.diagnostics.status import read_languages
from tests.support.asked_models import said
from tests.support.daemons import Home
from tests.support.installation import jsonl

pytestmark = pytest.mark.integration

TEXTS = [
    "I like green tea, and you?",
    "We were in the garden with them",
    "Ich habe heute keinen Tee, aber du hast ihn",
    "Pizza!",
]


def put(home: Home, *texts: str) -> None:
    file = home.folder / "episodes.jsonl"
    episodes: list[Episode] = [said(f"e{number}", text) for number, text in enumerate(texts)]
    file.write_bytes(jsonl(*episodes))
    home.call("import", file)


def test_status_counts_the_languages_that_a_search_recognises(tmp_path: Path) -> None:
    home = Home(tmp_path)
    put(home, *TEXTS)

    found = orjson.loads(home.call("status", "--json").stdout)["search"]

    assert found == {
        "language": "auto",
        "recognised": {"english": 2, "german": 1, "undecided": 1},
        "saved_bytes": 0,
        "index_bytes": None,
        "max_index_bytes": 256 * 2**20,
    }
    assert "language auto; newest episodes: english 2, german 1, undecided 1" in (
        home.call("status").stdout
    )


@pytest.mark.parametrize("language", ["english", None])
def test_language_that_is_named_is_not_counted(tmp_path: Path, language: str | None) -> None:
    home = Home(tmp_path, {"search": {"language": language}})

    settings = load_settings(home.config, overrides={}, environ={})

    assert read_languages(settings) == {"language": language, "recognised": {}, "saved_bytes": 0}
