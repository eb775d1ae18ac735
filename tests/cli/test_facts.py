"""`slumberd facts`: its patterns, limits, orders and pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.builders import at, triple
from tests.support.installation import RULES, Installation

pytestmark = pytest.mark.integration

EPISODES = [
    triple("e1", "ada", "likes", "tea", user="ada", timestamp=at(0), metadata={"confidence": 0.5}),
    triple("e2", "ada", "owns", 1, user="ada", timestamp=at(1)),
    triple("e3", "ada", "is", True, user="ada", timestamp=at(2), metadata={"confidence": 0.9}),
    triple("e4", "Ada", "likes", "Tea", user="bob", timestamp=at(3)),
    triple("x5", "100%", "is", {"a": [1.0]}, user="bob", timestamp=at(4)),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return a site with five facts in one channel, and two of them also in another."""
    site = Installation(tmp_path_factory.mktemp("site"))
    notes = RULES.replace('cron: "0 3 * * *"', "every: 1").replace("'never'", "'likes'")
    site.rules.write_text(notes)
    site.put(*EPISODES)
    done = site.run("fire", "--all")
    assert done.returncode == 0, done.stderr
    return site


def ids(site: Installation, *arguments: str) -> list[str]:
    return [fact["id"] for fact in site.lines("facts", "--channel", "facts", *arguments)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--user ada", "e1 e2 e3"),
        ("--user ada --user bob --predicate likes", "e1 e4"),
        ("--id e4 --id x5 --id none", "e4 x5"),
        ("--prefix subject=ad", "e1 e2 e3"),
        ("--prefix subject=100%", "x5"),
        ("--glob id=e[2-3]", "e2 e3"),
        ("--glob subject=?d* --regex object=(?i)tea", "e1 e4"),
        ("--glob subject=%", ""),
        ("--regex id=[ex]5", "x5"),
        ("--object-json 1", "e2"),
        ("--object-json 1.0", ""),
        ("--object-json true --object tea", "e1 e3"),
        ('--object-json {"a":[1.0]}', "x5"),
        ("--object-json null", ""),
        ("--min-confidence 0.6 --max-confidence 0.9", "e3"),
        ("--until 2000-01-01", ""),
        ("--since 2000-01-01 --until now --user bob", "e4 x5"),
        ("--order confidence --limit 2", "e1 e3"),
        ("--descending --user ada", "e3 e2 e1"),
        ("--prefix id=e --believed-at now --order confidence --limit 1", "e1"),
    ],
)
def test_facts_are_found_by_every_option(site: Installation, words: str, expected: str) -> None:
    assert ids(site, *words.split()) == expected.split()


def test_every_page_of_facts_is_printed_in_turn(site: Installation) -> None:
    seen: list[str] = []
    after: list[str] = []
    for _ in range(9):
        done = site.look("facts", "--json", "--descending", "--limit", "2", *after)
        assert done.returncode == 0
        seen += [json.loads(line)["id"] for line in done.stdout.splitlines()]
        if not done.stderr:
            break
        after = ["--after", json.loads(done.stderr)["after"]]

    assert seen == ["x5", "e4", "e3", "e2", "e1", "@notes/e4", "@notes/e1"]


def test_table_shows_how_to_get_the_next_page(site: Installation) -> None:
    first = site.look("facts", "--limit", "6")
    *_, cursor = first.stderr.split()

    last = site.look("facts", "--limit", "6", "--after", cursor)

    assert first.stderr == f"there are more: the same with --after {cursor}\n"
    assert ("x5" in last.stdout, last.stderr) == (True, "")


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (["--glob", "object=a["], 64, "object 'a[' at character 2: '[' has no ']'"),
        (["--regex", "id=(a"], 64, "id '(a' at character 1: missing )"),
        (["--prefix", "name=a"], 64, "write SLOT=..., where SLOT is subject, predicate, object"),
        (["--prefix", "user"], 64, "--prefix 'user': write SLOT=..."),
        (["--user", "a", "--prefix", "user=b"], 64, "another option gives user already"),
        (["--object-json", "tea"], 64, "--object-json 'tea' is not JSON"),
        (["--order", "size"], 64, "'size' is not one of id, said_at, pinned_at, confidence"),
        (["--after", "me"], 64, "after 'me': is not a cursor"),
        (["--limit", "0"], 64, "--limit"),
        (["--min-confidence", "2"], 64, "--min-confidence"),
        (["--min-confidence", "nan"], 64, "--min-confidence"),
        (["--subject", "a", "--subject", "\udce9"], 64, "valid Unicode"),
        (["--object", "\udce9", "--object-json", "1"], 64, "valid Unicode"),
        (["--prefix", "subject=\udce9", "--valid-at", "now"], 64, "valid Unicode"),
        (["--channel", "\udce9"], 64, "valid Unicode"),
    ],
    ids=lambda words: (
        " ".join(words).encode(errors="replace").decode() if isinstance(words, list) else ""
    ),
)
def test_wrong_option_is_reported_by_its_name(
    site: Installation, words: list[str], code: int, problem: str
) -> None:
    done = site.look("facts", *words)

    assert done.returncode == code, done.stderr
    assert problem in " ".join(done.stderr.split())
    assert not done.stdout


@pytest.mark.slow
def test_each_page_shows_the_facts_of_its_own_moment(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    site.put(*EPISODES[:3])
    assert site.run("fire", "profile").returncode == 0
    first = site.look("facts", "--json", "--limit", "1")
    assert site.run("unpin", "e2", "--reason", "so").returncode == 0

    after = json.loads(first.stderr)["after"]
    last = site.look("facts", "--json", "--limit", "1", "--after", after)

    assert [json.loads(done.stdout)["id"] for done in (first, last)] == ["e1", "e3"]
    assert last.stderr == ""


def test_instant_before_the_first_fact_names_that_and_the_other_clock(site: Installation) -> None:
    before = site.look("facts", "--believed-at", "2000-01-01")
    other = site.look("facts", "--believed-at", "now", "--user", "nobody")

    assert before.returncode == 0
    assert "nothing was recorded before 20" in before.stdout + before.stderr
    assert "--valid-at T asks what was true at T" in before.stdout + before.stderr
    assert "nothing was recorded" not in other.stdout + other.stderr
