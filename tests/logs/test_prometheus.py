"""The Prometheus textfile is valid, and readers never see a half-written file."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from slumberd.logs.prometheus import (
    OF_DAEMON,
    OF_RULE,
    escape,
    render_metrics,
    render_standby_metrics,
    write_textfile,
)
from slumberd.model.health import (
    BatchTotals,
    DaemonHealth,
    LedgerCounters,
    ProvenanceHealth,
    RuleHealth,
    RuleStatus,
    StandbyHealth,
)
from tests.support.builders import at
from tests.support.lists import of_each
from tests.tools.diagnostics.test_database_limits import WELL

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
    database=WELL,
)


def read_metrics(vitals: DaemonHealth) -> dict[str, float]:
    """Return the value of each metric by its name and rule."""
    return {
        "/".join([sample.name, *sample.labels.values()]).removeprefix("slumberd_"): sample.value
        for family in text_string_to_metric_families(render_metrics(vitals).decode())
        for sample in family.samples
    }


def test_metrics_equal_the_health_of_the_daemon() -> None:
    samples = read_metrics(VITALS)

    assert samples["heartbeat_timestamp_seconds"] == at(0).timestamp()
    assert samples["uptime_seconds"] == 90.5
    assert samples["log_lines_dropped_total"] == 7
    assert (samples["held_batches"], samples["quarantined_episodes"]) == (1, 5)
    assert samples["late_seconds"] == 2.5
    assert (samples["provenance_lag_rows"], samples["provenance_lag_seconds"]) == (4, 1.5)
    assert samples["provenance_refused_total"] == 2
    assert (samples["rule_pending_episodes/tea"], samples["rule_pending_episodes/idle"]) == (3, 0)
    assert samples["rule_oldest_pending_seconds/tea"] == 4.5
    assert samples["rule_oldest_pending_seconds/idle"] == 0
    assert samples["rule_last_success_timestamp_seconds/tea"] == at(-60).timestamp()
    assert samples["rule_consecutive_failures/tea"] == 1
    assert (samples["ledger_rows_total"], samples["episode_versions_total"]) == (50, 40)
    assert (samples["batches_total"], samples["facts_changed_total"]) == (8, 40)
    assert (samples["rule_batches_total/tea"], samples["rule_batches_total/idle"]) == (4, 0)
    assert samples["rule_versions_read_total/tea"] == 30
    assert samples["rule_facts_changed_total/tea"] == 20
    assert samples["rule_versions_quarantined_total/tea"] == 2
    assert (samples["rule_failures_total/tea"], samples["rule_failures_total/idle"]) == (6, 0)

    assert (samples["standby"], samples["database_daemons"]) == (0, 2)
    assert (samples["database_unheld_shards"], samples["database_bytes"]) == (0, 1_000_000)
    assert samples["database_unnumbered_versions"] == 10
    assert samples["database_unnumbered_seconds"] == 60
    assert samples["database_oldest_transaction_seconds"] == 600
    assert samples["database_frozen_transactions"] == 1_500_000_000
    assert samples["database_open_requests"] == 0


def test_standby_has_a_sign_of_life_and_no_figures_of_rules() -> None:
    text = render_standby_metrics(StandbyHealth(at(0), 90.5)).decode()

    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found == {
        "slumberd_heartbeat_timestamp_seconds": at(0).timestamp(),
        "slumberd_uptime_seconds": 90.5,
        "slumberd_standby": 1,
    }


def test_unknown_metric_is_omitted() -> None:
    without = replace(VITALS, provenance=None, rules=[], database=None)
    unknown = read_metrics(replace(without, rss_bytes=None, next_at=None, succeeded_at=None))

    left_out = ("rule_", "next_", "last_", "resid", "provenance_", "database_")
    assert not {name for name in unknown if name.startswith(left_out)}
    assert "rule_last_success_timestamp_seconds/idle" not in read_metrics(VITALS)


def test_every_metric_has_help_and_type() -> None:
    found = list(text_string_to_metric_families(render_metrics(VITALS).decode()))

    assert len(found) == len({family.name for family in found}) == len(OF_DAEMON) + len(OF_RULE)
    assert all(family.documentation and family.type in ("gauge", "counter") for family in found)


@of_each(lambda: [*OF_DAEMON, *OF_RULE], attrgetter("name"))
def test_names_of_metrics_follow_the_prometheus_convention(family: object) -> None:
    name, kind = getattr(family, "name", ""), getattr(family, "kind", "")

    assert re.fullmatch(r"[a-z][a-z_]*[a-z]", name)
    assert name.endswith("_total") == (kind == "counter")


@pytest.mark.parametrize("word", ["tea", 'the "best"', "back\\slash", "two\nlines"])
def test_escaped_label_is_parsed_back(word: str) -> None:
    line = f'it{{rule="{escape(word)}"}} 1\n'

    [family] = text_string_to_metric_families(line)

    assert family.samples[0].labels == {"rule": word}


def test_textfile_is_replaced_atomically_and_is_world_readable(tmp_path: Path) -> None:
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


def test_failed_replacement_leaves_no_temporary_file(tmp_path: Path) -> None:
    file = tmp_path / "slumberd.prom"
    file.mkdir()

    with pytest.raises(IsADirectoryError):
        write_textfile(file, b"one\n")

    assert [path.name for path in tmp_path.iterdir()] == ["slumberd.prom"]


def test_missing_directory_of_the_textfile_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_textfile(tmp_path / "none" / "slumberd.prom", b"one\n")


@pytest.mark.parametrize("name", [".slumberd.prom.new", "slumberd.prom"])
def test_writer_does_not_follow_a_symbolic_link(tmp_path: Path, name: str) -> None:
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


def test_temporary_file_has_a_new_name_each_time(
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
