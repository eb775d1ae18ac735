"""The documentation: what its pages show is run, and prints what they say."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from slumberd.cli.commands.init import FILES
from tests.support.documentation import (
    PAGES,
    README,
    ROOT,
    Block,
    beginning_of,
    blocks_of,
    check_page,
    environment,
)

pytestmark = pytest.mark.integration

RUNNABLE = {"sh", "python", "sql", "bash"}
MARKS = {"run", "output", "file", "not run", "ci"}


def shown(page: Path, mark: str) -> list[Block]:
    return [block for block in blocks_of(page) if block.mark == mark]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


PAGES_THAT_RUN = [page for page in PAGES if page != README and shown(page, "run")]
LONG = {"correct-and-undo.md", "monitor.md", "testing-rules.md"}
"""Pages of more commands than two seconds are enough for."""


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder as the README leaves it, whose blocks do what it shows."""
    folder = tmp_path_factory.mktemp("readme") / "here"
    folder.mkdir()
    check_page(README, folder)
    return folder


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=[pytest.mark.slow] * (page.name in LONG))
        for page in PAGES_THAT_RUN
    ],
)
def test_page_does_what_it_shows(page: Path, quickstart: Path, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    if beginning_of(page) == "quickstart":
        shutil.copytree(quickstart, folder)
    else:
        folder.mkdir()

    check_page(page, folder)


def test_most_pages_with_commands_are_run() -> None:
    assert len(PAGES_THAT_RUN) > 12


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_that_could_be_run_is_run_or_says_why_not(page: Path) -> None:
    for block in blocks_of(page):
        assert block.mark in MARKS | {""}, f"{block.place}: unknown mark {block.mark!r}"
        if block.language in RUNNABLE:
            assert block.mark in {"run", "not run", "ci"}, f"{block.place}: no mark"
        assert block.mark != "not run" or block.argument, f"{block.place}: no reason"


@pytest.mark.parametrize("program", ["sh", "bash"])
def test_quickstart_can_be_pasted_whole_into_a_shell(tmp_path: Path, program: str) -> None:
    quickstart, output = shown(README, "run")[0], shown(README, "output")[0]
    folder = tmp_path / "here"
    folder.mkdir()

    # A shell reads what is pasted from its standard input, as the commands in it do.
    done = subprocess.run(
        [program],
        input=quickstart.text.encode(),
        cwd=folder,
        env=environment(folder),
        check=True,
        capture_output=True,
    )

    assert done.stdout.decode().endswith(output.text)
    assert "1 test: 1 passed, 0 failed" in done.stdout.decode()


def test_rule_that_the_readme_shows_is_the_one_that_init_writes() -> None:
    [block] = [block for block in blocks_of(README) if block.language == "yaml"]

    assert yaml.safe_load(block.text) == yaml.safe_load(FILES["rules.d/preferences.yaml"])


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
def test_page_that_shows_something_else_fails(
    tmp_path: Path, right: str, wrong: str, problem: str
) -> None:
    check_page(README, tmp_path, text=PAGE)

    with pytest.raises(AssertionError, match=problem):
        check_page(README, tmp_path, text=PAGE.replace(right, wrong))


@pytest.mark.parametrize("page", [page for page in PAGES if beginning_of(page)], ids=name_of)
def test_page_that_goes_on_from_another_says_so_to_its_reader(page: Path) -> None:
    text = page.read_text()

    assert "on from the quickstart" in text or beginning_of(page).rpartition("/")[2] in text
