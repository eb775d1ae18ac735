"""The textfile of Prometheus: as its own parser reads it, and whole at every moment."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from slumberd.model.health import (
    BatchTotals,
    DaemonHealth,
    LedgerCounters,
    ProvenanceHealth,
    RuleHealth,
    RuleStatus,
)
from slumberd.observability.prometheus import (
    OF_DAEMON,
    OF_RULE,
    escape,
    exposition,
    write_textfile,
)
from tests.support.builders import at

pytestmark = pytest.mark.unit

SOME, NONE = BatchTotals(batches=4, read=30, changed=20, quarantined=2), BatchTotals()
BEHIND = RuleStatus(
    "tea",
    pending=3,
    oldest_seconds=4.5,
    late_seconds=2.5,
    succeeded_at=at(-60),
    quarantined=2,
    held_firing_id="tea@7",
)
TEA = RuleHealth(BEHIND, failures=1, failed=6, tally=SOME)
IDLE = RuleHealth(RuleStatus("idle", pending=0), tally=NONE)
VITALS = DaemonHealth(
    at=at(0),
    uptime_seconds=90.5,
    loop_lag_seconds=0.25,
    wal_bytes=4096,
    rss_bytes=2**25,
    dropped=7,
    loaded=3,
    rules=[TEA, IDLE],
    oldest_seconds=4.5,
    next_at=at(3600),
    succeeded_at=at(-60),
    quarantined=5,
    held=1,
    provenance=ProvenanceHealth(rows=4, seconds=1.5, refused=2),
    tallies=LedgerCounters(rows=50, versions=40, by_rule={"tea": SOME, "gone": SOME}),
)


def figures(vitals: DaemonHealth) -> dict[str, float]:
    """Return each figure by its name, with the rule where there is one."""
    return {
        "/".join([sample.name, *sample.labels.values()]).removeprefix("slumberd_"): sample.value
        for family in text_string_to_metric_families(exposition(vitals).decode())
        for sample in family.samples
    }


def test_figures_are_what_the_vitals_say() -> None:
    told = figures(VITALS)

    assert told["heartbeat_timestamp_seconds"] == at(0).timestamp()
    assert told["uptime_seconds"] == 90.5
    assert told["log_lines_dropped_total"] == 7
    assert (told["held_batches"], told["quarantined_episodes"]) == (1, 5)
    assert told["late_seconds"] == 2.5
    assert (told["provenance_lag_rows"], told["provenance_lag_seconds"]) == (4, 1.5)
    assert told["provenance_refused_total"] == 2
    assert (told["rule_pending_episodes/tea"], told["rule_pending_episodes/idle"]) == (3, 0)
    assert told["rule_oldest_pending_seconds/tea"] == 4.5
    assert told["rule_oldest_pending_seconds/idle"] == 0
    assert told["rule_last_success_timestamp_seconds/tea"] == at(-60).timestamp()
    assert told["rule_consecutive_failures/tea"] == 1
    assert (told["ledger_rows_total"], told["episode_versions_total"]) == (50, 40)
    assert (told["batches_total"], told["facts_changed_total"]) == (8, 40)
    assert (told["rule_batches_total/tea"], told["rule_batches_total/idle"]) == (4, 0)
    assert told["rule_versions_read_total/tea"] == 30
    assert told["rule_facts_changed_total/tea"] == 20
    assert told["rule_versions_quarantined_total/tea"] == 2
    assert (told["rule_failures_total/tea"], told["rule_failures_total/idle"]) == (6, 0)


def test_figure_that_nobody_knows_is_left_out() -> None:
    without = replace(VITALS, provenance=None, rules=[])
    unknown = figures(replace(without, rss_bytes=None, next_at=None, succeeded_at=None))

    left_out = ("rule_", "next_", "last_", "resid", "provenance_")
    assert not {name for name in unknown if name.startswith(left_out)}
    assert "rule_last_success_timestamp_seconds/idle" not in figures(VITALS)


def test_each_figure_has_help_and_type_of_its_own() -> None:
    found = list(text_string_to_metric_families(exposition(VITALS).decode()))

    assert len(found) == len({one.name for one in found}) == len(OF_DAEMON) + len(OF_RULE)
    assert all(one.documentation and one.type in ("gauge", "counter") for one in found)


@pytest.mark.parametrize("family", [*OF_DAEMON, *OF_RULE], ids=lambda family: family.name)
def test_names_are_as_prometheus_wants_them(family: object) -> None:
    name, kind = getattr(family, "name", ""), getattr(family, "kind", "")

    assert re.fullmatch(r"[a-z][a-z_]*[a-z]", name)
    assert name.endswith("_total") == (kind == "counter")


@pytest.mark.parametrize("word", ["tea", 'the "best"', "back\\slash", "two\nlines"])
def test_labels_are_read_as_they_were_written(word: str) -> None:
    line = f'it{{rule="{escape(word)}"}} 1\n'

    [family] = text_string_to_metric_families(line)

    assert family.samples[0].labels == {"rule": word}


def test_file_is_put_in_place_whole_and_for_everybody_to_read(tmp_path: Path) -> None:
    file = tmp_path / "slumberd.prom"
    write_textfile(file, b"one\n")
    with file.open("rb") as reading:
        before = os.umask(0o077)
        try:
            write_textfile(file, b"two\n")
        finally:
            os.umask(before)

        assert reading.read() == b"one\n"

    assert file.read_bytes() == b"two\n"
    assert file.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["slumberd.prom"]


def test_file_that_cannot_be_put_in_place_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "slumberd.prom"
    file.mkdir()

    with pytest.raises(IsADirectoryError):
        write_textfile(file, b"one\n")

    assert [path.name for path in tmp_path.iterdir()] == ["slumberd.prom"]


def test_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_textfile(tmp_path / "none" / "slumberd.prom", b"one\n")


@pytest.mark.parametrize("name", [".slumberd.prom.new", "slumberd.prom"])
def test_a_planted_link_is_not_followed(tmp_path: Path, name: str) -> None:
    collector = tmp_path / "collector"
    collector.mkdir()
    private = tmp_path / "facts.db"
    private.write_bytes(b"ours")
    private.chmod(0o600)
    (collector / name).symlink_to(private)

    write_textfile(collector / "slumberd.prom", b"one\n")

    assert private.read_bytes() == b"ours"
    assert private.stat().st_mode & 0o777 == 0o600
    assert not (collector / "slumberd.prom").is_symlink()
    assert (collector / "slumberd.prom").read_bytes() == b"one\n"


def test_the_name_of_the_file_that_is_written_is_another_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    replace_file = Path.replace

    def watched(fresh: Path, target: Path) -> Path:
        seen.append(fresh.name)
        return replace_file(fresh, target)

    monkeypatch.setattr(Path, "replace", watched)
    write_textfile(tmp_path / "slumberd.prom", b"one\n")
    write_textfile(tmp_path / "slumberd.prom", b"two\n")

    assert len(set(seen)) == 2
