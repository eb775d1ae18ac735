"""Commands report a ledger row that another program blanked, and none is stopped by it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.builders import at, triple
from tests.support.installation import Installation

pytestmark = pytest.mark.integration

BLANK = (
    "UPDATE slumberd_ledger SET key_id = NULL, at = NULL, fact_id = NULL, replaces = NULL,"
    " salt = NULL, payload = NULL WHERE seq = 3"
)


def test_a_blanked_row_is_reported_by_each_command(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    site.put(
        triple("e1", "ann", "owns", "a cup", user="ann"),
        triple("e2", "ann", "drinks", "milk", user="ann", timestamp=at(1)),
        triple("z1", "zed", "is", "here", user="zed"),
    )
    assert site.call("fire", "profile").returncode == 0
    with closing(sqlite3.connect(site.state / "facts.db")) as other, other:
        ((fact,),) = other.execute("SELECT fact_id FROM slumberd_ledger WHERE seq = 3").fetchall()
        other.execute(BLANK)
        other.execute("DELETE FROM facts WHERE fact_id = ?", [fact])
        other.execute("DELETE FROM slumberd_keys WHERE winner_fact = ?", [fact])
        other.execute("DELETE FROM slumberd_external_changes")

    erased = site.call("forget", "--user", "zed", "--yes", "--json")

    certificate = json.loads(erased.stdout)
    assert erased.returncode == 0
    assert (certificate["foreign_blank"], certificate["foreign_blank_total"]) == ([3], 1)
    verified = site.call("audit", "verify", "--json")
    assert verified.returncode == 1
    assert json.loads(verified.stdout)["broken"]["seq"] == 3
    assert "erasure.foreign_blank" in verified.stdout
    assert site.call("audit", "replay", str(tmp_path / "again.db")).returncode == 1
    findings = json.loads(site.call("doctor", "--json").stdout)["findings"]
    (finding,) = [one for one in findings if one["id"] == "erasure.foreign_blank"]
    assert "1 row of the ledger is blank" in finding["problem"]
    assert site.call("backup", str(tmp_path / "backup")).returncode == 0
