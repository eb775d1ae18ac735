"""`slumberd report --html` writes one file that needs no daemon, no other file and no network."""

from __future__ import annotations

import asyncio
import re
import stat
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest

from slumberd.cli.own_installation import install_command
from slumberd.web.console.pictures import MOST_COLUMNS, Report, sum_days
from tests.support.builders import at, episode, triple
from tests.support.console_homes import HOSTILE
from tests.support.console_people import PageParser
from tests.support.daemons import Home
from tests.support.installation import Installation
from tests.support.postgres_server import PostgresServer
from tests.support.shards import put_by_user

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An installation with changes, a quarantined episode, a late rule, and no daemon."""
    site = Installation(tmp_path_factory.mktemp("reported"))
    site.put(
        triple("e1", "alice", "lives_in", "Porto", timestamp=at(0)),
        triple("e2", "alice", "lives_in", "Braga", timestamp=at(1)),
        triple("e3", "bob", "lives_in", HOSTILE, timestamp=at(2), user=HOSTILE),
        episode("broken", metadata={"predicate": "likes", "intent": "nonsense"}),
    )
    assert site.call("fire", "profile").returncode == 0
    site.put(triple("e4", "alice", "likes", "tea", timestamp=at(3)))
    return site


def report_of(site: Installation, tmp_path: Path, *options: str) -> str:
    """Write a report, and return its HTML."""
    file = tmp_path / "report.html"
    done = site.call("report", "--html", str(file), *options)
    assert done.returncode == 0, done.stderr
    return file.read_text()


@pytest.mark.slow
def test_file_says_what_changed_and_what_waits(site: Installation, tmp_path: Path) -> None:
    text = PageParser(report_of(site, tmp_path)).text

    for words in (
        "2 learned", "1 changed", "1 quarantined", "2 current facts", "5 episodes",
        "1 in quarantine", "1 rule late", "alice 1 1 0 1", "profile@2 2 1 0 1",
    ):  # fmt: skip
        assert words in text


@pytest.mark.slow
def test_file_has_a_picture_of_each_subject(site: Installation, tmp_path: Path) -> None:
    html = report_of(site, tmp_path)

    titles = re.findall(r"<figcaption>(.*?)</figcaption>", html)

    assert titles == [
        "Changes of facts by day",
        "Growth: facts learned less facts retracted",
        "Largest changes",
        "Rules that are late, in minutes",
        "Episodes in quarantine, by rule and reason",
    ]
    assert html.count('role="img"') == len(titles)


@pytest.mark.slow
def test_file_asks_for_nothing_and_runs_nothing(site: Installation, tmp_path: Path) -> None:
    html = report_of(site, tmp_path)

    page = PageParser(html)
    assert not {"a", "iframe", "img", "link", "script"} & page.tags
    assert not {"href", "src", "style"} & page.attributes
    assert "@import" not in html
    assert {*re.findall(r"url\(([^)]*)\)", html)} <= {"#days-hatched", "#days-dotted"} | {
        f"#{name}-{pattern}"
        for name in ("largest", *(f"{id}-legend-{n}" for id in ("days", "largest") for n in (1, 2)))
        for pattern in ("hatched", "dotted")
    }
    assert "default-src 'none'" in html


@pytest.mark.slow
def test_hostile_names_are_text(site: Installation, tmp_path: Path) -> None:
    html = report_of(site, tmp_path)

    assert HOSTILE in PageParser(html).text
    assert "<img" not in html


def test_existing_file_is_kept(site: Installation, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text("mine")

    refused = site.call("report", "--html", str(file))

    assert refused.returncode == 73
    assert refused.stderr == f"slumberd: {str(file)!r} exists already: name a new file\n"
    assert file.read_text() == "mine"


@pytest.mark.path
def test_file_is_for_the_owner_and_the_group(site: Installation, tmp_path: Path) -> None:
    report_of(site, tmp_path)

    assert stat.S_IMODE((tmp_path / "report.html").stat().st_mode) & 0o007 == 0


@pytest.mark.slow
def test_hyphen_writes_to_standard_output(site: Installation) -> None:
    printed = site.call("report", "--html", "-").stdout

    assert printed.startswith("<!doctype html>")
    assert printed.rstrip().endswith("</html>")


@pytest.mark.path
def test_limit_holds_for_the_file(site: Installation, tmp_path: Path) -> None:
    assert "1 other user had changes" in PageParser(report_of(site, tmp_path, "--limit", "1")).text


def test_json_and_html_together_are_refused(site: Installation, tmp_path: Path) -> None:
    refused = site.call("report", "--json", "--html", str(tmp_path / "report.html"))

    assert refused.returncode == 64
    assert "--html and --json: choose one of them" in refused.stderr


@pytest.mark.slow
def test_report_before_any_firing_is_a_file(tmp_path: Path) -> None:
    text = PageParser(report_of(Installation(tmp_path), tmp_path)).text

    for words in ("0 batches", "No rule is late.", "No episode is in quarantine."):
        assert words in text


def test_report_without_the_extra_names_the_remedy(
    site: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "slumberd.cli.report_file", raising=False)
    monkeypatch.setitem(sys.modules, "slumberd.web.console.rendering", None)
    monkeypatch.delitem(sys.modules, "slumberd.web.console.report_file", raising=False)

    refused = site.call("report", "--html", str(tmp_path / "report.html"))

    assert refused.returncode == 78
    assert install_command("serve") in refused.stderr


def report_with_days(count: int) -> Report:
    start = date(2026, 1, 1)
    return {
        "days": [
            {"day": f"{start + timedelta(days=number)}", "learned": 2, "retracted": number % 2}
            for number in range(count)
        ]
    }


@pytest.mark.parametrize(("count", "size"), [(1, 1), (100, 1), (101, 7), (701, 30), (3_001, 365)])
def test_many_days_are_summed_up(count: int, size: int) -> None:
    days = sum_days(report_with_days(count))["days"]

    assert len(days) == -(-count // size) <= MOST_COLUMNS
    assert sum(day["learned"] for day in days) == 2 * count
    assert sum(day["retracted"] for day in days) == count // 2
    assert (
        days[-1].get("last", days[-1]["day"]) == f"{date(2026, 1, 1) + timedelta(days=count - 1)}"
    )


@pytest.fixture(scope="module")
def divided(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A database with three shards, in which nine users have a fact each."""
    with postgres.database(shards=3) as name:
        address = postgres.address_of(name)
        home = Home(tmp_path_factory.mktemp("divided"), {"store": address})
        home.rule("all", cadence={"every": 1})
        episodes = [triple(f"e{n}", f"s{n}", "likes", "tea", user=f"user{n}") for n in range(9)]
        asyncio.run(put_by_user(address, episodes))
        home.call("--all-shards", "fire", "--all")
        yield home


def test_file_of_one_shard_is_of_this_shard(divided: Home, tmp_path: Path) -> None:
    counts = []
    for shard in ("0", "1", "2"):
        file = tmp_path / f"{shard}.html"
        divided.call("--shard", shard, "report", "--html", file)
        counts.append(int(re.findall(r"(\d+) learned", PageParser(file.read_text()).text)[0]))

    assert sum(counts) == 9
    assert max(counts) < 9
