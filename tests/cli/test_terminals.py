"""Output on terminals of 80 and 100 columns, with no, few and thousands of rows."""

from __future__ import annotations

import re
import stat
import subprocess
from pathlib import Path

import pytest
from rich.cells import cell_len

import slumberd
from tests.support.builders import at, triple
from tests.support.cli_runner import called
from tests.support.command_arguments import every_command, installation_with_data, moved
from tests.support.installation import Installation
from tests.support.lists import of_each
from tests.support.terminals import lines_on_terminal, output_on_terminal

pytestmark = pytest.mark.integration

ALL = list(every_command())
WIDTHS = (80, 100)
UUIDS = [f"0b6b1b4e-9a58-4a5e-9a3c-1d0c7f0e5d{n:02}" for n in range(12)]
LONG = "episode-" + "of-a-host-with-very-long-ids-" * 4
WIDE = "日本茶が大好き🍵" * 8
TIME = re.compile(r"\d{4}-\d\d-\d\d.?\d\d:\d\d:\d\d\S*")
RULES = """\
rules:
  - id: preferences-of-everybody-who-says-what-they-prefer
    cadence: {cron: "*/15 6-22 * * mon-fri", timezone: America/Argentina/Buenos_Aires}
    when_filter: "(predicate IS NOT NULL AND confidence >= 0.5) OR intent IN ('update', 'delete')"
    then_emits: [facts, notes]
  - {id: short, cadence: {every: 1000}, when_filter: "predicate IS NULL", then_emits: [facts]}
"""
COMMANDS = [
    ["facts"],
    ["facts", "--user", "ada"],
    ["recent", "ada"],
    ["audit", "ls"],
    ["quarantine", "ls"],
    ["rules"],
    ["status"],
    ["why", UUIDS[3]],
    ["why-not", UUIDS[3]],
]


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return a site with long ids, wide texts, and an episode in quarantine."""
    site = Installation(tmp_path_factory.mktemp("terminals"))
    site.rules.write_text(RULES)
    named = {"user": "ada", "agent": "waiter"}
    site.put(
        *(triple(id, f"s{n}", "prefers", WIDE, timestamp=at(n), **named)
          for n, id in enumerate(UUIDS)),
        triple(LONG, "ada", "prefers", "tea " * 40, timestamp=at(50), **named),
        triple("bad", "ada", "prefers", "x", metadata={"intent": "wish"}, **named),
        triple("e7", "bob", "prefers", "mate", user="bob-" + UUIDS[0], timestamp=at(70)),
    )  # fmt: skip
    assert site.call("fire", "--all").returncode == 0
    return site


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_id_is_broken_and_no_line_is_too_long(
    shared_site: Installation, words: list[str], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    site = shared_site
    wide = site.look(*words).stdout
    ids = {*UUIDS, LONG, "preferences-of-everybody-who-says-what-they-prefer", *firing_ids_of(site)}

    lines = lines_on_terminal([*words, "--config", str(site.config)], width)

    broken = [id for id in ids if id in wide and not any(id in line for line in lines)]
    assert broken == []
    unbreakable = (LONG, str(site.state.parent), "lineage ", "says ")
    too_long = [line for line in lines if cell_len(line) > width]
    assert [line for line in too_long if not any(part in line for part in unbreakable)] == []


def firing_ids_of(site: Installation) -> set[str]:
    return {row["firing_id"] for row in site.lines("audit", "ls", "--limit", "1000")}


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_time_is_printed_in_the_same_format_with_its_zone(
    shared_site: Installation, words: list[str]
) -> None:
    printed = re.sub(r"(?m)^lineage .*", "", shared_site.look(*words).stdout)  # its times are JSON

    times = TIME.findall(printed)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", time) for time in times), times


@pytest.mark.nightly
def test_thousands_of_facts_fit_a_terminal(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    site.put(*(triple(f"e{n}", f"s{n}", "is", "so " * (n % 30), timestamp=at(n))
               for n in range(2_000)))  # fmt: skip
    assert site.call("fire", "profile").returncode == 0

    lines = lines_on_terminal(["facts", "--config", str(site.config)], 80)
    status = site.look("status").stdout

    assert sum(line.startswith("e") for line in lines) == 2_000
    assert max(map(cell_len, lines)) <= 80
    assert "facts      2,000\n" in status
    assert "episodes   2,000\n" in status


@pytest.fixture
def site(shared_site: Installation, tmp_path: Path) -> Installation:
    return moved(shared_site, tmp_path / "site")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["facts", "--user", "adda"],
                     f"no facts for user 'adda'; users with facts: ada, bob-{UUIDS[0]}",
                     id="facts of an unknown user"),
        pytest.param(["facts", "--user", "ada", "--subject", "x"],
                     "no facts match; there are others for user 'ada'", id="no such facts"),
        pytest.param(["facts", "--subject", "x"],
                     f"no facts match; users with facts: ada, bob-{UUIDS[0]}", id="facts of any"),
        pytest.param(["recent", "adda"],
                     f"no episodes of user 'adda'; users with episodes: ada, bob-{UUIDS[0]}",
                     id="episodes of an unknown user"),
        pytest.param(["recent", "ada", "--session", "x"],
                     "no such episodes; user 'ada' has others: leave out --session and --agent",
                     id="no such episodes"),
        pytest.param(["audit", "ls", "--rule", "x"], "no rows match; the ledger has 31 rows",
                     id="no such rows"),
        pytest.param(["quarantine", "ls", "--rule", "x"],
                     "nothing is in quarantine for these rules; rules with entries: "
                     "preferences-of-everybody-who-says-what-they-prefer", id="no such quarantine"),
        pytest.param(["rules", "--removed"], "no rule was removed", id="no removed rule"),
    ],
)  # fmt: skip
def test_command_that_finds_nothing_shows_what_exists(
    site: Installation, words: list[str], message: str
) -> None:
    done = site.look(*words)
    quiet = site.look(*words, "--json")

    assert (done.returncode, done.stdout) == (0, "")
    assert re.sub(r"\b\d+ rows", "31 rows", done.stderr) == f"{message}\n"
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")


@pytest.mark.slow
def test_list_of_users_has_a_limit(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    site.put(*(triple(f"e{n}", "it", "is", n, user=f"user{n:03}") for n in range(40)))
    assert site.call("fire", "profile").returncode == 0

    for words in (["facts", "--user", "x"], ["recent", "x"]):
        message = site.look(*words).stderr
        assert message.endswith("user000, user001, user002, user003, user004, user005, user006,"
                             " user007, user008, user009 and others\n")  # fmt: skip


def test_empty_directory_prints_the_next_step(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    site.rules.write_text("rules: []\n")

    rules = site.look("rules").stderr
    status = site.look("status").stderr

    assert rules == status
    assert "`slumberd init DIR` makes a first one" in rules


@pytest.mark.slow
@of_each(lambda: ["", *ALL, "audit", "quarantine"])
def test_every_command_has_short_help_and_the_version(command: str) -> None:
    short = called(*command.split(), "-h")
    whole = called(*command.split(), "--help")
    version = called(*command.split(), "--version")

    assert (short.returncode, short.stdout) == (0, whole.stdout)
    assert short.stdout.startswith("Usage: ")
    assert (version.returncode, version.stdout) == (0, f"slumberd {slumberd.__version__}\n")


@pytest.fixture
def logging_site(tmp_path: Path) -> Installation:
    """Return a site whose log goes to standard error, with episodes to read."""
    site = installation_with_data(tmp_path)
    site.config.write_text(site.config.read_text().replace("logging: {file: slumberd.log}\n", ""))
    assert called("import", str(tmp_path / "more.jsonl"), "--config", str(site.config)).stdout
    return site


def on_colourful_terminal(
    site: Installation, monkeypatch: pytest.MonkeyPatch, *words: str
) -> bytes:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return output_on_terminal([*words, "--config", str(site.config)])


@pytest.mark.slow
def test_fire_on_a_terminal_shows_a_bar_and_no_log_lines(
    logging_site: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = on_colourful_terminal(logging_site, monkeypatch, "fire", "--all")

    assert b"\x1b[?25l" in shown  # a bar hides the cursor
    assert b": 3 of 3" in shown
    assert b"delta.applied" not in shown
    assert b"firing.completed" not in shown
    assert b"1 firing, profile@" in shown or b"firings, " in shown


@pytest.mark.slow
def test_fire_on_a_terminal_with_verbose_shows_a_line_for_each_delta(
    logging_site: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = on_colourful_terminal(logging_site, monkeypatch, "fire", "--all", "--verbose")

    assert b"delta.applied" in shown
    assert b"\x1b[?25l" not in shown


@pytest.mark.slow
def test_fire_without_a_terminal_prints_the_table_and_no_log_lines(
    logging_site: Installation,
) -> None:
    done = logging_site.call("fire", "--all")

    assert done.stdout.startswith("rule  ")
    assert done.stderr == ""


@pytest.mark.slow
def test_fire_without_a_terminal_with_verbose_prints_a_line_for_each_delta(
    logging_site: Installation,
) -> None:
    done = logging_site.call("fire", "--all", "--verbose")

    assert "delta.applied" in done.stderr
    assert "firing.completed" in done.stderr


def test_init_creates_a_private_directory_that_works(tmp_path: Path) -> None:
    home = tmp_path / "deep" / "mind"

    done = called("init", str(home))

    assert done.returncode == 0
    assert f"export SLUMBERD_CONFIG={home / 'slumberd.yaml'}" in done.stdout
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [home, *home.rglob("*")]}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    config = ("--config", str(home / "slumberd.yaml"))
    assert called("check", *config).returncode == 0
    assert "2 tests: 2 passed, 0 failed" in called("test", *config).stdout


@pytest.mark.slow
def test_init_creates_a_private_directory_under_any_umask(tmp_path: Path) -> None:
    home = tmp_path / "mind"
    home.mkdir(0o777)

    subprocess.run(
        [
            "/bin/sh",
            "-ec",
            f"umask 000; {Installation(tmp_path).command()[0]} -m slumberd init {home}",
        ],
        check=True,
        capture_output=True,
    )

    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "slumberd.yaml").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["slumberd.yaml", "something-else", None])
def test_init_overwrites_no_file(tmp_path: Path, name: str | None) -> None:
    home = tmp_path / "mind"
    if name is None:
        home.write_text("mine")
    else:
        home.mkdir()
        (home / name).write_text("mine")

    done = called("init", str(home))

    assert done.returncode == 73
    assert (
        done.stderr == f"slumberd: {str(home)!r} exists already: name a new or an empty directory\n"
    )
    assert (home if name is None else home / name).read_text() == "mine"
    assert name is None or [path.name for path in home.iterdir()] == [name]
