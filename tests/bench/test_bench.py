"""The bench runs, on so few episodes that its figures mean nothing."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.bench.__main__ import main
from tests.bench.databases import Workshop
from tests.bench.measuring import Table
from tests.bench.serving import measure_gaps

pytestmark = [pytest.mark.integration, pytest.mark.nightly]


@pytest.mark.slow
@pytest.mark.parametrize(
    "section",
    [
        "audit",
        "chats",
        "commands",
        "consolidate",
        "fire",
        "first-search",
        "forget",
        "hosts",
        "moving",
        "http",
        "postgres",
        "read",
        "search",
        "stages",
        "year",
    ],
)
def test_a_section_of_the_bench_measures_and_writes_its_figures(
    tmp_path: Path, section: str, request: pytest.FixtureRequest
) -> None:
    if section in {"chats", "hosts", "moving", "postgres", "search"}:
        request.getfixturevalue("postgres")  # skips, or fails, without a server
    figures = tmp_path / "figures.json"

    code = main([section, "--tiny", "--times", "1", "--json", str(figures)])

    lines = orjson.loads(figures.read_bytes())["lines"]
    assert code == 0
    assert lines
    assert {line["section"] for line in lines} == {section}
    assert all(line["values"] for line in lines)


@pytest.mark.slow
def test_the_bench_names_the_commit_the_load_and_what_it_leaves_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["audit", "--tiny", "--times", "1"])

    first, *lines, last = capsys.readouterr().out.splitlines()
    left_out = [line.split("  ")[0] for line in lines if " not measured" in line]
    assert first.startswith("commit ")
    assert ", load " in first
    assert last.startswith("load afterwards ")
    assert "year: last month to first" in left_out
    assert "start: all" in left_out
    assert not any(line.startswith("audit: ") for line in left_out)


@pytest.mark.slow
def test_the_loop_of_a_daemon_is_measured(tmp_path: Path) -> None:
    table = Table()

    measure_gaps(table, Workshop(tmp_path, large=500))

    longest, own = (line.value for line in table.lines)
    assert longest >= own > 0


def test_an_unknown_section_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["reed"])

    assert "there is no section 'reed'; they are consolidate, " in capsys.readouterr().err


@pytest.mark.slow
def test_a_profile_lists_the_functions_of_a_firing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main(["--profile", "--tiny"])

    title, *lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert title.split()[:3] == ["own", "within", "thread,"]
    assert lines
    assert all(line.count("%") == 2 for line in lines)
    assert not any(line.endswith("core.py _connection_worker_thread") for line in lines)
