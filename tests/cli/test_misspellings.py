"""Misspelled keys of metadata are logged, and the episode is stored."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.support.builders import episode
from tests.support.installation import Installation

pytestmark = pytest.mark.integration


def test_firing_logs_misspelled_metadata_keys(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    site.put(
        episode("e1", metadata={"subject": "alice", "predicat": "likes", "object": "tea"}),
        episode("e2", metadata={"subject": "alice", "predicat": "likes", "object": "milk"}),
    )

    fired = site.call("fire", "--all")

    logged = map(orjson.loads, (site.state / "slumberd.log").read_bytes().splitlines())
    warnings = [record for record in logged if record["event"] == "metadata.misspelled"]
    assert fired.returncode == 0
    assert [(warning["level"], warning["key"], warning["meant"]) for warning in warnings] == [
        ("warning", "predicat", "predicate")
    ]
    assert (warnings[0]["episode_id"], warnings[0]["episodes"]) == ("e1", 2)
