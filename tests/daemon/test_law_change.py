"""The first start under a new law resolves what it changes, and says how many facts appeared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slumberd.consolidation.precedence import LAWS
from tests.support.installation import Installation
from tests.support.laws import NEXT, lowest_law
from tests.support.release_files import RULES, kept_facts, put_kept

pytestmark = pytest.mark.integration


def events(site: Installation, name: str) -> list[dict[str, Any]]:
    lines = (site.state / "slumberd.log").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["event"] == name]


def test_first_start_under_a_new_law_logs_how_many_facts_appeared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Installation(tmp_path)
    site.rules.write_text(RULES)
    put_kept("0.2.0", site.state)
    monkeypatch.setitem(LAWS, NEXT, lowest_law())

    for _ in range(2):
        assert site.call("fire", "--all").returncode == 0

    [changed] = events(site, "law.changed")
    assert (changed["appeared"], changed["gone"]) == (1, 1)
    assert changed["firing_id"].startswith("@law@")
    assert [line["store"] for line in events(site, "schema.upgraded")] == ["memory", "facts"]
    before = {fact["id"] for fact in kept_facts("0.2.0")}
    after = {fact["id"] for fact in site.lines("facts")}
    assert (before - after, after - before) == ({"e14#2"}, {"e14#1"})
    assert site.look("audit", "verify").returncode == 0
    why = site.look("why", "e14#2")
    assert "a new law of slumberd makes another fact current" in why.stdout
