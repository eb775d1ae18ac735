"""The commands and programs on the pages run, and print the output that the pages show."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import pytest
import yaml

from slumberd.daemon.new_state_directory import Purpose, files_for
from tests.support.answering_models import answers_from_its_prompt
from tests.support.documentation import (
    DOCS,
    PAGES,
    README,
    Block,
    beginning_of,
    blocks_of,
    check_page,
    environment,
)
from tests.support.lists import of_each
from tests.support.model_server import ModelServer, server_in_a_thread
from tests.support.postgres_server import OwnServer, PostgresServer
from tests.support.repository import ROOT

pytestmark = pytest.mark.integration

RUNNABLE = {"sh", "python", "sql", "bash"}
MARKS = {"run", "output", "file", "not run", "ci"}


def blocks_marked(page: Path, mark: str) -> list[Block]:
    return [block for block in blocks_of(page) if block.mark == mark]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


ON_DATABASE = "move-to-postgresql.md"
"""The page whose commands use an empty database, at the address in $DATABASE."""

ON_TWO_SERVERS = "grow.md"
"""The page whose commands also use an empty database of another server, at $DATABASE_2."""

ASKING = {"langgraph.md", "openai-agents.md", "openai-client.md"}
"""Pages whose programs ask a model of OpenAI; here a script answers."""
RUNNABLE_PAGES = [
    page
    for page in PAGES
    if page != README
    and page.name not in {ON_DATABASE, ON_TWO_SERVERS, *ASKING}
    and blocks_marked(page, "run")
]


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which all blocks of the README have run."""
    folder = tmp_path_factory.mktemp("readme") / "here"
    folder.mkdir()
    check_page(README, folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=name_of(page)) for page in RUNNABLE_PAGES],
)
def test_blocks_of_a_page_run_and_print_its_output(
    page: Path, quickstart: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "here"
    if beginning_of(page) == "quickstart":
        shutil.copytree(quickstart, folder)
    else:
        folder.mkdir()

    check_page(page, folder)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """Answer what OpenAI's packages ask, in this test, by a script."""
    with server_in_a_thread() as server:
        server.otherwise = answers_from_its_prompt
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ASKING))
def test_blocks_of_a_page_that_asks_a_model_run_and_print_its_output(
    asked: ModelServer, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()

    check_page(DOCS / "how-to" / name, folder)

    assert asked.requests


def test_blocks_of_the_page_about_moving_run_on_a_database(
    quickstart: Path, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here"
    shutil.copytree(quickstart, folder)

    with postgres.empty_database() as name:
        monkeypatch.setenv("DATABASE", postgres.address_of(name))
        check_page(DOCS / "how-to" / ON_DATABASE, folder)


@pytest.mark.slow
def test_blocks_of_the_page_about_growth_run_on_two_servers(
    quickstart: Path,
    postgres: PostgresServer,
    own_postgres: OwnServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "here"
    shutil.copytree(quickstart, folder)

    with postgres.empty_database() as first, own_postgres.empty_database() as second:
        monkeypatch.setenv("DATABASE", postgres.address_of(first))
        monkeypatch.setenv("DATABASE_2", own_postgres.address_of(second))
        check_page(DOCS / "how-to" / ON_TWO_SERVERS, folder)


def test_most_pages_with_commands_have_runnable_blocks() -> None:
    assert len(RUNNABLE_PAGES) > 12


@of_each(lambda: [block for page in PAGES for block in blocks_of(page)], attrgetter("place"))
def test_every_runnable_block_runs_or_gives_a_reason(block: Block) -> None:
    assert block.mark in MARKS | {""}, f"unknown mark {block.mark!r}"
    if block.language in RUNNABLE:
        assert block.mark in {"run", "file", "not run", "ci"}, "no mark"
    assert block.mark != "not run" or block.argument, "no reason"


@pytest.mark.parametrize("program", ["sh", pytest.param("bash", marks=pytest.mark.nightly)])
def test_quickstart_works_when_pasted_into_a_shell(tmp_path: Path, program: str) -> None:
    blocks = blocks_of(README)
    place = next(n for n, block in enumerate(blocks) if "slumberd init mind" in block.text)
    quickstart, output = blocks[place], blocks[place + 1]
    folder = tmp_path / "here"
    folder.mkdir()

    # The shell reads the pasted text from its standard input, and so do the commands in the text.
    done = subprocess.run(
        [program],
        input=quickstart.text.encode(),
        cwd=folder,
        env=environment(folder),
        check=True,
        capture_output=True,
    )

    assert done.stdout.decode().endswith(output.text)
    assert "2 tests: 2 passed, 0 failed" in done.stdout.decode()


def test_init_writes_the_rules_that_the_readme_names() -> None:
    [name] = re.findall(r"`mind/(rules\.d/[a-z.]+)`", README.read_text())

    assert yaml.safe_load(files_for(Purpose.CONVERSATION)[name])["rules"]


PAGE = """\
<!-- run: exit 3 -->
```sh
echo tea
exit 3
```

<!-- output -->
```
tea
```
"""


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        pytest.param("\ntea", "\ncoffee", r"README.md:7 shows\ncoffee", id="another output"),
        pytest.param("\ntea", "\nea", r"README.md:7 shows\nea", id="a part of a line"),
        pytest.param("exit 3 -->", "exit 4 -->", "README.md:1: exit code 1", id="another code"),
        pytest.param(": exit 3 -->", " -->", "README.md:1: exit code 3", id="no code"),
    ],
)
def test_check_of_a_page_fails_on_different_output_or_exit_code(
    tmp_path: Path, right: str, wrong: str, problem: str
) -> None:
    check_page(README, tmp_path, text=PAGE)

    with pytest.raises(AssertionError, match=problem):
        check_page(README, tmp_path, text=PAGE.replace(right, wrong))


@of_each(lambda: filter(beginning_of, PAGES), name_of)
def test_page_that_continues_another_page_names_it(page: Path) -> None:
    text = page.read_text()

    assert "on from the quickstart" in text or beginning_of(page).rpartition("/")[2] in text
